/* fast.c - LINEAR under numerics: fast and auto against sums in double of the rows that EMBED gives. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

#define TOKENS_MOST 300u /* int8 activations leave the exact kernels at 256 */

/* Both factors are rounded, each by half a unit of its last place: F16 has 11 bits, BF16 has 8; the sum
 * in F32 adds less than a unit of its own for each column.  F16 below 2^-14 has units of 2^-24. */
static double bound(bool bf16, uint64_t cols, double size, double x_sum)
{
    return size * ((bf16 ? 0x1.01p-8 : 0x1.01p-10) + (double)cols * 0x1p-23) + x_sum * 0x1p-25 +
           1e-30;
}

struct product {
    float   *w, *x, *y, *bias;
    uint64_t rows, cols, tokens;
    bool     bf16;
    uint32_t act;
};

static bool row_fits(const struct product *c, uint64_t r)
{
    for (uint64_t k = 0; k < c->cols; k++)
        if (!(fabsf(c->w[r * c->cols + k]) <= 65504.0f))
            return false;
    return true;
}

static bool as_it_should(struct pair *p, const struct product *c, const char *what)
{
    for (uint64_t r = 0; r < c->rows; r++) {
        if (!row_fits(c, r)) /* past F16, which a device without BF16 takes for all */
            continue;
        for (uint64_t t = 0; t < c->tokens; t++) {
            double sum = 0, size = 0, x_sum = 0, y = (double)c->y[t * c->rows + r];
            for (uint64_t k = 0; k < c->cols; k++) {
                double w = (double)c->w[r * c->cols + k], x = (double)c->x[t * c->cols + k];
                sum += w * x;
                size += fabs(w * x);
                x_sum += fabs(x);
            }
            sum += c->bias ? (double)c->bias[r] : 0.0;
            size += c->bias ? fabs((double)c->bias[r]) * 0x1p-12 : 0.0;
            if (!(fabs(y - sum) <= bound(c->bf16, c->cols, size, x_sum))) {
                (void)tsr_fail(&p->err.err, TSR_E_NUMERIC,
                               "%s: row %llu of token %llu is %.9g, wanted %.9g within %.3g", what,
                               (unsigned long long)r, (unsigned long long)t, y, sum,
                               bound(c->bf16, c->cols, size, x_sum));
                return false;
            }
        }
    }
    return true;
}

static struct tsr_tensor tensor(uint32_t dtype, uint64_t rows, uint64_t cols)
{
    return (struct tsr_tensor){ .struct_size = sizeof(struct tsr_tensor),
                                .dtype = dtype,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * 4 };
}

/* out of one operation with in0 and, if there is one, in1. */
static bool run_one(struct pair *p, int device, struct tsr_op op, const void *in0,
                    struct tsr_tensor t0, const void *in1, struct tsr_tensor out, float *to)
{
    struct pair_device *d = &p->d[device];
    struct tsr_tensor   t1 = tensor(TSR_F32, 1, out.cols);
    struct tsr_err     *e = &p->err.err;
    uint64_t            n0 = t0.rows * t0.row_stride, n = out.rows * out.row_stride;
    op.struct_size = sizeof op;
    op.out = &out;
    op.in[0] = &t0;
    op.in[1] = in1 ? &t1 : NULL;
    bool ok = d->t->buffer_alloc(d->self, n0, &t0.buffer, e) == TSR_OK &&
              d->t->buffer_alloc(d->self, t1.row_stride, &t1.buffer, e) == TSR_OK &&
              d->t->buffer_alloc(d->self, n, &out.buffer, e) == TSR_OK &&
              d->t->upload(d->self, t0.buffer, 0, in0, n0, e) == TSR_OK &&
              (!in1 || d->t->upload(d->self, t1.buffer, 0, in1, t1.row_stride, e) == TSR_OK) &&
              d->t->run(d->self, NULL, &op, e) == TSR_OK &&
              d->t->sync(d->self, NULL, e) == TSR_OK &&
              d->t->download(d->self, out.buffer, 0, to, n, e) == TSR_OK;
    d->t->buffer_free(d->self, t0.buffer);
    d->t->buffer_free(d->self, t1.buffer);
    d->t->buffer_free(d->self, out.buffer);
    return ok;
}

