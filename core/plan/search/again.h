/* plan/search/again.h - the plan of one problem, checked in another.
 *
 *   a plan of a bound --problem.again--> tsr_search() --this--> the same layers, devices and micro-batches, if these fit there
 */
#ifndef TSR_PLAN_SEARCH_AGAIN_H
#define TSR_PLAN_SEARCH_AGAIN_H

#include "plan/search/build.h"

struct tsr_plan_again {
    const struct tsr_plan_built      *built;
    const struct tsr_solver_solution *solution; /* of a part of it */
    uint64_t                          part;
    double                            bound; /* of all plans of the problem that is checked */
};

/* In place of a solve of a part of b: s has the plan and the bound, TSR_SOLVED_FEASIBLE, where b has the same part and option,
 * items of its layers, and room for them; else TSR_SOLVED_UNKNOWN.  [any] */
tsr_status tsr_plan_again(const struct tsr_plan_again *of, const struct tsr_plan_built *b,
                          uint64_t part, struct tsr_solver_solution *s, struct tsr_err *err);

#endif
