/* plan/search/kept.h - the bounds of a problem's settings and of their options, from one search to the next.
 *
 *   open() --> settings.h: a search that keeps what it proves --take()--> the searches of a front
 */
#ifndef TSR_PLAN_SEARCH_KEPT_H
#define TSR_PLAN_SEARCH_KEPT_H

#include "plan/search/settings.h"

/* With the settings that p leaves open, and room for lines of them and of options.  Closed by the caller, also after an error.
 * [setup] */
tsr_status tsr_plan_kept_open(struct tsr_plan_bounds *b, const struct tsr_plan_problem *p,
                              struct tsr_err *err);
void       tsr_plan_kept_close(struct tsr_plan_bounds *b); /* zeroed or open */
/* What `from` has of the settings that b has, too, goes to b.  [any] */
void tsr_plan_kept_take(struct tsr_plan_bounds *b, struct tsr_plan_bounds *from);

#endif
