/* pipeline/run_launch.h - the step `run` on the ranks of a plan: which plan, what is told afterwards. */
#ifndef TSR_PIPELINE_RUN_FLEET_H
#define TSR_PIPELINE_RUN_FLEET_H

#include "pipeline/launch.h"
#include "pipeline/pipeline.h"

/* Keys of the step. */
struct tsr_run_keys {
    const char *plan, *gantt, *codec_state;
    int64_t     ranks, threads;

    struct tsr_compensate_keys compensation; /* of one engine too */
};
// clang-format off
#define TSR_RUN_LAUNCH_OPTIONS(S, k) \
    { .name = "plan", .type = TSR_OPT_STRING, .offset = TSR_FIELD(S, k.plan, const char *), .def = { .s = "" }, \
      .help = "A plan file, or what a plan step before writes, whose ranks run it; left out: that of a plan step " \
              "before, else one process runs all." }, \
    TSR_COMPENSATE_WAYS(S, k.compensation, TSR_POSITIONS_DECODE), \
    { .name = "ranks", .type = TSR_OPT_ENUM, .offset = TSR_FIELD(S, k.ranks, int64_t), \
      .def = { .i = TSR_RANKS_PROCESSES }, .choices = tsr_rank_kind_choices, .n_choices = 2, \
      .help = "What a rank of a plan is." }, \
    { .name = "threads", .type = TSR_OPT_INT, .offset = TSR_FIELD(S, k.threads, int64_t), .max = { .i = 256 }, \
      .help = "Threads of a rank; 0: the machine's, over the ranks." }, \
    { .name = "codec_state", .type = TSR_OPT_STRING, .offset = TSR_FIELD(S, k.codec_state, const char *), \
      .def = { .s = "" }, \
      .help = "Calibration of the codec that a plan's sums go by, as `calibrate: {codecs: ...}` wrote it, where the " \
              "plan names none (`state:`); default: that of this job." }, \
    { .name = "gantt", .type = TSR_OPT_STRING, .offset = TSR_FIELD(S, k.gantt, const char *), .def = { .s = "" }, \
      .help = "A picture of what every rank of a plan did when: FILE.svg, and beside it FILE.simulated.svg, what " \
              "a simulation makes of the same times." }
// clang-format on

/* Errors of the keys, at their places. */
void tsr_run_launch_check(const struct tsr_job *job, const struct tsr_run_keys *k,
                          const struct tsr_node *node, struct tsr_diag *d);
/* True where there is a plan to run. */
bool tsr_run_launch_wanted(const struct tsr_job *job, const struct tsr_run_keys *k,
                           const struct tsr_node *node);

struct tsr_run_launch {
    struct tsr_launch *fleet;
    uint64_t           context;
};
/* Ranks at work.  key: of the batch; what `auto` of the plan became for it is taken from the job's
 * manifest, where it is there.  act as in engine.h; records: how many there are; context 0: what the plan
 * was made for; stall_us: how long a rank may stand still.  m: the model as the steps before left it, packed or not.  [setup] */
tsr_status tsr_run_launch_open(struct tsr_run_launch *f, struct tsr_job *job,
                               const struct tsr_model *m, const struct tsr_run_keys *k,
                               const struct tsr_node *node, uint32_t act, uint64_t context,
                               uint64_t records, const char *key, uint64_t stall_us,
                               struct tsr_err *err);
/* Writes what `auto` became into the job's manifest, before the first record.  folder: of the journal of
 * batch id; with answers of that batch already there it is too late: TSR_E_INPUT. */
tsr_status tsr_run_launch_note(struct tsr_run_launch *f, struct tsr_job *job, const char *key,
                               const char *id, const char *folder, struct tsr_err *err);
/* The rank of this process, which is not 0, of an MPI job: until rank 0 lets it end.  [setup] */
tsr_status tsr_run_launch_serve(struct tsr_job *job, const struct tsr_model *m,
                                const struct tsr_run_keys *k, const struct tsr_node *node,
                                uint32_t act, struct tsr_err *err);
/* Lets the ranks end, and puts what they did into the results. */
tsr_status tsr_run_launch_report(struct tsr_run_launch *f, const struct tsr_job *job,
                                 const struct tsr_run_keys *k, uint64_t tokens, double seconds,
                                 json_t *results, struct tsr_err *err);
void       tsr_run_launch_close(struct tsr_run_launch *f); /* zeroed or filled */
/* That as lines for a terminal. */
void tsr_run_launch_print(const json_t *results, FILE *to);

#endif
