/* linalg.c - "tessera.linalg/1" of a device under numerics: fast: each result against the definition in
 * double, within what sums in F32 may differ by, whatever their order; gaps between rows untouched. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"
#include "tessera/linalg.h"

#define N_MOST 90u
#define GAP    0x1.abcdep+60f /* between rows; nobody writes it */

/* A sum of k products in F32 is off by at most k * 2^-24 of the sum of their magnitudes, to first order;
 * twice that, and the roundings of alpha, of what stood there and of the end. */
static double room(uint64_t k)
{
    return (double)(k + 4) * 0x1p-23;
}

struct grid {
    float   *v;
    uint64_t rows, cols, ld;
};

static struct grid grid(struct pair *p, uint64_t rows, uint64_t cols)
{
    struct grid g = { .rows = rows, .cols = cols, .ld = cols + pair_draw(p, 7) };
    g.v = malloc(rows * g.ld * sizeof *g.v);
    if (!g.v)
        abort();
    for (uint64_t i = 0; i < rows * g.ld; i++)
        g.v[i] = i % g.ld < cols ? pair_number(p) : GAP;
    return g;
}

static struct grid copy(const struct grid *from)
{
    struct grid g = *from;
    g.v = malloc(g.rows * g.ld * sizeof *g.v);
    if (!g.v)
        abort();
    memcpy(g.v, from->v, g.rows * g.ld * sizeof *g.v);
    return g;
}

static double at(const struct grid *g, uint64_t i, uint64_t j)
{
    return (double)g->v[i * g->ld + j];
}

static bool wrong(struct pair *p, const char *what, uint64_t i, uint64_t j, double got, double want,
                  double within)
{
    (void)tsr_fail(&p->err.err, TSR_E_NUMERIC, "%s: (%llu,%llu) is %.9g, wanted %.9g within %.3g",
                   what, (unsigned long long)i, (unsigned long long)j, got, want, within);
    return false;
}

static bool gaps_kept(struct pair *p, const struct grid *g, const char *what)
{
    for (uint64_t i = 0; i < g->rows; i++)
        for (uint64_t j = g->cols; j < g->ld; j++)
            if (g->v[i * g->ld + j] != GAP)
                return wrong(p, what, i, j, at(g, i, j), (double)GAP, 0.0);
    return true;
}

/* c against before + alpha * a b, a [m,k] or, with a_transposed, [k,m]. */
static bool is_product(struct pair *p, const struct grid *c, const struct grid *before, float alpha,
                       const struct grid *a, bool a_transposed, const struct grid *b,
                       bool b_transposed, const char *what)
{
    uint64_t k = a_transposed ? a->rows : a->cols;
    for (uint64_t i = 0; i < c->rows; i++)
        for (uint64_t j = 0; j < c->cols; j++) {
            double sum = 0.0, size = 0.0, was = at(before, i, j);
            for (uint64_t x = 0; x < k; x++) {
                double v = (a_transposed ? at(a, x, i) : at(a, i, x)) *
                           (b_transposed ? at(b, j, x) : at(b, x, j));
                sum += v;
                size += fabs(v);
            }
            sum = was + (double)alpha * sum;
            size = fabs(was) + fabs((double)alpha) * size;
            if (!(fabs(at(c, i, j) - sum) <= room(k) * size + 1e-36))
                return wrong(p, what, i, j, at(c, i, j), sum, room(k) * size);
        }
    return gaps_kept(p, c, what);
}

static bool fails_with(struct pair *p, const char *what, tsr_status got, tsr_status want)
{
    if (got == want)
        return true;
    (void)tsr_fail(&p->err.err, TSR_E_NUMERIC, "%s: status %d, wanted %d", what, (int)got,
                   (int)want);
    return false;
}

static bool hold(struct pair *p, const struct tsr_linalg_v1 *l, const struct grid *g)
{
    return l->hold(l->ctx, g->v, g->rows * g->ld, &p->err.err) == TSR_OK;
}

