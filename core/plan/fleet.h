/* plan/fleet.h - a cluster of many nodes as copies of the model, each on a few nodes with a share of
 * the batch (docs/decisions/replicas.md).
 *
 *   cluster --nodes that are alike--> types --replicas.h--> groups --search.h--> a plan of each kind
 *
 * Nodes of a type have one choice of widths, the best for them with an even share, and decode
 * micro-batches are the parts of 1, 2, 4 ...; the bound is over all groups of up to max_nodes nodes at
 * these, and over all splits into multiples of the unit.
 */
#ifndef TSR_PLAN_FLEET_H
#define TSR_PLAN_FLEET_H

#include "plan/search.h"

struct tsr_fleet_options {
    uint64_t max_nodes; /* of a copy, 1 .. 4 */
    uint64_t unit;      /* of shares; 0: the largest number of equal parts up to 256 */
};

/* Copies that are alike: the same devices, the same share, the same plan. */
struct tsr_fleet_kind {
    uint64_t            copies, batch, n_nodes; /* batch: of each copy */
    uint64_t           *nodes;   /* [copies][n_nodes] of the cluster; alike in each place */
    struct tsr_cluster *cluster; /* of the first copy's nodes */
    struct tsr_problem  problem; /* of one copy; what it shares is the fleet's problem's */
    struct tsr_planned  planned;
};

struct tsr_fleet {
    struct tsr_fleet_kind *kinds;
    uint64_t               n_kinds, types, unit, solves, copies, used; /* used: nodes */
    double                 objective, bound; /* ms of the slowest copy; over all splits */
    double                 latency_ms, tokens_per_second, seconds;
    bool                   proved; /* to the gap asked for */
};

/* p->cluster in copies.  TSR_E_INFEASIBLE where it is proved that no split exists, TSR_E_NUMERIC
 * where time ran out before one was found, TSR_E_INPUT for more types of nodes or shares than can be
 * counted.  The answer is freed by the caller, also after an error; p outlives it.  [setup] */
tsr_status tsr_fleet_plan(struct tsr_fleet *f, const struct tsr_problem *p,
                          const struct tsr_spec *solver, const struct tsr_fleet_options *o,
                          struct tsr_err *err);
void       tsr_fleet_free(struct tsr_fleet *f); /* zeroed or filled */

/* The problem of one copy that does `batch` of p's requests on these nodes.  *part is the cluster,
 * freed by tsr_fleet_share_close() with the problem; p outlives both.  [setup] */
tsr_status tsr_fleet_share(struct tsr_problem *share, struct tsr_cluster **part,
                           const struct tsr_problem *p, const uint64_t *nodes, uint64_t n,
                           uint64_t batch, struct tsr_err *err);
void       tsr_fleet_share_close(struct tsr_problem *share, struct tsr_cluster *part);

#endif
