/* plan/search/settings_quick.h - between settings_quick.c, which searches a changed problem, and quick_bounds.c, which knows what
 * is proved of its settings. */
#ifndef TSR_PLAN_SEARCH_SETTINGS_QUICK_H
#define TSR_PLAN_SEARCH_SETTINGS_QUICK_H

#include "plan/search/settings_internal.h"

struct tsr_quick {
    struct settled                s;
    const struct tsr_plan_before *before;
    double  *proved; /* [n] least value of a setting's plans; INFINITY: it has none */
    uint64_t own;    /* the setting that is most as the plan's */
    bool     listed; /* it is the plan's */
    bool     blind;  /* the solver is not joint: what it proves is of a part of the problem */
    bool     tried;  /* the plan's setting */
};

/* A search of all settings that p leaves open; closed by the caller, also after an error.  [setup] */
tsr_status tsr_quick_open(struct tsr_quick *z, struct tsr_plan_planned *a,
                          struct tsr_plan_problem *p, const struct tsr_plugin_spec *solver,
                          const struct tsr_plan_before *before, struct tsr_err *err);
void       tsr_quick_close(struct tsr_quick *z);
/* Seconds of the time that is left, for a part of the search; 0: without a limit.  [any] */
double tsr_quick_part(const struct tsr_quick *z, double part);
bool   tsr_quick_is_late(const struct tsr_quick *z);
/* Only plans of less value are better than what is known.  [any] */
double tsr_quick_limit(const struct tsr_quick *z);
/* No plan of the setting is better, or none is faster.  [any] */
bool tsr_quick_is_proved(const struct tsr_quick *z, uint64_t i);
/* It is, or as nearly as an instance with the head on the first stage can tell: a search finds no more.  [any] */
bool tsr_quick_is_settled(const struct tsr_quick *z, uint64_t i);
/* Whether a setting of several rounds is not settled.  [any] */
bool tsr_quick_has_rounds(const struct tsr_quick *z);
bool tsr_quick_same_but_cache(const struct tsr_plan_setting *s, const struct tsr_plan_setting *t);
/* A bound in value as one of the latency of the setting that p has: -INFINITY where it says nothing of that.  [any] */
double tsr_quick_ms(const struct tsr_plan_problem *p, double value);
/* No plan of setting i has less value.  [any] */
void tsr_quick_note(struct tsr_quick *z, uint64_t i, double value);
/* A bound of the time of setting `from`, with a cache that costs nothing, is one of those with as wide a cache or a wider
 * one.  [any] */
void tsr_quick_note_wider(struct tsr_quick *z, uint64_t from, double ms);
/* What is proved of a problem with all changes holds with one.  [any] */
void tsr_quick_take_floor(struct tsr_quick *z);
/* The bound of all rounds with the narrowest of the caches in setting i's place, which costs nothing here: no wider one takes
 * less.  [setup] */
tsr_status tsr_quick_rounds(struct tsr_quick *z, uint64_t i, struct tsr_err *err);

#endif
