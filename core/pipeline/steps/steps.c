#include "pipeline/pipeline.h"

#include <string.h>

/* One line per step, in the order of the documentation. */
extern const struct tsr_pipeline_step tsr_step_rotate;
extern const struct tsr_pipeline_step tsr_step_calibrate;
extern const struct tsr_pipeline_step tsr_step_indicators;
extern const struct tsr_pipeline_step tsr_step_plan;
extern const struct tsr_pipeline_step tsr_step_quantize;
extern const struct tsr_pipeline_step tsr_step_compensate;
extern const struct tsr_pipeline_step tsr_step_tune;
extern const struct tsr_pipeline_step tsr_step_sweep;
extern const struct tsr_pipeline_step tsr_step_outliers;
extern const struct tsr_pipeline_step tsr_step_eval;
extern const struct tsr_pipeline_step tsr_step_compare;
extern const struct tsr_pipeline_step tsr_step_generate;
extern const struct tsr_pipeline_step tsr_step_logits;
extern const struct tsr_pipeline_step tsr_step_run;
extern const struct tsr_pipeline_step tsr_step_serve;
extern const struct tsr_pipeline_step tsr_step_export;
extern const struct tsr_pipeline_step tsr_step_report;

const struct tsr_pipeline_step *const tsr_steps[] = {
    &tsr_step_rotate,   &tsr_step_calibrate,  &tsr_step_indicators, &tsr_step_plan,
    &tsr_step_quantize, &tsr_step_compensate, &tsr_step_tune,       &tsr_step_sweep,
    &tsr_step_outliers, &tsr_step_eval,       &tsr_step_compare,    &tsr_step_generate,
    &tsr_step_logits,   &tsr_step_run,        &tsr_step_serve,      &tsr_step_export,
    &tsr_step_report,
};
const uint64_t tsr_n_steps = sizeof tsr_steps / sizeof *tsr_steps;

const struct tsr_pipeline_step *tsr_pipeline_step_find(const char *name)
{
    for (uint64_t i = 0; i < tsr_n_steps; i++)
        if (strcmp(tsr_steps[i]->name, name) == 0)
            return tsr_steps[i];
    return NULL;
}
