/* pipeline/steps/run_batch.h - a step `run` at work: run.c opens its files, run_batch.c runs the batch. */
#ifndef TSR_PIPELINE_STEPS_RUN_BATCH_H
#define TSR_PIPELINE_STEPS_RUN_BATCH_H

#include "batch/run.h"
#include "pipeline/chat.h"
#include "pipeline/drafting.h"
#include "pipeline/job.h"
#include "pipeline/samplers.h"
#include "pipeline/sampling.h"
#include "pipeline/step.h"
#include "pipeline/steps/run_launch.h"
#include "pipeline/steps/run_same.h"

struct tsr_step_run_options {
    const char                       *input, *output, *shard;
    int64_t                           max_tokens, slots, context, limit;
    double                            stall, deadline;
    struct tsr_pipeline_sampling_keys sampling;
    const struct tsr_config_node     *samplers;
    int32_t                           allow_special, ignore_eos, retry_errors, fail_on_errors;
    struct tsr_pipeline_draft_keys    drafting;
    struct tsr_pipeline_chat_keys     talk;
    struct tsr_step_run_keys          fleet;
};

struct tsr_step_run_batch {
    const struct tsr_step_run_options *o;
    struct tsr_pipeline_job           *job;
    struct tsr_batch_records           records;
    struct tsr_batch_job               b;
    struct tsr_model          *packed; /* written to disk by a streaming step of the job; or NULL */
    json_t                    *result, *kept;
    struct tsr_step_run_same   same;
    struct tsr_chat           *chat;
    struct tsr_engine_sampling sampling; /* of requests that do not say */
    struct tsr_pipeline_samplers samplers;
    struct tsr_errbuf            no_chat;
    char                         base[TSR_HASH_TEXT];
    char                        *about, *output, *folder;
    uint64_t                     ran[3]; /* tsr_engine_acts(), of all ranks */
};

tsr_status tsr_step_run_on_engine(struct tsr_step_run_batch *r, struct tsr_batch_summary *s,
                                  struct tsr_err *err);
/* The same on the ranks of a plan. */
tsr_status tsr_step_run_on_ranks(struct tsr_step_run_batch *r, struct tsr_batch_summary *s,
                                 struct tsr_err *err);

#endif
