/* view.c - checks of what an operation is given. */
#include "../tensor/tensor.h"
#include "backend.h"

tsr_status tsr_cuda_view(struct tsr_view *v, const struct tsr_tensor *t, const char *op,
                         const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                         struct tsr_err *err)
{
    if (!t || !t->buffer)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s is missing", op, what);
    const struct tsr_cuda_buffer *b = t->buffer;
    uint64_t                      stride;
    tsr_status st = tsr_tensor_check(t, b->bytes, op, what, dtype, rows, cols, &stride, err);
    if (st != TSR_OK)
        return st;
    *v = (struct tsr_view){ b->address + t->offset, stride, t->rows, t->cols };
    return TSR_OK;
}

tsr_status tsr_cuda_indices(struct tsr_cuda *c, const struct tsr_tensor *t, const uint32_t **p,
                            uint64_t *stride, struct tsr_err *err)
{
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
