/* pipeline/steps/run_errors.h - the records of a batch that became error lines, by code. */
#ifndef TSR_PIPELINE_STEPS_RUN_ERRORS_H
#define TSR_PIPELINE_STEPS_RUN_ERRORS_H

#include "batch/reasons.h"
#include "pipeline/pipeline.h"

/* "errors_by_code": [{"code", "records", "line", "message"}] into a result; false: out of memory. */
bool tsr_step_run_errors_put(const struct tsr_batch_reasons *r, json_t *result);
/* The same as text; nothing if no record failed. */
void tsr_step_run_errors_print(const json_t *result, FILE *to);
/* TSR_E_CHECK with the counts by code where a record failed. */
tsr_status tsr_step_run_errors_gate(const json_t *result, struct tsr_err *err);

#endif
