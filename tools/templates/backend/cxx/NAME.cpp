/* @NAME@ - a device in plain C++: it holds buffers and F32 weights and runs LINEAR, EMBED, ADD and
 * SCALE.  What it declines, the host runs on the CPU.  The order of every operation is that of
 * docs/decisions/numerics.md, so its results are those of the CPU backend, byte for byte. */
#include "@NAME@.h"

#include <cmath>
#include <cstring>
#include <tessera/guard.hpp>
#include <unistd.h>

struct backend { const tsr_host *host; };

struct alignas(64) buffer { /* the data follows, aligned as this is */
    uint64_t bytes;
    char    *data() { return reinterpret_cast<char *>(this + 1); }
};

struct weight { /* rows of floats follow */
    uint64_t rows, cols, segment; /* columns of a segment; at most 8 of them */
    float   *row(uint64_t r) { return reinterpret_cast<float *>(this + 1) + r * cols; }
    uint64_t bytes() const { return sizeof *this + rows * cols * sizeof(float); }
};

static const tsr_host *host_of(void *self)
{
    return static_cast<backend *>(self)->host;
}

static tsr_status create(const tsr_host *host, const void *, void **self, tsr_err *err)
{
    void *p = host->alloc(host->ctx, sizeof(backend), alignof(backend));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof(backend));
    *self = new (p) backend{ host };
    return TSR_OK;
}

static void destroy(void *self)
{
    if (auto *b = static_cast<backend *>(self))
        b->host->release(b->host->ctx, b, sizeof *b);
}

static tsr_status properties(const void *, tsr_backend_props *p, tsr_err *)
{
    auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    p->deterministic = 1;
    p->device = "@NAME@ plain C++";
    p->memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page;
    p->free_bytes = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * page;
    return TSR_OK;
}

static tsr_status buffer_alloc(void *self, uint64_t bytes, void **out, tsr_err *err)
{
    const tsr_host *host = host_of(self);
    void           *p = nullptr;
    if (bytes < PTRDIFF_MAX - sizeof(buffer))
        p = host->alloc(host->ctx, sizeof(buffer) + bytes, alignof(buffer));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: a buffer of %llu bytes",
                        static_cast<unsigned long long>(bytes));
    auto *b = new (p) buffer{ bytes };
    std::memset(b->data(), 0, bytes);
    *out = b;
    return TSR_OK;
}

static void buffer_free(void *self, void *handle)
{
    const tsr_host *host = host_of(self);
    if (auto *b = static_cast<buffer *>(handle))
        host->release(host->ctx, b, sizeof *b + b->bytes);
}

static tsr_status check_range(const buffer *b, uint64_t offset, uint64_t bytes, tsr_err *err)
{
    if (b && offset <= b->bytes && bytes <= b->bytes - offset)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INVAL, "@NAME@: %llu bytes at %llu do not lie inside the buffer",
                    static_cast<unsigned long long>(bytes),
                    static_cast<unsigned long long>(offset));
}

static tsr_status upload(void *, void *handle, uint64_t offset, const void *src, uint64_t bytes,
                         tsr_err *err)
{
    auto      *b = static_cast<buffer *>(handle);
    tsr_status st = check_range(b, offset, bytes, err);
    if (st == TSR_OK && bytes)
        std::memcpy(b->data() + offset, src, bytes);
    return st;
}

static tsr_status download(void *, const void *handle, uint64_t offset, void *dst, uint64_t bytes,
                           tsr_err *err)
{
    auto      *b = static_cast<buffer *>(const_cast<void *>(handle));
    tsr_status st = check_range(b, offset, bytes, err);
    if (st == TSR_OK && bytes)
        std::memcpy(dst, b->data() + offset, bytes);
    return st;
}

static tsr_status weight_load(void *self, const tsr_weight_desc *d, void **out, tsr_err *err)
{
    void *p = nullptr;
    if (std::strcmp(d->format->id, TSR_FORMAT_FLOAT) != 0 || d->format->dtype != TSR_F32)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@ reads F32 weights only");
    uint64_t part = TSR_HAS(tsr_weight_desc, d, segment) ? d->segment : 0; /* of a wider one */
    uint64_t segment = part ? part : (d->cols / 256 + (d->cols % 256 != 0)) * 32;
    if (!d->cols || (d->cols - 1) / segment >= 8)
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: %s does not have 1 to 8 segments", d->name);
    weight shape{ d->rows, d->cols, segment };
    if (d->rows < (PTRDIFF_MAX - sizeof(weight)) / 4 / d->cols)
        p = host_of(self)->alloc(host_of(self)->ctx, shape.bytes(), 64);
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: weight %s", d->name);
    auto *w = new (p) weight{ shape };
    for (uint64_t r = 0; r < d->rows; r++)
        std::memcpy(w->row(r), static_cast<const char *>(d->codes) + r * d->code_stride,
                    d->cols * sizeof(float));
    *out = w;
    return TSR_OK;
}

static void weight_free(void *self, void *handle)
{
    const tsr_host *host = host_of(self);
    if (auto *w = static_cast<weight *>(handle))
        host->release(host->ctx, w, w->bytes());
}

static uint64_t weight_bytes(const void *, const void *handle)
{
    return static_cast<const weight *>(handle)->bytes();
}

static weight *weight_of(const tsr_op *op)
{
    return static_cast<weight *>(const_cast<void *>(op->weight));
}

