/* linalg_cholesky.c - A = L L^T.
 *
 * Columns are factored w at a time. One thread factors their square on the diagonal, STEP rows at a time,
 * while the others still update the rows below it. The rows below are then independent: a task takes STRIP
 * of them, solves them in the panel layout of the multiplication, and keeps the panels for the update of
 * everything right of these columns, in addition to the matrix's own rows. So a row of the matrix, which
 * is far from the next one in memory, is read once and written once. Every element is one chain of FMAs
 * over k in order.
 */
#include <string.h>

#include "backend.h"

#define STEP 24u /* columns that are solved together: whole tiles of every instruction set */
#define W_MAX                                                                                      \
    480u /* columns that are factored before the rest is updated: whole STEPs, up to LA_KC */
#define W_MIN 240u /* of small matrices, whose updates do not hide the time of the squares */
#define LARGE 4096u
#define STRIP 96u /* rows of a task: whole panels of both factors */
#define LANES 32u /* floats between rows of a small triangle; whole panels of B */

_Static_assert(W_MIN % STEP == 0 && W_MAX % STEP == 0 && W_MAX <= LA_KC, "whole steps");
_Static_assert(STEP <= LA_SOLVE && STEP <= LANES, "small triangles");

struct chol {
    struct tsr_cpu *c;
    float          *a; /* the matrix from the diagonal on: its first w columns are factored now */
    uint64_t        lda, n, w;
    uint64_t        at, bad;   /* columns before a; the first bad pivot, from a on */
    float          *triangles; /* [w / STEP][STEP][LANES]: the diagonal of these columns */
    float          *square;    /* panels of A: the rows of the square, negated */
    float          *rows;      /* panels of B: STEP of them */
    float          *pa, *pb;   /* panels of the rows below */
};

/* `count` rows at a, columns [0,cols), whole STEPs: X L^T = X, through panels of B at x.  All panels
 * take a step before the next one, which reads the square's rows once. */
static void solve_rows(const struct chol *h, float *a, float *x, uint64_t count, uint64_t cols)
{
    const struct tsr_cpu_linalg_kernels *k = h->c->k->linalg;
    k->pack(x, h->w * k->nr, 1, a, h->lda, 1, count, cols, 1.0f);
    for (uint64_t q = 0; q < cols; q += STEP)
        for (uint64_t p = 0; p < count; p += k->nr) {
            float *b = x + p * h->w, *own = b + q * k->nr;
            for (uint64_t i = 0; i < STEP; i += k->mr)
                k->tile(h->square + (q + i) * h->w, b, q, own + i * k->nr, k->nr, NULL);
            k->solve_left(h->triangles + q * LANES, LANES, STEP, own, k->nr, k->nr);
        }
    for (uint64_t p = 0; p < count; p += k->nr)
        k->unpack(a + p * h->lda, h->lda, x + p * h->w, cpu_min(k->nr, count - p), cols);
}

/* Rows [r, r + m) of the square: the remaining update of the diagonal, then its triangle. Returns the
 * first bad pivot of them, or m. */
static uint64_t factor_rows(const struct chol *h, uint64_t r, uint64_t m)
{
    const struct tsr_cpu_linalg_kernels *k = h->c->k->linalg;
    float *a = h->a + r * h->lda, *t = h->triangles + r * LANES, *own = h->square + r * h->w;
    solve_rows(h, a, h->rows, m, r);
    for (uint64_t i = 0; i < m; i++)
        memcpy(t + i * LANES, a + i * h->lda + r, m * sizeof *t);
    k->regroup(own, h->rows, h->w, m, r);
    for (uint64_t i = 0; i < m; i += k->mr)
        for (uint64_t j = 0; j < m; j += k->nr)
            k->tile(own + i * h->w, h->rows + j * h->w, r, t + i * LANES + j, LANES, NULL);
    uint64_t bad = k->factor(t, LANES, m);
    for (uint64_t i = 0; i < m; i++) {
        memcpy(a + i * h->lda + r, t + i * LANES, (i + 1) * sizeof *t);
        memset(a + i * h->lda + r + i + 1, 0, (h->n - r - i - 1) * sizeof *t);
    }
    return bad;
}