static bool drop(struct pair *p, const struct tsr_linalg_v1 *l, const struct grid *g, bool fetch)
{
    return l->drop(l->ctx, g->v, fetch, &p->err.err) == TSR_OK;
}

static bool check_gemm(struct pair *p, const struct tsr_linalg_v1 *l, bool held)
{
    uint64_t    m = 1 + pair_draw(p, N_MOST), n = 1 + pair_draw(p, N_MOST);
    uint64_t    k = 1 + pair_draw(p, N_MOST);
    bool        t = pair_draw(p, 2);
    float       alpha = pair_number(p);
    struct grid a = grid(p, m, k), b = t ? grid(p, n, k) : grid(p, k, n), c = grid(p, m, n);
    struct grid before = copy(&c);
    bool        ok = !held || (hold(p, l, &a) && hold(p, l, &b) && hold(p, l, &c));
    ok = ok &&
         l->gemm(l->ctx, m, n, k, alpha, a.v, a.ld, b.v, b.ld, t, c.v, c.ld, &p->err.err) == TSR_OK;
    ok = ok && (!held || drop(p, l, &c, true));
    ok = ok && is_product(p, &c, &before, alpha, &a, false, &b, t, "gemm");
    if (ok && held) /* a part of what is held, behind its beginning */
        ok = l->gemm(l->ctx, m - m / 2, n, k - k / 2, alpha, a.v + m / 2 * a.ld + k / 2, a.ld, b.v,
                     b.ld, t, before.v, before.ld, &p->err.err) == TSR_OK &&
             gaps_kept(p, &before, "gemm of a part") && drop(p, l, &a, false) &&
             drop(p, l, &b, false);
    free(a.v);
    free(b.v);
    free(c.v);
    free(before.v);
    return ok;
}

/* The sum of several calls, in place on the host or kept by the device. */
static bool check_syrk(struct pair *p, const struct tsr_linalg_v1 *l, bool held)
{
    uint64_t    n = 1 + pair_draw(p, N_MOST), rows = 2 + pair_draw(p, N_MOST), cut = rows / 2;
    float       alpha = pair_number(p);
    struct grid x = grid(p, rows, n), c = grid(p, n, n), before;
    for (uint64_t i = 0; i < n; i++) /* what it adds to is symmetric */
        for (uint64_t j = 0; j < i; j++)
            c.v[j * c.ld + i] = c.v[i * c.ld + j];
    before = copy(&c);
    bool ok = !held || (hold(p, l, &x) && hold(p, l, &c));
    ok = ok && l->syrk(l->ctx, n, cut, alpha, x.v, x.ld, c.v, c.ld, &p->err.err) == TSR_OK &&
         l->syrk(l->ctx, n, rows - cut, alpha, x.v + cut * x.ld, x.ld, c.v, c.ld, &p->err.err) ==
             TSR_OK;
    if (ok && held) {
        if (n > 1)
            ok = fails_with(p, "a hold of a part", l->hold(l->ctx, c.v, n, NULL), TSR_E_INVAL);
        ok = ok && memcmp(c.v, before.v, n * c.ld * sizeof *c.v) == 0; /* the host's, older */
        ok = ok && drop(p, l, &c, true) && drop(p, l, &x, false);
        ok = ok && fails_with(p, "drop", l->drop(l->ctx, c.v, 0, NULL), TSR_E_INVAL);
    }
    ok = ok && is_product(p, &c, &before, alpha, &x, true, &x, false, "syrk");
    for (uint64_t i = 0; i < n && ok; i++)
        for (uint64_t j = 0; j < i && ok; j++)
            if (!(at(&c, i, j) == at(&c, j, i)))
                ok = wrong(p, "syrk, mirrored", j, i, at(&c, j, i), at(&c, i, j), 0.0);
    free(x.v);
    free(c.v);
    free(before.v);
    return ok;
}

