/* partition.h - the best contiguous partition over the devices, given the bits of every block.
 *
 * Labels (partial plans) run over states (devices used, layers placed, kind of the last stage). A label is
 * four numbers: the sums and the maxima of prefill and decode times. The objective grows in each, so a
 * dominated label is dropped. At most `labels` are kept in a state; if a state needs more, the partition is
 * good but not proved best.
 *
 * A first criterion may precede the objective: the result is then the plan with the least objective among
 * those that are best in it. */
#ifndef TSR_SOLVER_PARTITION_H
#define TSR_SOLVER_PARTITION_H

#include "plan.h"

/* What layers from..to-1 cost on a device of a kind as one stage, embedding and head apart. */
struct partition_block {
    double pre, dec, omega;
};
/* False when that stage cannot be. */
typedef bool partition_block_of(const void *ctx, uint64_t k, uint64_t from, uint64_t to,
                                struct partition_block *b);

enum partition_first { PARTITION_TIME, PARTITION_OMEGA, PARTITION_DECODE };

struct partition_label;

struct partition {
    const struct tsr_solver_instance *in;
    struct plan_clock                *clock;
    const uint32_t                   *order; /* NULL: free */
    uint64_t                          devices, places, cap, per_place;
    uint64_t                         *radix; /* [K] free order: weight of a kind's digit */
    struct partition_label           *labels;
    uint32_t                         *n;      /* labels in a state */
    double                           *togo;   /* first criterion: best from a state on */
    bool                              exact;  /* nothing was cut off so far */
    bool                              listed; /* too many devices for every order */

    /* of one run */
    const struct tsr_solver_option *o;
    struct plan_counts              c;
    uint64_t                        option;
    partition_block_of             *block;
    const void                     *ctx;
    double                          fixed; /* theta * omega, the same for every plan of the run */
    const double                   *rest_pre, *rest_dec; /* [L+1] least time of layers l.. */
    uint64_t                        least, most;         /* layers of a stage */
    enum partition_first            first;
    double                          most_dec; /* PARTITION_DECODE: limit that no stage or link
                                               * may exceed */
    double                          best;     /* only cheaper plans are taken */
    struct tsr_solver_solution     *plan;     /* gets their stages */
};

/* order: NULL for the instance's (which may be free), else a list of all devices.  False without
 * memory, or with too_many. */
bool partition_start(struct partition *p, const struct tsr_solver_instance *in,
                     struct plan_clock *clock, const uint32_t *order, uint64_t labels,
                     struct plan_arena *a, bool *too_many);
void partition_option(struct partition *p, uint64_t option);
/* The least sum of omega (PARTITION_OMEGA) or the least slowest decode step (PARTITION_DECODE) over
 * all partitions, INFINITY without one; prepares partition_run() for it. */
double partition_criterion(struct partition *p, enum partition_first first);
/* True when a plan below p->best was found: its stages are in p->plan, its cost in p->best.  Ends
 * early when the clock is over. */
bool partition_run(struct partition *p);

#endif
