/* view.c - this device's part of the check of operations, and the memory that they reach. */
#include "backend.h"

static uint64_t buffer_bytes(const void *buffer)
{
    return ((const struct tsr_cpu_buffer *)buffer)->bytes;
}

static void weight_shape(const void *weight, uint64_t *rows, uint64_t *cols)
{
    const struct tsr_cpu_weight *w = weight;
    *rows = w->rows;
    *cols = w->cols;
}

/* The device's memory is the host's. */
static tsr_status indices(void *self, const struct tsr_tensor *t, const uint32_t **p,
                          uint64_t *stride, struct tsr_err *err)
{
    const struct tsr_cpu_buffer *b = t->buffer;
    (void)self;
    (void)err;
    *p = (const uint32_t *)(const void *)(b->data + t->offset);
    *stride = t->row_stride / 4;
    return TSR_OK;
}

static const struct tsr_op_source source = {
    .device = "CPU", .buffer_bytes = buffer_bytes, .weight_shape = weight_shape, .indices = indices
};

struct tsr_view tsr_cpu_at(const struct tsr_op_part *part)
{
    const struct tsr_cpu_buffer *b = part->buffer;
    return b ? (struct tsr_view){ b->data + part->offset, part->stride, part->rows, part->cols }
             : (struct tsr_view){ 0 };
}

tsr_status tsr_cpu_check(const struct tsr_op *op, struct tsr_op_parts *parts, struct tsr_err *err)
{
    return tsr_op_check(&source, op, parts, err);
}

tsr_status tsr_cpu_view(struct tsr_view *v, const struct tsr_tensor *t, const char *op,
                        const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                        struct tsr_err *err)
{
    struct tsr_op_part part;
    tsr_status         st = tsr_op_part(&source, t, op, what, dtype, rows, cols, &part, err);
    if (st == TSR_OK)
        *v = tsr_cpu_at(&part);
    return st;
}

void tsr_cpu_touch(const struct tsr_tensor *t, void (*how)(void *p, uint64_t bytes))
{
    if (t && t->buffer) {
        const struct tsr_cpu_buffer *b = t->buffer;
        how(b->data, b->bytes ? b->bytes : 1);
    }
}

void tsr_cpu_touch_op(const struct tsr_op *op, void (*how)(void *p, uint64_t bytes))
{
    for (int i = -1; i < TSR_OP_INPUTS; i++)
        tsr_cpu_touch(i < 0 ? op->out : op->in[i], how);
    const struct tsr_cpu_weight *w = op->weight;
    if (w && !w->borrowed)
        how(w->data, w->data_bytes);
}
