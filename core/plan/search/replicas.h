/* plan/search/replicas.h - many nodes: which of them share a copy of the model, and how the global batch is
 * split among the copies (docs/decisions/replicas.md).
 *
 *   nodes by type --groups of up to max_nodes nodes--> each group a planning problem of its share
 *
 * Copies run concurrently, so the whole takes as long as the slowest one. A group's share is a multiple of
 * `unit` requests.
 */
#ifndef TSR_PLAN_SEARCH_REPLICAS_H
#define TSR_PLAN_SEARCH_REPLICAS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define TSR_REPLICA_TYPES 8u
#define TSR_REPLICA_NODES 8u /* most of a group */

/* What a group costs with a share of the batch: the best plan found and a proved lower bound, ms.
 * objective INFINITY: no plan was found; bound INFINITY: it is proved that there is none.  A larger
 * share must not cost less.  nodes: [types].  cutoff: dearer plans do not matter, and a bound of it is enough. */
typedef tsr_status tsr_plan_replica_cost(void *arg, const uint64_t *nodes, uint64_t batch,
                                         double cutoff, double *objective, double *bound,
                                         struct tsr_err *err);

struct tsr_plan_replica_problem {
    uint64_t               types;                    /* of nodes, 1 .. TSR_REPLICA_TYPES */
    uint64_t               count[TSR_REPLICA_TYPES]; /* nodes of each type */
    uint64_t               batch, unit;              /* unit divides batch, at most 4,096 of them */
    uint64_t               max_nodes;                /* of a group, 1 .. TSR_REPLICA_NODES */
    double                 gap;                      /* relative, of the whole */
    double                 below; /* ms; only splits within it are looked for; 0: any */
    tsr_plan_replica_cost *cost;
    void                  *arg;
};

/* `copies` groups of these nodes, each with this share. */
struct tsr_plan_replica_group {
    uint64_t nodes[TSR_REPLICA_TYPES], copies, batch;
    double   objective;
};

struct tsr_plan_replicas {
    double                         objective, bound; /* of the slowest copy; over all splits */
    uint64_t                       n_groups, solves; /* solves: calls of cost() */
    struct tsr_plan_replica_group *groups;           /* owned */
};

/* TSR_E_INFEASIBLE if no split is found (the bound says whether one exists): nodes too small for the model
 * even together, or for the batch.  With `below` that is TSR_OK without groups; the bound is then at most `below`. TSR_E_UNSUPPORTED above 2^24 sets of nodes. The answer is zeroed first;
 * the caller frees it, also after an error. [setup] */
tsr_status tsr_plan_replicas_plan(struct tsr_plan_replicas              *r,
                                  const struct tsr_plan_replica_problem *p, struct tsr_err *err);
void       tsr_plan_replicas_free(struct tsr_plan_replicas *r);

#endif
