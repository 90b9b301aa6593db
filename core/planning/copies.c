/* Whether a plan is of copies on groups of nodes. */
#include "planning/planning.h"

#define ONE_COPY 8u /* default: up to this many nodes, all share one copy */

bool tsr_planning_copies(const struct tsr_planning *pl, const struct tsr_planning_plan_keys *k)
{
    uint64_t n = pl->cluster->n_nodes;
    return k->copy_nodes ? n > 1 : n > ONE_COPY;
}
