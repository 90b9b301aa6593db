/* pipeline/sample.h - prompts in, texts out, for the steps that show what a model writes. */
#ifndef TSR_PIPELINE_SAMPLE_H
#define TSR_PIPELINE_SAMPLE_H

#include "pipeline/step.h"

struct tsr_sample_keys {
    int64_t max_tokens, top_k, act;
    double  temperature, top_p, repetition_penalty;
};
#define TSR_SAMPLE_OPTIONS(S, k)                                                                   \
    { .name = "max_tokens",                                                                        \
      .help = "Most new tokens of a text.",                                                        \
      .unit = "tokens",                                                                            \
      .type = TSR_OPT_INT,                                                                         \
      .offset = TSR_FIELD(S, k.max_tokens, int64_t),                                               \
      .def = { .i = 48 },                                                                          \
      .min = { .i = 1 },                                                                           \
      .max = { .i = 1 << 20 } },                                                                   \
        { .name = "temperature",                                                                   \
          .help = "0 takes the best token each time.",                                             \
          .type = TSR_OPT_REAL,                                                                    \
          .offset = TSR_FIELD(S, k.temperature, double),                                           \
          .def = { .r = 0.0 },                                                                     \
          .min = { .r = 0.0 },                                                                     \
          .max = { .r = 100.0 } },                                                                 \
        { .name = "top_k",                                                                         \
          .help = "Draw from the k best tokens only; 0 takes all.",                                \
          .unit = "tokens",                                                                        \
          .type = TSR_OPT_INT,                                                                     \
          .offset = TSR_FIELD(S, k.top_k, int64_t),                                                \
          .min = { .i = 0 },                                                                       \
          .max = { .i = 1 << 30 } },                                                               \
        { .name = "top_p",                                                                         \
          .help = "Draw from the fewest tokens that hold this much probability.",                  \
          .type = TSR_OPT_REAL,                                                                    \
          .offset = TSR_FIELD(S, k.top_p, double),                                                 \
          .def = { .r = 1.0 },                                                                     \
          .min = { .r = 1e-9 },                                                                    \
          .max = { .r = 1.0 } },                                                                   \
        { .name = "repetition_penalty",                                                            \
          .help = "Divides logits of tokens seen before.",                                         \
          .type = TSR_OPT_REAL,                                                                    \
          .offset = TSR_FIELD(S, k.repetition_penalty, double),                                    \
          .def = { .r = 1.0 },                                                                     \
          .min = { .r = 1e-3 },                                                                    \
          .max = { .r = 1e3 } },                                                                   \
    {                                                                                              \
        .name = "act", .help = "How activations enter packed weights; others take f32.",           \
        .type = TSR_OPT_ENUM, .offset = TSR_FIELD(S, k.act, int64_t), .def = { .i = TSR_ACT_A8 },  \
        .choices = tsr_act_choices, .n_choices = 3                                                 \
    }

/* Continues each prompt (a list node of strings) with a model of the job's tokenizer under the
 * overlay; texts gets one
 * {"prompt", "text", "tokens", "stopped"} for each, ran what tsr_engine_acts() says. */
tsr_status tsr_sample_texts(struct tsr_job *job, const struct tsr_model *model,
                            const struct tsr_overlay *overlay, const struct tsr_node *prompts,
                            const struct tsr_sample_keys *k, uint64_t seed, json_t *texts,
                            uint64_t ran[3], struct tsr_err *err);

#endif
