/* pipeline/steps/serve_step.h - the step `serve`: what its files share. */
#ifndef TSR_PIPELINE_STEPS_SERVE_STEP_H
#define TSR_PIPELINE_STEPS_SERVE_STEP_H

#include "pipeline/chat.h"
#include "pipeline/drafting.h"
#include "pipeline/job.h"
#include "pipeline/samplers.h"
#include "pipeline/sampling.h"
#include "pipeline/steps/run_launch.h"
#include "serve/loop.h"

struct tsr_step_serve_options {
    const char                       *host, *port_file, *api_key_file, *name;
    int64_t                           port, max_tokens, slots, cached, context, connections, queue;
    int64_t                           max_body;
    double                            timeout, deadline, drain, stall;
    int32_t                           allow_special, ignore_eos, reuse, blind;
    struct tsr_pipeline_sampling_keys sampling;
    const struct tsr_config_node     *samplers;
    struct tsr_pipeline_draft_keys    drafting;
    struct tsr_pipeline_chat_keys     talk;
    struct tsr_step_run_keys          fleet;
};

struct tsr_step_serving {
    const struct tsr_step_serve_options *o;
    struct tsr_pipeline_job             *job;
    struct tsr_model *packed; /* written to disk by a streaming step of the job; or NULL */
    struct tsr_chat  *chat;
    struct tsr_pipeline_samplers samplers;
    struct tsr_errbuf            no_chat;
    struct tsr_engine_sampling   sampling;
    struct tsr_serve_http        http;
    struct tsr_serve_counts      counts;
    double                       seconds; /* that it served */
    json_t                      *result;
    char                        *key;
    json_t                      *tokenizer; /* its special tokens and template; NULL: none */
    char                         base[64];
    uint64_t                     ran[3];
    uint32_t                     draft; /* of each request */
};

/* Serves until a signal, on one engine, on the ranks of a plan, or the arms of the comparison before; fills counts and
 * seconds, for arms result.arms, else ran. */
tsr_status tsr_step_serve_on_engine(struct tsr_step_serving *s, struct tsr_err *err);
tsr_status tsr_step_serve_on_ranks(struct tsr_step_serving *s, struct tsr_err *err);
tsr_status tsr_step_serve_arms(struct tsr_step_serving            *s,
                               const struct tsr_pipeline_job_step *compare, struct tsr_err *err);

/* Listens and answers for n models. */
tsr_status tsr_step_serve_models(struct tsr_step_serving *s, const struct tsr_serve_model *models,
                                 uint32_t n, struct tsr_err *err);
/* Positions of a sequence; with room for sequences that stay, if they can: true. */
uint64_t tsr_step_serve_context(const struct tsr_step_serving *s);
bool     tsr_step_serve_cache(const struct tsr_step_serving *s, struct tsr_engine_options *eo);

#endif
