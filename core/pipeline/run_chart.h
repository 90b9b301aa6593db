/* pipeline/run_chart.h - what the ranks of a run did when, beside what a simulation makes of the same
 * times.
 */
#ifndef TSR_PIPELINE_RUN_CHART_H
#define TSR_PIPELINE_RUN_CHART_H

#include "pipeline/launch.h"
#include "pipeline/step.h"

/* Writes FILE.svg and FILE.simulated.svg for the first replica, and puts into results: "chart" with the
 * share of link time that was hidden behind work, and both total times.  Where no record was computed: nothing, with a
 * warning.  [setup] */
tsr_status tsr_run_chart(const struct tsr_job *job, struct tsr_launch *f, const char *file,
                         json_t *results, struct tsr_err *err);

#endif
