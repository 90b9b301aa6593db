/* fast_attention.c - ATTENTION of prompts under numerics: fast against sums in double; what the tensor cores do not
 * take has the bytes of the CPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"
#include "tessera/f16.h"

#define PICK(list) (list)[pair_draw(p, sizeof(list) / sizeof(list)[0])]
#define SEQUENCES  3u
#define TOKENS     70u
#define SCALE_MOST 0.025f /* of an int8 cache */

struct flash_case {
    struct tsr_op op;
    uint32_t      dtype, length, tokens;
    bool          sinks, slopes, exact; /* exact: not for tensor cores */
    uint64_t      rows, head, stride;   /* of a cache: rows, bytes of a head and between rows */
    uint32_t      spans[2 * TOKENS];
    uint8_t      *cache[2]; /* keys, values */
    float        *q, *bias; /* bias: slopes, sinks */
    char          what[200];
};

/* Tokens that continue sequences, and with `mixed` the last token of another one before them. */
static void draw_spans(struct pair *p, struct flash_case *c, bool mixed)
{
    uint32_t t = 0, left = c->tokens;
    for (uint32_t s = 0; s < SEQUENCES && left; s++) {
        uint32_t n = s == 0 && mixed ? 1 : s == SEQUENCES - 1 ? left : left / (1 + s % 2);
        n = n > c->length ? c->length : n;
        const uint32_t end =
            s == 0 && mixed ? c->length : n + (uint32_t)pair_draw(p, c->length - n + 1);
        for (uint32_t i = 0; i < n; i++, t++) {
            c->spans[2 * t] = 1 + s * (c->length + 1);
            c->spans[2 * t + 1] = end - n + i;
        }
        left -= n;
    }
    c->tokens = t;
}

static void draw_case(struct pair *p, struct flash_case *c)
{
    static const uint32_t dims[] = { 64, 128, 96, 80, 256, 8, 24, 72, 136 };
    static const uint32_t groups[] = { 1, 4, 7, 2, 8, 3, 16, 65 };
    *c = (struct flash_case){ .op = { .kind = TSR_OP_ATTENTION, .scale = 0.2f } };
    c->dtype = pair_draw(p, 2) ? TSR_F16 : TSR_I8;
    c->op.kv_heads = 1 + (uint32_t)pair_draw(p, 2);
    const uint32_t group = PICK(groups);
    c->op.heads = c->op.kv_heads * group;
    c->op.head_dim = PICK(dims);
    c->exact = pair_draw(p, 8) == 0;
    if (c->exact)
        c->op.head_dim = 33;
    c->length = 20 + (uint32_t)pair_draw(p, 180);
    c->tokens = 9 + (uint32_t)pair_draw(p, group > 16 ? 8 : TOKENS - 9);
    draw_spans(p, c, pair_draw(p, 2));
    c->op.window = pair_draw(p, 3) ? 0 : 1 + (uint32_t)pair_draw(p, c->length + 3);
    c->op.softcap = pair_draw(p, 3) ? 0.0f : 3.0f;
    c->slopes = pair_draw(p, 3) == 0;
    c->sinks = c->slopes && pair_draw(p, 2);
    c->head = c->dtype == TSR_I8 ? c->op.head_dim + UINT64_C(4) : UINT64_C(2) * c->op.head_dim;
    c->stride = c->op.kv_heads * c->head + 16 * pair_draw(p, 2);
    c->rows = 1 + SEQUENCES * (c->length + UINT64_C(1));
    (void)snprintf(c->what, sizeof c->what,
                   "ATTENTION, fast: cache dtype %u, %u heads, %u kv, dim %u, %u positions, window "
                   "%u, %u tokens",
                   c->dtype, c->op.heads, c->op.kv_heads, c->op.head_dim, c->length, c->op.window,
                   c->tokens);
}

/* Element d of head h in row r of a cache. */
static double cached(const struct flash_case *c, int which, uint64_t r, uint64_t h, uint64_t d)
{
    const uint8_t *at = c->cache[which] + r * c->stride + h * c->head;
    uint16_t       half;
    float          scale;
    if (c->dtype == TSR_I8) {
        memcpy(&scale, at, 4);
        return (double)(int8_t)at[4 + d] * (double)scale;
    }
    memcpy(&half, at + 2 * d, 2);
    return (double)tsr_f16_f32(half);
}