/* Parts of what is held: one comes alone, one goes alone, and products read and write what the device
 * then has. */
static bool check_parts(struct pair *p, const struct tsr_linalg_v1 *l)
{
    uint64_t    m = 2 + pair_draw(p, N_MOST), n = 1 + pair_draw(p, N_MOST);
    uint64_t    k = 1 + pair_draw(p, N_MOST), row = 1 + pair_draw(p, (uint32_t)m - 1);
    struct grid a = grid(p, m, k), b = grid(p, k, n), c = grid(p, m, n);
    struct grid before = copy(&c), was = copy(&c), full;
    bool        ok = hold(p, l, &c);
    ok = ok &&
         l->gemm(l->ctx, m, n, k, 1.0f, a.v, a.ld, b.v, b.ld, 0, c.v, c.ld, &p->err.err) == TSR_OK;
    /* one row, and its gap */
    ok = ok && l->fetch(l->ctx, c.v + row * c.ld, c.ld, &p->err.err) == TSR_OK;
    ok = ok && memcmp(c.v, was.v, row * c.ld * sizeof *c.v) == 0 &&
         memcmp(c.v + (row + 1) * c.ld, was.v + (row + 1) * c.ld,
                (m - row - 1) * c.ld * sizeof *c.v) == 0;
    full = copy(&c);
    ok = ok && l->fetch(l->ctx, full.v, 0, &p->err.err) == TSR_OK; /* nothing, of nothing held */
    /* another row is made anew here: the device adds to that one */
    for (uint64_t j = 0; j < n; j++)
        before.v[(row - 1) * c.ld + j] = c.v[(row - 1) * c.ld + j] = pair_number(p);
    ok = ok && l->push(l->ctx, c.v + (row - 1) * c.ld, n, &p->err.err) == TSR_OK;
    ok = ok && l->gemm(l->ctx, 1, n, k, 1.0f, a.v + (row - 1) * a.ld, a.ld, b.v, b.ld, 0,
                       c.v + (row - 1) * c.ld, c.ld, &p->err.err) == TSR_OK;
    ok = ok &&
         fails_with(p, "fetch of what is not held", l->fetch(l->ctx, full.v, 1, NULL),
                    TSR_E_INVAL) &&
         fails_with(p, "push after the end", l->push(l->ctx, c.v + (m - 1) * c.ld, c.ld + 1, NULL),
                    TSR_E_INVAL);
    ok = ok && drop(p, l, &c, true) &&
         is_product(p, &c, &before, 1.0f, &a, false, &b, false, "parts");
    if (ok && memcmp(full.v + row * c.ld, c.v + row * c.ld, c.ld * sizeof *c.v) != 0)
        ok = wrong(p, "fetch", row, 0, at(&full, row, 0), at(&c, row, 0), 0.0);
    free(a.v);
    free(b.v);
    free(c.v);
    free(before.v);
    free(was.v);
    free(full.v);
    return ok;
}

/* X^T X + n: no condition number above a few hundred. */
static struct grid positive(struct pair *p, uint64_t n)
{
    struct grid x = grid(p, n, n), a = grid(p, n, n);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j <= i; j++) {
            double sum = i == j ? (double)n : 0.0;
            for (uint64_t k = 0; k < n; k++)
                sum += fmax(-2.0, fmin(2.0, at(&x, k, i))) * fmax(-2.0, fmin(2.0, at(&x, k, j)));
            a.v[i * a.ld + j] = a.v[j * a.ld + i] = (float)sum;
        }
    free(x.v);
    return a;
}

/* Lower triangles: zeros above; the product of two of them, or of one and the other's transpose. */
static bool is_lower(struct pair *p, const struct grid *l, const char *what)
{
    for (uint64_t i = 0; i < l->rows; i++)
        for (uint64_t j = i + 1; j < l->cols; j++)
            if (!(at(l, i, j) == 0.0))
                return wrong(p, what, i, j, at(l, i, j), 0.0, 0.0);
    return gaps_kept(p, l, what);
}

