/* quality.h - plans for quality alone (adabits): the least sum of omega that the memory allows, and
 * among the partitions that reach it the one with the least objective.
 *
 * For every kind and every run of layers the choices of bits that are best in (bytes, bytes of the host, omega) are kept
 * as a front; a front of more than QUALITY_FRONT points is thinned, which can cost quality.  It costs no plan where
 * layers take nothing of the host: the smallest choice stays.  Else the smallest in one memory may not fit the other. */
#ifndef TSR_SOLVER_QUALITY_H
#define TSR_SOLVER_QUALITY_H

#include "partition.h"

#define QUALITY_FRONT 2048u

struct quality_block;
struct quality_point;
struct quality_stair;
struct quality_step;

struct quality {
    const struct tsr_solver_instance *in;
    const struct tsr_solver_option   *o;
    struct plan_clock                *clock;
    struct quality_block             *table; /* [K][L][L+1] */
    struct quality_point             *now, *next;
    struct quality_stair             *stairs; /* [QUALITY_FRONT] of y->next, at work */
    uint32_t                          n_stairs;
    struct quality_step              *history; /* [L][QUALITY_FRONT] */
    struct quality_point             *head;    /* [Q] */
    uint64_t                         *at;      /* [Q] */
    double                           *rest_pre, *rest_dec;
    uint32_t                         *n;     /* [L] points per step of the history */
    bool                              exact; /* no front was thinned, the table is whole */
};

/* False without memory, or with too_many. */
bool quality_start(struct quality *y, const struct tsr_solver_instance *in,
                   struct plan_clock *clock, struct plan_arena *a, bool *too_many);
/* Makes the table for an option. */
void quality_option(struct quality *y, uint64_t option);
/* The least sum of omega over the orders of p, INFINITY when nothing fits. If it is at most `most` and a
 * plan costs less than p->best, that plan is in p->plan with its bits, and its cost in *cost and p->best. */
double quality_plan(struct quality *y, struct partition *p, double most, double *cost);

#endif
