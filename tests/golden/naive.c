#include "naive.h"

#include "base/f16.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "tessera/kv_cache.h"

struct buffer {
    uint64_t bytes;
    char    *data;
};
struct weight {
    uint64_t rows, cols;
    float   *w;
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    (void)host;
    (void)opts;
    (void)self;
    return tsr_fail(err, TSR_E_UNSUPPORTED, "naive: made by its test");
}

static void destroy(void *self)
{
    (void)self;
}

static tsr_status properties(const void *self, struct tsr_backend_props *p, struct tsr_err *err)
{
    (void)self;
    (void)err;
    p->device = "naive";
    return TSR_OK;
}

static tsr_status buffer_alloc(void *self, uint64_t bytes, void **out, struct tsr_err *err)
{
    struct naive  *n = self;
    struct buffer *b = malloc(sizeof *b);
    char          *data = calloc(1, bytes);
    if (!b || !data) {
        free(b);
        free(data);
        return tsr_fail(err, TSR_E_NOMEM, "naive: no memory");
    }
    *b = (struct buffer){ bytes, data };
    *out = b;
    n->buffers++;
    return TSR_OK;
}

static void buffer_free(void *self, void *buffer)
{
    struct naive  *n = self;
    struct buffer *b = buffer;
    if (!b)
        return;
    n->buffers--;
    free(b->data);
    free(b);
}

static tsr_status upload(void *self, void *buffer, uint64_t offset, const void *src, uint64_t bytes,
                         struct tsr_err *err)
{
    struct buffer *b = buffer;
    (void)self;
    if (offset > b->bytes || bytes > b->bytes - offset)
        return tsr_fail(err, TSR_E_INVAL, "naive: upload past the end");
    memcpy(b->data + offset, src, bytes);
    return TSR_OK;
}

static tsr_status download(void *self, const void *buffer, uint64_t offset, void *dst,
                           uint64_t bytes, struct tsr_err *err)
{
    const struct buffer *b = buffer;
    (void)self;
    if (offset > b->bytes || bytes > b->bytes - offset)
        return tsr_fail(err, TSR_E_INVAL, "naive: download past the end");
    memcpy(dst, b->data + offset, bytes);
    return TSR_OK;
}

static tsr_status weight_load(void *self, const struct tsr_weight_desc *d, void **out,
                              struct tsr_err *err)
{
    struct naive *n = self;
    if (strcmp(d->format->id, TSR_FORMAT_FLOAT) != 0)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "naive: reads floats only");
    if (n->decline_dtypes >> d->format->dtype & 1)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "naive: told to decline");
    struct weight *w = malloc(sizeof *w);
    float         *data = malloc(d->rows * d->cols * sizeof *data);
    if (!w || !data) {
        free(w);
        free(data);
        return tsr_fail(err, TSR_E_NOMEM, "naive: no memory");
    }
    for (uint64_t r = 0; r < d->rows; r++)
        tsr_widen(data + r * d->cols, (const char *)d->codes + r * d->code_stride, d->format->dtype,
                  d->cols);
    *w = (struct weight){ d->rows, d->cols, data };
    *out = w;
    n->weights++;
    return TSR_OK;
}

static void weight_free(void *self, void *weight)
{
    struct naive  *n = self;
    struct weight *w = weight;
    if (!w)
        return;
    n->weights--;
    free(w->w);
    free(w);
}

static uint64_t weight_bytes(const void *self, const void *weight)
{
    const struct weight *w = weight;
    (void)self;
    return w->rows * w->cols * sizeof(float);
}

/* ---- operations --------------------------------------------------------- */

static char *row(const struct tsr_tensor *t, uint64_t r)
{
    return ((struct buffer *)t->buffer)->data + t->offset + r * t->row_stride;
}
static float *f32(const struct tsr_tensor *t, uint64_t r)
{
    return (float *)(void *)row(t, r);
}
static uint32_t *u32(const struct tsr_tensor *t, uint64_t r)
{
    return (uint32_t *)(void *)row(t, r);
}

