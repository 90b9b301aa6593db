/* plan/simulate/gantt.h - draws a simulated or a measured pipeline: one standalone SVG, light or dark like
 * the reader's page. */
#ifndef TSR_PLAN_SIMULATE_GANTT_H
#define TSR_PLAN_SIMULATE_GANTT_H

#include "plan/simulate/simulate.h"

struct tsr_plan_gantt {
    const char        *title;
    const char *const *names; /* [stages] */
    const char *const *notes; /* [stages] below the names, NULL where there is none; or NULL */
    const struct tsr_plan_pipeline *pipeline;
    struct tsr_simulate_how         how;
    const struct tsr_plan_visit    *visits; /* instead of a simulation: the measured visits, by
                                          * `end` */
    uint64_t                        n_visits;
};

/* Simulates (or takes the visits) and writes `path`. Three panels: the utilization of every stage and link
 * over the whole run, the prefill visit by visit, and the first decode steps visit by visit. [any] */
tsr_status tsr_plan_gantt_write(const struct tsr_plan_gantt *g, const char *path,
                                struct tsr_err *err);

#endif
