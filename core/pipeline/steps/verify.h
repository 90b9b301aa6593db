/* pipeline/steps/verify.h - the KL of a whole plan: its packed weights, its stages with the codecs of their links and sums,
 * its cache and its compensation, in one process. */
#ifndef TSR_PIPELINE_STEPS_VERIFY_H
#define TSR_PIPELINE_STEPS_VERIFY_H

#include "pipeline/pipeline.h"
#include "planning/options.h"

struct tsr_step_verified {
    double kl,
        half; /* nats per token; half of the 95 % interval over windows, NAN with one window */
    uint64_t tokens, windows, window;
    char     text_hash[48];
};

/* plan: the file, whose layers the job's quantize step has packed.  indicators: the file that promised, "": none.  Of two
 * phases with different codecs the larger KL.  [worker] */
tsr_status tsr_step_verify_measure(struct tsr_pipeline_job *job, const char *plan,
                                   const char *indicators, const struct tsr_planning_verify_keys *k,
                                   struct tsr_step_verified *out, struct tsr_err *err);

#endif