/* A tensor of this dtype and at least this shape that lies inside its buffer. */
static bool is(const struct tsr_tensor *t, uint32_t dtype, uint64_t rows, uint64_t cols)
{
    uint64_t width = dtype == TSR_F16 ? 2 : dtype >= TSR_I8 ? 1 : 4;
    return t && t->struct_size >= sizeof *t && t->dtype == dtype && t->rows == rows &&
           t->cols == cols && t->row_stride >= cols * width &&
           t->offset + (rows ? (rows - 1) * t->row_stride + cols * width : 0) <=
               ((struct buffer *)t->buffer)->bytes;
}

static void narrow(float *to, const double *from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = (float)from[i];
}

static bool linear(const struct tsr_op *op)
{
    const struct weight *w = op->weight;
    uint64_t             n = op->out->rows;
    if (!w || !is(op->in[0], TSR_F32, n, w->cols) || !is(op->out, TSR_F32, n, w->rows) ||
        (op->in[1] && !is(op->in[1], TSR_F32, 1, w->rows)))
        return false;
    for (uint64_t t = 0; t < n; t++)
        for (uint64_t r = 0; r < w->rows; r++)
            f32(op->out, t)[r] =
                (float)tsr_ref_linear(f32(op->in[0], t), w->w + r * w->cols, w->cols,
                                      op->in[1] ? (double)f32(op->in[1], 0)[r] : 0, NULL);
    return true;
}

static bool embed(const struct tsr_op *op)
{
    const struct weight *w = op->weight;
    uint64_t             n = op->out->rows;
    if (!w || !is(op->in[0], TSR_U32, 1, n) || !is(op->out, TSR_F32, n, w->cols))
        return false;
    for (uint64_t t = 0; t < n; t++) {
        uint32_t id = u32(op->in[0], 0)[t];
        if (id >= w->rows)
            return false;
        for (uint64_t k = 0; k < w->cols; k++)
            f32(op->out, t)[k] = w->w[id * w->cols + k] * op->scale;
    }
    return true;
}

static bool norm(const struct tsr_op *op)
{
    uint64_t n = op->out->rows, h = op->out->cols;
    if (!is(op->in[0], TSR_F32, n, h) || !is(op->in[1], TSR_F32, 1, h) ||
        (op->in[2] && !is(op->in[2], TSR_F32, 1, h)))
        return false;
    double *y = malloc(h * sizeof *y);
    if (!y)
        return false;
    for (uint64_t t = 0; t < n; t++) {
        tsr_ref_norm(y, NULL, f32(op->in[0], t), f32(op->in[1], 0),
                     op->in[2] ? f32(op->in[2], 0) : NULL, h, op->norm, op->eps, op->gain_offset);
        narrow(f32(op->out, t), y, h);
    }
    free(y);
    return true;
}

static bool rope(const struct tsr_op *op)
{
    uint64_t n = op->out->rows, half = op->rotary_dim / 2, d = op->head_dim;
    if (!is(op->out, TSR_F32, n, op->heads * d) || !is(op->in[0], TSR_F32, n, op->heads * d) ||
        !is(op->in[1], TSR_F32, n, half) || !is(op->in[2], TSR_F32, n, half))
        return false;
    double *y = malloc(d * sizeof *y);
    if (!y)
        return false;
    for (uint64_t t = 0; t < n; t++)
        for (uint64_t h = 0; h < op->heads; h++) {
            tsr_ref_rope(y, NULL, f32(op->in[0], t) + h * d, f32(op->in[1], t), f32(op->in[2], t),
                         d, op->rotary_dim, op->func == TSR_ROPE_ADJACENT);
            narrow(f32(op->out, t) + h * d, y, d);
        }
    free(y);
    return true;
}

