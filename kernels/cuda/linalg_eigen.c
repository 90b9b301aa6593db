/* linalg_eigen.c - the largest eigenvalue of a symmetric matrix: the CPU's power iteration, but that A v is made on
 * the device, in the same order. */
#include "linalg_internal.h"

#include <math.h>

/* Element i of splitmix64 from seed 0, its upper 53 bits as a number in [-1, 1). */
static double start_value(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1.0;
}

static tsr_status times_v(struct tsr_cuda *c, const struct k_symv *s, const double *v, double *y,
                          struct tsr_err *err)
{
    if (c->host->cancelled(c->host->ctx))
        return tsr_fail(err, TSR_E_CANCELLED, "linear algebra: stopped");
    tsr_status st = c->api->put(c->device, s->v, v, s->n * sizeof *v, err);
    if (st == TSR_OK)
        st = tsr_cuda_launch(c, NULL, KERNEL_k_symv, cuda_ceil(s->n, 256), 1, 1, 256, s, sizeof *s,
                             err);
    if (st == TSR_OK)
        st = tsr_cuda_flush(c, err);
    return st == TSR_OK ? c->api->get(c->device, y, s->y, s->n * sizeof *y, err) : st;
}

static tsr_status iterate(struct tsr_cuda *c, const struct k_symv *s, uint64_t steps,
                          double tolerance, double *v, double *value, struct tsr_err *err)
{
    double  last = 0.0;
    double *y = v + s->n;
    for (uint64_t i = 0; i < s->n; i++)
        v[i] = start_value(i);
    for (uint64_t step = 0; step < steps; step++) {
        double     vy = 0.0, vv = 0.0, yy = 0.0;
        tsr_status st = times_v(c, s, v, y, err);
        if (st != TSR_OK)
            return st;
        for (uint64_t i = 0; i < s->n; i++) {
            vy = fma(v[i], y[i], vy);
            vv = fma(v[i], v[i], vv);
            yy = fma(y[i], y[i], yy);
        }
        *value = vy / vv;
        if (!isfinite(yy))
            return tsr_fail(
                err, TSR_E_NUMERIC,
                "tsr_cuda_linalg_eigenvalue: the matrix holds NaN or Inf, or is too large");
        if (yy == 0 || (step > 0 && fabs(*value - last) <= tolerance * fabs(*value)))
            return TSR_OK;
        last = *value;
        double r = sqrt(yy);
        for (uint64_t i = 0; i < s->n; i++)
            v[i] = y[i] / r;
    }
    return TSR_OK;
}

tsr_status tsr_cuda_linalg_eigenvalue(void *ctx, uint64_t n, const float *a, uint64_t lda,
                                      uint64_t steps, double tolerance, double *value,
                                      struct tsr_err *err)
{
    struct tsr_cuda *c = ctx;
    if (!value || n == 0 || steps == 0 || !(tolerance >= 0))
        return tsr_fail(
            err, TSR_E_INVAL,
            "tsr_cuda_linalg_eigenvalue: wanted a matrix, a place for the value, at least one "
            "step and a tolerance of at least 0");
    tsr_status st = tsr_cuda_linalg_check("tsr_cuda_linalg_eigenvalue: A", a, n, n, lda, err);
    if (st != TSR_OK)
        return st;
    struct tsr_cuda_mat m = tsr_cuda_linalg_mat(a, n, n, lda, 0);
    uint64_t            bytes = 2 * n * sizeof(double), more = 0;
    double             *v = c->host->alloc(c->host->ctx, bytes, 64);
    if (!v)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for two vectors", U(bytes));
    st = tsr_cuda_linalg_begin(c, err);
    if (st == TSR_OK)
        st = tsr_cuda_bring(c, &m, 1, bytes, &more, err);
    struct k_symv s = { .a = m.p, .lda = m.dld, .v = more, .y = more + n * sizeof(double), .n = n };
    if (st == TSR_OK)
        st = iterate(c, &s, steps, tolerance, v, value, err);
    c->host->release(c->host->ctx, v, bytes);
    return tsr_cuda_linalg_end(c, st);
}
