/* plan/widths.h - a width for each layer by what it costs there, under a mean width: the choice with
 * the smallest sum, by dynamic programming.  What LLM-PQ calls adabits, on one device. */
#ifndef TSR_PLAN_WIDTHS_H
#define TSR_PLAN_WIDTHS_H

#include "base/err.h"

#define TSR_WIDTHS 8u /* most widths to choose from */

/* cost: [layers][n], of the layer at bits[] (each 1 to 64), infinite or NaN: not to be chosen.  The
 * chosen bits sum to at most `total`; of equal sums the one with fewer bits wins.  chosen: [layers]
 * indices into bits.  TSR_E_INFEASIBLE when no choice fits. */
tsr_status tsr_widths_choose(const double *cost, uint64_t layers, const uint32_t *bits, uint32_t n,
                             uint64_t total, uint32_t *chosen, double *sum, struct tsr_err *err);

#endif