/* Strips of rows below the square. */
static tsr_status strips(void *arg, uint64_t begin, uint64_t end)
{
    const struct chol *h = arg;
    for (uint64_t s = begin; s < end; s++) {
        uint64_t r = s * STRIP, count = cpu_min(STRIP, h->n - h->w - r);
        if (h->c->host->cancelled(h->c->host->ctx))
            return TSR_E_CANCELLED;
        solve_rows(h, h->a + (h->w + r) * h->lda, h->pb + r * h->w, count, h->w);
        h->c->k->linalg->regroup(h->pa + r * h->w, h->pb + r * h->w, h->w, count, h->w);
    }
    return TSR_OK;
}

/* The square on the diagonal of the first w columns, or of the last ones. */
static tsr_status factor_square(struct chol *h)
{
    uint64_t square = cpu_min(h->w, h->n);
    for (uint64_t r = 0; r < square; r += STEP) {
        uint64_t m = cpu_min(STEP, square - r), at = factor_rows(h, r, m);
        if (at < m) {
            h->bad = r + at;
            return TSR_E_NUMERIC;
        }
    }
    return TSR_OK;
}

static void next_columns(struct chol *h)
{
    h->a += h->w * h->lda + h->w;
    h->n -= h->w;
    h->at += h->w;
}

/* Updates and factors the next square, right of the solved columns. */
static tsr_status next_square(void *arg)
{
    struct chol *h = arg;
    next_columns(h);
    uint64_t       n = cpu_min(h->w, h->n);
    struct la_gemm g = { .m = n, .n = n, .k = h->w, .c = h->a, .ldc = h->lda, .lower = 1 };
    tsr_status     st = la_tiles_here(h->c, &g, h->pa, h->pb);
    return st == TSR_OK ? factor_square(h) : st;
}

/* The rows below a square, then everything right of them; the next square is in h then.  One thread does
 * that while the others update the rest. */
static tsr_status next_step(struct chol *h)
{
    tsr_status st =
        tsr_cpu_for(h->c, cpu_ceil(h->n - h->w, STRIP), h->w * h->w * STRIP / 8, strips, h);
    if (st != TSR_OK)
        return st;
    uint64_t       left = h->n - h->w, square = cpu_min(h->w, left);
    struct la_gemm g = { .m = left - square,
                         .n = left,
                         .k = h->w,
                         .c = h->a + (h->w + square) * h->lda + h->w,
                         .ldc = h->lda,
                         .lower = 1,
                         .below = square };
    return la_tiles(h->c, &g, h->pa + square * h->w, h->pb, next_square, h);
}

tsr_status tsr_cpu_cholesky(void *ctx, uint64_t n, float *a, uint64_t lda, uint64_t *pivot,
                            struct tsr_err *err)
{
    struct tsr_cpu *c = ctx;
    struct chol     h = { .c = c, .a = a, .lda = lda, .n = n, .w = n < LARGE ? W_MIN : W_MAX };
    tsr_status      st = la_check("cholesky: A", a, n, n, lda, err);
    if (st != TSR_OK || n == 0)
        return st;
    uint64_t below = n > h.w ? cpu_ceil(n - h.w, STRIP) * STRIP : 0;
    uint64_t floats = h.w * LANES + h.w * h.w + h.w * LANES + 2 * below * h.w;
    h.triangles = la_take(c, floats);
    if (!h.triangles)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for a Cholesky factor",
                        (unsigned long long)floats * 4);
    h.square = h.triangles + h.w * LANES;
    h.rows = h.square + h.w * h.w;
    h.pa = h.rows + h.w * LANES;
    h.pb = h.pa + below * h.w;
    st = factor_square(&h);
    while (st == TSR_OK && h.n > h.w)
        st = next_step(&h);
    if (st == TSR_E_NUMERIC) {
        if (pivot)
            *pivot = h.at + h.bad;
        st = tsr_fail(err, st,
                      "cholesky: pivot %llu is %g, not positive: the matrix is not positive "
                      "definite",
                      (unsigned long long)(h.at + h.bad), (double)h.a[h.bad * lda + h.bad]);
    }
    la_give(c, h.triangles);
    return la_status(st, err);
}
