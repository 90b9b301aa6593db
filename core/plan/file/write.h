/* plan/file/write.h - a found plan as a file tessera.plan/1 (docs/formats/plan.md). */
#ifndef TSR_PLAN_FILE_WRITE_H
#define TSR_PLAN_FILE_WRITE_H

#include "plan/search/search.h"

/* Where a plan is one of several copies of the model. */
struct tsr_plan_copies {
    const struct tsr_plan_problem *whole;         /* all requests on all nodes */
    uint64_t                       copies, share; /* share: requests of one of them */
    const uint64_t                *nodes; /* [copies][n_nodes] of whole's cluster; NULL: any */
    uint64_t                       n_nodes;
};

/* a has a plan of p; c NULL: it is the only one. */
tsr_status tsr_plan_write(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a,
                          const struct tsr_plan_copies *c, const char *path, struct tsr_err *err);

#endif
