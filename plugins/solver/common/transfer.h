/* transfer.h - bitwidth transfer, Algorithm 2 of LLM-PQ, as a function.
 *
 * The straggler, the stage that is slowest, trades with every other stage (the pioneer); the best trade
 * that lowers the objective is done, and again until there is none.  Rules, for bit candidates s and p:
 *
 *   trade  the pioneer gives one layer of p and takes two of s: one border moves by one layer
 *   swap   one layer of s for one of p: no border moves
 *   move   the pioneer takes a layer of s: the borders between them move by one
 *
 * These keep nearly all of the bits that the start has, whatever they cost in time.  With `wider` a stage
 * may also change the bits of one of its layers, which the paper does not have:
 *
 *   change one layer of s becomes one of p
 *
 * A rule is legal where the memory of all stages allows the outcome.  Corrected against the paper and
 * its code: an objective is accepted when it is lower; every stage but the straggler is a pioneer; for
 * two layers one border moves, not two; stages in between keep their bits and are checked too. */
#ifndef TSR_SOLVER_TRANSFER_H
#define TSR_SOLVER_TRANSFER_H

#include "orders.h"
#include "quality.h"

struct transfer {
    const struct tsr_solver_instance *in;
    struct plan_clock                *clock;
    struct tsr_solver_solution       *now, *try, *best;
    bool                              wider; /* rules beyond the paper's */
    double                           *key;   /* [L] at work */
    uint64_t                         *layer; /* [L] at work */
};

bool transfer_start(struct transfer *t, const struct tsr_solver_instance *in,
                    struct plan_clock *clock, struct plan_arena *a);
/* Improves a plan and its cost. */
void transfer_improve(struct transfer *t, struct tsr_solver_solution *plan, double *cost);

/* The whole heuristic: a start by quality for each device order and option, the `starts` best of them
 * improved. Stores a result better than *cost in *plan. *empty: proof that nothing fits the devices, or
 * (*omega, too) nothing within max_omega. False when out of memory or with too_many. */
enum transfer_rules { TRANSFER_NONE, TRANSFER_PAPER, TRANSFER_WIDER };

struct transfer_found {
    bool empty, omega, too_many;
};
bool transfer_search(const struct tsr_solver_instance *in, struct plan_clock *clock,
                     uint64_t starts, enum transfer_rules rules, struct plan_arena *a,
                     struct tsr_solver_solution *plan, double *cost, struct transfer_found *f);

#endif
