/* pipeline/sampling.h - sampling that neither the command line nor the job states: the model's generation_config.json. */
#ifndef TSR_PIPELINE_SAMPLING_H
#define TSR_PIPELINE_SAMPLING_H

#include "engine/engine.h"
#include "pipeline/step.h"

/* How steps that answer requests sample where neither a request nor generation_config.json says. */
struct tsr_pipeline_sampling_keys {
    double  temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
};
#define TSR_PIPELINE_SAMPLING_OPTION(S, k, f, t, c_type, m, d, lo, hi, h)                          \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_##t, .flags = TSR_OPT_UNSAID,                       \
        .offset = TSR_FIELD(S, k.f, c_type), .def = { .m = d }, .min = { .m = lo }, .max = {       \
            .m = hi                                                                                \
        }                                                                                          \
    }
#define TSR_PIPELINE_SAMPLING_OPTIONS(S, k)                                                        \
    TSR_PIPELINE_SAMPLING_OPTION(S, k, temperature, REAL, double, r, 1.0, 0.0, 100.0,              \
                                 "Of requests that do not say; 0 takes the best token each "       \
                                 "time. Not given: the model's."),                                 \
        TSR_PIPELINE_SAMPLING_OPTION(                                                              \
            S, k, top_p, REAL, double, r, 1.0, 1e-9, 1.0,                                          \
            "Draw from the fewest tokens that hold this much probability."),                       \
        TSR_PIPELINE_SAMPLING_OPTION(                                                              \
            S, k, min_p, REAL, double, r, 0.0, 0.0, 1.0,                                           \
            "Draw from tokens with this part of the best one's probability; 0 takes all."),        \
        TSR_PIPELINE_SAMPLING_OPTION(S, k, top_k, INT, int64_t, i, 0, 0, INT64_C(1) << 31,         \
                                     "Draw from the k best tokens only; 0 takes all."),            \
        TSR_PIPELINE_SAMPLING_OPTION(S, k, repetition_penalty, REAL, double, r, 1.0, 1e-3, 1e3,    \
                                     "Divides logits of tokens seen before.")
static inline struct tsr_engine_sampling tsr_pipeline_sampling_of(
    const struct tsr_pipeline_sampling_keys *k, uint64_t seed)
{
    return (struct tsr_engine_sampling){ .temperature = k->temperature,
                                         .top_k = (uint64_t)k->top_k,
                                         .top_p = k->top_p,
                                         .min_p = k->min_p,
                                         .repetition_penalty = k->repetition_penalty,
                                         .seed = seed };
}

/* Puts temperature, top_k, top_p, min_p and repetition_penalty of generation_config.json into s, except those that
 * node states; "do_sample": false is temperature 0.  The job's model is loaded.  TSR_E_INPUT: a value is none. */
tsr_status tsr_pipeline_sampling(struct tsr_pipeline_job *job, const struct tsr_config_node *node,
                                 struct tsr_engine_sampling *s, struct tsr_err *err);

#endif
