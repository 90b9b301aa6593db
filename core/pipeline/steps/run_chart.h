/* pipeline/steps/run_chart.h - timeline of the ranks of a run, compared with a simulation from the same
 * times.
 */
#ifndef TSR_PIPELINE_STEPS_RUN_CHART_H
#define TSR_PIPELINE_STEPS_RUN_CHART_H

#include "launch/launch.h"
#include "pipeline/step.h"

/* Writes FILE.svg and FILE.simulated.svg for the first replica, and adds "chart" to results: the share of
 * link time that work hid, and both total times. If no record was computed, writes nothing and warns.
 * [setup] */
tsr_status tsr_step_run_chart(const struct tsr_pipeline_job *job, struct tsr_launch *f,
                              const char *file, json_t *results, struct tsr_err *err);

#endif
