/* plan/search/fleet.h - a cluster of many nodes as copies of the model, each on a few nodes with a share of
 * the batch (docs/decisions/replicas.md).
 *
 *   cluster --identical nodes--> types --replicas.h--> groups --search.h--> a plan of each kind
 *
 * Above 8 nodes, those of a type have one choice of tensor-parallel widths, the best for them with an even share. Decode
 * micro-batches are the parts of 1, 2, 4 ... The bound is over all groups of up to max_nodes nodes
 * at these, and over all splits into multiples of the unit. With `open`, for few nodes, a copy has all choices of one
 * pipeline, and the bound is over these.
 */
#ifndef TSR_PLAN_SEARCH_FLEET_H
#define TSR_PLAN_SEARCH_FLEET_H

#include "plan/search/search.h"

struct tsr_plan_fleet_options {
    uint64_t max_nodes; /* of a copy, 1 .. TSR_REPLICA_NODES */
    uint64_t unit;      /* of shares; 0: the largest number of equal parts up to 256 */
    bool     open;      /* each copy has its own settings (settings.h), widths and micro-batches */
    double   below;     /* ms; only faster copies are looked for; 0: any */
};

/* Identical copies: the same devices, the same share, the same plan. */
struct tsr_plan_fleet_kind {
    uint64_t                 copies, batch, n_nodes; /* batch: of each copy */
    uint64_t                *nodes;   /* [copies][n_nodes] of the cluster; identical in each
                                       * position */
    struct tsr_plan_cluster *cluster; /* of the first copy's nodes */
    struct tsr_plan_problem  problem; /* of one copy; shared members belong to the fleet's
                                       * problem */
    struct tsr_plan_planned  planned;
};

struct tsr_plan_fleet {
    struct tsr_plan_fleet_kind *kinds;
    uint64_t                    n_kinds, types, unit, solves, copies, used; /* used: nodes */
    double                      objective, bound; /* ms of the slowest copy; over all splits */
    double                      latency_ms, tokens_per_second, seconds;
    bool                        proved; /* to the requested gap */
    bool                        late;   /* time ran out before some group was settled */
};

/* p->cluster in copies; with `below` also none, of TSR_OK and a bound.  TSR_E_INFEASIBLE where it is proved that no split exists, TSR_E_NUMERIC
 * where time ran out before one was found, TSR_E_INPUT for more types of nodes or shares than can be
 * counted.  The answer is freed by the caller, also after an error; p outlives it.  [setup] */
tsr_status tsr_plan_fleet_plan(struct tsr_plan_fleet *f, const struct tsr_plan_problem *p,
                               const struct tsr_plugin_spec        *solver,
                               const struct tsr_plan_fleet_options *o, struct tsr_err *err);
void       tsr_plan_fleet_free(struct tsr_plan_fleet *f); /* zeroed or filled */

#endif
