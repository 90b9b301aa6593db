/* Sums of products of a linear's inputs in double, and the largest eigenvalue of them: power iteration that
 * keeps its vectors and takes the largest quotient in their span (Lanczos), which needs tens of steps where
 * the last vector alone needs thousands. */
#include "quant/gram.h"

#include "plugin/registry.h"

#include "base/mem.h"
#include "base/rng.h"
#include "quant/gram_tile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK  64u   /* rows and columns of what one thread sums at a time */
#define DEPTH  64u   /* tokens that are widened at once: two panels, 32 KB each */
#define COLS   64u   /* of a product with a vector: what one thread takes */
#define CHANGE 1e-15 /* of the value, that does not count as a rise */
#define STILL  3u    /* steps without one that end it */
#define TINY   1e-15

tsr_status tsr_quant_gram_create(struct tsr_quant_gram *g, uint64_t cols, struct tsr_err *err)
{
    uint64_t n = 0;
    *g = (struct tsr_quant_gram){ .cols = cols };
    g->g = tsr_mul(cols, cols, &n) ? tsr_new_aligned(n, sizeof *g->g) : NULL;
    if (!g->g)
        return tsr_fail_nomem(err, n * sizeof *g->g, "a Hessian in double");
    memset(g->g, 0, n * sizeof *g->g);
    return TSR_OK;
}

void tsr_quant_gram_free(struct tsr_quant_gram *g)
{
    free(g->g);
    *g = (struct tsr_quant_gram){ 0 };
}

/* ---- sums ---------------------------------------------------------------- */

struct add {
    struct tsr_quant_gram            *g;
    const float                      *x;
    uint64_t                          n;
    const struct tsr_quant_gram_tile *tile;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* BLOCK columns of n tokens from column `first` as [column / width][token][width]; zero past the end. */
static void widen(double *to, uint64_t width, const struct add *a, uint64_t first, uint64_t token,
                  uint64_t n)
{
    uint64_t cols = least(BLOCK, a->g->cols - first);
    for (uint64_t k = 0; k < n; k++) {
        const float *x = a->x + (token + k) * a->g->cols + first;
        for (uint64_t c = 0; c < BLOCK; c += width)
            for (uint64_t i = 0; i < width; i++)
                to[c * DEPTH + k * width + i] = c + i < cols ? (double)x[c + i] : 0;
    }
}

/* The block of g at (row, col) in c, or back. */
static void move(struct tsr_quant_gram *g, uint64_t row, uint64_t col, double *c, bool back)
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
    memset(p->c, 0, sizeof p->c); /* values past the edge are summed too */
    for (uint64_t t = begin; t < end && !tsr_plugin_cancelled(); t++) {
        move(a->g, i * BLOCK, j * BLOCK, p->c, false);
        for (uint64_t k = 0; k < a->n; k += DEPTH) {
            uint64_t n = least(DEPTH, a->n - k);
            widen(p->a, a->tile->rows, a, i * BLOCK, k, n);
            widen(p->b, a->tile->cols, a, j * BLOCK, k, n);
            for (uint64_t r = 0; r < BLOCK; r += a->tile->rows)
                for (uint64_t c = 0; c < BLOCK; c += a->tile->cols)
                    a->tile->run(p->c + r * BLOCK + c, BLOCK, p->a + r * DEPTH, p->b + c * DEPTH,
                                 n);
        }
        move(a->g, i * BLOCK, j * BLOCK, p->c, true);
        if (++j > i) {
            i++;
            j = 0;
        }
    }
    free(p);
    return tsr_plugin_cancelled() ? TSR_E_CANCELLED : TSR_OK;
}

static tsr_status said(tsr_status st, struct tsr_err *err)
{
    if (st == TSR_E_NOMEM)
        return tsr_fail_nomem(err, sizeof(struct panels), "a Hessian's panels");
    return st == TSR_E_CANCELLED ? tsr_fail(err, st, "stopped") : st;
}

tsr_status tsr_quant_gram_add(struct tsr_quant_gram *g, struct tsr_pool *pool, const float *x,
                              uint64_t n, struct tsr_err *err)
{
    struct add a = { g, x, n, tsr_quant_gram_tile() };
    uint64_t   rows = (g->cols + BLOCK - 1) / BLOCK;
    return said(tsr_pool_for(pool, rows * (rows + 1) / 2, 1, add_blocks, &a), err);
}

/* ---- the largest eigenvalue ---------------------------------------------- */

