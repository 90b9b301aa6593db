/* @NAME@ - a device in plain C: it holds buffers and F32 weights and runs LINEAR, EMBED, ADD and
 * SCALE.  What it declines, the host runs on the CPU.  The order of every operation is that of
 * docs/decisions/numerics.md, so its results are those of the CPU backend, byte for byte. */
#include <math.h>
#include <string.h>
#include <tessera/backend.h>
#include <unistd.h>

struct backend {
    const struct tsr_host *host;
};

struct buffer {
    uint64_t      bytes;
    unsigned char pad[56]; /* the data is aligned as the block is */
    unsigned char data[];
};

struct weight {
    uint64_t rows, cols, segment; /* columns of a segment; at most 8 of them */
    float    w[];
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    (void)opts; /* no options; the quantizer's template has some */
    struct backend *b = host->alloc(host->ctx, sizeof *b, 16);
    if (!b)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof *b);
    b->host = host;
    *self = b;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct backend *b = self;
    if (b)
        b->host->release(b->host->ctx, b, sizeof *b);
}

static tsr_status properties(const void *self, struct tsr_backend_props *p, struct tsr_err *err)
{
    (void)self, (void)err;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    p->deterministic = 1;
    p->device = "@NAME@ plain C";
    p->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
    p->free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
    return TSR_OK;
}

/* ---- buffers ---------------------------------------------------------------- */

static tsr_status buffer_alloc(void *self, uint64_t bytes, void **out, struct tsr_err *err)
{
    const struct tsr_host *host = ((struct backend *)self)->host;
    struct buffer         *b = NULL;
    if (bytes < PTRDIFF_MAX - sizeof *b)
        b = host->alloc(host->ctx, sizeof *b + bytes, 64);
    if (!b)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: a buffer of %llu bytes",
                        (unsigned long long)bytes);
    memset(b, 0, sizeof *b + bytes);
    b->bytes = bytes;
    *out = b;
    return TSR_OK;
}

static void buffer_free(void *self, void *buffer)
{
    const struct tsr_host *host = ((struct backend *)self)->host;
    struct buffer         *b = buffer;
    if (b)
        host->release(host->ctx, b, sizeof *b + b->bytes);
}

static tsr_status check_range(const struct buffer *b, uint64_t offset, uint64_t bytes,
                              struct tsr_err *err)
{
    if (!b || offset > b->bytes || bytes > b->bytes - offset)
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: %llu bytes at %llu of a buffer of %llu",
                        (unsigned long long)bytes, (unsigned long long)offset,
                        b ? (unsigned long long)b->bytes : 0);
    return TSR_OK;
}

static tsr_status upload(void *self, void *buffer, uint64_t offset, const void *src, uint64_t bytes,
                         struct tsr_err *err)
{
    (void)self;
    tsr_status st = check_range(buffer, offset, bytes, err);
    if (st == TSR_OK && bytes)
        memcpy(((struct buffer *)buffer)->data + offset, src, bytes);
    return st;
}

static tsr_status download(void *self, const void *buffer, uint64_t offset, void *dst,
                           uint64_t bytes, struct tsr_err *err)
{
    (void)self;
    tsr_status st = check_range(buffer, offset, bytes, err);
    if (st == TSR_OK && bytes)
        memcpy(dst, ((const struct buffer *)buffer)->data + offset, bytes);
    return st;
}

/* ---- weights ---------------------------------------------------------------- */

static uint64_t weight_bytes(const void *self, const void *weight)
{
    const struct weight *w = weight;
    (void)self;
    return sizeof *w + w->rows * w->cols * sizeof(float);
}

static tsr_status weight_load(void *self, const struct tsr_weight_desc *d, void **out,
                              struct tsr_err *err)
{
    const struct tsr_host *host = ((struct backend *)self)->host;
    struct weight         *w = NULL;
    if (strcmp(d->format->id, TSR_FORMAT_FLOAT) != 0 || d->format->dtype != TSR_F32)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@ reads F32 weights only");
    uint64_t part = TSR_HAS(struct tsr_weight_desc, d, segment) ? d->segment : 0; /* of a wider one */
    uint64_t segment = part ? part : (d->cols / 256 + (d->cols % 256 != 0)) * 32;
    if (!d->cols || (d->cols - 1) / segment >= 8)
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: %s does not have 1 to 8 segments", d->name);
    if (d->rows < (PTRDIFF_MAX - sizeof *w) / 4 / d->cols)
        w = host->alloc(host->ctx, sizeof *w + d->rows * d->cols * 4, 64);
    if (!w)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: weight %s", d->name);
    w->rows = d->rows, w->cols = d->cols, w->segment = segment;
    for (uint64_t r = 0; r < d->rows; r++)
        memcpy(w->w + r * d->cols, (const char *)d->codes + r * d->code_stride, d->cols * 4);
    *out = w;
    return TSR_OK;
}

static void weight_free(void *self, void *weight)
{
    const struct tsr_host *host = ((struct backend *)self)->host;
    if (weight)
        host->release(host->ctx, weight, weight_bytes(self, weight));
}

/* ---- operations ------------------------------------------------------------- */

