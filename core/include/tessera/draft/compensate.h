/* tessera/draft/compensate.h - draft: optional table of a backend, "tessera.backend.compensate/2": adds to
 * the output of a linear what quantization lost of a few of its input channels (arXiv 2412.20185).
 *
 *   out[n] += sum over the selected channels i of x[i] * R[i][n],   R[i][n] = code[i][n] * scale[n]
 *
 * A host selects once for all linears that share an input, then adds.  The order of the arithmetic is
 * docs/decisions/numerics.md, section COMPENSATE: the same bytes on every device, for any number of threads
 * and any neighbours in a batch.  Without the table the host runs both on the default backend, with copies.
 */
#ifndef TSR_DRAFT_COMPENSATE_H
#define TSR_DRAFT_COMPENSATE_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_BACKEND_COMPENSATE "tessera.backend.compensate/2"

#define TSR_COMPENSATE_CHUNK   1024u /* channels that are selected from together */
#define TSR_COMPENSATE_BUCKETS 32u
#define TSR_COMPENSATE_LINEARS 3u /* that share an input at most */

/* Residuals of one linear in host memory, tessera.residual/1 (docs/formats/compensation.md): a row of
 * `outputs` codes for each input channel, `stride` bytes apart, both ends aligned to 64 bytes; rows of other
 * linears of the same input may lie between them.  Borrowed until residual_free(): a device with memory of its own
 * reads the rows that it needs from there. */
struct tsr_residual_desc {
    uint32_t        struct_size;
    uint32_t        bits;            /* 2, 4, 8, 16                             */
    const char     *name;            /* for messages                            */
    uint64_t        inputs, outputs; /* rows, channels in a row                 */
    uint64_t        stride;          /* a multiple of 64                        */
    const void     *codes;           /* of the first row, on 64                 */
    const uint16_t *scales;          /* F16 [outputs]; NULL for 16 bits         */
};

/* Which channels: per chunk of 1024 (global numbers) floor(k * length / 1024) of them, by buckets of
 * |x|.  Bucket i holds floors[i] <= |x| < floors[i-1], bucket 0 everything from floors[0] up; buckets are
 * emptied from 0 on, the last one from its lowest channel up.  NaN is in no bucket. */
struct tsr_select_op {
    uint32_t                 struct_size;
    uint32_t                 k;      /* 1 to 1024                                        */
    const struct tsr_tensor *x;      /* F32 [T, K]                                       */
    const struct tsr_tensor *rows;   /* U32 [1, n]: rows of x; NULL: all, n = T          */
    const float             *floors; /* [32], descending to 0; host memory               */
    const struct tsr_tensor *list;   /* out: U32 [n, 1 + room]: count, channels ascending */
};

/* out[j][rows[i]] += residual[j] applied to x[rows[i]] on list[i]. */
struct tsr_compensate_op {
    uint32_t                 struct_size;
    uint32_t                 n; /* linears, 1 to TSR_COMPENSATE_LINEARS              */
    const struct tsr_tensor *x, *rows, *list;
    const void              *residual[TSR_COMPENSATE_LINEARS]; /* of residual_load()  */
    const struct tsr_tensor *out[TSR_COMPENSATE_LINEARS];      /* F32 [T, outputs]    */
};

/* The linears of one input, then SELECT and what is added to their outputs, as run(), select() and compensate()
 * give them, to the bit.  select and add NULL: nothing is added. */
struct tsr_site_op {
    uint32_t                        struct_size;
    uint32_t                        n; /* linears, 1 to TSR_COMPENSATE_LINEARS */
    const struct tsr_op            *linear[TSR_COMPENSATE_LINEARS]; /* LINEARs of the same in[0] */
    const struct tsr_select_op     *select;
    const struct tsr_compensate_op *add; /* on the list of select */
};

struct tsr_backend_compensate_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* TSR_E_UNSUPPORTED for a width that the device does not read.  The handle is valid until
     * residual_free(), which accepts NULL.  [worker] */
    tsr_status (*residual_load)(void *self, const struct tsr_residual_desc *r, void **residual,
                                struct tsr_err *err);
    void (*residual_free)(void *self, void *residual);

    /* Queued on a stream, as run().  A shape that the structs above do not allow is TSR_E_INVAL.  [worker] */
    tsr_status (*select)(void *self, void *stream, const struct tsr_select_op *op,
                         struct tsr_err *err);
    tsr_status (*compensate)(void *self, void *stream, const struct tsr_compensate_op *op,
                             struct tsr_err *err);

    /* Optional; may be NULL: all of a site at once, which saves a device what lies between operations.  Of what
     * fails, and of what is TSR_E_UNSUPPORTED, outputs hold nothing that counts.  [worker] */
    tsr_status (*site)(void *self, void *stream, const struct tsr_site_op *op, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
