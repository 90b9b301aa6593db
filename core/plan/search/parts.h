/* plan/search/parts.h - a cluster in equal parts, one for each of several copies of the model
 * (docs/decisions/replicas.md).
 *
 * Of each type of nodes a copy has as many whole nodes as there are for each, or an equal part of one node's devices.
 * What does not divide stays unused.
 */
#ifndef TSR_PLAN_SEARCH_PARTS_H
#define TSR_PLAN_SEARCH_PARTS_H

#include "plan/cost/cluster.h"

#define TSR_PLAN_PARTS_MOST 64u /* numbers of copies that are worth a search */

struct tsr_plan_parts {
    uint64_t  copies, n_nodes; /* n_nodes: of one copy */
    uint64_t *nodes;           /* [copies][n_nodes] of the cluster, alike in each position; owned */
    uint64_t *each;            /* [n_nodes] copies that share the node; owned */
    uint64_t  devices;         /* of one copy */
};

/* n_nodes 0: there are not so many devices.  Freed by the caller, also after an error.  [setup] */
tsr_status tsr_plan_parts_make(struct tsr_plan_parts *p, const struct tsr_plan_cluster *c,
                               uint64_t copies, struct tsr_err *err);
void       tsr_plan_parts_free(struct tsr_plan_parts *p); /* zeroed or filled */

/* Numbers of copies from 2 to `most`, ascending: of several with the same part for each copy the largest alone, as each copy
 * then has less to do.  v: [TSR_PLAN_PARTS_MOST]; *n of them, the first where there are more.  [setup] */
tsr_status tsr_plan_parts_counts(const struct tsr_plan_cluster *c, uint64_t most,
                                 uint64_t v[TSR_PLAN_PARTS_MOST], uint64_t *n, struct tsr_err *err);

#endif