static bool is_cache(const struct tsr_tensor *c, const struct tsr_op *op)
{
    uint64_t cols = op->kv_heads * tsr_kv_head_cols(c->dtype, op->head_dim);
    return is(c, c->dtype, c->rows, cols);
}

static uint64_t tail_stride(const struct tsr_op *op)
{
    return op->kv_heads * tsr_ref_head_bytes(TSR_F16, op->head_dim);
}

static char *head_of_block(const struct tsr_tensor *c, uint64_t row_of, uint64_t head, uint64_t d)
{
    return row(c, row_of / TSR_KV_BLOCK * TSR_KV_BLOCK) +
           head * TSR_KV_BLOCK * tsr_ref_head_bytes(c->dtype, d);
}

/* The key of token t in its tail, and its block after the last key of that. */
static bool store_key(const struct tsr_op *op, uint64_t t)
{
    uint64_t r = u32(op->in[1], 0)[t], tail = u32(op->in[1], 1)[t], d = op->head_dim;
    uint64_t half = tsr_ref_head_bytes(TSR_F16, d);
    if (tail + tsr_kv_tail_rows(d) > op->out->rows)
        return false;
    for (uint64_t h = 0; h < op->kv_heads; h++) {
        char *head = row(op->out, tail) + h * half;
        tsr_ref_head_store(head + r % TSR_KV_BLOCK * tail_stride(op), TSR_F16,
                           f32(op->in[0], t) + h * d, d);
        if (r % TSR_KV_BLOCK == TSR_KV_BLOCK - 1)
            tsr_ref_block_store(head_of_block(op->out, r, h, d), head, tail_stride(op), d);
    }
    return true;
}

static bool kv_store(const struct tsr_op *op)
{
    const struct tsr_tensor *in = op->in[0];
    uint64_t                 n = in->rows, d = op->head_dim;
    if (!is_cache(op->out, op) || !is(in, TSR_F32, n, op->kv_heads * d) ||
        !is(op->in[1], TSR_U32, op->out->dtype == TSR_Q4_CHANNEL ? 2 : 1, n))
        return false;
    for (uint64_t t = 0; t < n; t++) {
        uint64_t r = u32(op->in[1], 0)[t];
        if (r >= op->out->rows)
            return false;
        if (op->out->dtype == TSR_Q4_CHANNEL) {
            if (!store_key(op, t))
                return false;
            continue;
        }
        for (uint64_t h = 0; h < op->kv_heads; h++)
            tsr_ref_head_store(row(op->out, r) + h * tsr_ref_head_bytes(op->out->dtype, d),
                               op->out->dtype, f32(in, t) + h * d, d);
    }
    return true;
}

/* Rows of one head of a cache, widened. */
static void load(double *to, const struct tsr_tensor *c, uint64_t first, uint64_t n, uint64_t head,
                 uint64_t d)
{
    for (uint64_t j = 0; j < n; j++)
        tsr_ref_head_load(to + j * d, c->dtype,
                          row(c, first + j) + head * tsr_ref_head_bytes(c->dtype, d), d);
}

/* Keys of one head for token t, from position `first` on. */
static void load_keys(double *to, const struct tsr_op *op, uint64_t t, uint64_t first,
                      uint64_t head)
{
    const struct tsr_tensor *c = op->in[1];
    uint64_t base = u32(op->in[3], t)[0], p = u32(op->in[3], t)[1], d = op->head_dim;
    if (c->dtype != TSR_Q4_CHANNEL) {
        load(to, c, base + first, p + 1 - first, head, d);
        return;
    }
    for (uint64_t j = first; j <= p; j++, to += d)
        if (j / TSR_KV_BLOCK == p / TSR_KV_BLOCK)
            tsr_ref_head_load(to, TSR_F16,
                              row(c, u32(op->in[3], t)[2]) + j % TSR_KV_BLOCK * tail_stride(op) +
                                  head * tsr_ref_head_bytes(TSR_F16, d),
                              d);
        else
            tsr_ref_block_load(to, head_of_block(c, base + j, head, d), j % TSR_KV_BLOCK, d);
}

