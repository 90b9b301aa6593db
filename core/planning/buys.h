/* planning/buys.h - changed problems, solved again: shared by the files that ask what a change would buy. */
#ifndef TSR_PLANNING_BUYS_H
#define TSR_PLANNING_BUYS_H

#include "planning/planning.h"

struct tsr_planning_buying {
    const struct tsr_planning     *pl;
    const struct tsr_plan_planned *a;
    json_t                        *list;  /* of the answers */
    struct tsr_plan_setting        own;   /* of the plan */
    double                         end;   /* of the time */
    double                         least; /* omega of a plan in the plan's time, without a change */
    uint64_t                       left;  /* answers, among which it is divided */
    bool                           count; /* they are only counted */
};

/* What a changed problem is to the plan. */
enum tsr_planning_change {
    TSR_PLANNING_OTHER,   /* the plan may not be one of it */
    TSR_PLANNING_MORE,    /* it is, and takes no longer */
    TSR_PLANNING_UNPRICED /* as OTHER, and what it loses in quality is not known */
};

/* The least omega of a plan that takes at most `ms`, in the setting that p has; known: that of such a plan. What is found when
 * the time is up is the answer.  [setup] */
tsr_status tsr_planning_least_omega(const struct tsr_planning_buying *z,
                                    const struct tsr_plan_problem *p, double ms, double known,
                                    double end, double *omega, struct tsr_err *err);
/* Solves the changed problem, adds what it buys to the list. */
tsr_status tsr_planning_bought(struct tsr_planning_buying    *z,
                               const struct tsr_plan_problem *changed, const char *what,
                               enum tsr_planning_change change, struct tsr_err *err);
/* Adds why nothing is known of a change; "": there is no plan with it. */
tsr_status tsr_planning_unknown(const struct tsr_planning_buying *z, const char *what,
                                const char *reason, struct tsr_err *err);

#endif
