/* plan/search/share.h - the problem of one copy of the model: its share of the requests, on its part of the machines
 * (docs/decisions/replicas.md). */
#ifndef TSR_PLAN_SEARCH_SHARE_H
#define TSR_PLAN_SEARCH_SHARE_H

#include "plan/search/search.h"

/* Where a copy is, and what it does. */
struct tsr_plan_share {
    const uint64_t *nodes, *each; /* [n] of the cluster; copies that share the node, NULL: one */
    uint64_t        n, batch;     /* batch: requests of the copy */
    uint64_t        copies; /* with as many each, of the whole batch; 0: others have other shares */
};

/* The problem of a copy that does a share of p's requests.  *part is its cluster, freed by tsr_plan_share_close() with the
 * problem; p outlives both. As much runs at once as of the whole. TSR_E_INVAL where a node has no device for each of the
 * copies that share it.  [setup] */
tsr_status tsr_plan_share_open(struct tsr_plan_problem *share, struct tsr_plan_cluster **part,
                               const struct tsr_plan_problem *p, const struct tsr_plan_share *of,
                               struct tsr_err *err);
void       tsr_plan_share_close(struct tsr_plan_problem *share, struct tsr_plan_cluster *part);
/* What copies are compared by: ms of a plan for all requests of p, with what it costs in quality by theta.  [any] */
double tsr_plan_share_value(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a);
/* The least value that the search of `a` leaves open; INFINITY: there is no plan, 0: nothing is proved.  [any] */
double tsr_plan_share_bound(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a);

#endif
