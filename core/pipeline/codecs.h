/* pipeline/codecs.h - simulated ranks in steps: keys of `eval` and of a comparison's arms, and the
 * calibration of codecs in `calibrate`. */
#ifndef TSR_PIPELINE_CODECS_H
#define TSR_PIPELINE_CODECS_H

#include "eval/codec_file.h"
#include "eval/simulate.h"
#include "pipeline/step.h"
#include "quant/calibrate.h"

extern const struct tsr_choice tsr_algorithm_choices[2];

struct tsr_tp_keys {
    int64_t     simulate_tp, algorithm;
    const char *codec, *codec_state;
};
#define TSR_TP_OPTIONS(S, k)                                                                       \
    { .name = "simulate_tp",                                                                       \
      .help = "Split every row-parallel linear as so many ranks would; 0: none.",                  \
      .unit = "ranks",                                                                             \
      .type = TSR_OPT_INT,                                                                         \
      .offset = TSR_FIELD(S, k.simulate_tp, int64_t),                                              \
      .min = { .i = 0 },                                                                           \
      .max = { .i = TSR_SPLIT_MAX } },                                                             \
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
        .type = TSR_OPT_STRING, .offset = TSR_FIELD(S, k.codec_state, const char *), .def = {      \
            .s = ""                                                                                \
        }                                                                                          \
    }

/* What is wrong with the keys, at their place in map. */
void tsr_tp_keys_check(struct tsr_job *job, const struct tsr_tp_keys *k, const struct tsr_node *map,
                       struct tsr_diag *d);

/* The simulated ranks of k for a model under an overlay; *t stays NULL where k asks for none.  A codec
 * that is calibrated takes codec_state, the file of this job's `calibrate: {codecs: ...}`, or the text of
 * its `calibrate`, in this order. */
tsr_status tsr_tp_keys_open(struct tsr_job *job, const struct tsr_tp_keys *k,
                            const struct tsr_model *m, const struct tsr_overlay *o, uint32_t act,
                            struct tsr_tp **t, struct tsr_err *err);

/* Where a job's `calibrate: {codecs: ...}` puts what it finds for a key; fresh memory. */
tsr_status tsr_codec_state_path(const struct tsr_job *job, const struct tsr_codec_key *k,
                                char **path, struct tsr_err *err);

/* {"ranks", "codec", "algorithm", "bits", "exact"}; NULL when out of memory. */
json_t *tsr_tp_json(const struct tsr_tp *t, const struct tsr_model *m);

/* The map `codecs` of a calibration: {use: [SPEC, ...], tp: N, algorithm: A, act: ACT}. */
void       tsr_codecs_check(struct tsr_job *job, const struct tsr_node *map, struct tsr_diag *d);
tsr_status tsr_codecs_calibrate(struct tsr_job *job, const struct tsr_node *map,
                                struct tsr_calibrate_options *co, json_t **result,
                                struct tsr_err *err);

#endif