/* A tensor of 4-byte elements; rows and cols 0: any. */
static tsr_status check_tensor(const tsr_tensor *t, const char *what, uint32_t dtype, uint64_t rows,
                               uint64_t cols, tsr_err *err)
{
    auto *b = t ? static_cast<const buffer *>(t->buffer) : nullptr;
    if (!b || t->dtype != dtype || !t->rows || !t->cols || (rows && t->rows != rows) ||
        (cols && t->cols != cols))
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: %s is missing, or of another shape or dtype",
                        what);
    if (t->offset % 4 || t->offset > b->bytes || t->cols > (b->bytes - t->offset) / 4 ||
        (t->rows > 1 && (t->row_stride % 4 || t->row_stride / 4 < t->cols ||
         t->rows - 1 > (b->bytes - t->offset - t->cols * 4) / t->row_stride)))
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: %s is not inside its buffer, or not aligned",
                        what);
    return TSR_OK;
}

template <class T> static T *row_of(const tsr_tensor *t, uint64_t r)
{
    char *data = static_cast<buffer *>(t->buffer)->data();
    return reinterpret_cast<T *>(data + t->offset + r * t->row_stride);
}

/* Outputs begin..end of every token.  Up to 8 segments of columns, each one chain. */
static tsr_status linear_rows(void *arg, uint64_t begin, uint64_t end)
{
    auto    *op = static_cast<const tsr_op *>(arg);
    weight  *w = weight_of(op);
    for (uint64_t n = begin; n < end; n++)
        for (uint64_t t = 0; t < op->out->rows; t++) {
            const float *x = row_of<float>(op->in[0], t), *row = w->row(n);
            float        s[8] = {};
            for (uint64_t k = 0; k < w->cols; k++)
                s[k / w->segment] = std::fma(x[k], row[k], s[k / w->segment]);
            float y = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])) + 0.0f;
            row_of<float>(op->out, t)[n] = op->in[1] ? y + row_of<float>(op->in[1], 0)[n] : y;
        }
    return TSR_OK;
}

static tsr_status linear(const tsr_host *host, const tsr_op *op, tsr_err *err)
{
    weight *w = weight_of(op);
    if (op->act != TSR_ACT_F32)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: linear takes activations in F32 only");
    if (!w)
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: linear without a weight");
    tsr_status st = check_tensor(op->out, "out", TSR_F32, 0, w->rows, err);
    if (st == TSR_OK)
        st = check_tensor(op->in[0], "in0", TSR_F32, op->out->rows, w->cols, err);
    if (st == TSR_OK && op->in[1])
        st = check_tensor(op->in[1], "bias", TSR_F32, 1, w->rows, err);
    tsr_op copy = *op;
    return st == TSR_OK ? host->parallel_for(host->ctx, w->rows, 16, linear_rows, &copy) : st;
}

static tsr_status embed(const tsr_op *op, tsr_err *err)
{
    weight *w = weight_of(op);
    if (!w)
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: embed without a weight");
    tsr_status st = check_tensor(op->out, "out", TSR_F32, 0, w->cols, err);
    if (st == TSR_OK)
        st = check_tensor(op->in[0], "ids", TSR_U32, 1, op->out->rows, err);
    for (uint64_t t = 0; st == TSR_OK && t < op->out->rows; t++) {
        uint32_t id = row_of<uint32_t>(op->in[0], 0)[t];
        if (id >= w->rows)
            return tsr_fail(err, TSR_E_INVAL, "@NAME@: embed has no row %u", id);
        for (uint64_t k = 0; k < w->cols; k++)
            row_of<float>(op->out, t)[k] = w->row(id)[k] * op->scale;
    }
    return st;
}

/* ADD and SCALE: element by element, also in place. */
static tsr_status elements(const tsr_op *op, tsr_err *err)
{
    bool       add = op->kind == TSR_OP_ADD;
    tsr_status st = check_tensor(op->out, "out", TSR_F32, 0, 0, err);
    if (!add && op->softcap > 0)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: scale without a softcap only");
    if (st == TSR_OK)
        st = check_tensor(op->in[0], "in0", TSR_F32, op->out->rows, op->out->cols, err);
    if (st == TSR_OK && add)
        st = check_tensor(op->in[1], "in1", TSR_F32, op->out->rows, op->out->cols, err);
    for (uint64_t t = 0; st == TSR_OK && t < op->out->rows; t++) {
        const float *a = row_of<float>(op->in[0], t), *b = add ? row_of<float>(op->in[1], t) : a;
        float       *out = row_of<float>(op->out, t);
        for (uint64_t k = 0; k < op->out->cols; k++)
            out[k] = add ? a[k] + b[k] : a[k] * op->scale;
    }
    return st;
}

static tsr_status run(void *self, void *, const tsr_op *op, tsr_err *err)
{
    switch (op->kind) {
    case TSR_OP_LINEAR:
        return linear(host_of(self), op, err);
    case TSR_OP_EMBED:
        return embed(op, err);
    case TSR_OP_ADD:
    case TSR_OP_SCALE:
        return elements(op, err);
    default:
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@ does not run operation %u", op->kind);
    }
}

static tsr_status finish(void *, void *, tsr_err *)
{
    return TSR_OK; /* run() is done when it returns */
}

const tsr_backend_v1 table = {
    .struct_size = sizeof table, .reserved = 0, .create = tsr_guard<create>, .destroy = destroy,
    .properties = tsr_guard<properties>, .buffer_alloc = tsr_guard<buffer_alloc>,
    .buffer_free = buffer_free, .upload = tsr_guard<upload>, .download = tsr_guard<download>,
    .weight_load = tsr_guard<weight_load>, .weight_free = weight_free, .weight_bytes = weight_bytes,
    .run = tsr_guard<run>, .sync = tsr_guard<finish>, .extension = nullptr,
};
