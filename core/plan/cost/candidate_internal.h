/* plan/cost/candidate_internal.h - shared by candidate.c and candidate_mix.c. */
#ifndef TSR_PLAN_COST_CANDIDATE_INTERNAL_H
#define TSR_PLAN_COST_CANDIDATE_INTERNAL_H

#include "plan/cost/candidate.h"

/* texts[at] is a mix; its parts precede it. */
tsr_status tsr_plan_candidate_open_mix(struct tsr_plan_candidates *list, uint64_t at,
                                       const char *const *texts, const struct tsr_plan_shape *s,
                                       struct tsr_err *err);

#endif
