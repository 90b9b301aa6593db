/* tessera/draft/compensate.h - compensation: adds to the output of a linear the quantization error
 * of a few input channels (arXiv 2412.20185).  Draft: an optional table of a backend,
 * "tessera.backend.compensate/3".
 *
 *   out[n] += sum over the selected channels i of x[i] * R[i][n],   R[i][n] = code[i][n] * scale[n]
 *
 * A backend implements it.  The engine selects once for all linears that share an input, and then
 * adds.  docs/decisions/numerics.md, section COMPENSATE, defines the order of the arithmetic.
 * Results are bit-identical on every device, for any number of threads and any neighbours in a
 * batch.  Without the table the host runs both operations on the default backend, with copies.
 *
 * Example: one linear with output out, F32 [T, outputs], for the input x, F32 [T, K].
 *
 *     static tsr_status add_error(const struct tsr_backend_compensate_v1 *c, void *self,
 *                                 const struct tsr_select_op *select, const void *residual,
 *                                 const struct tsr_tensor *out, struct tsr_err *err)
 *     {
 *         struct tsr_compensate_op op = { .struct_size = sizeof op, .n = 1, .x = select->x,
 *                                         .rows = select->rows, .list = select->list };
 *         op.residual[0] = residual;
 *         op.out[0] = out;
 *         tsr_status st = c->select(self, NULL, select, err);
 *         return st == TSR_OK ? c->compensate(self, NULL, &op, err) : st;
 *     }
 */
#ifndef TSR_DRAFT_COMPENSATE_H
#define TSR_DRAFT_COMPENSATE_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_BACKEND_COMPENSATE "tessera.backend.compensate/3"

#define TSR_COMPENSATE_CHUNK   1024u /* channels of a chunk                      */
#define TSR_COMPENSATE_BUCKETS 32u
#define TSR_COMPENSATE_LINEARS 6u /* at most, that share an input */

/* Residuals of one linear in host memory, tessera.residual/1 (docs/formats/compensation.md).  Each
 * input channel has a row of `outputs` codes.  Rows are `stride` bytes apart, with both ends
 * aligned to 64 bytes.  Rows of other linears with this input may lie between them.  The memory is
 * borrowed until residual_free(), or with `copies` until residual_load() returns. */
struct tsr_residual_desc {
    uint32_t        struct_size;
    uint32_t        bits;            /* 2, 4, 8, 16                             */
    const char     *name;            /* for messages                            */
    uint64_t        inputs, outputs; /* rows, channels in a row                 */
    uint64_t        stride;          /* a multiple of 64                        */
    const void     *codes;           /* the first row, aligned to 64            */
    const uint16_t *scales;          /* F16 [outputs]; NULL for 16 bits         */
};

/* Selects channels.  Each chunk of 1024 channels (global numbers) gives floor(k * length / 1024) of
 * them, by buckets of |x|.  Bucket 0 holds everything from floors[0] up, and bucket i holds
 * floors[i] <= |x| < floors[i-1].  Buckets are taken from 0 up, and the last one from its lowest
 * channel up.  NaN is in no bucket. */
struct tsr_select_op {
    uint32_t                 struct_size;
    uint32_t                 k;      /* 1 to 1024                                        */
    const struct tsr_tensor *x;      /* F32 [T, K]                                       */
    const struct tsr_tensor *rows;   /* U32 [1, n]: rows of x; NULL: all, n = T          */
    const float             *floors; /* [32], descending to 0; host memory               */
    const struct tsr_tensor *list;   /* out: U32 [n, 1 + room]: count, channels ascending */
};

/* For every linear j and row i: out[j][rows[i]] += residual[j] applied to x[rows[i]] on list[i].  A list
 * that the host uploaded is checked: TSR_E_INVAL where a count, a channel or their order is wrong. */
struct tsr_compensate_op {
    uint32_t                 struct_size;
    uint32_t                 n; /* linears, 1 to TSR_COMPENSATE_LINEARS              */
    const struct tsr_tensor *x, *rows, *list;
    const void              *residual[TSR_COMPENSATE_LINEARS]; /* of residual_load()  */
    const struct tsr_tensor *out[TSR_COMPENSATE_LINEARS];      /* F32 [T, outputs]    */
    uint32_t
        blocks; /* thread blocks that read residuals, at most; 0: the device chooses.  Results do
                         * not depend on it */
    uint32_t reserved;
};

/* The linears of one input, then the selection and the compensation.  The result is bit-identical
 * to run(), select() and compensate().  select and add NULL: no compensation. */
struct tsr_site_op {
    uint32_t                        struct_size;
    uint32_t                        n; /* linears, 1 to TSR_COMPENSATE_LINEARS */
    const struct tsr_op            *linear[TSR_COMPENSATE_LINEARS]; /* LINEARs of the same in[0] */
    const struct tsr_select_op     *select;
    const struct tsr_compensate_op *add; /* on the list of select */
};

struct tsr_backend_compensate_v1 {
    uint32_t struct_size;
    uint32_t
        copies; /* 1: residual_load() copies what it needs, and the host can drop its own; 0: it
                      * borrows */

    /* Makes a handle for residuals, valid until residual_free(), which accepts NULL.
     * TSR_E_UNSUPPORTED: the device does not read this bit width.  TSR_E_INVAL: a scale is not
     * finite.  [worker] */
    tsr_status (*residual_load)(void *self, const struct tsr_residual_desc *r, void **residual,
                                struct tsr_err *err);
    void (*residual_free)(void *self, void *residual);

    /* Queue an operation on a stream, as run() does.  TSR_E_INVAL: the structs above do not allow a
     * shape.  [worker] */
    tsr_status (*select)(void *self, void *stream, const struct tsr_select_op *op,
                         struct tsr_err *err);
    tsr_status (*compensate)(void *self, void *stream, const struct tsr_compensate_op *op,
                             struct tsr_err *err);

    /* Optional; may be NULL.  Queues all of a site at once, without the overhead between
     * operations.  After any status other than TSR_OK the outputs are undefined.  [worker] */
    tsr_status (*site)(void *self, void *stream, const struct tsr_site_op *op, struct tsr_err *err);

    /* Optional; may be NULL: `blocks` of an operation has no effect.  The most that have one.  [any] */
    uint32_t (*most_blocks)(const void *self);
};

#ifdef __cplusplus
}
#endif
#endif