/* A tensor of 4-byte elements that was checked; rows and cols 0: any. */
static tsr_status check_tensor(const struct tsr_tensor *t, const char *what, uint32_t dtype,
                               uint64_t rows, uint64_t cols, struct tsr_err *err)
{
    const struct buffer *b = t ? t->buffer : NULL;
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

static void *row_of(const struct tsr_tensor *t, uint64_t r)
{
    return ((struct buffer *)t->buffer)->data + t->offset + r * t->row_stride;
}

/* Outputs begin..end of every token.  Up to 8 segments of columns, each one chain. */
static tsr_status linear_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct tsr_op *op = arg;
    const struct weight *w = op->weight;
    for (uint64_t n = begin; n < end; n++)
        for (uint64_t t = 0; t < op->out->rows; t++) {
            const float *x = row_of(op->in[0], t), *row = w->w + n * w->cols;
            float        s[8] = { 0 };
            for (uint64_t k = 0; k < w->cols; k++)
                s[k / w->segment] = fmaf(x[k], row[k], s[k / w->segment]);
            float  y = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])) + 0.0f;
            float *out = row_of(op->out, t);
            out[n] = op->in[1] ? y + ((float *)row_of(op->in[1], 0))[n] : y;
        }
    return TSR_OK;
}

static tsr_status linear(const struct backend *b, const struct tsr_op *op, struct tsr_err *err)
{
    const struct weight *w = op->weight;
    if (op->act != TSR_ACT_F32)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: linear takes activations in F32 only");
    if (!w)
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: linear without a weight");
    tsr_status st = check_tensor(op->out, "out", TSR_F32, 0, w->rows, err);
    if (st == TSR_OK)
        st = check_tensor(op->in[0], "in0", TSR_F32, op->out->rows, w->cols, err);
    if (st == TSR_OK && op->in[1])
        st = check_tensor(op->in[1], "bias", TSR_F32, 1, w->rows, err);
    if (st != TSR_OK)
        return st;
    struct tsr_op copy = *op;
    return b->host->parallel_for(b->host->ctx, w->rows, 16, linear_rows, &copy);
}

static tsr_status embed(const struct tsr_op *op, struct tsr_err *err)
{
    const struct weight *w = op->weight;
    if (!w)
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: embed without a weight");
    tsr_status st = check_tensor(op->out, "out", TSR_F32, 0, w->cols, err);
    if (st == TSR_OK)
        st = check_tensor(op->in[0], "ids", TSR_U32, 1, op->out->rows, err);
    for (uint64_t t = 0; st == TSR_OK && t < op->out->rows; t++) {
        uint32_t id = ((uint32_t *)row_of(op->in[0], 0))[t];
        if (id >= w->rows)
            return tsr_fail(err, TSR_E_INVAL, "@NAME@: embed has no row %u", id);
        float *out = row_of(op->out, t);
        for (uint64_t k = 0; k < w->cols; k++)
            out[k] = w->w[id * w->cols + k] * op->scale;
    }
    return st;
}

/* ADD and SCALE: element by element, also in place. */
static tsr_status elements(const struct tsr_op *op, struct tsr_err *err)
{
    int        add = op->kind == TSR_OP_ADD;
    tsr_status st = check_tensor(op->out, "out", TSR_F32, 0, 0, err);
    if (!add && op->softcap > 0)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: scale without a softcap only");
    if (st == TSR_OK)
        st = check_tensor(op->in[0], "in0", TSR_F32, op->out->rows, op->out->cols, err);
    if (st == TSR_OK && add)
        st = check_tensor(op->in[1], "in1", TSR_F32, op->out->rows, op->out->cols, err);
    for (uint64_t t = 0; st == TSR_OK && t < op->out->rows; t++) {
        const float *a = row_of(op->in[0], t), *b = add ? row_of(op->in[1], t) : a;
        float       *out = row_of(op->out, t);
        for (uint64_t k = 0; k < op->out->cols; k++)
            out[k] = add ? a[k] + b[k] : a[k] * op->scale;
    }
    return st;
}

static tsr_status run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    (void)stream; /* one queue, and done on return */
    switch (op->kind) {
    case TSR_OP_LINEAR:
        return linear(self, op, err);
    case TSR_OP_EMBED:
        return embed(op, err);
    case TSR_OP_ADD:
    case TSR_OP_SCALE:
        return elements(op, err);
    default:
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@ does not run operation %u", op->kind);
    }
}

static tsr_status finish(void *self, void *stream, struct tsr_err *err)
{
    return (void)self, (void)stream, (void)err, TSR_OK;
}

static const struct tsr_backend_v1 table = {
    .struct_size = sizeof table, .create = create, .destroy = destroy, .properties = properties,
    .buffer_alloc = buffer_alloc, .buffer_free = buffer_free, .upload = upload,
    .download = download, .weight_load = weight_load, .weight_free = weight_free,
    .weight_bytes = weight_bytes, .run = run, .sync = finish,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_BACKEND, .name = "@NAME@", .iface = &table,
    .summary = "A device in plain C that runs a few operations in F32.",
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
