/* factor.c - L with (H + ridge)^-1 = L L^T, from one Cholesky factorization and one triangular
 * inverse.
 *
 * With J the reversal of the order, J H J = C C^T gives H = U U^T with U = J C J upper triangular, so
 * H^-1 = U^-T U^-1 and L = U^-T: element (i,j) of L is element (n-1-j, n-1-i) of C^-1.  The inverse of
 * H itself, which loses digits if H is nearly singular, is never formed. */
#include "gptq.h"

#define ROWS  256u /* of C that are inverted at once */
#define STRIP 512u /* columns of the inverse that share a product; the part above them is zero */

/* The inverse of a lower triangle of n rows, in place, row by row from the top. */
static void invert_small(float *c, uint64_t ldc, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float  sum[ROWS] = { 0 };
        float *row = c + i * ldc, d = row[i];
        for (uint64_t k = 0; k < i; k++) {
            const float *above = c + k * ldc;
            for (uint64_t j = 0; j <= k; j++)
                sum[j] = sum[j] + row[k] * above[j];
        }
        for (uint64_t j = 0; j < i; j++)
            row[j] = -sum[j] / d;
        row[i] = 1.0f / d;
    }
}

/* Rows [p, p+m) of C become rows of C^-1: -D^-1 (C_p,before * C^-1_before) and D^-1, D the block
 * on the diagonal.  s is [ROWS, n]. */
static tsr_status invert_rows(const struct gptq_site *t, uint64_t p, uint64_t m, float *s,
                              struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = t->la;
    uint64_t                    n = t->cols;
    float                      *rows = t->factor + p * n;
    tsr_status                  st = TSR_OK;
    memset(s, 0, m * n * sizeof *s);
    for (uint64_t q = 0; q < p && st == TSR_OK; q += STRIP)
        st = la->gemm(la->ctx, m, gptq_min(STRIP, p - q), p - q, -1.0f, rows + q, n,
                      t->factor + q * n + q, n, 0, s + q, n, err);
    invert_small(rows + p, n, m);
    for (uint64_t i = 0; i < m; i++)
        memset(rows + i * n, 0, p * sizeof *rows);
    if (st == TSR_OK && p)
        st = la->gemm(la->ctx, m, p, m, 1.0f, rows + p, n, s, n, 0, rows, n, err);
    return st;
}

/* (i,j) <-> (n-1-j, n-1-i), in squares */
static void reflect(float *a, uint64_t n)
{
    for (uint64_t p = 0; p < n; p += GPTQ_SQUARE)
        for (uint64_t q = 0; p + q < n; q += GPTQ_SQUARE)
            for (uint64_t i = p; i < gptq_min(p + GPTQ_SQUARE, n); i++)
                for (uint64_t j = q; j < q + GPTQ_SQUARE && i + j + 1 < n; j++) {
                    float *x = a + i * n + j, *y = a + (n - 1 - j) * n + (n - 1 - i), v = *x;
                    *x = *y;
                    *y = v;
                }
}

/* C from H, and C^-1 in place of C: both on the device, on its own copy. */
static tsr_status on_device(const struct gptq_site *t, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = t->la;
    uint64_t                    n = t->cols, pivot = 0;
    int                         holds = gptq_can_hold(la);
    tsr_status                  st = holds ? la->hold(la->ctx, t->factor, n * n, err) : TSR_OK;
    if (st != TSR_OK)
        return st;
    st = la->cholesky(la->ctx, n, t->factor, n, &pivot, err);
    if (st == TSR_OK)
        st = la->triangle_inverse(la->ctx, n, t->factor, n, err);
    if (holds) {
        tsr_status end = la->drop(la->ctx, t->factor, st == TSR_OK, st == TSR_OK ? err : NULL);
        st = st != TSR_OK ? st : end;
    }
    return st;
}

/* The same on the CPU. */
static tsr_status in_blocks(const struct gptq *q, const struct gptq_site *t, struct tsr_err *err)
{
    const struct tsr_host      *host = q->host;
    const struct tsr_linalg_v1 *la = t->la;
    uint64_t                    n = t->cols, pivot = 0, bytes = gptq_min(ROWS, n) * n * 4;
    tsr_status                  st = la->cholesky(la->ctx, n, t->factor, n, &pivot, err);
    if (st != TSR_OK)
        return st;
    float *s = host->alloc(host->ctx, bytes, 64);
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for a Hessian's factor",
                        (unsigned long long)bytes);
    for (uint64_t p = 0; p < n && st == TSR_OK; p += ROWS)
        st = host->cancelled(host->ctx) ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                                        : invert_rows(t, p, gptq_min(ROWS, n - p), s, err);
    host->release(host->ctx, s, bytes);
    return st;
}

tsr_status gptq_factorize(const struct gptq *q, const struct gptq_site *t, struct tsr_err *err)
{
    tsr_status st = TSR_HAS(struct tsr_linalg_v1, t->la, triangle_inverse) ? on_device(t, err)
                                                                           : in_blocks(q, t, err);
    if (st == TSR_OK)
        reflect(t->factor, t->cols);
    return st;
}
