/* pipeline/steps/compare_step.h - the arms of a step `compare`, for steps after it. */
#ifndef TSR_PIPELINE_STEPS_COMPARE_STEP_H
#define TSR_PIPELINE_STEPS_COMPARE_STEP_H

#include "compare/compare.h"
#include "pipeline/job.h"

extern const struct tsr_pipeline_step tsr_step_compare;

/* The last such step before job->at; NULL: none. */
const struct tsr_pipeline_job_step *tsr_step_compare_before(const struct tsr_pipeline_job *job);
/* Its arms, none of them loaded; arm 0 is the original.  end() also after an error. */
tsr_status tsr_step_compare_arms(struct compare *c, struct tsr_pipeline_job *job,
                                 const struct tsr_pipeline_job_step *s, struct tsr_err *err);
void       tsr_step_compare_end(struct compare *c);

#endif
