#include "eval/paired.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double points[TSR_EVAL_PERCENTILES] = { 99.9, 99, 95, 90, 50, 10, 5, 1 };
const char *const   tsr_percentile_names[TSR_EVAL_PERCENTILES] = { "99.9", "99", "95", "90",
                                                                   "50",   "10", "5",  "1" };

static const struct tsr_eval_difference nothing = {
    .mean = NAN, .naive_se = NAN, .se = NAN, .low = NAN, .high = NAN, .p = NAN, .detectable = NAN
};

tsr_status tsr_eval_window_offsets(const struct tsr_eval_windows *w, uint64_t **start,
                                   struct tsr_err *err)
{
    uint64_t *at = tsr_new(w->n + 1, sizeof *at);
    if (!at)
        return tsr_fail_nomem(err, (w->n + 1) * sizeof *at, "windows");
    for (uint64_t i = 0; i < w->n; i++)
        at[i + 1] = at[i] + (w->start[i + 1] - w->start[i] - w->score_from[i]);
    *start = at;
    return TSR_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static uint64_t bin(double v)
{
    if (!(v >= TSR_EVAL_HISTOGRAM_LOW))
        return 0;
    double at = 1 + floor(TSR_EVAL_HISTOGRAM_PER_DECADE * log10(v / TSR_EVAL_HISTOGRAM_LOW));
    return at < TSR_EVAL_HISTOGRAM_BINS - 1 ? (uint64_t)at : TSR_EVAL_HISTOGRAM_BINS - 1;
}

/* v [n] by windows; scratch [n] may be v. */
static void measure_spread(struct tsr_eval_spread *out, const double *v, const uint64_t *start,
                           uint64_t windows, double alpha, double *scratch)
{
    uint64_t n = start[windows];
    double   squares = 0.0;
    *out = (struct tsr_eval_spread){ .min = NAN, .max = NAN, .rms = NAN };
    tsr_eval_paired_difference(v, start, windows, alpha, &out->d);
    for (uint64_t i = 0; i < n; i++) {
        squares += v[i] * v[i];
        out->histogram[bin(v[i])]++;
    }
    if (scratch != v)
        memcpy(scratch, v, n * sizeof *v);
    qsort(scratch, n, sizeof *scratch, by_value);
    for (int i = 0; i < TSR_EVAL_PERCENTILES; i++)
        out->percentile[i] = tsr_eval_percentile(scratch, n, points[i] / 100);
    if (n == 0)
        return;
    out->rms = sqrt(squares / (double)n);
    out->min = scratch[0];
    out->max = scratch[n - 1];
}

static void without_kl(struct tsr_eval_spread *s)
{
    *s = (struct tsr_eval_spread){ .d = nothing, .min = NAN, .max = NAN, .rms = NAN };
    for (int i = 0; i < TSR_EVAL_PERCENTILES; i++)
        s->percentile[i] = NAN;
}

tsr_status tsr_eval_paired_measure(struct tsr_eval_paired *out, const struct tsr_eval_windows *w,
                                   const struct tsr_eval_trace *a, const struct tsr_eval_trace *b,
                                   double alpha, struct tsr_err *err)
{
    uint64_t *start = NULL, n = a->n;
    if (a->n != w->scored || b->n != w->scored)
        return tsr_fail(err, TSR_E_BUG, "traces of %llu and %llu tokens over windows with %llu",
                        (unsigned long long)a->n, (unsigned long long)b->n,
                        (unsigned long long)w->scored);
    TSR_TRY(tsr_eval_window_offsets(w, &start, err));
    double *v = tsr_new(n, sizeof *v), *scratch = tsr_new(n, sizeof *scratch);
    if (!v || !scratch) {
        free(start);
        free(v);
        free(scratch);
        return tsr_fail_nomem(err, 2 * n * sizeof *v, "differences of tokens");
    }
    for (uint64_t i = 0; i < n; i++)
        v[i] = (double)a->nll[i] - (double)b->nll[i];
    tsr_eval_paired_difference(v, start, w->n, alpha, &out->delta);
    for (uint64_t i = 0; i < n; i++)
        v[i] = a->top1[i] == b->top1[i];
    tsr_eval_paired_difference(v, start, w->n, alpha, &out->top1);
    for (uint64_t i = 0; i < n; i++)
        v[i] = exp(-(double)a->nll[i]) - exp(-(double)b->nll[i]);
    measure_spread(&out->delta_p, v, start, w->n, alpha, scratch);
    without_kl(&out->kl);
    out->kl_delta = nothing;
    for (uint64_t i = 0; a->kl && b->kl && i < n; i++)
        v[i] = (double)a->kl[i] - (double)b->kl[i];
    if (a->kl && b->kl)
        tsr_eval_paired_difference(v, start, w->n, alpha, &out->kl_delta);
    for (uint64_t i = 0; a->kl && i < n; i++)
        v[i] = (double)a->kl[i];
    if (a->kl)
        measure_spread(&out->kl, v, start, w->n, alpha, scratch);
    free(start);
    free(v);
    free(scratch);
    return TSR_OK;
}
