/* plan/search/problem_internal.h - declarations shared by the files that open a problem. */
#ifndef TSR_PLAN_SEARCH_PROBLEM_INTERNAL_H
#define TSR_PLAN_SEARCH_PROBLEM_INTERNAL_H

#include "plan/search/problem.h"

/* The codecs of the options, after the quality is open.  TSR_E_INPUT where a list has a lossy one whose cost is not known. */
tsr_status tsr_plan_problem_open_codecs(struct tsr_plan_problem *p, struct tsr_err *err);
void       tsr_plan_problem_close_codecs(struct tsr_plan_problem *p);

#endif
