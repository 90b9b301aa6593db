/* Indicators of one linear, in double. */
#include "quant/indicator.h"

#include "base/f16.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

#define ORIGINAL_BITS 16u

const char *tsr_quant_indicator_name(enum tsr_indicator i)
{
    static const char *const names[TSR_QUANT_INDICATORS] = { "variance", "variance_stochastic",
                                                             "hessian", "random", "measured" };
    return names[i];
}

static tsr_status row_extents(const struct tsr_matrix *w, uint64_t r, const float *v,
                              struct tsr_quant_extents *e, double *low, double *high,
                              struct tsr_err *err)
{
    double lo = (double)v[0], hi = lo;
    for (uint64_t c = 0; c < w->cols; c++) {
        double x = (double)v[c];
        if (!isfinite(x))
            return tsr_fail(err, TSR_E_NUMERIC, "'%s': row %llu column %llu is %g", w->name,
                            (unsigned long long)r, (unsigned long long)c, x);
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
    }
    double top = fmax(fabs(lo), fabs(hi));
    e->row_range_sq += (hi - lo) * (hi - lo);
    e->row_absmax_sq += top * top;
    *low = lo < *low ? lo : *low;
    *high = hi > *high ? hi : *high;
    return TSR_OK;
}

tsr_status tsr_quant_extents_of(const struct tsr_matrix *w, struct tsr_quant_extents *e,
                                struct tsr_err *err)
{
    double     low = INFINITY, high = -INFINITY;
    tsr_status st = TSR_OK;
    *e = (struct tsr_quant_extents){ .rows = w->rows, .cols = w->cols };
    if (w->rows == 0 || w->cols == 0)
        return tsr_fail(err, TSR_E_INPUT, "'%s' is empty", w->name);
    float *row = tsr_new(w->cols, sizeof *row);
    if (!row)
        return tsr_fail_nomem(err, w->cols * sizeof *row, w->name);
    for (uint64_t r = 0; r < w->rows && st == TSR_OK; r++) {
        tsr_widen(row, (const unsigned char *)w->data + r * w->row_stride, w->dtype, w->cols);
        st = row_extents(w, r, row, e, &low, &high, err);
    }
    free(row);
    e->range = high - low;
    e->absmax = fmax(fabs(low), fabs(high));
    e->row_range_sq /= (double)w->rows;
    e->row_absmax_sq /= (double)w->rows;
    return st;
}

double tsr_quant_extents_step_sq(const struct tsr_quant_extents *e, uint32_t bits,
                                 enum tsr_indicator_step step, bool symmetric)
{
    double levels = symmetric ? ldexp(1, (int)bits - 1) - 1 : ldexp(1, (int)bits) - 1;
    double sq = symmetric ? e->absmax * e->absmax : e->range * e->range;
    if (step == TSR_QUANT_STEP_ROW)
        sq = symmetric ? e->row_absmax_sq : e->row_range_sq;
    return sq / (levels * levels);
}

void tsr_quant_stats_overall(const struct tsr_quant_stats *s, double *mean, double *variance)
{
    double sum = 0, square = 0, n = (double)s->cols;
    for (uint64_t c = 0; c < s->cols; c++) {
        double m = (double)s->mean[c];
        sum += m;
        square += (double)s->variance[c] + m * m;
    }
    *mean = sum / n;
    *variance = fmax(square / n - *mean * *mean, 0);
}

double tsr_quant_omega_variance(uint64_t d, double step_sq, double mean, double variance,
                                bool stochastic)
{
    double g = stochastic ? (mean * mean + variance) / 6 : variance / 4;
    return (double)d * step_sq * g;
}

static int descending(const void *a, const void *b)
{
    double x, y;
    x = *(const double *)a;
    y = *(const double *)b;
    return (x < y) - (x > y);
}

void tsr_quant_omega_random(uint64_t seed, uint64_t layer, const uint32_t *bits, uint32_t n,
                            double *omega)
{
    for (uint32_t i = 0; i < n; i++)
        omega[i] = tsr_uniform(seed, layer, i);
    qsort(omega, n, sizeof *omega, descending);
    for (uint32_t i = 0; i < n; i++)
        if (bits[i] >= ORIGINAL_BITS)
            omega[i] = 0;
}

double tsr_quant_kendall_tau(const double *a, const double *b, uint64_t n)
{
    int64_t  score = 0;
    uint64_t untied_a = 0, untied_b = 0;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < i; k++) {
            int x = (a[i] > a[k]) - (a[i] < a[k]), y = (b[i] > b[k]) - (b[i] < b[k]);
            score += (int64_t)x * y;
            untied_a += x != 0;
            untied_b += y != 0;
        }
    return (double)score / sqrt((double)untied_a * (double)untied_b); /* 0 / 0: NaN */
}
