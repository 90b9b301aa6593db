/* pipeline/sample.h - continues prompts, for the steps that show a model's output. */
#ifndef TSR_PIPELINE_SAMPLE_H
#define TSR_PIPELINE_SAMPLE_H

#include "pipeline/drafting.h"
#include "pipeline/samplers.h"

struct tsr_pipeline_sample_keys {
    int64_t                               max_tokens, top_k;
    double                                temperature, top_p, min_p, repetition_penalty;
    const struct tsr_config_node         *samplers; /* NULL: none */
    const struct tsr_pipeline_draft_keys *drafting; /* no option; NULL: no drafts */
};
/* least: of max_tokens. */
#define TSR_PIPELINE_SAMPLE_OPTIONS(S, k, least)                                                   \
    TSR_PIPELINE_SAMPLERS_OPTION(S, k.samplers),                                                   \
        { .name = "max_tokens",                                                                    \
          .help = "Most new tokens of a text.",                                                    \
          .unit = "tokens",                                                                        \
          .type = TSR_OPT_INT,                                                                     \
          .offset = TSR_FIELD(S, k.max_tokens, int64_t),                                           \
          .def = { .i = 48 },                                                                      \
          .min = { .i = least },                                                                   \
          .max = { .i = INT64_C(1) << 31 } },                                                      \
        { .name = "temperature",                                                                   \
          .help = "0 takes the best token each time.",                                             \
          .type = TSR_OPT_REAL,                                                                    \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, k.temperature, double),                                           \
          .def = { .r = 0.0 },                                                                     \
          .min = { .r = 0.0 },                                                                     \
          .max = { .r = 100.0 } },                                                                 \
        { .name = "top_k",                                                                         \
          .help = "Draw from the k best tokens only; 0 takes all.",                                \
          .unit = "tokens",                                                                        \
          .type = TSR_OPT_INT,                                                                     \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, k.top_k, int64_t),                                                \
          .min = { .i = 0 },                                                                       \
          .max = { .i = INT64_C(1) << 31 } },                                                      \
        { .name = "top_p",                                                                         \
          .help = "Draw from the fewest tokens that hold this much probability.",                  \
          .type = TSR_OPT_REAL,                                                                    \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, k.top_p, double),                                                 \
          .def = { .r = 1.0 },                                                                     \
          .min = { .r = 1e-9 },                                                                    \
          .max = { .r = 1.0 } },                                                                   \
        { .name = "min_p",                                                                         \
          .help = "Draw from tokens with this part of the best one's probability; 0 takes all.",   \
          .type = TSR_OPT_REAL,                                                                    \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, k.min_p, double),                                                 \
          .min = { .r = 0.0 },                                                                     \
          .max = { .r = 1.0 } },                                                                   \
    {                                                                                              \
        .name = "repetition_penalty",                                                              \
        .help = "Divides (multiplies, if negative) logits of tokens seen before.",                 \
        .type = TSR_OPT_REAL, .flags = TSR_OPT_UNSAID,                                             \
        .offset = TSR_FIELD(S, k.repetition_penalty, double), .def = { .r = 1.0 },                 \
        .min = { .r = 1e-3 }, .max = {                                                             \
            .r = 1e3                                                                               \
        }                                                                                          \
    }

/* Continues each prompt (a list node of strings) with a model of the job's tokenizer under the overlay, on
 * an engine as in `how`, whose context and slots are set here. texts gets one {"prompt", "text", "tokens",
 * "stopped"} for each; ran gets the counts of tsr_engine_acts(); drafts may
 * be NULL. */
tsr_status tsr_pipeline_sample_texts(struct tsr_pipeline_job *job, const struct tsr_model *model,
                                     const struct tsr_model_overlay        *overlay,
                                     const struct tsr_config_node          *prompts,
                                     const struct tsr_pipeline_sample_keys *k, bool ignore_eos,
                                     uint64_t seed, const struct tsr_engine_options *how,
                                     json_t *texts, uint64_t ran[3],
                                     struct tsr_engine_drafted *drafts, struct tsr_err *err);

#endif
