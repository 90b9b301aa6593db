/* shift.c - the asymmetric target: what the linears of a site should do for inputs that quantized
 * layers have changed.
 *
 * Li et al., "GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration", ICML 2025:
 * the packed weights Q see X, the original ones W saw X + D, and W (X + D) is the target of Q X.
 * The least squares of that is
 *
 *     ||W (X + D) - Q X||^2 = ||(W* - Q) X||^2 + what no Q changes,  W* = W + W D X^T (X X^T)^-1
 *
 * so that GPTQ with W* in the place of W aims at it.  The paper spreads the residual of one column
 * over the later ones only, when the column is reached; here all columns share all of it before
 * the first is rounded, with the damped Hessian that the pass uses too. */
#include "gptq.h"

static int is_zero(const float *a, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (a[i] != 0.0f)
            return 0;
    return 1;
}

static tsr_status check(const float *a, uint64_t n, const char *what, struct tsr_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++)
            if (!isfinite(a[i * n + j]))
                return tsr_fail(err, TSR_E_NUMERIC, "%s is %g at (%llu, %llu); it must be finite",
                                what, (double)a[i * n + j], (unsigned long long)i,
                                (unsigned long long)j);
    return TSR_OK;
}

/* a [cols, cols] with the columns of cross in the order of the factor. */
static void permute(const struct gptq_site *s, const float *cross, float *a)
{
    for (uint64_t i = 0; i < s->cols; i++)
        for (uint64_t j = 0; j < s->cols; j++)
            a[i * s->cols + j] = cross[i * s->cols + s->order[j]];
}

/* The factor is L with H^-1 = L L^T: (cross L) L^T, then its transpose with natural rows. */
static tsr_status solve(const struct gptq_site *s, double alpha, const float *cross, float *a,
                        struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = s->la;
    uint64_t                    n = s->cols, bytes = n * n * sizeof *a;
    permute(s, cross, a);
    memset(s->shift, 0, bytes);
    tsr_status st =
        la->gemm(la->ctx, n, n, n, (float)alpha, a, n, s->factor, n, 0, s->shift, n, err);
    memset(a, 0, bytes);
    if (st == TSR_OK)
        st = la->gemm(la->ctx, n, n, n, 1.0f, s->shift, n, s->factor, n, 1, a, n, err);
    for (uint64_t i = 0; i < n && st == TSR_OK; i++)
        for (uint64_t j = 0; j < n; j++)
            s->shift[s->order[i] * n + j] = a[j * n + i];
    return st == TSR_OK ? check(s->shift, n, "the correction for changed inputs", err) : st;
}

tsr_status gptq_shift_create(const struct gptq *q, struct gptq_site *s, const float *cross,
                             struct tsr_err *err)
{
    uint64_t   n = s->cols * s->cols, bytes = n * sizeof *cross;
    tsr_status st = check(cross, s->cols, "the cross term of the inputs", err);
    if (st != TSR_OK)
        return st;
    if (is_zero(cross, n)) { /* the bytes of the symmetric target */
        s->shift = NULL;
        return TSR_OK;
    }
    float *a = q->host->alloc(q->host->ctx, bytes, 64);
    if (!a)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for a correction",
                        (unsigned long long)bytes);
    st = solve(s, q->alpha, cross, a, err);
    q->host->release(q->host->ctx, a, bytes);
    return st;
}

tsr_status gptq_shift_load(struct gptq_tile *t, struct tsr_err *err)
{
    const struct tsr_linalg_v1 *la = t->site->la;
    uint64_t                    bytes = t->cols * GPTQ_LANES * sizeof *t->w;
    tsr_status                  st = TSR_OK;
    memset(t->e, 0, bytes);
    for (uint64_t lane = 0; lane < t->rows; lane++) {
        wt_row(t->row, t->src, t->first + lane);
        if ((st = wt_check(t->src, t->row, t->n_row + lane, err)) != TSR_OK)
            return st;
        for (uint64_t k = 0; k < t->cols; k++)
            t->e[k * GPTQ_LANES + lane] = t->row[k];
    }
    memcpy(t->w, t->e, bytes);
    if ((st = gptq_push(t, 0, t->cols, err)) == TSR_OK)
        st = la->gemm(la->ctx, t->cols, t->rows, t->cols, 1.0f, t->site->shift, t->cols, t->e,
                      GPTQ_LANES, 0, t->w, GPTQ_LANES, err);
    for (uint64_t i = 0; i < t->cols * GPTQ_LANES && st == TSR_OK; i++)
        if (!isfinite(t->w[i]))
            return tsr_fail(err, TSR_E_NUMERIC,
                            "tensor '%s': rows %llu to %llu: the correction leaves F32; a larger "
                            "damp helps",
                            t->src->name ? t->src->name : "?", (unsigned long long)t->n_row,
                            (unsigned long long)(t->n_row + t->rows - 1));
    return st;
}
