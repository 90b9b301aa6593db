/* linalg_solve.c - triangular solves, the inverse of L L^T, the largest eigenvalue. */
#include <math.h>
#include <string.h>

#include "backend.h"

#define PANEL_COLS 256u /* rows of an inverse that are made together */
#define STRIP      32u  /* columns that are solved together */

/* ---- small triangles over many rows ------------------------------------------ */

/* L X = X for columns of X. */
struct strips {
    struct tsr_cpu *c;
    const float    *l; /* [n,n], n up to LA_SOLVE */
    uint64_t        ldl, n;
    float          *x; /* [n,count] */
    uint64_t        ldx, count;
};

static tsr_status left_strips(void *arg, uint64_t begin, uint64_t end)
{
    const struct strips *s = arg;
    uint64_t             first = begin * STRIP;
    s->c->k->linalg->solve_left(s->l, s->ldl, s->n, s->x + first, s->ldx,
                                cpu_min(end * STRIP, s->count) - first);
    return TSR_OK;
}

static tsr_status each_strip(struct strips *s)
{
    return tsr_cpu_for(s->c, cpu_ceil(s->count, STRIP), s->n * s->n * STRIP / 8, left_strips, s);
}

tsr_status la_solve(struct tsr_cpu *c, const float *l, uint64_t ldl, uint64_t m, float *x,
                    uint64_t ldx, uint64_t n, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint64_t q = 0; q < m && st == TSR_OK; q += LA_SOLVE) {
        uint64_t      w = cpu_min(LA_SOLVE, m - q), next = q + w;
        struct strips s = { c, l + q * ldl + q, ldl, w, x + q * ldx, ldx, n };
        st = la_status(each_strip(&s), err);
        if (st != TSR_OK || next == m)
            break;
        struct la_gemm g = { m - next, n,           w,   -1.0f, l + next * ldl + q, ldl,
                             1,        x + q * ldx, ldx, 1,     x + next * ldx,     ldx,
                             0,        0,           0 };
        st = la_gemm(c, &g, err);
    }
    return st;
}

/* ---- the inverse ------------------------------------------------------------- */

/* Rows of L become rows of M = L^-1, from the top: t [PANEL_COLS, n] takes the new rows. */
static tsr_status invert_triangle(struct tsr_cpu *c, uint64_t n, float *l, uint64_t ldl, float *t,
                                  struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint64_t p = 0; p < n && st == TSR_OK; p += PANEL_COLS) {
        uint64_t w = cpu_min(PANEL_COLS, n - p), cols = p + w;
        float   *row = l + p * ldl;
        memset(t, 0, w * cols * sizeof *t);
        for (uint64_t i = 0; i < w; i++)
            t[i * cols + p + i] = 1.0f;
        struct la_gemm g = { w, p, p, -1.0f, row, ldl, 1, l, ldl, 1, t, cols, .b_lower = 1 };
        st = la_gemm(c, &g, err);
        if (st == TSR_OK)
            st = la_solve(c, row + p, ldl, w, t, cols, cols, err);
        for (uint64_t i = 0; i < w && st == TSR_OK; i++) {
            memcpy(row + i * ldl, t + i * cols, cols * sizeof *t);
            memset(row + i * ldl + cols, 0, (n - cols) * sizeof *t);
        }
    }
    return st;
}

tsr_status tsr_cpu_cholesky_inverse(void *ctx, uint64_t n, float *l, uint64_t ldl,
                                    struct tsr_err *err)
{
    struct tsr_cpu *c = ctx;
    tsr_status      st = la_check("cholesky_inverse: L", l, n, n, ldl, err);
    uint64_t        floats = cpu_min(n, PANEL_COLS) * n;
    if (st != TSR_OK || n == 0)
        return st;
    float *t = c->host->alloc(c->host->ctx, floats * sizeof *t, 64);
    if (!t)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for an inverse",
                        (unsigned long long)(floats * sizeof *t));
    st = invert_triangle(c, n, l, ldl, t, err);
    /* M^T M, rows from the top: those below still hold M */
    for (uint64_t p = 0; p < n && st == TSR_OK; p += PANEL_COLS) {
        uint64_t w = cpu_min(PANEL_COLS, n - p), cols = p + w;
        memset(t, 0, w * cols * sizeof *t);
        struct la_gemm g = { w, cols, n - p,       1.0f, l + p * ldl + p,
                             1, ldl,  l + p * ldl, ldl,  1,
                             t, cols, 0,           0,    0 };
        st = la_gemm(c, &g, err);
        for (uint64_t i = 0; i < w && st == TSR_OK; i++)
            memcpy(l + (p + i) * ldl, t + i * cols, (p + i + 1) * sizeof *t);
    }
    c->host->release(c->host->ctx, t, floats * sizeof *t);
    return st == TSR_OK ? la_mirror(c, n, l, ldl) : st;
}

