/* What the inputs of quantized layers lack of those of the original model, as sums. */
#include "quant/cross.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_quant_cross_create(struct tsr_quant_cross *x, const struct tsr_host *host,
                                  uint64_t cols, uint64_t rows, struct tsr_err *err)
{
    uint64_t n = 0, square = 0;
    *x = (struct tsr_quant_cross){ .cols = cols, .rows = rows };
    bool fits = tsr_mul(cols, rows, &n) && tsr_mul(cols, cols, &square);
    x->original = fits ? tsr_new_aligned(n, sizeof *x->original) : NULL;
    x->sums = fits ? tsr_new_aligned(square, sizeof *x->sums) : NULL;
    if (!x->original || !x->sums)
        return tsr_fail_nomem(err, (n + square) * sizeof(float), "inputs of the original model");
    memset(x->sums, 0, square * sizeof *x->sums);
    return tsr_quant_held_begin(&x->held, host, x->sums, cols, cols, err);
}

void tsr_quant_cross_free(struct tsr_quant_cross *x)
{
    (void)tsr_quant_held_end(&x->held, false, NULL);
    free(x->original);
    free(x->sums);
    *x = (struct tsr_quant_cross){ 0 };
}

void tsr_quant_cross_begin(struct tsr_quant_cross *x)
{
    x->recorded = x->added = 0;
}

tsr_status tsr_quant_cross_record(struct tsr_quant_cross *x, const float *v, uint64_t n,
                                  struct tsr_err *err)
{
    if (n > x->rows - x->recorded)
        return tsr_fail(err, TSR_E_BUG, "a sequence has more than its %llu tokens",
                        (unsigned long long)x->rows);
    memcpy(x->original + x->recorded * x->cols, v, n * x->cols * sizeof *v);
    x->recorded += n;
    return TSR_OK;
}

/* D^T [cols, n]: the factor of a product by rows. */
static void differences(float *to, const float *original, const float *v, uint64_t n, uint64_t cols)
{
    for (uint64_t c = 0; c < cols; c++)
        for (uint64_t i = 0; i < n; i++)
            to[c * n + i] = original[i * cols + c] - v[i * cols + c];
}

tsr_status tsr_quant_cross_add(struct tsr_quant_cross *x, const struct tsr_linalg_v1 *la,
                               float alpha, const float *v, uint64_t n, struct tsr_err *err)
{
    uint64_t size = 0, last = x->added + n;
    if (n > x->recorded - x->added)
        return tsr_fail(err, TSR_E_BUG, "token %llu has no input of the original model",
                        (unsigned long long)last);
    float *d = tsr_mul(n, x->cols, &size) ? tsr_new_aligned(size, sizeof *d) : NULL;
    if (!d)
        return tsr_fail_nomem(err, size * sizeof *d, "differences of inputs");
    differences(d, x->original + x->added * x->cols, v, n, x->cols);
    tsr_status st =
        la->gemm(la->ctx, x->cols, x->cols, n, alpha, d, n, v, x->cols, 0, x->sums, x->cols, err);
    free(d);
    x->added = last;
    return st;
}

tsr_status tsr_quant_cross_take(struct tsr_quant_cross *x, float **sums, struct tsr_err *err)
{
    TSR_TRY(tsr_quant_held_end(&x->held, true, err));
    *sums = x->sums;
    x->sums = NULL;
    return TSR_OK;
}
