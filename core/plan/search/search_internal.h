/* plan/search/search_internal.h - shared by search.c, search_parts.c (instances) and search_sides.c (which devices plans begin and end on). */
#ifndef TSR_PLAN_SEARCH_SEARCH_INTERNAL_H
#define TSR_PLAN_SEARCH_SEARCH_INTERNAL_H

#include "plan/search/search.h"

struct tsr_searching {
    const struct tsr_plan_problem *p;
    const struct tsr_plugin_spec  *solver;
    struct tsr_plan_planned       *a;
    struct tsr_plan_built         *base; /* of the choice; stays when another one is the answer's */
    struct tsr_plan_built         *set;  /* likewise; NULL: none */
    double                         cutoff, end; /* end: of the time, INFINITY: none */
    bool                           open;        /* some instance was not settled */
};

/* What a problem by the fastest ways back to a head on the first stage proves of plans of several stages, by their own. */
struct tsr_search_nearest {
    double *of;    /* [options of the build] a bound of each */
    double  bound; /* of all; INFINITY: there are none */
    double
        least; /* likewise, but the best plan by the fastest ways where it takes no longer by its own */
};

/* Solves all instances of a build.  w: of a build by the fastest ways, to which it is added; of one with plans of these alone, whose options
 * it may rule out; NULL: for none.  [setup] */
tsr_status tsr_search_parts(struct tsr_searching *z, struct tsr_plan_built *b,
                            struct tsr_search_nearest *w, struct tsr_err *err);
/* The plans of a build of a space, with the ways back that they have.  [setup] */
tsr_status tsr_search_set(struct tsr_searching *z, const struct tsr_plan_space *space,
                          struct tsr_plan_built *b, struct tsr_err *err);
/* Plans of several stages that begin and end on some of the devices of a space.  [setup] */
tsr_status tsr_search_sides(struct tsr_searching *z, const struct tsr_plan_space *space,
                            struct tsr_err *err);

#endif
