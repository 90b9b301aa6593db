#include "pipeline/steps/sweep_trend.h"

static enum tsr_trend judge(const struct tsr_step_sweep_trend *t)
{
    if (t->proven || t->slope.low > 0)
        return TSR_PIPELINE_TREND_RISES;
    return t->slope.high < 0 ? TSR_PIPELINE_TREND_FALLS : TSR_PIPELINE_TREND_OPEN;
}

void tsr_step_sweep_trend(const float *const *nll, uint64_t n, const uint64_t *start,
                          uint64_t windows, double alpha, double *d,
                          struct tsr_step_sweep_trend *out)
{
    uint64_t tokens = start[windows];
    double   middle = (double)(n - 1) / 2, squares = 0;
    *out = (struct tsr_step_sweep_trend){ .steps = n - 1 };
    for (uint64_t s = 0; s + 1 < n; s++) {
        struct tsr_eval_difference *step = &out->step[s];
        for (uint64_t i = 0; i < tokens; i++)
            d[i] = (double)nll[s + 1][i] - (double)nll[s][i];
        tsr_eval_paired_difference(d, start, windows, alpha / (double)(n - 1), step);
        out->rises += step->mean > 0;
        out->proven += step->low > 0;
    }
    for (uint64_t p = 0; p < n; p++)
        squares += ((double)p - middle) * ((double)p - middle);
    /* the slope of the mean is the mean of the tokens' slopes: paired, as the steps are */
    for (uint64_t i = 0; i < tokens; i++) {
        double sum = 0;
        for (uint64_t p = 0; p < n; p++)
            sum += ((double)p - middle) * (double)nll[p][i];
        d[i] = sum / squares;
    }
    tsr_eval_paired_difference(d, start, windows, alpha, &out->slope);
    out->verdict = judge(out);
}
