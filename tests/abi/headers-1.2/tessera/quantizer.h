/* tessera/quantizer.h - quantizer: packs the weights of a linear.  The component kind is
 * "tessera.quantizer/1".
 *
 * The plugin implements struct tsr_quantizer_v1.  The host calls it for each linear of a model, and
 * `tessera plugin check` for its own matrices.  The calls for one tensor:
 *
 *   create -> plan -> [host allocates outputs and scratch]
 *          -> prepare (optional; once per set of tensors that share an input)
 *          -> quantize, any number of runs of rows, in parallel
 *          -> unprepare -> destroy
 *
 * The host owns every buffer.  After a call returns, a quantizer keeps no pointer from it.  The
 * exceptions are options and host, which are valid until destroy().
 *
 * Example: plan() of a quantizer that packs rows into 8-bit codes with one F32 scale per row.
 *
 *     static tsr_status plan8(const void *self, const struct tsr_matrix *w,
 *                             struct tsr_quant_plan *plan, struct tsr_err *err)
 *     {
 *         const struct tsr_format f = { .struct_size = sizeof f, .id = TSR_FORMAT_INT, .bits = 8,
 *                                       .scale_dtype = TSR_F32 };
 *         if (w->cols >= UINT64_C(1) << 32)
 *             return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: 2^32 or more columns", w->name);
 *         plan->rows_per_unit = 1;
 *         plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
 *         plan->meta_bytes = tsr_format_int_meta_bytes(&f, w->cols);
 *         tsr_format_store(&plan->format, &f);
 *         return TSR_OK;
 *     }
 */
#ifndef TSR_QUANTIZER_H
#define TSR_QUANTIZER_H

#include "tessera/format.h"
#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_QUANTIZER "tessera.quantizer/1"

/* A row-major view on host memory: `rows` rows of `cols` elements.  It is borrowed for the call.
 * It is passed by pointer and never in an array, so that it can grow. */
struct tsr_matrix {
    uint32_t    struct_size;
    uint32_t    dtype;
    const char *name; /* for messages: "layers.3.mlp.down_proj" */
    void       *data;
    uint64_t    rows, cols;
    uint64_t    row_stride; /* bytes from a row to the next         */
};

/* The sizes and the format for one tensor, the answer of plan().  The host zeroes it and sets
 * struct_size, and the plugin fills the members that fit.  Sizes are in bytes.  They depend on
 * shape, dtype and options, never on values. */
struct tsr_quant_plan {
    uint32_t          struct_size;
    uint32_t          rows_per_unit; /* quantize() gets runs of whole units of
                                    * so many rows; 0: only whole tensors  */
    uint64_t          code_bytes;    /* per unit                              */
    uint64_t          meta_bytes;    /* per unit: scales, zeros, codebooks    */
    uint64_t          scratch_bytes; /* per concurrent quantize() call        */
    uint64_t          need;          /* TSR_NEED_* inputs beyond the weights  */
    struct tsr_format format;        /* layout written, by tsr_format_store(); struct_size
                                  * is set by the host to what it reads   */
};

/* Statistics of the inputs X [tokens, cols] of a linear, all F32.  A quantizer gets those that its
 * plan needs; the others are NULL.  D is the input in the original model minus X, the input after
 * the layers that are quantized so far.  Only sequential calibration has both. */
#define TSR_NEED_HESSIAN     (UINT64_C(1) << 0) /* 2 * mean over sequences of X^T X */
#define TSR_NEED_ABSMAX      (UINT64_C(1) << 1) /* per column max |x|       */
#define TSR_NEED_MEAN        (UINT64_C(1) << 2) /* per column mean of x     */
#define TSR_NEED_VARIANCE    (UINT64_C(1) << 3) /* per column variance of x */
#define TSR_NEED_MEAN_ABS    (UINT64_C(1) << 4) /* per column mean of |x|   */
#define TSR_NEED_SENSITIVITY (UINT64_C(1) << 5) /* [rows, cols], per weight */
#define TSR_NEED_INPUTS      (UINT64_C(1) << 6) /* recorded rows of X       */
#define TSR_NEED_CROSS       (UINT64_C(1) << 7) /* 2 * mean over sequences of D^T X, below */

/* In tsr_quant_plan.need: optional statistics.  They are NULL if the host lacks them, and the
 * quantizer then works without them or fails. */
#define TSR_NEED_IF_THERE(need) ((need) << 32)

struct tsr_quant_stats {
    uint32_t     struct_size;
    uint32_t     reserved;
    uint64_t     cols;
    uint64_t     tokens;      /* number of rows of X that were measured */
    const float *hessian;     /* [cols, cols]                           */
    const float *absmax;      /* [cols]                                 */
    const float *mean;        /* [cols]                                 */
    const float *variance;    /* [cols]                                 */
    const float *mean_abs;    /* [cols]                                 */
    const float *sensitivity; /* [rows, cols] of the whole tensor       */
    const float *inputs;      /* [input_rows, cols]                     */
    uint64_t     input_rows;