static bool multiplies_to(struct pair *p, const struct grid *x, const struct grid *y,
                          bool y_transposed, const struct grid *want, double within,
                          const char *what)
{
    uint64_t n = x->rows;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++) {
            double sum = 0.0, size = 0.0, goal = want ? at(want, i, j) : i == j ? 1.0 : 0.0;
            for (uint64_t k = 0; k < n; k++) {
                double v = at(x, i, k) * (y_transposed ? at(y, j, k) : at(y, k, j));
                sum += v;
                size += fabs(v);
            }
            if (!(fabs(sum - goal) <= within * size + 1e-30))
                return wrong(p, what, i, j, sum, goal, within * size);
        }
    return true;
}

static bool check_factors(struct pair *p, const struct tsr_linalg_v1 *l, bool held)
{
    uint64_t    n = 1 + pair_draw(p, N_MOST), pivot = n;
    struct grid a = positive(p, n), f = copy(&a), inv, both;
    bool        ok = (!held || hold(p, l, &f)) &&
              l->cholesky(l->ctx, n, f.v, f.ld, &pivot, &p->err.err) == TSR_OK &&
              (!held || drop(p, l, &f, true));
    ok = ok && is_lower(p, &f, "cholesky");
    inv = copy(&f);
    both = copy(&f);
    ok = ok && multiplies_to(p, &f, &f, true, &a, room(n), "cholesky");
    ok = ok && l->triangle_inverse(l->ctx, n, inv.v, inv.ld, &p->err.err) == TSR_OK &&
         is_lower(p, &inv, "triangle_inverse") &&
         /* a residual is bounded by the sum's own magnitudes, times the order once more */
         multiplies_to(p, &f, &inv, false, NULL, 4 * room(n), "triangle_inverse");
    ok = ok && (!held || hold(p, l, &both)) &&
         l->cholesky_inverse(l->ctx, n, both.v, both.ld, &p->err.err) == TSR_OK &&
         (!held || drop(p, l, &both, true)) && gaps_kept(p, &both, "cholesky_inverse") &&
         /* the condition is a few hundred at most */
         multiplies_to(p, &a, &both, false, NULL, 400 * room(n), "cholesky_inverse");
    for (uint64_t i = 0; i < n && ok; i++)
        for (uint64_t j = 0; j < i && ok; j++)
            if (!(at(&both, i, j) == at(&both, j, i)))
                ok = wrong(p, "cholesky_inverse, mirrored", j, i, at(&both, j, i), at(&both, i, j),
                           0.0);
    /* a bad pivot is named; so is a triangle without an inverse, and NaN */
    uint64_t bad = pair_draw(p, n);
    a.v[bad * a.ld + bad] = -1.0f;
    ok = ok &&
         fails_with(p, "cholesky of a negative diagonal",
                    l->cholesky(l->ctx, n, a.v, a.ld, &pivot, NULL), TSR_E_NUMERIC) &&
         (pivot == bad || wrong(p, "cholesky: pivot", bad, bad, (double)pivot, (double)bad, 0.0));
    f.v[bad * f.ld + bad] = 0.0f;
    ok = ok && fails_with(p, "triangle_inverse of a zero",
                          l->triangle_inverse(l->ctx, n, f.v, f.ld, NULL), TSR_E_NUMERIC);
    f.v[bad * f.ld + bad] = NAN;
    ok = ok && fails_with(p, "cholesky of NaN", l->cholesky(l->ctx, n, f.v, f.ld, &pivot, NULL),
                          TSR_E_NUMERIC);
    free(a.v);
    free(f.v);
    free(inv.v);
    free(both.v);
    return ok;
}