static void mirror(struct tsr_quant_gram *g)
{
    uint64_t n = g->cols;
    for (uint64_t i0 = 0; i0 < n; i0 += BLOCK)
        for (uint64_t j0 = 0; j0 <= i0; j0 += BLOCK)
            for (uint64_t i = i0; i < least(i0 + BLOCK, n); i++)
                for (uint64_t j = j0; j < least(j0 + BLOCK, i); j++)
                    g->g[j * n + i] = g->g[i * n + j];
}

struct power {
    const struct tsr_quant_gram *g;
    double                      *basis; /* orthogonal vectors of length 1, one after the other */
    double                      *v, *y; /* [cols], the last of them and what comes next */
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
    return tsr_plugin_cancelled() ? TSR_E_CANCELLED : TSR_OK;
}

/* The sum of a[i] * b[i], by halves so that its rounding stays small. */
static double dot(const double *a, const double *b, uint64_t n)
{
    double sum = 0;
    if (n > BLOCK)
        return dot(a, b, n / 2) + dot(a + n / 2, b + n / 2, n - n / 2);
    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Whether all eigenvalues of the tridiagonal matrix with diagonal a [n] and off-diagonal b [n - 1] are
 * below x: all pivots of what remains of it are negative. */
static bool all_below(const double *a, const double *b, unsigned n, double x)
{
    double q = a[0] - x;
    for (unsigned i = 1; i < n && q < 0; i++)
        q = a[i] - x - b[i - 1] * b[i - 1] / q;
    return q < 0;
}

static double largest(const double *a, const double *b, unsigned n)
{
    double low = a[0], high = a[0];
    for (unsigned i = 0; i < n; i++) {
        double around = (i ? fabs(b[i - 1]) : 0) + (i + 1 < n ? fabs(b[i]) : 0);
        low = fmax(low, a[i]);
        high = fmax(high, a[i] + around);
    }
    for (;;) { /* bisects until there is no number in between */
        double middle = low + (high - low) / 2;
        if (!(middle > low && middle < high))
            return high;
        *(all_below(a, b, n, middle) ? &high : &low) = middle;
    }
}

/* Orthogonalizes y against the preceding vectors, twice: once leaves rounding errors. */
static void straighten(const struct power *p, unsigned vectors)
{
    uint64_t n = p->g->cols;
    for (int pass = 0; pass < 2; pass++)
        for (unsigned s = 0; s < vectors; s++) {
            const double *v = p->basis + s * n;
            double        part = dot(v, p->y, n);
            for (uint64_t i = 0; i < n; i++)
                p->y[i] -= part * v[i];
        }
}

static tsr_status iterate(struct power *p, struct tsr_pool *pool, double *value, bool *settled,
                          struct tsr_err *err)
{
    double   a[TSR_GRAM_STEPS], b[TSR_GRAM_STEPS], last = 0;
    uint64_t n = p->g->cols;
    unsigned steps = (unsigned)least(TSR_GRAM_STEPS, n), still = 0;
    for (uint64_t i = 0; i < n; i++)
        p->y[i] = 2 * tsr_uniform(0, 0, i) - 1;
    *value = 0;
    *settled = true;
    for (unsigned s = 0; s < steps; s++) {
        double length = sqrt(dot(p->y, p->y, n));
        if (s > 0 && !(length > TINY * *value))
            return TSR_OK; /* nothing is left outside of the vectors so far */
        if (s > 0)
            b[s - 1] = length;
        p->v = p->basis + s * n;
        for (uint64_t i = 0; i < n; i++)
            p->v[i] = p->y[i] / length;
        TSR_TRY(said(tsr_pool_for(pool, n, COLS, multiply, p), err));
        a[s] = dot(p->v, p->y, n);
        if (!isfinite(dot(p->y, p->y, n)))
            return tsr_fail(err, TSR_E_NUMERIC, "sums of products of the inputs are not finite");
        straighten(p, s + 1);
        *value = largest(a, b, s + 1);
        still = *value - last > CHANGE * *value ? 0 : still + 1;
        if (still == STILL)
            return TSR_OK;
        last = *value;
    }
    *settled = steps == n;
    return TSR_OK;
}

tsr_status tsr_quant_gram_top(struct tsr_quant_gram *g, struct tsr_pool *pool, double *value,
                              bool *settled, struct tsr_err *err)
{
    uint64_t     vectors = least(TSR_GRAM_STEPS, g->cols) + 1, bytes = vectors * g->cols * 8;
    struct power p = { .g = g, .basis = tsr_new_aligned(vectors * g->cols, sizeof(double)) };
    if (!p.basis)
        return tsr_fail_nomem(err, bytes, "vectors of an eigenvalue");
    p.y = p.basis + (vectors - 1) * g->cols;
    mirror(g);
    tsr_status st = iterate(&p, pool, value, settled, err);
    free(p.basis);
    return st;
}