/* Numbers of a middling size; rows between sequences are NaN, which nobody may read or use. */
static void fill(struct pair *p, struct flash_case *c)
{
    const uint64_t wide = (uint64_t)c->op.heads * c->op.head_dim;
    c->q = malloc(c->tokens * wide * sizeof *c->q);
    c->bias = malloc(2 * c->op.heads * sizeof *c->bias);
    for (int w = 0; w < 2; w++)
        c->cache[w] = malloc(c->rows * c->stride);
    if (!c->q || !c->bias || !c->cache[0] || !c->cache[1])
        abort();
    for (uint64_t i = 0; i < c->tokens * wide; i++) /* heads of very different sizes */
        c->q[i] = ldexpf(pair_number(p), i / c->op.head_dim % 5 ? 0 : -20);
    for (uint64_t i = 0; i < 2 * c->op.heads; i++)
        c->bias[i] = pair_number(p) * (i < c->op.heads ? 0.1f : 3.0f);
    for (int w = 0; w < 2; w++) {
        memset(c->cache[w], 0xff, c->rows * c->stride);
        for (uint64_t r = 0; r < c->rows; r++)
            for (uint64_t h = 0; r % (c->length + 1) && h < c->op.kv_heads; h++) {
                uint8_t    *at = c->cache[w] + r * c->stride + h * c->head;
                const float scale = (float)(1 + pair_draw(p, 100)) / 100 * SCALE_MOST;
                if (c->dtype == TSR_I8)
                    memcpy(at, &scale, 4);
                for (uint64_t d = 0; d < c->op.head_dim; d++) {
                    const uint16_t half = tsr_f32_f16(pair_number(p));
                    if (c->dtype == TSR_I8)
                        at[4 + d] = (uint8_t)(int8_t)((int)pair_draw(p, 255) - 127);
                    else
                        memcpy(at + 2 * d, &half, 2);
                }
            }
    }
}

/* A score, and what it may be off by. */
struct score {
    double s, off;
};

/* Queries are rounded to F16: half a unit of 11 bits, of the largest number of a head below 2^-28 of it.  The sum in F32
 * adds less than a unit for each product, what follows a few for the score and for its distance from the largest. */
static struct score score_at(const struct flash_case *c, uint64_t t, uint64_t h, uint64_t row,
                             uint64_t j, uint64_t last)
{
    const uint64_t dim = c->op.head_dim, kv = h / (c->op.heads / c->op.kv_heads);
    const float   *q = c->q + (t * c->op.heads + h) * dim;
    double         sum = 0, size = 0, keys = 0, top = 0, x;
    struct score   y;
    for (uint64_t d = 0; d < dim; d++) {
        const double k = cached(c, 0, row + j, kv, d);
        sum += (double)q[d] * k;
        size += fabs((double)q[d] * k);
        keys += fabs(k);
        top = fmax(top, fabs((double)q[d]));
    }
    x = sum * (double)c->op.scale;
    y.off = fabs((double)c->op.scale) *
            (size * (0x1.01p-11 + (double)dim * 0x1p-23) + top * keys * 0x1p-39);
    if (c->op.softcap > 0)
        x = (double)c->op.softcap * tanh(x / (double)c->op.softcap);
    y.s = x;
    if (c->slopes)
        y.s += (double)c->bias[h] * ((double)j - (double)last);
    y.off += 0x1p-21 * (fabs(x) + fabs(y.s - x) + (double)c->op.softcap + 16);
    return y;
}

/* One query of the device, y, against the sums in double.  An error of a score moves weights; weights are rounded to F16, with
 * 2^-40 as the least unit; of int8 together with the scales of values, in units of a power of two above the largest. */
static bool query_fits(struct pair *p, const struct flash_case *c, uint64_t t, uint64_t h,
                       const float *y)
{
    const uint64_t row = c->spans[2 * t], last = c->spans[2 * t + 1], w = c->op.window;
    const uint64_t lo = w && last >= w ? last - w + 1 : 0, n = last - lo + 1;
    const uint64_t kv = h / (c->op.heads / c->op.kv_heads);
    struct score  *s = malloc((n + 1) * sizeof *s);
    double         top = -INFINITY, far = 0, den = 0, moved = 0;
    bool           ok = true;
    if (!s)
        abort();
    for (uint64_t i = 0; i < n; i++)
        s[i] = score_at(c, t, h, row, lo + i, last);
    s[n] = (struct score){ c->sinks ? (double)c->bias[c->op.heads + h] : -INFINITY, 0x1p-19 };
    for (uint64_t i = 0; i <= n; i++)
        top = fmax(top, s[i].s);
    far = fabs(top);
    for (uint64_t i = 0; i <= n; i++) {
        s[i].s = exp(s[i].s - top);
        s[i].off = expm1(s[i].off + far * 0x1p-21);
        den += s[i].s;
    }
    for (uint64_t i = 0; i <= n; i++)
        moved += s[i].s / den * s[i].off;
    for (uint64_t d = 0; d < c->op.head_dim && ok; d++) {
        double out = 0, size = 0, error = 0, all = 0, sums = (double)(n + 64) * 0x1p-23;
        for (uint64_t i = 0; i < n; i++) {
            const double v = cached(c, 1, row + lo + i, kv, d), e = s[i].s / den;
            out += e * v;
            size += e * fabs(v);
            error += e * fabs(v) * s[i].off;
            all += c->dtype == TSR_I8 ? 2 * 127 * SCALE_MOST : fabs(v);
        }
        error = (error + fabs(out) * moved) / (1 - moved) + size * (0x1.02p-11 + sums) +
                fabs(out) * sums + all * 0x1p-40 + 1e-30;
        ok = moved < 0.5 && fabs((double)y[d] - out) <= error;
        if (!ok)
            (void)tsr_fail(&p->err.err, TSR_E_NUMERIC,
                           "%s: column %llu of head %llu of token %llu is %.9g, wanted %.9g within "
                           "%.3g",
                           c->what, (unsigned long long)d, (unsigned long long)h,
                           (unsigned long long)t, (double)y[d], out, error);
    }
    free(s);
    return ok;
}

