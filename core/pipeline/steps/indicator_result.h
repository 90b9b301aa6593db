/* pipeline/steps/indicator_result.h - the result of the step `indicators`: for people, and as plans. */
#ifndef TSR_PIPELINE_STEPS_INDICATOR_RESULT_H
#define TSR_PIPELINE_STEPS_INDICATOR_RESULT_H

#include "pipeline/pipeline.h"

#include <stdio.h>

/* r: a tessera.indicators/1 object. */
void tsr_step_indicators_print(const json_t *r, FILE *to);

/* Writes plan-NAME.yaml into the job folder for each table: the widths with the smallest sum of
 * the indicator whose mean is at most `budget`.  Adds "plans" to the object.  TSR_E_INFEASIBLE when
 * the budget is below the narrowest width.  The model is loaded. */
tsr_status tsr_step_indicator_plans_write(struct tsr_pipeline_job *job, json_t *indicators,
                                          double budget, struct tsr_err *err);

#endif
