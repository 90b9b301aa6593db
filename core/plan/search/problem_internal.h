/* plan/search/problem_internal.h - declarations shared by the files that open a problem. */
#ifndef TSR_PLAN_SEARCH_PROBLEM_INTERNAL_H
#define TSR_PLAN_SEARCH_PROBLEM_INTERNAL_H

#include "plan/search/problem.h"

/* The codecs of the options, after the quality is open.  TSR_E_INPUT where a list has a lossy one whose cost is not known. */
tsr_status tsr_plan_problem_open_codecs(struct tsr_plan_problem *p, struct tsr_err *err);
void       tsr_plan_problem_close_codecs(struct tsr_plan_problem *p);

/* Opens the candidates of the ends as p->ends, the widest first, whatever they lose.  TSR_E_INPUT for one that cannot pack
 * them; p->ends is filled then, too. */
tsr_status tsr_plan_problem_ends_list(struct tsr_plan_problem *p, struct tsr_err *err);
/* What embedding and head lose by one of them; NAN: not known.  [any] */
double tsr_plan_problem_end_loss(const struct tsr_plan_problem *p, uint64_t i);

#endif
