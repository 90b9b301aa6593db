/* view.c - checks of what an operation is given. */
#include "backend.h"

static uint64_t dtype_size(uint32_t dtype)
{
    return dtype == TSR_F32 || dtype == TSR_U32 ? 4 : dtype == TSR_F16 || dtype == TSR_BF16 ? 2 : 1;
}

tsr_status tsr_cuda_view(struct tsr_view *v, const struct tsr_tensor *t, const char *op,
                         const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                         struct tsr_err *err)
{
    if (!t || !t->buffer)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s is missing", op, what);
    const struct tsr_cuda_buffer *b = t->buffer;
    uint64_t                      size = dtype_size(dtype), stride = t->row_stride, row, span;
    if (t->dtype != dtype)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s has dtype %u, wanted %u", op, what, t->dtype,
                        dtype);
    if (t->rows == 0 || t->cols == 0 || (rows && t->rows != rows) || (cols && t->cols != cols))
        return tsr_fail(err, TSR_E_INVAL, "%s: %s is %llu by %llu, wanted %llu by %llu (0: any)",
                        op, what, (unsigned long long)t->rows, (unsigned long long)t->cols,
                        (unsigned long long)rows, (unsigned long long)cols);
    if (__builtin_mul_overflow(t->cols, size, &row) || (t->rows > 1 && stride < row))
        return tsr_fail(err, TSR_E_INVAL, "%s: %s has rows of %llu elements %llu bytes apart", op,
                        what, (unsigned long long)t->cols, (unsigned long long)stride);
    if (t->rows == 1)
        stride = row;
    if (t->offset % size || stride % size)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s is not aligned to its elements", op, what);
    if (__builtin_mul_overflow(t->rows - 1, stride, &span) ||
        __builtin_add_overflow(span, row, &span) || t->offset > b->bytes ||
        span > b->bytes - t->offset)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s does not lie inside its buffer of %llu bytes", op,
                        what, (unsigned long long)b->bytes);
    *v = (struct tsr_view){ b->address + t->offset, stride, t->rows, t->cols };
    return TSR_OK;
}

/* Bytes from a tensor's first element to behind its last. */
static uint64_t span_of(const struct tsr_tensor *t)
{
    return (t->rows - 1) * t->row_stride + t->cols * dtype_size(t->dtype);
}

tsr_status tsr_cuda_apart(const struct tsr_tensor *out, const struct tsr_tensor *in, int same,
                          const char *op, struct tsr_err *err)
{
    uint64_t so = out->row_stride, si = in->row_stride;
    uint64_t wo = out->cols * dtype_size(out->dtype), wi = in->cols * dtype_size(in->dtype);
    if (out->buffer != in->buffer ||
        out->offset + (out->rows == 1 ? wo : span_of(out)) <= in->offset ||
        in->offset + (in->rows == 1 ? wi : span_of(in)) <= out->offset)
        return TSR_OK;
    if (out->offset == in->offset && wo == wi && out->rows == in->rows &&
        (so == si || out->rows == 1)) {
        if (same)
            return TSR_OK;
    } else if (so == si && so != 0 && out->rows > 1 && in->rows > 1) {
        /* columns of one matrix side by side */
        uint64_t a = out->offset % so, b = in->offset % so;
        if (a + wo <= so && b + wi <= so && (a + wo <= b || b + wi <= a))
            return TSR_OK;
    }
    return tsr_fail(err, TSR_E_INVAL, "%s: out overlaps an input", op);
}

tsr_status tsr_cuda_indices(struct tsr_cuda *c, const struct tsr_tensor *t, const uint32_t **p,
                            uint64_t *stride, struct tsr_err *err)
{
    const struct tsr_cuda_buffer *b = t->buffer;
    const struct tsr_host        *host = c->host;
    uint64_t                      bytes = t->rows == 1 ? t->cols * 4 : span_of(t);
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
