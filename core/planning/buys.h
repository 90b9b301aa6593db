/* planning/buys.h - changed problems, solved again: shared by the files that ask what a change would buy. */
#ifndef TSR_PLANNING_BUYS_H
#define TSR_PLANNING_BUYS_H

#include "planning/planning.h"

#define TSR_PLANNING_MORE_BYTES (INT64_C(4) << 30) /* on a device */
#define TSR_PLANNING_LOOSER     1.1                /* times the limit on omega */

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
    double
        all_ms; /* of plans with more memory, links and omega together; -INFINITY: nothing is proved */
    bool     none;  /* of these none is better than the plan */
    uint64_t left;  /* shares into which it is divided, the next answer's own one included */
    uint64_t share; /* of them that the next answer has */
    bool     count; /* they are only counted */
};

/* What a changed problem is to the plan. */
enum tsr_planning_change {
    TSR_PLANNING_OTHER, /* the plan may not be one of it */
    TSR_PLANNING_MORE,  /* it is, and takes no longer */
    TSR_PLANNING_SMALL, /* as MORE, and one of the changes of all_ms */
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
/* What is proved of settings with any change that only adds, z->floor; nothing where one of them is impossible.  [setup] */
tsr_status tsr_planning_buys_floor(struct tsr_planning_buying *z, struct tsr_err *err);
/* Whether more memory, omega and faster links between nodes together are of use, z->all_ms and z->none: one search in place of
 * one for each, where they are not.  [setup] */
tsr_status tsr_planning_buys_all(struct tsr_planning_buying *z, struct tsr_err *err);
/* A node of one device may omit the link between two devices.  [any] */
bool tsr_planning_has_link(const struct tsr_plan_node_info *node);
/* Adds why nothing is known of a change; "": there is no plan with it. */
tsr_status tsr_planning_unknown(const struct tsr_planning_buying *z, const char *what,
                                const char *reason, struct tsr_err *err);

#endif
