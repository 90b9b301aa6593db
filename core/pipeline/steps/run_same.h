/* pipeline/steps/run_same.h - checks that the inputs of a batch do not change during the run. */
#ifndef TSR_PIPELINE_STEPS_RUN_SAME_H
#define TSR_PIPELINE_STEPS_RUN_SAME_H

#include "pipeline/pipeline.h"

struct tsr_step_run_same {
    const struct tsr_pipeline_job *job;
    const struct tsr_compensation *residuals; /* NULL: none */
    const char                    *output;    /* for messages */
};

/* Reads the weights of a model that is mapped once, in parallel, and compares their hashes; others were hashed as they
 * were read.  Beats and shows progress.  [setup] */
tsr_status tsr_step_run_verify(const struct tsr_pipeline_job *job, struct tsr_err *err);
/* A tsr_batch_job.same, with a struct tsr_step_run_same: checks the mapped files; with `end`, all files
 * that the job read. TSR_E_INPUT names the file. */
tsr_status tsr_step_run_same(void *ctx, bool end, struct tsr_err *err);

#endif
