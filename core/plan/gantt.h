/* plan/gantt.h - a simulated pipeline, or one that ran, as a picture: one SVG that needs nothing else, light or dark as
 * the reader's page is. */
#ifndef TSR_PLAN_GANTT_H
#define TSR_PLAN_GANTT_H

#include "plan/simulate.h"

struct tsr_gantt {
    const char                *title;
    const char *const         *names; /* [stages] */
    const struct tsr_pipeline *pipeline;
    struct tsr_simulate_how    how;
    const struct tsr_visit    *visits; /* instead of a simulation: what was measured, by `end` */
    uint64_t                   n_visits;
};

/* Simulates (or takes the visits) and writes `path`.  Three panels: how busy every stage and link is over the whole run, the
 * prefill visit by visit, and the first decode steps likewise.  [any] */
tsr_status tsr_gantt_write(const struct tsr_gantt *g, const char *path, struct tsr_err *err);

#endif
