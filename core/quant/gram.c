/* Sums of products of a linear's inputs in double, and the largest eigenvalue of them. */
#include "quant/gram.h"

#include "plugin/registry.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK  64u /* rows and columns of what one thread sums at a time */
#define DEPTH  64u /* tokens that are widened at once: two panels, 32 KB each */
#define TILE   4u  /* rows and columns that stay in registers */
#define COLS   64u /* of a product with a vector: what one thread takes */
#define CHANGE 1e-15

typedef double pair __attribute__((vector_size(16)));

tsr_status tsr_gram_create(struct tsr_gram *g, uint64_t cols, struct tsr_err *err)
{
    uint64_t n = 0;
    *g = (struct tsr_gram){ .cols = cols };
    g->g = tsr_mul(cols, cols, &n) ? tsr_new_aligned(n, sizeof *g->g) : NULL;
    if (!g->g)
        return tsr_fail_nomem(err, n * sizeof *g->g, "a Hessian in double");
    memset(g->g, 0, n * sizeof *g->g);
    return TSR_OK;
}

void tsr_gram_free(struct tsr_gram *g)
{
    free(g->g);
    *g = (struct tsr_gram){ 0 };
}

/* ---- sums ---------------------------------------------------------------- */

struct add {
    struct tsr_gram *g;
    const float     *x;
    uint64_t         n;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* BLOCK columns of n tokens from column `first` as [column / TILE][token][TILE]; zero past the end. */
static void widen(double *to, const struct add *a, uint64_t first, uint64_t token, uint64_t n)
{
    uint64_t cols = least(BLOCK, a->g->cols - first);
    for (uint64_t k = 0; k < n; k++) {
        const float *x = a->x + (token + k) * a->g->cols + first;
        for (uint64_t c = 0; c < BLOCK; c++)
            to[(c / TILE * DEPTH + k) * TILE + c % TILE] = c < cols ? (double)x[c] : 0;
    }
}

/* c [TILE, TILE], rows BLOCK apart, += n tokens of two panels, one after the other. */
static void tile(double *c, const double *a, const double *b, uint64_t n)
{
    pair s[TILE][2];
    for (uint64_t i = 0; i < TILE; i++)
        memcpy(s[i], c + i * BLOCK, sizeof s[i]);
    for (uint64_t k = 0; k < n; k++, a += TILE, b += TILE) {
        pair lo, hi;
        memcpy(&lo, b, sizeof lo);
        memcpy(&hi, b + 2, sizeof hi);
        for (uint64_t i = 0; i < TILE; i++) {
            s[i][0] += lo * a[i];
            s[i][1] += hi * a[i];
        }
    }
    for (uint64_t i = 0; i < TILE; i++)
        memcpy(c + i * BLOCK, s[i], sizeof s[i]);
}

/* The block of g at (row, col) in c, or back. */
static void move(struct tsr_gram *g, uint64_t row, uint64_t col, double *c, bool back)
{
    uint64_t rows = least(BLOCK, g->cols - row), cols = least(BLOCK, g->cols - col);
    for (uint64_t i = 0; i < rows; i++) {
        double *at = g->g + (row + i) * g->cols + col;
        memcpy(back ? at : c + i * BLOCK, back ? c + i * BLOCK : at, cols * sizeof *c);
    }
}

struct panels {
    double a[BLOCK * DEPTH], b[BLOCK * DEPTH], c[BLOCK * BLOCK];
};

/* Blocks [begin, end) of the lower triangle, counted row by row. */
static tsr_status add_blocks(void *arg, uint64_t begin, uint64_t end)
{
    const struct add *a = arg;
    struct panels    *p = tsr_new_aligned(1, sizeof *p);
    if (!p)
        return TSR_E_NOMEM;
    uint64_t i = 0, j = begin;
    for (; j > i; i++)
        j -= i + 1;
    memset(p->c, 0, sizeof p->c); /* what lies past the edge is summed too */
    for (uint64_t t = begin; t < end && !tsr_cancelled(); t++) {
        move(a->g, i * BLOCK, j * BLOCK, p->c, false);
        for (uint64_t k = 0; k < a->n; k += DEPTH) {
            uint64_t n = least(DEPTH, a->n - k);
            widen(p->a, a, i * BLOCK, k, n);
            widen(p->b, a, j * BLOCK, k, n);
            for (uint64_t r = 0; r < BLOCK / TILE; r++)
                for (uint64_t c = 0; c < BLOCK / TILE; c++)
                    tile(p->c + r * TILE * BLOCK + c * TILE, p->a + r * TILE * DEPTH,
                         p->b + c * TILE * DEPTH, n);
        }
        move(a->g, i * BLOCK, j * BLOCK, p->c, true);
        if (++j > i) {
            i++;
            j = 0;
        }
    }
    free(p);
    return tsr_cancelled() ? TSR_E_CANCELLED : TSR_OK;
}

static tsr_status said(tsr_status st, struct tsr_err *err)
{
    if (st == TSR_E_NOMEM)
        return tsr_fail_nomem(err, sizeof(struct panels), "a Hessian's panels");
    return st == TSR_E_CANCELLED ? tsr_fail(err, st, "stopped") : st;
}

tsr_status tsr_gram_add(struct tsr_gram *g, struct tsr_pool *pool, const float *x, uint64_t n,
                        struct tsr_err *err)
{
    struct add a = { g, x, n };
    uint64_t   rows = (g->cols + BLOCK - 1) / BLOCK;
    return said(tsr_pool_for(pool, rows * (rows + 1) / 2, 1, add_blocks, &a), err);
}

/* ---- the largest eigenvalue ---------------------------------------------- */

static void mirror(struct tsr_gram *g)
{
    uint64_t n = g->cols;
    for (uint64_t i0 = 0; i0 < n; i0 += BLOCK)
        for (uint64_t j0 = 0; j0 <= i0; j0 += BLOCK)
            for (uint64_t i = i0; i < least(i0 + BLOCK, n); i++)
                for (uint64_t j = j0; j < least(j0 + BLOCK, i); j++)
                    g->g[j * n + i] = g->g[i * n + j];
}

struct power {
    const struct tsr_gram *g;
    double                *v, *y; /* [cols] */
};

/* y = g v: each element adds its rows in order. */
static tsr_status multiply(void *arg, uint64_t begin, uint64_t end)
{
    const struct power *p = arg;
    uint64_t            n = p->g->cols;
    memset(p->y + begin, 0, (end - begin) * sizeof *p->y);
    for (uint64_t k = 0; k < n; k++) {
        const double *row = p->g->g + k * n, v = p->v[k];
        for (uint64_t j = begin; j < end; j++)
            p->y[j] += row[j] * v;
    }
    return tsr_cancelled() ? TSR_E_CANCELLED : TSR_OK;
}

/* The sum of a[i] * b[i] by halves: its rounding is below what ends the iteration. */
static double dot(const double *a, const double *b, uint64_t n)
{
    double sum = 0;
    if (n > BLOCK)
        return dot(a, b, n / 2) + dot(a + n / 2, b + n / 2, n - n / 2);
    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static tsr_status iterate(struct power *p, struct tsr_pool *pool, double *value, bool *settled,
                          struct tsr_err *err)
{
    uint64_t n = p->g->cols;
    double   last = 0;
    for (uint64_t i = 0; i < n; i++)
        p->v[i] = 2 * tsr_uniform(0, 0, i) - 1;
    *settled = true;
    for (unsigned s = 0; s < TSR_GRAM_STEPS; s++) {
        TSR_TRY(said(tsr_pool_for(pool, n, COLS, multiply, p), err));
        double yy = dot(p->y, p->y, n), length = sqrt(yy);
        *value = dot(p->v, p->y, n) / dot(p->v, p->v, n);
        if (!isfinite(yy))
            return tsr_fail(err, TSR_E_NUMERIC, "sums of products of the inputs are not finite");
        if (yy == 0 || (s > 0 && !(*value - last > CHANGE * *value)))
            return TSR_OK;
        last = *value;
        for (uint64_t i = 0; i < n; i++)
            p->v[i] = p->y[i] / length;
    }
    *settled = false;
    return TSR_OK;
}

tsr_status tsr_gram_top(struct tsr_gram *g, struct tsr_pool *pool, double *value, bool *settled,
                        struct tsr_err *err)
{
    struct power p = { g, tsr_new(2 * g->cols, sizeof(double)), NULL };
    if (!p.v)
        return tsr_fail_nomem(err, 2 * g->cols * sizeof(double), "two vectors");
    p.y = p.v + g->cols;
    mirror(g);
    tsr_status st = iterate(&p, pool, value, settled, err);
    free(p.v);
    return st;
}
