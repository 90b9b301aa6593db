/* plan/search/front_internal.h - between front.c, which searches, and front_points.c, which has what was found. */
#ifndef TSR_PLAN_SEARCH_FRONT_INTERNAL_H
#define TSR_PLAN_SEARCH_FRONT_INTERNAL_H

#include "plan/search/front.h"

#define TSR_FRONT_NONE   UINT64_MAX
#define TSR_FRONT_SPARES 256u /* most plans that are kept */

/* What is known between two points next to each other, the faster one first. */
struct tsr_front_between {
    bool edge; /* no plan is below the line between them */
    double
        floor; /* with less omega than this none is faster than the slower one; 0: than that one's */
};

/* A plan that a search found on its way. */
struct tsr_front_spare {
    struct tsr_plan_front_point v;
    double                      charged; /* its time, with what nobody asked for */
    uint64_t                    setting; /* of the list */
};

struct tsr_front_drawn {
    struct tsr_plan_front        *f;
    struct tsr_plan_problem       p; /* a copy; its limit and theta vary */
    const struct tsr_plugin_spec *solver;
    struct tsr_plan_bounds        bounds;
    double                        end;                     /* of the time; INFINITY: none */
    double                        most;                    /* omega of any plan is less */
    uint64_t                      left;                    /* searches that share the time */
    double                        charged[TSR_PLAN_FRONT]; /* times, with what nobody asked for */
    uint64_t                      setting[TSR_PLAN_FRONT]; /* of the list */
    struct tsr_front_between      between[TSR_PLAN_FRONT][TSR_PLAN_FRONT];
    struct tsr_front_spare        spare[TSR_FRONT_SPARES];
    uint64_t                      spares;
    uint64_t                     *order; /* [settings] scratch */
    uint64_t
        likely; /* setting that a search starts with; TSR_FRONT_NONE: that of the best kept plan */
    struct tsr_plan_lines *any;  /* [settings] of searches for any plan; owned */
    double                *fits; /* [settings] omega of a plan that is known; INFINITY: none is */
};

/* tsr_plan_bounds.found: keeps the plan.  ctx: a struct tsr_front_drawn.  [any] */
tsr_status tsr_front_keep(void *ctx, uint64_t i, const struct tsr_plan_problem *q,
                          const struct tsr_plan_planned *a, struct tsr_err *err);
/* The kept plan of least time + theta omega, below `value`, within a limit; TSR_FRONT_NONE: none.  [any] */
uint64_t tsr_front_spare(const struct tsr_front_drawn *z, double limit, double theta, double value);
/* A setting for a plan between two points: like one of theirs, with a number of requests at once between theirs, the nearest to the
 * mean of the logarithms, of those that may be faster than the slower point, j; without one, the first that has each part of one
 * of theirs, or the one of both; TSR_FRONT_NONE: none is between.  [any] */
uint64_t tsr_front_between(const struct tsr_front_drawn *z, uint64_t i, uint64_t j, double limit);
/* Of the settings that may have a plan within a limit the first one with the most requests at once; TSR_FRONT_NONE: none.  [any] */
uint64_t tsr_front_most(const struct tsr_front_drawn *z, double limit);
/* z->order: all settings, first z->likely or the one of kept plan k, if any, then those with the least bounds.  [any] */
tsr_status tsr_front_sort(struct tsr_front_drawn *z, uint64_t k, double limit, double theta,
                          struct tsr_err *err);

/* The limit of the default without indicators by KL: 4 bits in all layers; NAN where no candidate has them.  [any] */
double tsr_front_four_bits(const struct tsr_plan_problem *p);
/* Omega that no plan has.  [any] */
double tsr_front_most_omega(const struct tsr_plan_problem *p);
/* The index of q's setting in the list; its length: none of these.  [any] */
uint64_t tsr_front_setting(const struct tsr_plan_bounds *b, const struct tsr_plan_problem *p);
/* Whether two settings differ in the requests at once alone, or not at all.  [any] */
bool tsr_front_alike(const struct tsr_plan_setting *s, const struct tsr_plan_setting *t);
/* The plan as one more point, unless there is one like it; *at: the point.  q has the plan's setting.  [any] */
tsr_status tsr_front_add(struct tsr_front_drawn *z, const struct tsr_plan_problem *q,
                         const struct tsr_plan_planned *a, bool proved, uint64_t *at,
                         struct tsr_err *err);
/* A kept plan as a point, in the same way.  [any] */
tsr_status tsr_front_take(struct tsr_front_drawn *z, uint64_t k, bool proved, uint64_t *at,
                          struct tsr_err *err);
/* (latency + theta omega) of a point as settings compare it.  [any] */
double tsr_front_value(const struct tsr_front_drawn *z, uint64_t i, double theta);
/* Points in order of time, of those that none beats.  Returns how many.  [any] */
uint64_t tsr_front_order(const struct tsr_front_drawn *z, uint64_t v[TSR_PLAN_FRONT]);
/* The point that is fastest within a limit; TSR_FRONT_NONE: none is within.  [any] */
uint64_t tsr_front_fastest(const struct tsr_front_drawn *z, double limit);
/* The two points with the largest rectangle in which there may be others; false: none is worth it.  [any] */
bool tsr_front_widest(const struct tsr_front_drawn *z, uint64_t *i, uint64_t *j);
/* Puts points in order of time, without those that another beats in both.  [any] */
void tsr_front_thin(struct tsr_plan_front *f);
void tsr_front_mark_knee(struct tsr_plan_front *f);

#endif
