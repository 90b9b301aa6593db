/* plan/search/bounds.h - what searches of one problem under several limits on omega have proved of its settings.
 *
 *   searches with theta or a limit --put()--> lines below all plans of a setting --get()--> a bound under other ones
 *
 * A line says of each plan of a setting with omega of at most `limit`: time + slope omega >= value. A bound for another slope
 * follows from one line or from two, for the least value is a concave function of the slope.
 */
#ifndef TSR_PLAN_SEARCH_BOUNDS_H
#define TSR_PLAN_SEARCH_BOUNDS_H

#include "tessera/plugin.h"

#include <stdint.h>

#define TSR_PLAN_BOUND_LINES 40u /* of a setting; more are not kept */

struct tsr_plan_setting;
struct tsr_plan_problem;
struct tsr_plan_planned;
struct tsr_plan_lines;
struct tsr_plan_solver;

struct tsr_plan_bound_line {
    double limit, slope, value; /* omega; ms a unit of omega; ms, INFINITY: there is no plan */
};

struct tsr_plan_bounds {
    struct tsr_plan_setting *list; /* [n] owned, as the next four; NULL: n is of something else */
    uint64_t                 n;
    uint32_t                *used;     /* [n] lines of each */
    struct tsr_plan_bound_line *lines; /* [n][TSR_PLAN_BOUND_LINES] */
    struct tsr_plan_lines
        *options; /* [n][TSR_PLAN_LINES_OF] of instances (lines.h); NULL: not kept */
    struct tsr_plan_solver *solver; /* for the solves that keep lines of options; owned */
    /* NULL, or gets every plan that a search finds, not only its best; q has setting i */
    tsr_status (*found)(void *ctx, uint64_t i, const struct tsr_plan_problem *q,
                        const struct tsr_plan_planned *a, struct tsr_err *err);
    void *ctx;
};

/* Adds a line of setting i; NaN and -INFINITY say nothing.  [any] */
void tsr_plan_bounds_put(struct tsr_plan_bounds *b, uint64_t i, double limit, double slope,
                         double value);
/* The least time + slope omega that a plan of setting i with omega of at most `limit` can have, by the lines; -INFINITY:
 * none says anything.  [any] */
double tsr_plan_bounds_get(const struct tsr_plan_bounds *b, uint64_t i, double limit, double slope);

#endif
