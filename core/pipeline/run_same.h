/* pipeline/run_same.h - what the answers of a batch are made of stays what it was at the start. */
#ifndef TSR_PIPELINE_RUN_SAME_H
#define TSR_PIPELINE_RUN_SAME_H

#include "pipeline/pipeline.h"

struct tsr_run_same {
    const struct tsr_job *job;
    const char           *output; /* for messages */
};

/* Reads the weights of a model that is mapped once, in parallel, and compares their hashes; others were hashed as they
 * were read.  Beats and shows progress.  [setup] */
tsr_status tsr_run_verify(const struct tsr_job *job, struct tsr_err *err);
/* A tsr_batch_job.same, with a struct tsr_run_same: of the file that is mapped; with `end` of all that the job
 * read.  TSR_E_INPUT names the file. */
tsr_status tsr_run_same(void *ctx, bool end, struct tsr_err *err);

#endif
