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
    double least_ms; /* that is proved of plans of its setting, without a change */
    struct tsr_plan_floor
             floor; /* of settings with more memory, devices, links and omega together */
    uint64_t left;  /* shares into which it is divided, the next answer's own one included */
    uint64_t share; /* of them that the next answer has */
    bool     count; /* they are only counted */
};

/* What a changed problem is to the plan. */
enum tsr_planning_change {
    TSR_PLANNING_OTHER, /* the plan may not be one of it */
    TSR_PLANNING_MORE,  /* it is, and takes no longer */
    TSR_PLANNING_ALONE, /* as MORE, but not one of the changes of the floor */
    TSR_PLANNING_OPEN,  /* as MORE, and its setting stays as it was */
    TSR_PLANNING_UNPRICED /* the plan may stay in place of it; what it loses in quality is not known */
};

/* The least omega of a plan that takes at most `ms`, in the setting that p has, and what is proved of it. */
struct tsr_planning_omega {
    double omega; /* NaN: not searched */
    double bound; /* no such plan has less; NaN: none is proved */
};
/* known: the omega of such a plan. What is found when the time is up is the answer.  [setup] */
tsr_status tsr_planning_least_omega(const struct tsr_planning_buying *z,
                                    const struct tsr_plan_problem *p, double ms, double known,
                                    double end, struct tsr_planning_omega *o, struct tsr_err *err);
/* As "omega_in_time", "omega_bound" and "omega_proved" of j, proved within 2 %; false when out of memory. */
bool tsr_planning_omega_put(json_t *j, const struct tsr_planning_omega *o);
/* Solves the changed problem, adds what it buys to the list. */
tsr_status tsr_planning_bought(struct tsr_planning_buying    *z,
                               const struct tsr_plan_problem *changed, const char *what,
                               enum tsr_planning_change change, struct tsr_err *err);
/* Adds why nothing is known of a change; "": there is no plan with it. */
tsr_status tsr_planning_unknown(const struct tsr_planning_buying *z, const char *what,
                                const char *reason, struct tsr_err *err);

#endif