/* To the bit, but a NaN is one whatever its sign: a row of weights may hold some. */
static bool are_same(const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* Other layouts take F32 whatever `act` says. */
static bool has_a8(const struct tsr_format *f)
{
    return strcmp(f->id, TSR_FORMAT_FLOAT) != 0;
}

/* The product on the device; on the CPU, to see that the device took another way. */
static bool multiply(struct pair *p, struct product *c, const struct tsr_format *f,
                     const char *what)
{
    uint32_t     *ids = calloc(c->rows, sizeof *ids);
    float        *exact = calloc(c->rows * c->tokens, sizeof *exact);
    void         *weight[2];
    struct tsr_op embed = { .kind = TSR_OP_EMBED, .scale = 1.0f },
                  linear = { .kind = TSR_OP_LINEAR, .act = c->act };
    if (!ids || !exact)
        abort();
    for (uint64_t r = 0; r < c->rows; r++)
        ids[r] = (uint32_t)r;
    bool ok = pair_weight(p, f, c->rows, c->cols, weight);
    if (ok) {
        embed.weight = weight[0];
        ok = run_one(p, 0, embed, ids, tensor(TSR_U32, 1, c->rows), NULL,
                     tensor(TSR_F32, c->rows, c->cols), c->w);
    }
    for (int i = 1; i >= 0 && ok; i--) {
        linear.weight = weight[i];
        ok = run_one(p, i, linear, c->x, tensor(TSR_F32, c->tokens, c->cols), c->bias,
                     tensor(TSR_F32, c->tokens, c->rows), i ? c->y : exact);
    }
    if (ok) {
        const bool same = are_same(c->y, exact, c->rows * c->tokens);
        p->differ += !same;
        /* int8 activations stay exact: under auto all, under fast those of few tokens */
        if (!same && p->numerics == TSR_NUMERICS_AUTO && c->act == TSR_ACT_A8 && has_a8(f)) {
            (void)tsr_fail(&p->err.err, TSR_E_NUMERIC, "%s: not the bytes of the CPU under auto",
                           what);
            ok = false;
        } else
            ok = (same && c->act == TSR_ACT_A8) || as_it_should(p, c, what);
    }
    p->checked++;
    pair_weight_free(p, weight);
    free(ids);
    free(exact);
    return ok;
}

/* A quarter of the draws has blocks of 16 tokens, one those of 64, one those of 128, one is the library's. */
static uint64_t draw_tokens(struct pair *p, uint64_t which)
{
    return which == 0   ? 9 + pair_draw(p, 8)
           : which == 1 ? 17 + pair_draw(p, 48)
           : which == 2 ? 65 + pair_draw(p, 64)
                        : 250 + pair_draw(p, TOKENS_MOST - 250);
}

static bool one(struct pair *p, uint64_t which)
{
    static const uint64_t all_rows[] = { 1, 32, 33, 100, 257, 300 },
                          all_cols[] = { 1, 8, 31, 100, 384, 1000 };
    struct tsr_format f;
    char              what[160];
    uint64_t          formats = 0;
    while (pair_format_at(formats, &f))
        formats++;
    (void)pair_format_at(formats ? which % formats : 0, &f);
    bool           is_float = strcmp(f.id, TSR_FORMAT_FLOAT) == 0;
    struct product c = { .rows = all_rows[pair_draw(p, 6)],
                         .cols = all_cols[pair_draw(p, 6)],
                         .tokens = draw_tokens(p, pair_draw(p, 4)),
                         .act = pair_draw(p, 2) ? TSR_ACT_A8 : TSR_ACT_F32,
                         .bf16 = strcmp(f.id, TSR_FORMAT_MX) == 0 ||
                                 (is_float && f.dtype == TSR_BF16) };
    c.cols = f.outliers > c.cols ? f.outliers + 1 : c.cols;
    (void)snprintf(what, sizeof what,
                   "LINEAR, tensor cores, %s %d bits, act %s, %d x %d, %d tokens", f.id,
                   (int)f.bits, c.act == TSR_ACT_A8 ? "a8" : "f32", (int)c.rows, (int)c.cols,
                   (int)c.tokens);
    c.w = calloc(c.rows * c.cols, sizeof *c.w);
    c.x = calloc(c.tokens * c.cols, sizeof *c.x);
    c.y = calloc(c.tokens * c.rows, sizeof *c.y);
    float *bias = calloc(c.rows, sizeof *bias);
    if (!c.w || !c.x || !c.y || !bias)
        abort();
    /* rows of very different sizes: F16 alone would not hold them */
    for (uint64_t t = 0; t < c.tokens; t++)
        for (uint64_t k = 0; k < c.cols; k++) {
            float v = pair_number(p);
            c.x[t * c.cols + k] = ldexpf(v, t % 3 == 0 ? 30 : t % 3 == 1 ? -30 : 0);
        }
    for (uint64_t r = 0; r < c.rows; r++)
        bias[r] = pair_number(p);
    c.bias = pair_draw(p, 2) ? bias : NULL;
    bool ok = multiply(p, &c, &f, what);
    free(c.w);
    free(c.x);
    free(c.y);
    free(bias);
    return ok;
}

bool pair_check_fast(struct pair *p, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!one(p, i))
            return false;
    if (p->differ == 0) {
        (void)
            tsr_fail(&p->err.err, TSR_E_NUMERIC,
                     "all products have the bytes of numerics: exact: the fast way was not taken");
        return false;
    }
    return true;
}
