/* plan/search/settings.h - the best plan over what a job leaves open: how many requests run at once, in which chunks
 * prompts run, the type of the KV cache, and the most channels that a layer has compensated (docs/decisions/settings.md).
 *
 *   a problem with free settings --tsr_plan_settings_of()--> settings --search.h, each--> the best plan
 *
 * Fewer requests at once leave memory to weights, and the batch takes several rounds. An int8 cache costs
 * quality: it counts in omega as 8 bits in all layers do, more than it was measured to lose.  Every stage reserves work
 * memory for the largest k of compensation, so that a smaller one is a setting too.
 */
#ifndef TSR_PLAN_SEARCH_SETTINGS_H
#define TSR_PLAN_SEARCH_SETTINGS_H

#include "plan/search/bounds.h"
#include "plan/search/search.h"

struct tsr_plan_setting {
    uint64_t concurrency, chunk; /* requests; tokens, 0: whole prompts */
    uint32_t kv;                 /* a dtype of tessera/kv_cache.h */
    uint64_t end;                /* of the candidates for embedding and head */
    uint32_t
        types; /* bit i: layers may have the listed type i, and kv is the widest; 0: all have kv */
    uint32_t most_k; /* of the listed k of compensation larger ones are not there */
};
#define TSR_PLAN_SETTINGS 4096u /* most of a problem */

/* The settings that p leaves open; what is fixed has the workload's value. The preferred of several that are
 * as fast comes first: the widest cache, whole prompts, most requests. The last one needs least memory.
 * v: [TSR_PLAN_SETTINGS]. Returns how many, at least one.  [any] */
uint64_t tsr_plan_settings_of(const struct tsr_plan_problem *p, struct tsr_plan_setting *v);

/* Puts a setting in place of the workload's values, with what its cache costs in omega.  [any] */
void tsr_plan_settings_put(struct tsr_plan_problem *p, const struct tsr_plan_setting *s);

/* tsr_search() over all settings, within p->o.time_limit together. p then has the setting of the answer;
 * without a plan, the one that needs least memory. a->bound covers all settings; it is of one round of
 * p, as a->objective is. An int8 cache that the user did not list, and a chunk, each count
 * as 1 % slower than they are. The answer is freed by the caller, also after an error.  [setup] */
tsr_status tsr_plan_settings_search(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, struct tsr_err *err);
/* The same, where kept gets what is proved, for a front: opened for p.  [setup] */
tsr_status tsr_plan_settings_search_kept(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                         const struct tsr_plugin_spec *solver,
                                         struct tsr_plan_bounds *kept, struct tsr_err *err);

/* A bound of the latency of each setting's plans, of a problem to which all changes are made that only add: it holds with some of
 * them. */
struct tsr_plan_floor {
    const struct tsr_plan_setting *list; /* [n] owned */
    const double                  *ms;   /* [n] -INFINITY: none; of `own` */
    uint64_t                       n;
    double                        *own; /* owned */
};
/* ms: more than that need not be proved. Settings of one round have no bound.  [setup] */
tsr_status tsr_plan_floor_make(struct tsr_plan_floor *f, struct tsr_plan_problem *p,
                               const struct tsr_plugin_spec *solver, double ms,
                               struct tsr_err *err);
void       tsr_plan_floor_free(struct tsr_plan_floor *f); /* zeroed or made */

/* A plan of a problem before a change, and what is proved of it. */
struct tsr_plan_before {
    struct tsr_plan_setting own; /* its setting */
    const struct tsr_plan_outcome
        *like; /* whose micro-batches are tried first; NULL: the change leaves `own` as it is */
    const struct tsr_plan_planned
        *known; /* the plan where it may stay as it is, so that only better ones are searched for */
    bool other; /* with the change it is not a plan of the problem, but may stay in place of one */
    double                       least_ms; /* by tsr_plan_settings_least() */
    const struct tsr_plan_floor *floor;    /* of a problem that has the change, too; NULL: none */
};
/* The same in little time for a changed problem: the plan's setting first, then the others as far as there is time.  Where `known`
 * is as good as what is found there is no plan, and a->status TSR_SOLVED_INFEASIBLE if that is proved. *least_ms: no plan that
 * tsr_plan_settings_search() could find, nor `known`, has a latency below that; -INFINITY: none is proved.  [setup] */
tsr_status tsr_plan_settings_quick(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                   const struct tsr_plugin_spec *solver,
                                   const struct tsr_plan_before *before, double *least_ms,
                                   struct tsr_err *err);
/* The least latency of all plans of the setting that p has, by what the search proved that found a; -INFINITY: nothing.  [any] */
double tsr_plan_settings_least(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a);

/* The least omega within a time: a plan of at most `ms` for the whole batch whose omega is least, to a thousandth, and
 * within p's own limit; of several the fastest.  As above; p->max_omega stays. TSR_E_INFEASIBLE with the time of the fastest
 * plan where that is more.  a->bound is of the fastest plan with its omega.  [setup] */
tsr_status tsr_plan_settings_within(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, double ms,
                                    struct tsr_err *err);

/* What a unit of time counts as in comparisons of settings: more than 1 for a chunk, and an int8 cache that the user did
 * not list.  [any] */
double tsr_plan_settings_burden(const struct tsr_plan_problem *p, uint32_t kv, uint64_t chunk);

/* One of several searches of a problem that differ in max_omega and theta (front.h): only plans of less than `value`, in ms,
 * which is (latency + theta omega) tsr_plan_settings_burden().  shared has the settings; bounds of them that other searches
 * proved rule some out, and those of this one are added.  order: [n] the settings to search, of which the first has the best
 * plan that is known.  Without a plan, a->status is TSR_SOLVED_INFEASIBLE where it is proved that these have none within the
 * gap of `value`.  The answer is freed by the caller, also after an error.  [setup] */
tsr_status tsr_plan_settings_better(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver,
                                    struct tsr_plan_bounds *shared, double value,
                                    const uint64_t *order, uint64_t n, struct tsr_err *err);

#endif