/* ---- power iteration ----------------------------------------------------------- */

struct power {
    struct tsr_cpu *c;
    const float    *a;
    uint64_t        n, lda;
    double         *v, *y;
};

#define POWER_COLS 256u

static tsr_status power_cols(void *arg, uint64_t begin, uint64_t end)
{
    const struct power *p = arg;
    if (p->c->host->cancelled(p->c->host->ctx))
        return TSR_E_CANCELLED;
    for (uint64_t b = begin; b < end; b++) {
        uint64_t j = b * POWER_COLS, n = cpu_min(POWER_COLS, p->n - j);
        memset(p->y + j, 0, n * sizeof *p->y);
        p->c->k->linalg->symv(p->a + j, p->lda, p->n, n, p->v, p->y + j);
    }
    return TSR_OK;
}

/* Element i of splitmix64 from seed 0, its upper 53 bits as a number in [-1, 1). */
static double start_value(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1.0;
}

static tsr_status iterate(struct power *p, uint64_t steps, double tolerance, double *value,
                          struct tsr_err *err)
{
    double last = 0;
    for (uint64_t i = 0; i < p->n; i++)
        p->v[i] = start_value(i);
    for (uint64_t s = 0; s < steps; s++) {
        double     vy = 0, vv = 0, yy = 0;
        tsr_status st = la_status(tsr_cpu_for(p->c, cpu_ceil(p->n, POWER_COLS),
                                              p->n * POWER_COLS * 4, power_cols, p),
                                  err);
        if (st != TSR_OK)
            return st;
        for (uint64_t i = 0; i < p->n; i++) {
            vy = fma(p->v[i], p->y[i], vy);
            vv = fma(p->v[i], p->v[i], vv);
            yy = fma(p->y[i], p->y[i], yy);
        }
        *value = vy / vv;
        if (!isfinite(yy))
            return tsr_fail(err, TSR_E_NUMERIC,
                            "largest_eigenvalue: the matrix holds NaN or Inf, or is too large");
        if (yy == 0 || (s > 0 && fabs(*value - last) <= tolerance * fabs(*value)))
            return TSR_OK;
        last = *value;
        double r = sqrt(yy);
        for (uint64_t i = 0; i < p->n; i++)
            p->v[i] = p->y[i] / r;
    }
    return TSR_OK;
}

tsr_status tsr_cpu_largest_eigenvalue(void *ctx, uint64_t n, const float *a, uint64_t lda,
                                      uint64_t steps, double tolerance, double *value,
                                      struct tsr_err *err)
{
    struct tsr_cpu *c = ctx;
    tsr_status      st = la_check("largest_eigenvalue: A", a, n, n, lda, err);
    if (st != TSR_OK)
        return st;
    if (!value || n == 0 || steps == 0 || !(tolerance >= 0))
        return tsr_fail(err, TSR_E_INVAL,
                        "largest_eigenvalue: wanted a matrix, a place for the value, at least one "
                        "step and a tolerance of at least 0");
    uint64_t     bytes = 2 * n * sizeof(double);
    struct power p = { c, a, n, lda, c->host->alloc(c->host->ctx, bytes, 64), NULL };
    if (!p.v)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for two vectors",
                        (unsigned long long)bytes);
    p.y = p.v + n;
    st = iterate(&p, steps, tolerance, value, err);
    c->host->release(c->host->ctx, p.v, bytes);
    return st;
}