static bool attention(const struct tsr_op *op)
{
    uint64_t n = op->out->rows, d = op->head_dim;
    bool     by_channel = op->in[1]->dtype == TSR_Q4_CHANNEL;
    if (!is(op->out, TSR_F32, n, op->heads * d) || !is(op->in[0], TSR_F32, n, op->heads * d) ||
        !is_cache(op->in[1], op) || !is_cache(op->in[2], op) ||
        !is(op->in[3], TSR_U32, n, by_channel ? 3 : 2) ||
        (op->in[4] && !is(op->in[4], TSR_F32, 1, op->heads) &&
         !is(op->in[4], TSR_F32, 2, op->heads)))
        return false;
    uint64_t most = op->in[1]->rows;
    double  *k = malloc(most * d * sizeof *k), *v = malloc(most * d * sizeof *v);
    double  *scores = malloc(most * sizeof *scores), *y = malloc(d * sizeof *y);
    bool     ok = k && v && scores && y;
    for (uint64_t t = 0; t < n && ok; t++)
        for (uint64_t h = 0; h < op->heads; h++) {
            uint64_t base = u32(op->in[3], t)[0], p = u32(op->in[3], t)[1];
            uint64_t first = tsr_ref_first(p, op->window), g = h / (op->heads / op->kv_heads);
            load_keys(k, op, t, first, g);
            load(v, op->in[2], base + first, p + 1 - first, g, d);
            tsr_ref_attention(y, NULL, scores, f32(op->in[0], t) + h * d, k, v, p + 1 - first, d, d,
                              op->scale, op->softcap, op->in[4] ? f32(op->in[4], 0)[h] : 0,
                              op->in[4] && op->in[4]->rows == 2 ? f32(op->in[4], 1)[h] : -INFINITY);
            narrow(f32(op->out, t) + h * d, y, d);
        }
    free(k);
    free(v);
    free(scores);
    free(y);
    return ok;
}

/* ACT, ADD and SCALE. */
static bool elementwise(const struct tsr_op *op)
{
    uint64_t n = op->out->rows, c = op->out->cols;
    bool     clamped = op->kind == TSR_OP_ACT && op->func == TSR_FUNC_CLAMPED;
    if (!is(op->in[0], TSR_F32, n, c) || (op->in[1] && !is(op->in[1], TSR_F32, n, c)) ||
        (clamped && (!op->in[1] || !(op->softcap > 0))))
        return false;
    for (uint64_t t = 0; t < n; t++)
        for (uint64_t i = 0; i < c; i++) {
            double a = f32(op->in[0], t)[i], b = op->in[1] ? (double)f32(op->in[1], t)[i] : 1;
            double y = a + b;
            if (clamped)
                y = tsr_ref_clamped(a, b, (double)op->scale, (double)op->softcap);
            else if (op->kind == TSR_OP_ACT)
                y = tsr_ref_func(op->func, a) * b;
            if (op->kind == TSR_OP_SCALE)
                y = tsr_ref_scale(a, (double)op->scale, (double)op->softcap);
            f32(op->out, t)[i] = (float)y;
        }
    return true;
}

static bool gather(const struct tsr_op *op)
{
    uint64_t m = op->out->rows, h = op->out->cols;
    if (!is(op->in[0], TSR_F32, op->in[0]->rows, h) || !is(op->in[1], TSR_U32, 1, m))
        return false;
    for (uint64_t i = 0; i < m; i++) {
        uint32_t r = u32(op->in[1], 0)[i];
        if (r >= op->in[0]->rows)
            return false;
        memcpy(f32(op->out, i), f32(op->in[0], r), h * sizeof(float));
    }
    return true;
}

