/* orders.h - the pipeline orders of all devices, identical ones taken together. */
#ifndef TSR_SOLVER_ORDERS_H
#define TSR_SOLVER_ORDERS_H

#include "plan.h"

struct plan_orders {
    uint64_t                          n;     /* devices */
    bool                              fixed; /* there is only the instance's order */
    uint32_t                         *order; /* [n] kinds, the order at hand */
    uint32_t                         *rank;  /* [n] the same as places in kind[] */
    uint32_t                         *kind;  /* [kinds] the kinds in search order: by seed */
    const struct tsr_solver_instance *in;
};

/* Goes to the first order; false when out of memory. seed 0: kinds in list order. */
bool plan_orders_start(struct plan_orders *o, const struct tsr_solver_instance *in, uint64_t seed,
                       struct plan_arena *a);
void plan_orders_first(struct plan_orders *o);
/* False past the last. */
bool plan_orders_next(struct plan_orders *o);
/* How many there are, or `most`. */
uint64_t plan_orders_count(const struct plan_orders *o, uint64_t most);

#endif