static bool tensor(struct pair_device *d, struct tsr_tensor *t, uint32_t dtype, uint64_t rows,
                   uint64_t cols, uint64_t stride, const void *data, struct tsr_err *e)
{
    *t = (struct tsr_tensor){
        .struct_size = sizeof *t, .dtype = dtype, .rows = rows, .cols = cols, .row_stride = stride
    };
    return d->t->buffer_alloc(d->self, rows * stride, &t->buffer, e) == TSR_OK &&
           (!data || d->t->upload(d->self, t->buffer, 0, data, rows * stride, e) == TSR_OK);
}

/* The case on one device. */
static bool attend(struct pair *p, const struct flash_case *c, int device, float *to)
{
    struct pair_device *d = &p->d[device];
    struct tsr_err     *e = &p->err.err;
    const uint64_t      wide = (uint64_t)c->op.heads * c->op.head_dim;
    const uint64_t      n = c->op.kv_heads * c->head / (c->dtype == TSR_I8 ? 1 : 2);
    struct tsr_tensor   out, q, k, v, spans, bias;
    struct tsr_op       op = c->op;
    op.struct_size = sizeof op;
    op.out = &out;
    op.in[0] = &q;
    op.in[1] = &k;
    op.in[2] = &v;
    op.in[3] = &spans;
    op.in[4] = c->slopes ? &bias : NULL;
    out = q = k = v = spans = bias = (struct tsr_tensor){ 0 };
    bool ok = tensor(d, &out, TSR_F32, c->tokens, wide, 4 * wide, NULL, e) &&
              tensor(d, &q, TSR_F32, c->tokens, wide, 4 * wide, c->q, e) &&
              tensor(d, &k, c->dtype, c->rows, n, c->stride, c->cache[0], e) &&
              tensor(d, &v, c->dtype, c->rows, n, c->stride, c->cache[1], e) &&
              tensor(d, &spans, TSR_U32, c->tokens, 2, 8, c->spans, e) &&
              tensor(d, &bias, TSR_F32, c->sinks ? 2 : 1, c->op.heads, UINT64_C(4) * c->op.heads,
                     c->bias, e) &&
              d->t->run(d->self, NULL, &op, e) == TSR_OK &&
              d->t->sync(d->self, NULL, e) == TSR_OK &&
              d->t->download(d->self, out.buffer, 0, to, c->tokens * wide * 4, e) == TSR_OK;
    struct tsr_tensor *all[] = { &out, &q, &k, &v, &spans, &bias };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        d->t->buffer_free(d->self, all[i]->buffer);
    return ok;
}

/* Cases whose results are not those of the CPU go to *taken. */
static bool one(struct pair *p, uint64_t *taken)
{
    struct flash_case c;
    draw_case(p, &c);
    fill(p, &c);
    const uint64_t wide = (uint64_t)c.op.heads * c.op.head_dim, bytes = c.tokens * wide * 4;
    float         *y[2] = { malloc(bytes), malloc(bytes) };
    if (!y[0] || !y[1])
        abort();
    bool ok = attend(p, &c, 0, y[0]) && attend(p, &c, 1, y[1]);
    bool same = ok && memcmp(y[0], y[1], bytes) == 0;
    if (ok && c.exact && !same)
        ok = tsr_fail(&p->err.err, TSR_E_NUMERIC, "%s: the bytes are not those of the CPU",
                      c.what) == TSR_OK;
    *taken += !same;
    for (uint64_t i = 0; ok && !c.exact && i < c.tokens * UINT64_C(1) * c.op.heads; i++)
        ok = query_fits(p, &c, i / c.op.heads, i % c.op.heads, y[1] + i * c.op.head_dim);
    for (int i = 0; i < 2; i++) {
        free(y[i]);
        free(c.cache[i]);
    }
    free(c.q);
    free(c.bias);
    p->checked++;
    return ok;
}

bool pair_check_fast_attention(struct pair *p, uint64_t count)
{
    uint64_t taken = 0;
    for (uint64_t i = 0; i < count; i++)
        if (!one(p, &taken))
            return false;
    if (count && taken == 0) {
        (void)tsr_fail(&p->err.err, TSR_E_NUMERIC,
                       "all ATTENTIONs have the bytes of numerics: exact: tensor cores were not "
                       "used");
        return false;
    }
    return true;
}
