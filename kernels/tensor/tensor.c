/* tensor.c - checks of the tensors that an operation is given. */
#include "tensor.h"

#include "tessera/kv_cache.h"

#define U(x) ((unsigned long long)(x))

uint64_t tsr_tensor_element(uint32_t dtype)
{
    return dtype == TSR_F32 || dtype == TSR_U32 ? 4 : dtype == TSR_F16 || dtype == TSR_BF16 ? 2 : 1;
}

static uint64_t row_bytes(const struct tsr_tensor *t)
{
    return t->cols * tsr_tensor_element(t->dtype);
}

uint64_t tsr_tensor_span(const struct tsr_tensor *t)
{
    return (t->rows == 1 ? 0 : (t->rows - 1) * t->row_stride) + row_bytes(t);
}

tsr_status tsr_tensor_check(const struct tsr_tensor *t, uint64_t buffer_bytes, const char *op,
                            const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                            uint64_t *stride, struct tsr_err *err)
{
    uint64_t size = tsr_tensor_element(dtype), row, span;
    if (t->dtype != dtype)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s has dtype %u, wanted %u", op, what, t->dtype,
                        dtype);
    if (t->rows == 0 || t->cols == 0 || (rows && t->rows != rows) || (cols && t->cols != cols))
        return tsr_fail(err, TSR_E_INVAL, "%s: %s is %llu by %llu, wanted %llu by %llu (0: any)",
                        op, what, U(t->rows), U(t->cols), U(rows), U(cols));
    if (__builtin_mul_overflow(t->cols, size, &row) || (t->rows > 1 && t->row_stride < row))
        return tsr_fail(err, TSR_E_INVAL, "%s: %s has rows of %llu elements %llu bytes apart", op,
                        what, U(t->cols), U(t->row_stride));
    *stride = t->rows == 1 ? row : t->row_stride;
    if (t->offset % size || *stride % size)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s is not aligned to its elements", op, what);
    if (__builtin_mul_overflow(t->rows - 1, *stride, &span) ||
        __builtin_add_overflow(span, row, &span) || t->offset > buffer_bytes ||
        span > buffer_bytes - t->offset)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s does not lie inside its buffer of %llu bytes", op,
                        what, U(buffer_bytes));
    return TSR_OK;
}

tsr_status tsr_tensor_apart(const struct tsr_tensor *out, const struct tsr_tensor *in, int same,
                            const char *op, struct tsr_err *err)
{
    uint64_t so = out->row_stride, si = in->row_stride;
    uint64_t wo = row_bytes(out), wi = row_bytes(in);
    if (out->buffer != in->buffer || out->offset + tsr_tensor_span(out) <= in->offset ||
        in->offset + tsr_tensor_span(in) <= out->offset)
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

tsr_status tsr_tensor_cache(const struct tsr_tensor *t, const struct tsr_op *op, const char *name,
                            const char *what, struct tsr_tensor *whole, uint64_t *cols,
                            struct tsr_err *err)
{
    if (!t)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s is missing", name, what);
    uint64_t elements = (uint64_t)op->kv_heads * op->head_dim;
    *cols = op->kv_heads * tsr_kv_head_cols(t->dtype, op->head_dim);
    if (*cols == 0)
        return tsr_fail(err, TSR_E_INVAL,
                        "%s: %s has dtype %u, wanted F32, F16, I8, E4M3, Q4 or Q4_CHANNEL", name,
                        what, t->dtype);
    *whole = *t;
    if (whole->cols == elements)
        whole->cols = *cols;
    return TSR_OK;
}

tsr_status tsr_tensor_heads(const struct tsr_op *op, const char *name, struct tsr_err *err)
{
    if (op->kv_heads == 0 || op->head_dim == 0 || op->kv_heads > 65535 || op->head_dim > 65536)
        return tsr_fail(err, TSR_E_INVAL,
                        "%s: kv_heads %u must be 1 to 65535 and head_dim %u 1 to 65536", name,
                        op->kv_heads, op->head_dim);
    return TSR_OK;
}

tsr_status tsr_tensor_range(uint64_t buffer_bytes, uint64_t offset, uint64_t bytes,
                            const char *what, struct tsr_err *err)
{
    if (offset > buffer_bytes || bytes > buffer_bytes - offset)
        return tsr_fail(err, TSR_E_INVAL,
                        "%s: %llu bytes at %llu do not lie inside a buffer of %llu bytes", what,
                        U(bytes), U(offset), U(buffer_bytes));
    return TSR_OK;
}
