/* linalg_cholesky.c - A = L L^T.
 *
 * Columns are factored W at a time.  Their square on the diagonal is done by one thread, STEP rows
 * after STEP rows, while the others still update what lies below it.  The rows below are independent
 * then: a task takes STRIP of them, solves them in panels as multiplication wants them, and leaves
 * them there for the update of everything right of these columns, beside the matrix's own rows.  So a
 * row of the matrix, which lies far from the next one, is read once and written once.  Every element
 * is one chain of FMAs over k in order.
 */
#include <string.h>

#include "backend.h"

#define STEP  24u /* columns that are solved together: whole tiles of every instruction set */
#define W     240u /* columns that are factored before the rest is updated: whole STEPs, up to LA_KC */
#define STRIP 96u /* rows of a task: whole panels of both factors */
#define LANES 32u /* floats between rows of a small triangle; whole panels of B */

_Static_assert(W % STEP == 0 && W <= LA_KC && STEP <= LA_SOLVE && STEP <= LANES, "blocks nest");

struct chol {
    struct tsr_cpu *c;
    float          *a; /* the matrix from the diagonal on: its first W columns are factored now */
    uint64_t        lda, n;
    uint64_t        at, bad;   /* columns before a; the first bad pivot, from a on */
    float          *triangles; /* [W / STEP][STEP][LANES]: the diagonal of these columns */
    float          *square;    /* panels of A: the rows of the square, negated */
    float          *rows;      /* panels of B: STEP of them */
    float          *pa, *pb;   /* panels of the rows below */
};

/* X L^T = X for one panel of B, columns [0,cols): whole STEPs. */
static void solve_panel(const struct chol *h, float *x, uint64_t cols)
{
    const struct tsr_cpu_linalg_kernels *k = h->c->k->linalg;
    for (uint64_t q = 0; q < cols; q += STEP) {
        for (uint64_t i = q; i < q + STEP; i += k->mr)
            k->tile(h->square + i * W, x, q, x + i * k->nr, k->nr, NULL);
        k->solve_left(h->triangles + q * LANES, LANES, STEP, x + q * k->nr, k->nr, k->nr);
    }
}

/* `count` rows at a, columns [0,cols), through panels of B at x. */
static void solve_rows(const struct chol *h, float *a, float *x, uint64_t count, uint64_t cols)
{
    const struct tsr_cpu_linalg_kernels *k = h->c->k->linalg;
    k->pack(x, W * k->nr, 1, a, h->lda, 1, count, cols, 1.0f);
    for (uint64_t i = 0; i < count; i += k->nr) {
        solve_panel(h, x + i * W, cols);
        k->unpack(a + i * h->lda, h->lda, x + i * W, cpu_min(k->nr, count - i), cols);
    }
}

/* Rows [r, r + m) of the square: what is left of the diagonal, then the triangle on it.  Returns the
 * first bad pivot of them, or m. */
static uint64_t factor_rows(const struct chol *h, uint64_t r, uint64_t m)
{
    const struct tsr_cpu_linalg_kernels *k = h->c->k->linalg;
    float *a = h->a + r * h->lda, *t = h->triangles + r * LANES, *own = h->square + r * W;
    solve_rows(h, a, h->rows, m, r);
    for (uint64_t i = 0; i < m; i++)
        memcpy(t + i * LANES, a + i * h->lda + r, m * sizeof *t);
    k->regroup(own, h->rows, W, m, r);
    for (uint64_t i = 0; i < m; i += k->mr)
        for (uint64_t j = 0; j < m; j += k->nr)
            k->tile(own + i * W, h->rows + j * W, r, t + i * LANES + j, LANES, NULL);
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
        uint64_t r = s * STRIP, count = cpu_min(STRIP, h->n - W - r);
        if (h->c->host->cancelled(h->c->host->ctx))
            return TSR_E_CANCELLED;
        solve_rows(h, h->a + (W + r) * h->lda, h->pb + r * W, count, W);
        h->c->k->linalg->regroup(h->pa + r * W, h->pb + r * W, W, count, W);
    }
    return TSR_OK;
}

/* The square on the diagonal of the first W columns, or of the last ones. */
static tsr_status factor_square(struct chol *h)
{
    uint64_t square = cpu_min(W, h->n);
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
    h->a += W * h->lda + W;
    h->n -= W;
    h->at += W;
}

/* Of what is right of the columns that were solved, the next square is updated and factored. */
static tsr_status next_square(void *arg)
{
    struct chol *h = arg;
    next_columns(h);
    uint64_t       n = cpu_min(W, h->n);
    struct la_gemm g = { .m = n, .n = n, .k = W, .c = h->a, .ldc = h->lda, .lower = 1 };
    tsr_status     st = la_tiles_here(h->c, &g, h->pa, h->pb);
    return st == TSR_OK ? factor_square(h) : st;
}

/* The rows below a square, then everything right of them; the next square is in h then.  One thread does
 * that while the others update the rest. */
static tsr_status next_step(struct chol *h)
{
    tsr_status st = tsr_cpu_for(h->c, cpu_ceil(h->n - W, STRIP), W * W * STRIP / 8, strips, h);
    if (st != TSR_OK)
        return st;
    uint64_t       left = h->n - W, square = cpu_min(W, left);
    struct la_gemm g = { .m = left - square,
                         .n = left,
                         .k = W,
                         .c = h->a + (W + square) * h->lda + W,
                         .ldc = h->lda,
                         .lower = 1,
                         .below = square };
    return la_tiles(h->c, &g, h->pa + square * W, h->pb, next_square, h);
}

tsr_status tsr_cpu_cholesky(void *ctx, uint64_t n, float *a, uint64_t lda, uint64_t *pivot,
                            struct tsr_err *err)
{
    struct tsr_cpu *c = ctx;
    struct chol     h = { .c = c, .a = a, .lda = lda, .n = n };
    tsr_status      st = la_check("cholesky: A", a, n, n, lda, err);
    if (st != TSR_OK || n == 0)
        return st;
    uint64_t below = n > W ? cpu_ceil(n - W, STRIP) * STRIP : 0;
    uint64_t floats = W * LANES + W * W + W * LANES + 2 * below * W;
    h.triangles = la_take(c, floats);
    if (!h.triangles)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for a Cholesky factor",
                        (unsigned long long)floats * 4);
    h.square = h.triangles + W * LANES;
    h.rows = h.square + W * W;
    h.pa = h.rows + W * LANES;
    h.pb = h.pa + below * W;
    st = factor_square(&h);
    while (st == TSR_OK && h.n > W)
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