    /* ABI minor 0 ends here. */

    const float *cross; /* [cols, cols]: row i belongs to column i of D */
};

/* One run of units.  Buffers are aligned to 64 bytes and do not overlap. */
struct tsr_quant_job {
    uint32_t                      struct_size;
    uint32_t                      reserved;  /* zero                                  */
    uint64_t                      first_row; /* of this run, within the whole tensor  */
    const struct tsr_matrix      *src;       /* the run only; NULL in dequantize()    */
    struct tsr_matrix            *dst;       /* dequantize(): the run, F32; else NULL */
    void                         *codes;     /* units * code_bytes                    */
    void                         *meta;      /* units * meta_bytes                    */
    void                         *scratch;   /* scratch_bytes, uninitialised          */
    const struct tsr_quant_stats *stats;     /* NULL if need was 0            */
    const void                   *prepared;  /* from prepare(), or NULL               */
};

/* Promises of the plugin.  `tessera plugin check` tests each one.  DETERMINISTIC: equal inputs give
 * equal bytes, for every split of the rows among workers.  IDEMPOTENT: Q(D(Q(w))) == Q(w). */
#define TSR_QUANT_DETERMINISTIC (UINT64_C(1) << 0)
#define TSR_QUANT_IDEMPOTENT    (UINT64_C(1) << 1)

struct tsr_quantizer_v1 {
    uint32_t struct_size;
    uint32_t src_dtypes; /* bits (1u << TSR_F16) etc.; other dtypes arrive as F32 */
    uint64_t promises;   /* TSR_QUANT_*                            */

    /* Makes an instance.  opts is the option struct of the component.  The host has checked each
     * option; create() checks combinations.  On failure *self is unchanged and nothing is leaked.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM, TSR_E_DEVICE.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);

    /* Frees an instance; accepts NULL.  [setup] */
    void (*destroy)(void *self);

    /* Sizes and format for a tensor like w.  w->data may be NULL, and plan() does not read it.
     * Equal shapes, dtypes and options give equal answers.  Returns TSR_OK, or TSR_E_UNSUPPORTED
     * with the reason.  The host then keeps the tensor in its source dtype or stops, as the job
     * says.  [any] */
    tsr_status (*plan)(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *plan,
                       struct tsr_err *err);

    /* Packs one run.  Writes every byte of codes and meta, and accesses nothing outside the job.
     * Several threads may call it at once on one instance, on disjoint runs, so it never writes to
     * *self.  TSR_E_NUMERIC: a weight is not finite (name row and column), or a scale is not a
     * normal number of its type (name row and group).  Returns TSR_OK, TSR_E_NUMERIC,
     * TSR_E_CANCELLED, TSR_E_DEVICE.  [any] */
    tsr_status (*quantize)(const void *self, const struct tsr_quant_job *job, struct tsr_err *err);

    /* Decodes the run into job->dst, F32.  Kernels are tested against it, so accuracy matters and
     * speed does not.  A file may be damaged: bytes that quantize() did not write decode to any
     * numbers, or are TSR_E_INVAL.  [any] */
    tsr_status (*dequantize)(const void *self, const struct tsr_quant_job *job,
                             struct tsr_err *err);

    /* Optional pair; both may be NULL.  prepare() computes what all tensors with this input share,
     * for example a Cholesky factor.  quantize() reads *prepared, possibly on several threads,
     * until unprepare().  stats is borrowed for the call.  Returns TSR_OK, TSR_E_NUMERIC,
     * TSR_E_NOMEM, TSR_E_CANCELLED.  [setup] */
    tsr_status (*prepare)(void *self, const struct tsr_quant_stats *stats, void **prepared,
                          struct tsr_err *err);
    void (*unprepare)(void *self, void *prepared);

    /* The optional table with this id, or NULL.  The function may be NULL too.  [any] */
    const void *(*extension)(const void *self, const char *id);

    /* ABI minor 0 ends here. */

    /* Optional; may be NULL.  The largest error in steps that this instance promises; 0: no
     * promise.  After TSR_OK of quantize(), every weight of the run decodes to within so many steps
     * of its value.  A step is the distance between the two values of the group that enclose the
     * weight.  Beyond the outermost value it is the distance of the last two.  For tessera.int/1 it
     * is the scale of the group.  A plugin's own format has no steps, so the answer is 0.  Readers
     * allow 2^-12 of a step in addition, because they compute in F32.  [any] */
    double (*max_error_steps)(const void *self);

    /* Optional; may be NULL.  The number of columns, in whole groups of the format, that this
     * instance promises to quantize independently without statistics; 0: no promise.  Cut the rows
     * at multiples of this number: each part gets the codes and scales that it gets in the whole
     * matrix.  [any] */
    uint64_t (*columns_alone)(const void *self);

    /* ABI minor 1 ends here.  Append only, 8-byte members only. */
};

#ifdef __cplusplus
}
#endif
#endif
