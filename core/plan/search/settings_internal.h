/* plan/search/settings_internal.h - between settings.c, settings_one.c, settings_group.c and settings_quick.c. */
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
    uint64_t                at;     /* setting of the best plan; n: none yet */
    double                  value;  /* of it, by value_of() */
    double                  bound;  /* over all settings */
    double                  over;   /* a value: planned.over at most, over all searches */
    double                  end;    /* of the time; INFINITY: none */
    struct tsr_plan_bounds *shared; /* what searches with other limits proved; NULL: none */
    struct settled_member  *groups; /* [n] owned; NULL: each setting is searched by itself */
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
/* Puts the bound of i's group into q: what each of its settings allows, q allows too.  [any] */
void tsr_settled_put_group(const struct settled *z, uint64_t i, struct tsr_plan_problem *q);
/* The greatest known bound of a round of setting i: a round of fewer requests in the same chunks takes no longer, nor
 * does one with a narrower cache, if that is not charged to the limit on omega.  [any] */
double tsr_settled_known_round(const struct settled *z, uint64_t i);
/* Quick plans with layers in few runs: first the number of requests, with the cache and the chunk that need least memory; then
 * these for the best one.  [setup] */
tsr_status tsr_settled_coarse(struct settled *z, struct tsr_err *err);
/* The bound of a round of the fewest requests with the narrowest cache, which costs nothing here, for each chunk: it rules
 * out most settings with many rounds.  [setup] */
tsr_status tsr_settled_few(struct settled *z, struct tsr_err *err);
/* What is said of the whole, in the words of one round of the best setting.  last: the answer where there is no plan.  [any] */
void tsr_settled_conclude(struct settled *z, struct tsr_plan_planned *last);
/* Whether a round with a cache of type a, and the room of tsr_settled_make_room(), takes no longer than one of b: a row of few
 * values may take more bytes, with its scales and whole lines.  [any] */
bool tsr_settled_is_narrower(const struct tsr_plan_problem *p, uint32_t a, uint32_t b);
/* More memory for each device of q, so that its instances hold what those with a wider cache hold: an instance has one number of
 * bytes for stages of all widths, and a narrow cache may take more on a wide one. *bytes: freed by the caller, also after an
 * error; until then q has it.  [setup] */
tsr_status tsr_settled_make_room(struct tsr_plan_problem *q, int64_t **bytes, struct tsr_err *err);
/* As tsr_settled_search(), of setting i by itself, whatever is known of its group.  [setup] */
tsr_status tsr_settled_member(struct settled *z, uint64_t i, bool likely,
                              struct tsr_plan_planned *last, struct tsr_err *err);
/* Takes a plan over; what the best one counted so far goes on.  [any] */
void tsr_settled_take(struct settled *z, uint64_t i, struct tsr_plan_planned *a, double value);
/* The search of setting i; the best plan's own setting may come out as good again.  likely: it may well have the best plan, so
 * that a bound alone is no use. last: the answer, where there is no plan, freed before.  [setup] */
tsr_status tsr_settled_search(struct settled *z, uint64_t i, bool likely,
                              struct tsr_plan_planned *last, struct tsr_err *err);

#endif
