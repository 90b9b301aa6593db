/* tessera/kernel.h - kernel: products with weights in a quantizer's own format, without decoding them to memory.
 *
 * An optional table of a quantizer.  The host asks extension() of an instance that it made for stored weights.  A
 * quantizer without the table runs through dequantize(), a block of rows at a time.  A quantizer with it has every
 * product of its format from linear(), in prefill and in decode; the format is its own, so an id that starts with
 * "tessera." is never asked.  Memory is the host's, on the CPU; other devices get copies of inputs and results.
 *
 * The CPU backend has such a table for each family of formats in the tree (kernels/cpu/product.h).
 *
 * A row has up to eight segments of columns.  linear() gives the sum of each, and the host adds these in a fixed order,
 * so that ranks that share the columns give the bits of one.
 *
 * Example: the largest scratch that a host needs for both of its batch sizes.
 *
 *     static tsr_status scratch_of(const struct tsr_quantizer_kernel_v1 *k, const void *self,
 *                                  const struct tsr_kernel_weight *w, uint64_t *bytes,
 *                                  struct tsr_err *err)
 *     {
 *         uint64_t one = 0, many = 0;
 *         tsr_status st = k->scratch(self, w, 1, &one, err);
 *         if (st == TSR_OK)
 *             st = k->scratch(self, w, 512, &many, err);
 *         *bytes = one > many ? one : many;
 *         return st;
 *     }
 */
#ifndef TSR_KERNEL_H
#define TSR_KERNEL_H

#include "tessera/quantizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_QUANTIZER_KERNEL "tessera.kernel/1"

/* Some rows and columns of a matrix.  Rows are whole units of its plan, and the rest of them at the end of the matrix.
 * Bytes are those of the units, which have all columns. */
struct tsr_kernel_weight {
    uint32_t    struct_size;
    uint32_t    dtype;             /* that the matrix had: plan() of it gives these sizes */
    uint64_t    rows, cols;        /* of the whole matrix                               */
    uint64_t    first_row, n_rows; /* of these rows                                     */
    uint64_t    first_col, n_cols; /* columns that are multiplied, at least one         */
    uint64_t    segment;           /* columns of a segment; the last may be short        */
    const void *codes, *meta;      /* of these units, aligned to 64 if first_row is a multiple
                                    * of 64 units; read-only; a file may be damaged     */
    /* Since minor 2. */
    const void *prepared; /* what prepare() wrote: codes and meta are NULL then; or NULL         */
    uint64_t    prepared_row, prepared_rows; /* the rows that prepare() got: these, or more      */
    uint64_t    apart; /* 0, or with TSR_KERNEL_PAIRS: as many rows from first_row + apart, too, as
                        * far as the matrix has them */
};

/* out[s][t][r] = sum over the k of segment s, from s * segment on, of in[t][k] * w[r][first_col + k], all F32. */
struct tsr_kernel_job {
    uint32_t                        struct_size;
    uint32_t                        reserved; /* zero                              */
    const struct tsr_kernel_weight *weight;
    uint64_t                        n;         /* tokens, from 1                    */
    const float                    *in;        /* [n, n_cols], aligned to 4         */
    uint64_t                        in_stride; /* numbers from a token to the next  */
    float                          *out;       /* [segments, n, n_rows], not read   */
    uint64_t out_stride;                       /* from a token to the next; what is between stays */
    uint64_t out_segment;                      /* from a segment to the next, likewise */
    void    *scratch;                          /* of scratch(), aligned to 64, uninitialised */
    /* Since minor 2. */
    const void  *inputs;        /* what inputs() wrote; NULL: there is none      */
    uint64_t     first, tokens; /* of `tokens` there, in has [first, first + n)  */
    const float *bias;          /* [n_rows], or NULL; only with TSR_KERNEL_ADDS  */
};

/* Of flags.  linear() adds the segments itself, as docs/decisions/numerics.md has it, and the bias: out[t][r], without
 * out_segment.  An absent segment is +0, and so is an absent bias. */
#define TSR_KERNEL_ADDS UINT64_C(1)
/* linear() takes two runs of rows at a time, which reads memory in two streams: weight->apart.  Results and bias of the
 * second are as many numbers after those of the first. */
#define TSR_KERNEL_PAIRS UINT64_C(2)

struct tsr_quantizer_kernel_v1 {
    uint32_t struct_size;
    uint32_t reserved; /* zero */

    /* Bytes of scratch of a linear() over these rows and columns for n tokens; they depend on shapes and options,
     * never on bytes, which may be NULL here.  TSR_E_UNSUPPORTED, by columns, segment and options alone: linear()
     * cannot multiply these.  Hosts ask for first columns and segments that are multiples of 32, and the last
     * segment may end with the row.  If that is refused, linear() gets whole rows as one segment, which it must
     * take, with zeros as inputs of columns that others multiply.  Returns TSR_OK, TSR_E_UNSUPPORTED.  [any] */
    tsr_status (*scratch)(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                          uint64_t *bytes, struct tsr_err *err);

    /* The product.  Each result lies within (segment + 8) * 2^-24 * sum |in[t][k] * w[r][first_col + k]|, over its k, of
     * the exact sum with what dequantize() decodes.  It depends on the row, the columns of the segment and the token
     * alone: any batch, run of rows, other segments and thread give the same bits.  Nothing outside the job is accessed.  Damaged bytes give any numbers,
     * or TSR_E_INVAL.  Returns TSR_OK, TSR_E_INVAL.  [any] */
    tsr_status (*linear)(const void *self, const struct tsr_kernel_job *job, struct tsr_err *err);

    /* ---- since minor 2; what is NULL is not done: prepared with prepare, input_bytes with inputs, alike ---- */

    uint64_t flags; /* TSR_KERNEL_ADDS, TSR_KERNEL_PAIRS; others are zero */

    /* Bytes of these rows as linear() wants them, all columns, by shapes and options alone: for a quantizer at most those
     * of codes and meta, which plans count.  Returns TSR_OK.  [any] */
    tsr_status (*prepared)(const void *self, const struct tsr_kernel_weight *w, uint64_t *bytes,
                           struct tsr_err *err);

    /* Writes them, when the rows are loaded, from codes and meta, which linear() then does not get; to: aligned to 64,
     * uninitialised; every byte is written.  Damaged bytes give any bytes, or TSR_E_INVAL.  Returns TSR_OK,
     * TSR_E_INVAL.  [any] */
    tsr_status (*prepare)(const void *self, const struct tsr_kernel_weight *w, void *to,
                          struct tsr_err *err);

    /* Bytes of the inputs of n tokens as linear() wants them, by shapes and options alone.  Returns TSR_OK.  [any] */
    tsr_status (*input_bytes)(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                              uint64_t *bytes, struct tsr_err *err);

    /* Writes them, once for all runs of rows, from n, in and in_stride, for the columns of weight; to: aligned to 64,
     * uninitialised.  linear() has the same bound with them.  Returns TSR_OK, TSR_E_INVAL.  [any] */
    tsr_status (*inputs)(const void *self, const struct tsr_kernel_job *job, void *to,
                         struct tsr_err *err);

    /* Not 0: linear() for w takes what inputs() of n tokens gave for its weight of another instance with this table.  A
     * host may then make them once for products of one input.  [any] */
    int (*alike)(const void *self, const struct tsr_kernel_weight *w, const void *other,
                 const struct tsr_kernel_weight *its, uint64_t n);
};

#ifdef __cplusplus
}
#endif
#endif
