/* op.h - one check for every operation of tessera/backend.h, shared by the backends: shapes, dtypes, bounds,
 * overlaps, indices. An operation that passes can be launched without further checks; a failure has a message
 * with the operation, the tensor and the expected value.
 *
 * A backend describes its handles through struct tsr_op_source, and gets struct tsr_op_parts: the position
 * of every tensor. Nothing here reads or writes a device.
 */
#ifndef TSR_OP_H
#define TSR_OP_H

#include "tensor.h"

struct tsr_op_source {
    void       *self;   /* of indices() */
    const char *device; /* in "operation 11 is not known to the CPU backend" */
    /* Bytes of a buffer that a tensor names. */
    uint64_t (*buffer_bytes)(const void *buffer);
    void (*weight_shape)(const void *weight, uint64_t *rows, uint64_t *cols);
    /* The host's view of a U32 tensor that was checked: rows *stride elements apart, valid until the
     * next call. */
    tsr_status (*indices)(void *self, const struct tsr_tensor *t, const uint32_t **p,
                          uint64_t *stride, struct tsr_err *err);
};

/* A tensor after its check: `offset` bytes into its buffer.  buffer NULL: there is none. */
struct tsr_op_part {
    void    *buffer;
    uint64_t offset, stride, rows, cols;
};

struct tsr_op_parts {
    struct tsr_op_part out, in[TSR_OP_INPUTS];
    const uint32_t      *
        index; /* ids of EMBED, rows of GATHER, MIX and KV_STORE, columns of COLUMNS, spans of ATTENTION; else NULL */
    uint64_t index_stride;
    int      rising; /* KV_STORE: every row is above the one before, so none comes twice */
};

/* One tensor alone; what: "out", "in0", "gain"; rows, cols: required sizes, or 0 for any except none. */
tsr_status tsr_op_part(const struct tsr_op_source *s, const struct tsr_tensor *t, const char *op,
                       const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                       struct tsr_op_part *part, struct tsr_err *err);
/* TSR_E_INVAL, or TSR_E_UNSUPPORTED for a kind that the list of tessera/backend.h lacks. */
tsr_status tsr_op_check(const struct tsr_op_source *s, const struct tsr_op *op,
                        struct tsr_op_parts *p, struct tsr_err *err);

#endif