/* To the bit: the order is fixed there. */
static bool check_eigenvalue(struct pair *p, const struct tsr_linalg_v1 *l,
                             const struct tsr_linalg_v1 *cpu)
{
    uint64_t    n = 1 + pair_draw(p, 4 * N_MOST);
    struct grid a = positive(p, n);
    double      got = 0.0, want = 1.0;
    bool ok = l->largest_eigenvalue(l->ctx, n, a.v, a.ld, 5, 0.0, &got, &p->err.err) == TSR_OK &&
              cpu->largest_eigenvalue(cpu->ctx, n, a.v, a.ld, 5, 0.0, &want, &p->err.err) == TSR_OK;
    if (ok && !(got == want))
        ok = wrong(p, "largest_eigenvalue", 0, 0, got, want, 0.0);
    a.v[0] = NAN;
    ok = ok &&
         fails_with(p, "largest_eigenvalue of NaN",
                    l->largest_eigenvalue(l->ctx, n, a.v, a.ld, 5, 0.0, &got, NULL), TSR_E_NUMERIC);
    free(a.v);
    return ok;
}

static bool check_refusals(struct pair *p, const struct tsr_linalg_v1 *l)
{
    float  x[4] = { 1.0f, 0.0f, 0.0f, 1.0f };
    double v;
    return fails_with(p, "syrk of NULL", l->syrk(l->ctx, 2, 2, 1.0f, NULL, 2, x, 2, NULL),
                      TSR_E_INVAL) &&
           fails_with(p, "rows that overlap",
                      l->gemm(l->ctx, 2, 2, 1, 1.0f, x, 1, x, 2, 0, x, 1, NULL), TSR_E_INVAL) &&
           fails_with(p, "no size",
                      l->gemm(l->ctx, 0, 2, 2, 1.0f, NULL, 2, NULL, 2, 0, NULL, 2, NULL), TSR_OK) &&
           fails_with(p, "no steps", l->largest_eigenvalue(l->ctx, 2, x, 2, 0, 0.0, &v, NULL),
                      TSR_E_INVAL) &&
           fails_with(p, "too large",
                      l->syrk(l->ctx, UINT64_MAX / 2, 2, 1.0f, x, UINT64_MAX / 2, x, UINT64_MAX / 2,
                              NULL),
                      TSR_E_INVAL) &&
           fails_with(p, "hold of nothing", l->hold(l->ctx, x, 0, NULL), TSR_E_INVAL) &&
           fails_with(p, "hold", l->hold(l->ctx, x, 4, NULL), TSR_OK) &&
           fails_with(p, "hold again", l->hold(l->ctx, x, 4, NULL), TSR_OK) &&
           fails_with(p, "drop", l->drop(l->ctx, x, 0, NULL), TSR_OK) &&
           fails_with(p, "drop again", l->drop(l->ctx, x, 0, NULL), TSR_OK) &&
           fails_with(p, "a third drop", l->drop(l->ctx, x, 0, NULL), TSR_E_INVAL);
}

bool pair_check_linalg(struct pair *p, uint64_t count)
{
    const struct tsr_linalg_v1 *l = p->d[1].t->extension(p->d[1].self, TSR_LINALG);
    const struct tsr_linalg_v1 *cpu = p->d[0].t->extension(p->d[0].self, TSR_LINALG);
    if (!l || !cpu || !l->triangle_inverse || !l->hold || !l->drop || !l->fetch || !l->push) {
        (void)tsr_fail(&p->err.err, TSR_E_DEVICE, "this device offers no %s", TSR_LINALG);
        return false;
    }
    bool ok = check_refusals(p, l);
    for (uint64_t i = 0; i < count && ok; i++) {
        bool held = i % 2;
        ok = check_gemm(p, l, held) && check_syrk(p, l, held) && check_factors(p, l, held) &&
             check_parts(p, l) && check_eigenvalue(p, l, cpu);
        p->checked += 5;
    }
    return ok;
}
