/* plan/search/settings_internal.h - between settings.c, settings_one.c and settings_group.c. */
#ifndef TSR_PLAN_SEARCH_SETTINGS_INTERNAL_H
#define TSR_PLAN_SEARCH_SETTINGS_INTERNAL_H

#include "plan/search/settings.h"

/* What is known of a setting by its group (settings_group.c). */
struct settled_member {
    bool     asked;    /* the bound of the group was searched */
    bool     done;     /* the setting was searched, or the best plan of the group is one of it */
    uint64_t next;     /* the setting of the group to search first */
    double   at_least; /* the value of its plans; 0: nothing is known */
    double   round;    /* a bound of one round of the group, which the first setting of it has */
};

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
    struct settled_member         *groups; /* [n] owned; NULL: each setting is searched by itself */
};

/* Time of a plan for the whole batch, with what it costs in quality by theta.  [any] */
double tsr_settled_value(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a);
/* The longest round that a plan of this value, or less, can have.  [any] */
double tsr_settled_round(const struct tsr_plan_problem *p, double value);
/* The least value of a plan whose round takes this time, or more.  [any] */
double tsr_settled_value_from(const struct tsr_plan_problem *p, double round);
/* What is known of setting i's value, by other settings too: at least that.  q is the problem with the setting.  [any] */
double tsr_settled_known(const struct settled *z, uint64_t i, const struct tsr_plan_problem *q);
/* Keeps that setting i of q is at least `value`, where z->shared is there.  [any] */
void tsr_settled_keep(const struct settled *z, uint64_t i, const struct tsr_plan_problem *q,
                      double value);
/* The lines of a setting's instances; NULL: not kept.  [any] */
struct tsr_plan_lines *tsr_settled_lines(const struct settled *z, uint64_t i, unsigned of);
/* A bound of the time of all rounds of q that is at least `limit`, or where it stops being one: a first plan below that ends
 * the search. -INFINITY: none is known.  [setup] */
tsr_status tsr_settled_all_rounds(struct settled *z, const struct tsr_plan_problem *q, double limit,
                                  struct tsr_plan_lines *lines, double *least, struct tsr_err *err);
/* Searches q, which is the problem with setting i; plans that are not below `limit` do not matter.  [setup] */
tsr_status tsr_settled_one(struct settled *z, uint64_t i, struct tsr_plan_problem *q, double limit,
                           struct tsr_plan_planned *a, struct tsr_err *err);
/* Opens z->groups where some settings differ in the most k alone and the solver gets whole problems; freed by the caller.
 * [any] */
tsr_status tsr_settled_groups_open(struct settled *z, struct tsr_err *err);
/* The first setting of i's group; i itself without groups.  [any] */
uint64_t tsr_settled_first(const struct settled *z, uint64_t i);
/* The one of the smallest k, likewise.  [any] */
uint64_t tsr_settled_last(const struct settled *z, uint64_t i);
/* Puts the bound of i's group into q: what each of its settings allows, q allows too.  [any] */
void tsr_settled_put_group(const struct settled *z, uint64_t i, struct tsr_plan_problem *q);
/* Once for each group: its bound, and its plan where that is one of a setting.  likely: as below.  [setup] */
tsr_status tsr_settled_group(struct settled *z, uint64_t i, bool likely, struct tsr_err *err);
/* Takes a plan over; what the best one counted so far goes on.  [any] */
void tsr_settled_take(struct settled *z, uint64_t i, struct tsr_plan_planned *a, double value);
/* The search of setting i; the best plan's own setting may come out as good again.  likely: it may well have the best plan, so
 * that a bound alone is no use. last: the answer, where there is no plan, freed before.  [setup] */
tsr_status tsr_settled_search(struct settled *z, uint64_t i, bool likely,
                              struct tsr_plan_planned *last, struct tsr_err *err);

#endif
