/* plan/search/widths.h - a bit width for each layer by its cost there, under a mean bit width: the choice
 * with the smallest sum, by dynamic programming. LLM-PQ's adabits, on one device. */
#ifndef TSR_PLAN_SEARCH_WIDTHS_H
#define TSR_PLAN_SEARCH_WIDTHS_H

#include "base/err.h"

#define TSR_WIDTHS 8u /* most widths to choose from */

/* cost: [layers][n], of the layer at bits[] (each 1 to 64); infinite or NaN: not allowed. The chosen bits
 * sum to at most `total`; of equal sums the one with fewer bits wins. chosen: [layers] indices into bits.
 * TSR_E_INFEASIBLE when no choice fits. */
tsr_status tsr_plan_widths_choose(const double *cost, uint64_t layers, const uint32_t *bits,
                                  uint32_t n, uint64_t total, uint32_t *chosen, double *sum,
                                  struct tsr_err *err);

#endif
