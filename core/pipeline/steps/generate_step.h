/* pipeline/steps/generate_step.h - the step `generate`: many prompts at once, or one with streamed text. */
#ifndef TSR_PIPELINE_STEPS_GENERATE_STEP_H
#define TSR_PIPELINE_STEPS_GENERATE_STEP_H

#include "pipeline/chat.h"
#include "pipeline/drafting.h"
#include "pipeline/sample.h"

struct generate_keys {
    const struct tsr_config_node    *prompts;
    const char                      *tokens, *prompt, *system;
    int32_t                          chat, greedy, ignore_eos;
    struct tsr_pipeline_chat_keys    talk;
    struct tsr_pipeline_sample_keys  sample;
    struct tsr_pipeline_draft_keys   drafting;
    int64_t                          seed;
    struct tsr_pipeline_running_keys run;
};

/* One prompt, of text or ids: {"tokens": [...], "text": ...}, new reference. Streams the text to standard
 * output, unless the job prints JSON. */
tsr_status generate_one(struct tsr_pipeline_job *job, const struct generate_keys *o, uint64_t seed,
                        json_t **result, struct tsr_err *err);

#endif
