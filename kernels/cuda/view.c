/* view.c - this device's part of the check of operations. */
#include "backend.h"

static uint64_t buffer_bytes(const void *buffer)
{
    return ((const struct tsr_cuda_buffer *)buffer)->bytes;
}

static void weight_shape(const void *weight, uint64_t *rows, uint64_t *cols)
{
    const struct tsr_cuda_weight *w = weight;
    *rows = w->k.rows;
    *cols = w->k.cols;
}

/* From the host copy of uploaded bytes, else from the device after a wait. */
static tsr_status indices(void *self, const struct tsr_tensor *t, const uint32_t **p,
                          uint64_t *stride, struct tsr_err *err)
{
    struct tsr_cuda              *c = self;
    const struct tsr_cuda_buffer *b = t->buffer;
    const struct tsr_host        *host = c->host;
    uint64_t                      bytes = tsr_tensor_span(t);
    *stride = t->row_stride / 4;
    if (b->mirror && !b->written) {
        *p = (const uint32_t *)(const void *)(b->mirror + t->offset);
        return TSR_OK;
    }
    if (bytes > c->indices_bytes) {
        host->release(host->ctx, c->indices, c->indices_bytes);
        c->indices_bytes = 0;
        c->indices = host->alloc(host->ctx, bytes, 64);
        if (!c->indices)
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes of indices",
                            (unsigned long long)bytes);
        c->indices_bytes = bytes;
    }
    *p = c->indices;
    tsr_status st = tsr_cuda_flush(c, err);
    return st != TSR_OK ? st
                        : c->api->get(c->device, c->indices, b->address + t->offset, bytes, err);
}

static struct tsr_op_source source_of(struct tsr_cuda *c)
{
    return (struct tsr_op_source){ .self = c,
                                   .device = "CUDA",
                                   .buffer_bytes = buffer_bytes,
                                   .weight_shape = weight_shape,
                                   .indices = indices };
}

tsr_status tsr_cuda_indices(struct tsr_cuda *c, const struct tsr_tensor *t, const uint32_t **p,
                            uint64_t *stride, struct tsr_err *err)
{
    return indices(c, t, p, stride, err);
}

struct tsr_view tsr_cuda_at(const struct tsr_op_part *part)
{
    const struct tsr_cuda_buffer *b = part->buffer;
    return b ? (struct tsr_view){ b->address + part->offset, part->stride, part->rows, part->cols }
             : (struct tsr_view){ 0 };
}

tsr_status tsr_cuda_check(struct tsr_cuda *c, const struct tsr_op *op, struct tsr_op_parts *parts,
                          struct tsr_err *err)
{
    struct tsr_op_source source = source_of(c);
    return tsr_op_check(&source, op, parts, err);
}

tsr_status tsr_cuda_view(struct tsr_view *v, const struct tsr_tensor *t, const char *op,
                         const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                         struct tsr_err *err)
{
    struct tsr_op_source source = source_of(NULL); /* no indices are needed */
    struct tsr_op_part   part;
    tsr_status           st = tsr_op_part(&source, t, op, what, dtype, rows, cols, &part, err);
    if (st == TSR_OK)
        *v = tsr_cuda_at(&part);
    return st;
}
