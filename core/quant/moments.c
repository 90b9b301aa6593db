/* Sums over the inputs of a linear, per column, in the order in which the rows came. */
#include "base/mem.h"
#include "quant/calibrate.h"

#include <math.h>
#include <stdlib.h>

#define COLUMNS_PER_CHUNK 64u

tsr_status tsr_quant_moments_create(struct tsr_quant_moments *s, uint64_t cols, struct tsr_err *err)
{
    *s = (struct tsr_quant_moments){ .cols = cols };
    s->sum = tsr_new(cols, sizeof *s->sum);
    s->square = tsr_new(cols, sizeof *s->square);
    s->magnitude = tsr_new(cols, sizeof *s->magnitude);
    s->absmax = tsr_new(cols, sizeof *s->absmax);
    if (s->sum && s->square && s->magnitude && s->absmax)
        return TSR_OK;
    tsr_quant_moments_free(s);
    return tsr_fail_nomem(err, cols * 28, "statistics of the inputs");
}

void tsr_quant_moments_free(struct tsr_quant_moments *s)
{
    free(s->sum);
    free(s->square);
    free(s->magnitude);
    free(s->absmax);
    *s = (struct tsr_quant_moments){ 0 };
}

struct add {
    struct tsr_quant_moments *s;
    const float              *x;
    uint64_t                  n;
};

static tsr_status add_columns(void *arg, uint64_t begin, uint64_t end)
{
    const struct add         *a = arg;
    struct tsr_quant_moments *s = a->s;
    for (uint64_t i = 0; i < a->n; i++) {
        const float *x = a->x + i * s->cols;
        for (uint64_t c = begin; c < end; c++) {
            double v = (double)x[c], m = fabs(v);
            s->sum[c] += v;
            s->square[c] += v * v;
            s->magnitude[c] += m;
            if ((float)m > s->absmax[c])
                s->absmax[c] = (float)m;
        }
    }
    return TSR_OK;
}

tsr_status tsr_quant_moments_add(struct tsr_quant_moments *s, struct tsr_pool *pool, const float *x,
                                 uint64_t n, struct tsr_err *err)
{
    struct add a = { s, x, n };
    TSR_TRY(tsr_pool_for(pool, s->cols, COLUMNS_PER_CHUNK, add_columns, &a));
    for (uint64_t c = 0; c < s->cols; c++) {
        if (isfinite(s->magnitude[c])) /* NaN and infinities stay in the sum */
            continue;
        for (uint64_t i = 0; i < n; i++)
            if (!isfinite(x[i * s->cols + c]))
                return tsr_fail(err, TSR_E_NUMERIC, "token %llu: input %llu is %g",
                                (unsigned long long)(s->rows + i), (unsigned long long)c,
                                (double)x[i * s->cols + c]);
    }
    s->rows += n;
    return TSR_OK;
}

tsr_status tsr_quant_moments_finish(const struct tsr_quant_moments *s,
                                    struct tsr_quant_stats *stats, struct tsr_err *err)
{
    float *absmax = tsr_new(s->cols, sizeof *absmax), *mean = tsr_new(s->cols, sizeof *mean);
    float *variance = tsr_new(s->cols, sizeof *variance);
    float *mean_abs = tsr_new(s->cols, sizeof *mean_abs);
    if (!absmax || !mean || !variance || !mean_abs) {
        free(absmax);
        free(mean);
        free(variance);
        free(mean_abs);
        return tsr_fail_nomem(err, s->cols * 16, "statistics of the inputs");
    }
    double n = (double)s->rows;
    for (uint64_t c = 0; c < s->cols; c++) {
        double m = s->sum[c] / n, v = s->square[c] / n - m * m;
        absmax[c] = s->absmax[c];
        mean[c] = (float)m;
        variance[c] = v > 0.0 ? (float)v : 0.0f; /* the difference may round below 0 */
        mean_abs[c] = (float)(s->magnitude[c] / n);
    }
    *stats = (struct tsr_quant_stats){ .struct_size = sizeof *stats,
                                       .cols = s->cols,
                                       .tokens = s->rows,
                                       .absmax = absmax,
                                       .mean = mean,
                                       .variance = variance,
                                       .mean_abs = mean_abs };
    return TSR_OK;
}
