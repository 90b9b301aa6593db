/* plan/search/settings_internal.h - between settings.c and settings_one.c. */
#ifndef TSR_PLAN_SEARCH_SETTINGS_INTERNAL_H
#define TSR_PLAN_SEARCH_SETTINGS_INTERNAL_H

#include "plan/search/settings.h"

/* A search of several settings. */
struct settled {
    struct tsr_plan_problem       *p;
    const struct tsr_plugin_spec  *solver;
    const struct tsr_plan_setting *list;
    uint64_t                       n;
    struct tsr_plan_planned       *best;
    double                        *least,
        *free; /* [n] bounds of one round that were found on the way; free: of a cache that costs nothing */
    uint64_t                       at;     /* setting of the best plan; n: none yet */
    double                         value;  /* of it, by value_of() */
    double                         bound;  /* over all settings */
    double                         end;    /* of the time; INFINITY: none */
    const struct tsr_plan_outcome *like;   /* of a changed problem: a plan before the change */
    struct tsr_plan_bounds        *shared; /* what searches with other limits proved; NULL: none */
};

/* Time of a plan for the whole batch, with what it costs in quality by theta.  [any] */
double tsr_settled_value(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a);
/* The longest round that a plan of this value, or less, can have.  [any] */
double tsr_settled_round(const struct tsr_plan_problem *p, double value);
/* Searches q, which is the problem with setting i; plans that are not below `limit` do not matter.  [setup] */
tsr_status tsr_settled_one(struct settled *z, uint64_t i, struct tsr_plan_problem *q, double limit,
                           struct tsr_plan_planned *a, struct tsr_err *err);
/* Takes a plan over; what the best one counted so far goes on.  [any] */
void tsr_settled_take(struct settled *z, uint64_t i, struct tsr_plan_planned *a, double value);
/* The search of setting i; the best plan's own setting may come out as good again.  likely: it may well have the best plan, so
 * that a bound alone is no use. last: the answer, where there is no plan, freed before.  [setup] */
tsr_status tsr_settled_search(struct settled *z, uint64_t i, bool likely,
                              struct tsr_plan_planned *last, struct tsr_err *err);

#endif