static bool columns(const struct tsr_op *op)
{
    uint64_t m = op->out->rows, n = op->out->cols;
    if (!is(op->in[0], TSR_F32, m, op->in[0]->cols) || !is(op->in[1], TSR_U32, 1, n))
        return false;
    for (uint64_t i = 0; i < m * n; i++) {
        uint32_t c = u32(op->in[1], 0)[i % n];
        if (c >= op->in[0]->cols)
            return false;
        f32(op->out, i / n)[i % n] = f32(op->in[0], i / n)[c];
    }
    return true;
}

/* Sylvester's matrix by the signs of its entries, in double. */
static bool hadamard(const struct tsr_op *op)
{
    uint64_t n = op->head_dim, b = op->in[1] ? op->in[1]->rows : 1, part = b ? n / b : 0;
    float    x[4096];
    if (!part || n > 4096 || op->out->cols % n ||
        !is(op->in[0], TSR_F32, op->out->rows, op->out->cols) ||
        (op->in[1] && !is(op->in[1], TSR_F32, b, b)))
        return false;
    for (uint64_t at = 0; at < op->out->rows * op->out->cols; at += n) {
        float *y = f32(op->out, at / op->out->cols) + at % op->out->cols;
        memcpy(x, f32(op->in[0], at / op->out->cols) + at % op->out->cols, n * sizeof *x);
        for (uint64_t j = 0; j < n; j++) {
            double sum = 0;
            for (uint64_t i = 0; i < n; i++) {
                double h = op->in[1] ? (double)f32(op->in[1], i / part)[j / part] : 1;
                for (uint64_t both = (i % part) & (j % part); both; both &= both - 1)
                    h = -h;
                sum += h * (double)x[i];
            }
            y[j] = (float)(sum / sqrt((double)n));
        }
    }
    return true;
}

static bool mix(const struct tsr_op *op)
{
    uint64_t h = op->out->cols, n = op->out->rows, k = op->in[1]->cols;
    if (!is(op->in[0], TSR_F32, op->in[0]->rows, h) || !is(op->in[1], TSR_F32, n, k) ||
        !is(op->in[2], TSR_U32, n, k))
        return false;
    for (uint64_t i = 0; i < n * h; i++) {
        float y = 0;
        for (uint64_t j = 0; j < k; j++) {
            uint32_t r = u32(op->in[2], i / h)[j];
            if (r >= op->in[0]->rows)
                return false;
            y = fmaf(f32(op->in[1], i / h)[j], f32(op->in[0], r)[i % h], y);
        }
        f32(op->out, i / h)[i % h] = y;
    }
    return true;
}

static tsr_status run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    static bool (*const table[])(const struct tsr_op *) = {
        NULL,        linear,      embed,       norm,   rope, kv_store, attention,
        elementwise, elementwise, elementwise, gather, mix,  columns,  hadamard
    };
    struct naive *n = self;
    (void)stream;
    if (op->kind == 0 || op->kind > TSR_OP_HADAMARD)
        return tsr_fail(err, TSR_E_INVAL, "naive: operation %u", op->kind);
    if (n->decline_ops >> op->kind & 1)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "naive: told to decline");
    if (!is(op->out, op->out->dtype, op->out->rows, op->out->cols) || !table[op->kind](op))
        return tsr_fail(err, TSR_E_INVAL, "naive: shapes of operation %u", op->kind);
    n->runs[op->kind]++;
    return TSR_OK;
}

static tsr_status sync(void *self, void *stream, struct tsr_err *err)
{
    (void)self;
    (void)stream;
    (void)err;
    return TSR_OK;
}

const struct tsr_backend_v1 naive_backend = {
    .struct_size = sizeof naive_backend,
    .create = create,
    .destroy = destroy,
    .properties = properties,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .upload = upload,
    .download = download,
    .weight_load = weight_load,
    .weight_free = weight_free,
    .weight_bytes = weight_bytes,
    .run = run,
    .sync = sync,
};
