/* plan/search/again.h - the plan of one problem, checked in another.
 *
 *   a plan of a bound --problem.again--> tsr_search() --this--> the same layers, devices and micro-batches, if these fit there
 */
#ifndef TSR_PLAN_SEARCH_AGAIN_H
#define TSR_PLAN_SEARCH_AGAIN_H

#include "plan/search/search.h"

/* In place of a solve of a part of b: s has of's plan with the bound of `of`, TSR_SOLVED_FEASIBLE, where b has the same part and
 * option, items of its layers, and room for them; else TSR_SOLVED_UNKNOWN. `of` has a built and a solution.  [any] */
tsr_status tsr_plan_again(const struct tsr_plan_planned *of, const struct tsr_plan_built *b,
                          uint64_t part, struct tsr_solver_solution *s, struct tsr_err *err);

#endif
