/* tessera/quantizer.h - component kind "tessera.quantizer/1": weights in, packed
 * weights out.
 *
 * The life of one tensor:
 *
 *   create -> plan -> [host allocates outputs and scratch]
 *          -> prepare (optional; once per set of tensors that share an input)
 *          -> quantize, any number of runs of rows, in parallel
 *          -> unprepare -> destroy
 *
 * The host owns every buffer.  A quantizer keeps no pointer from a call
 * after that call returns, except options and host, valid until destroy().
 */
#ifndef TSR_QUANTIZER_H
#define TSR_QUANTIZER_H

#include "tessera/format.h"
#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_QUANTIZER "tessera.quantizer/1"

/* A borrowed, row-major 2-D view on host memory.  Always passed by pointer,
 * never in arrays, so that it can grow. */
struct tsr_matrix {
    uint32_t    struct_size;
    uint32_t    dtype;
    const char *name; /* for messages: "layers.3.mlp.down_proj" */
    void       *data;
    uint64_t    rows, cols;
    uint64_t    row_stride; /* bytes between rows                    */
};

/* Answer to "what would you make of this tensor?".  The host zeroes it and
 * sets struct_size; the plugin fills what fits.  The sizes depend on shape,
 * dtype and options, never on values. */
struct tsr_quant_plan {
    uint32_t          struct_size;
    uint32_t          rows_per_unit; /* quantize() may be called on any run of
                                  * whole units; 0: whole tensor only     */
    uint64_t          code_bytes;    /* per unit                              */
    uint64_t          meta_bytes;    /* per unit: scales, zeros, codebooks    */
    uint64_t          scratch_bytes; /* per concurrent quantize() call        */
    uint64_t          need;          /* TSR_NEED_* inputs beyond the weights  */
    struct tsr_format format;        /* layout written, by tsr_format_store(); struct_size
                                  * is set by the host to what it reads   */
};

/* Statistics of the inputs X [tokens, cols] of a linear.  A quantizer gets
 * exactly what it asked for; the rest is NULL. */
#define TSR_NEED_HESSIAN     (UINT64_C(1) << 0) /* 2 * mean over sequences of X^T X */
#define TSR_NEED_ABSMAX      (UINT64_C(1) << 1) /* per column max |x|       */
#define TSR_NEED_MEAN        (UINT64_C(1) << 2) /* per column mean of x     */
#define TSR_NEED_VARIANCE    (UINT64_C(1) << 3) /* per column variance of x */
#define TSR_NEED_MEAN_ABS    (UINT64_C(1) << 4) /* per column mean of |x|   */
#define TSR_NEED_SENSITIVITY (UINT64_C(1) << 5) /* [rows, cols], per weight */
#define TSR_NEED_INPUTS      (UINT64_C(1) << 6) /* recorded rows of X       */

/* In tsr_quant_plan.need: statistics that are used where the host has them and NULL where it has
 * not.  What to do then is the plugin's to decide. */
#define TSR_NEED_IF_THERE(need) ((need) << 32)

struct tsr_quant_stats {
    uint32_t     struct_size;
    uint32_t     reserved;
    uint64_t     cols;
    uint64_t     tokens;      /* that the statistics were taken over    */
    const float *hessian;     /* [cols, cols]                           */
    const float *absmax;      /* [cols]                                 */
    const float *mean;        /* [cols]                                 */
    const float *variance;    /* [cols]                                 */
    const float *mean_abs;    /* [cols]                                 */
    const float *sensitivity; /* [rows, cols] of the whole tensor       */
    const float *inputs;      /* [input_rows, cols]                     */
    uint64_t     input_rows;
};

/* One run of units.  Buffers are 64-byte aligned and do not overlap. */
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

/* Behaviour the plugin promises; tessera plugin check tests each one. */
#define TSR_QUANT_DETERMINISTIC                                                                    \
    (UINT64_C(1) << 0)                          /* same input, same bytes,
                                  * however rows are split among workers  */
#define TSR_QUANT_IDEMPOTENT (UINT64_C(1) << 1) /* Q(D(Q(w))) == Q(w)   */

struct tsr_quantizer_v1 {
    uint32_t struct_size;
    uint32_t src_dtypes; /* bit (1u << TSR_F16) etc.; tensors of others come as F32 */
    uint64_t promises;   /* TSR_QUANT_*                            */

    /* Makes an instance.  opts points at the option struct that the
     * component's table describes, already range-checked; this is the place
     * for checks across options.  On failure *self is untouched and nothing
     * is leaked.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM, TSR_E_DEVICE.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);

    /* Frees an instance.  NULL is allowed.  Cannot fail.  [setup] */
    void (*destroy)(void *self);

    /* Sizes and layout for a tensor like w; w->data may be NULL and is not
     * read.  Pure: same answer for the same shape, dtype and options.
     * Returns TSR_OK, or TSR_E_UNSUPPORTED with the reason: the host then
     * keeps that tensor in its source dtype or stops, as YAML says.  [any] */
    tsr_status (*plan)(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *plan,
                       struct tsr_err *err);

    /* Packs one run.  Writes every byte of codes and meta, reads and writes
     * nothing outside the job.  Non-finite weights: TSR_E_NUMERIC, naming
     * row and column; a scale that its type cannot hold as a normal number:
     * TSR_E_NUMERIC, naming row and group.  Unlike other [worker] functions it
     * may run on several workers at once on one instance, on disjoint runs:
     * it must not write to *self.
     * Returns TSR_OK, TSR_E_NUMERIC, TSR_E_CANCELLED, TSR_E_DEVICE.  [any] */
    tsr_status (*quantize)(const void *self, const struct tsr_quant_job *job, struct tsr_err *err);

    /* Reference inverse into job->dst (f32).  Slow is fine, wrong is not:
     * kernels are tested against it.  [any] */
    tsr_status (*dequantize)(const void *self, const struct tsr_quant_job *job,
                             struct tsr_err *err);

    /* Optional pair; may be NULL.  prepare() does once what every tensor with
     * this input shares (a Cholesky factor); *prepared is read by quantize(),
     * possibly from several workers, until unprepare().
     * Returns TSR_OK, TSR_E_NUMERIC, TSR_E_NOMEM, TSR_E_CANCELLED.  [setup] */
    tsr_status (*prepare)(void *self, const struct tsr_quant_stats *stats, void **prepared,
                          struct tsr_err *err);
    void (*unprepare)(void *self, void *prepared);

    /* Optional; may be NULL.  Extra table by id, or NULL if unknown.  [any] */
    const void *(*extension)(const void *self, const char *id);

    /* ABI minor 0 ends here. */

    /* Optional; may be NULL.  A promise about this instance's options: every weight of a run that
     * quantize() answered with TSR_OK decodes to within so many steps of its value; 0: no promise.
     * A step is the distance between the two neighbouring values of the weight's group that it
     * lies between, beyond the outermost the distance of the last two; for tessera.int/1 that is
     * the group's scale.  A layout of the plugin's own has no steps: 0.  Readers allow 2^-12 of a
     * step for arithmetic in F32.  [any] */
    double (*max_error_steps)(const void *self);

    /* Optional; may be NULL.  A promise about this instance's options, where it has no statistics: rows
     * may be cut between columns at multiples of so many, which are whole groups of the format.
     * The columns from one such place to another, or to the end, as a matrix of their own get the
     * codes and scales that they get in the whole.  0: no promise.  [any] */
    uint64_t (*columns_alone)(const void *self);

    /* ABI minor 1 ends here.  Append only, 8-byte members only. */
};

#ifdef __cplusplus
}
#endif
#endif
