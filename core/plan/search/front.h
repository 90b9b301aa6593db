/* plan/search/front.h - what speed costs in quality: a dozen plans, each the fastest for its omega.
 *
 *   a problem --the fastest, the best, then the widest gap--> settings.h, each --> points, none of which another beats
 *
 * Between the first points the least time + theta omega is searched, with the theta at which two are equal: that is another
 * point, or proves that none is below their line.  Further points are the fastest within half of the omega between two.  Bounds
 * of one search rule out settings in the next ones (bounds.h), and so does the least memory of fewer requests at once, which
 * proves that settings with more have no plan within a limit.  Every plan that a search finds is kept: the best one of these is
 * what the next search must improve on.
 */
#ifndef TSR_PLAN_SEARCH_FRONT_H
#define TSR_PLAN_SEARCH_FRONT_H

#include "plan/search/settings.h"

#define TSR_PLAN_FRONT 17u /* most points */

struct tsr_plan_front_point {
    double                  latency_ms, tokens_per_second, omega;
    double                  kl, kl_half; /* of indicators by KL, else NAN */
    uint64_t                bytes;       /* on all devices: weights, caches, ends and workspace */
    uint64_t                stages;
    struct tsr_plan_setting setting;
    uint64_t               *layers; /* [candidates] how many layers each has; owned */
    bool                    proved;
    bool                    job; /* the plan of the job itself */
    bool
         four; /* the fastest within the omega of 4 bits in all layers, the default without indicators by KL */
    bool knee; /* farthest from the line between the ends, both axes from 0 to 1 */
};

struct tsr_plan_front {
    struct tsr_plan_front_point v[TSR_PLAN_FRONT]; /* the fastest first; omega falls */
    uint64_t                    n, solves;
    double                      seconds;
};

/* tsr_plan_settings_search_kept() for a front, whose fastest plan is needed anyway: first without p's limit on omega. Where that
 * plan keeps to the limit it is p's own, else there is a second search, with the bounds of the first.  kept: zeroed or open, it is
 * opened for p.  [setup] */
tsr_status tsr_plan_front_own(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                              struct tsr_plan_bounds *kept, const struct tsr_plugin_spec *solver,
                              struct tsr_err *err);
/* own, or NULL: the plan that p's own limit gives, with p as tsr_plan_settings_search() left it; known, or NULL: what that search
 * proved, which is taken over. Every point takes what p leaves
 * open (settings.h), within p->o.time_limit together. TSR_OK with at least one point.  The answer is freed by the caller,
 * also after an error.  [setup] */
tsr_status tsr_plan_front_find(struct tsr_plan_front *f, const struct tsr_plan_problem *p,
                               const struct tsr_plan_planned *own, struct tsr_plan_bounds *known,
                               const struct tsr_plugin_spec *solver, struct tsr_err *err);
/* The plan at the knee of the front, in the place of tsr_plan_settings_search(): p->max_omega becomes its omega. Where the
 * front has no knee, the plan of least omega.  [setup] */
tsr_status tsr_plan_front_knee(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                               const struct tsr_plugin_spec *solver, struct tsr_err *err);
void       tsr_plan_front_free(struct tsr_plan_front *f); /* zeroed or filled */

#endif
