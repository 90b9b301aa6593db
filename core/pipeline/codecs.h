/* pipeline/codecs.h - simulated ranks in steps: keys of `eval` and of a comparison's arms, and the
 * calibration of codecs in `calibrate`. */
#ifndef TSR_PIPELINE_CODECS_H
#define TSR_PIPELINE_CODECS_H

#include "eval/codec_file.h"
#include "eval/simulate.h"
#include "pipeline/step.h"
#include "quant/calibrate.h"

extern const struct tsr_choice tsr_algorithm_choices[2];

struct tsr_pipeline_tp_keys {
    int64_t     simulate_tp, algorithm;
    const char *codec, *codec_state;
};
#define TSR_PIPELINE_TP_OPTIONS(S, k)                                                              \
    { .name = "simulate_tp",                                                                       \
      .help = "Split every row-parallel linear as so many ranks would; 0: none.",                  \
      .unit = "ranks",                                                                             \
      .type = TSR_OPT_INT,                                                                         \
      .offset = TSR_FIELD(S, k.simulate_tp, int64_t),                                              \
      .min = { .i = 0 },                                                                           \
      .max = { .i = TSR_ENGINE_SPLIT_MAX } },                                                      \
        { .name = "codec",                                                                         \
          .help = "What partial sums of simulated ranks travel as, with options: mx:block=16; "    \
                  "default plain F32.",                                                            \
          .type = TSR_OPT_STRING,                                                                  \
          .offset = TSR_FIELD(S, k.codec, const char *),                                           \
          .def = { .s = "" } },                                                                    \
        { .name = "algorithm",                                                                     \
          .help = "How simulated ranks add their partial sums.",                                   \
          .type = TSR_OPT_ENUM,                                                                    \
          .offset = TSR_FIELD(S, k.algorithm, int64_t),                                            \
          .def = { .i = TSR_COMM_ALL_GATHER },                                                     \
          .choices = tsr_algorithm_choices,                                                        \
          .n_choices = 2 },                                                                        \
    {                                                                                              \
        .name = "codec_state",                                                                     \
        .help = "Calibration of the codec, as `calibrate: {codecs: ...}` wrote it; default: that " \
                "of this job.",                                                                    \
        .type = TSR_OPT_STRING, .unit = "FILE",                                                    \
        .offset = TSR_FIELD(S, k.codec_state, const char *), .def = {                              \
            .s = ""                                                                                \
        }                                                                                          \
    }

/* Errors of the keys, at their place in map. must: also an error if no earlier step calibrates the codec;
 * an arm of a comparison reports that itself. */
void tsr_pipeline_tp_keys_check(struct tsr_pipeline_job *job, const struct tsr_pipeline_tp_keys *k,
                                bool must, const struct tsr_config_node *map, struct tsr_diag *d);

/* The simulated ranks of k for a model under an overlay; *t stays NULL if k has none. A calibrated codec
 * takes codec_state, the file of this job's `calibrate: {codecs: ...}`, or the text of its `calibrate`, in
 * this order. */
tsr_status tsr_pipeline_tp_keys_open(struct tsr_pipeline_job           *job,
                                     const struct tsr_pipeline_tp_keys *k,
                                     const struct tsr_model *m, const struct tsr_model_overlay *o,
                                     uint32_t act, struct tsr_tp **t, struct tsr_err *err);

/* Where a job's `calibrate: {codecs: ...}` stores its result for a key; fresh memory. */
tsr_status tsr_pipeline_codec_state_path(const struct tsr_pipeline_job   *job,
                                         const struct tsr_eval_codec_key *k, char **path,
                                         struct tsr_err *err);

/* {"ranks", "codec", "algorithm", "bits", "exact"}; NULL when out of memory. */
json_t *tsr_pipeline_tp_json(const struct tsr_tp *t, const struct tsr_model *m);

/* The map `codecs` of a calibration: {use: [SPEC, ...], tp: N, algorithm: A, act: ACT}. */
void tsr_pipeline_codecs_check(struct tsr_pipeline_job *job, const struct tsr_config_node *map,
                               struct tsr_diag *d);
tsr_status tsr_pipeline_codecs_calibrate(struct tsr_pipeline_job            *job,
                                         const struct tsr_config_node       *map,
                                         struct tsr_quant_calibrate_options *co, json_t **result,
                                         struct tsr_err *err);

#endif
