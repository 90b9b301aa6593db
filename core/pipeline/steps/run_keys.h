/* pipeline/steps/run_keys.h - keys of the step `run`. */
#ifndef TSR_PIPELINE_STEPS_RUN_KEYS_H
#define TSR_PIPELINE_STEPS_RUN_KEYS_H

#include "pipeline/pipeline.h"
#include "pipeline/running.h"
#include "runtime/group.h"

/* Keys of the step. */
struct tsr_step_run_keys {
    const char *plan, *gantt, *codec_state;
    int64_t     ranks;

    struct tsr_pipeline_running_keys run; /* of one engine too */
};
// clang-format off
#define TSR_RUN_PLAN_OPTION(S, k) \
    { .name = "plan", .type = TSR_OPT_STRING, .unit = "FILE", .offset = TSR_FIELD(S, k.plan, const char *), .def = { .s = "" }, \
      .help = "A plan file, or what a plan step before writes, whose ranks run it; left out: that of a plan step " \
              "before, else one process runs all." }
#define TSR_RUN_RANKS_OPTIONS(S, k) \
    { .name = "ranks", .type = TSR_OPT_ENUM, .offset = TSR_FIELD(S, k.ranks, int64_t), \
      .def = { .i = TSR_RUNTIME_RANKS_PROCESSES }, .choices = tsr_rank_kind_choices, .n_choices = 2, \
      .help = "What a rank of a plan is." }, \
    { .name = "codec_state", .type = TSR_OPT_STRING, .unit = "FILE", .offset = TSR_FIELD(S, k.codec_state, const char *), \
      .def = { .s = "" }, \
      .help = "Calibration of the codec that a plan's sums go by, as `calibrate: {codecs: ...}` wrote it, where the " \
              "plan names none (`state:`); default: that of this job." }
#define TSR_RUN_LAUNCH_OPTIONS(S, k) \
    TSR_RUN_PLAN_OPTION(S, k), \
    TSR_PIPELINE_RUNNING_WAYS(S, k.run, TSR_ACT_A8, TSR_PIPELINE_POSITIONS_DECODE, 0, 0), \
    TSR_RUN_RANKS_OPTIONS(S, k), \
    { .name = "gantt", .type = TSR_OPT_STRING, .unit = "FILE", .offset = TSR_FIELD(S, k.gantt, const char *), .def = { .s = "" }, \
      .help = "A chart of what every rank of a plan did over time: FILE.svg. FILE.simulated.svg is a simulation " \
              "from the same times." }
// clang-format on

#endif
