/* pipeline/steps/sweep_trend.h - whether perplexity falls as more channels are compensated. */
#ifndef TSR_PIPELINE_STEPS_SWEEP_TREND_H
#define TSR_PIPELINE_STEPS_SWEEP_TREND_H

#include "eval/statistics.h"

#define TSR_TREND_MOST 32u /* points */

enum tsr_trend {
    TSR_PIPELINE_TREND_FALLS, /* the slope's interval is below 0 and no step's is above */
    TSR_PIPELINE_TREND_OPEN,  /* neither is established */
    TSR_PIPELINE_TREND_RISES, /* the slope's interval is above 0, or a step's is */
};

struct tsr_step_sweep_trend {
    uint64_t                   steps, rises, proven; /* rises whose interval lies above 0 */
    struct tsr_eval_difference slope; /* of the least squares line over points 0, 1, 2... */
    struct tsr_eval_difference step[TSR_TREND_MOST]; /* from each point to the next */
    enum tsr_trend             verdict;
};

/* nll[n], 2 <= n <= TSR_TREND_MOST: of the same tokens at each point, start[windows + 1] their windows; d: scratch
 * of as many doubles as there are tokens.  Confidence 1 - alpha for the slope, and for all steps together
 * (Bonferroni). */
void tsr_step_sweep_trend(const float *const *nll, uint64_t n, const uint64_t *start,
                          uint64_t windows, double alpha, double *d,
                          struct tsr_step_sweep_trend *out);

#endif
