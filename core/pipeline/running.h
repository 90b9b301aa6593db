/* pipeline/running.h - options of every step that runs a model: one group of options, one struct, one path.
 *
 *   command line, step or job head --> tsr_pipeline_running_keys --tsr_pipeline_running_open()--> engine options
 *   head `backend`, `gpu_layers`, `cpu_experts`, `numerics`, `threads` -> job->on -> a step's `on`, unless the step sets its own
 *   a verb of a step: args.c collects "key=value" -> tsr_pipeline_job_make_steps() -> check -> resolve -> run -> print
 *   a loose job (a verb without a job folder) keeps its results only in memory; they are the verb's output
 *   what steps need of earlier ones: declared by need(), resolved by job_resolve.c before the first step runs
 */
#ifndef TSR_PIPELINE_RUNNING_H
#define TSR_PIPELINE_RUNNING_H

#include "pipeline/compensating.h"
#include "plugin/choices.h"
#include "plugin/kv_layers.h"

struct tsr_pipeline_job;
struct tsr_config_node;
struct tsr_diag;

/* What models run on.  flags: TSR_OPT_UNSAID in a step, which takes the head's values then. */
struct tsr_pipeline_run_on_keys {
    const char *backend;
    int64_t     gpu_layers, cpu_experts, numerics, threads;
};
/* Also an option of the command line, for verbs that are not jobs; not part of a job's identity
 * (TSR_OPT_UNSAID). */
#define TSR_PIPELINE_THREADS_OPTION(S, f, fl)                                                      \
    {                                                                                              \
        .name = "threads",                                                                         \
        .help = "Threads that compute; with a plan, threads of each rank. 0: every CPU of the "    \
                "process, divided by its ranks.",                                                  \
        .type = TSR_OPT_INT, .flags = fl, .offset = TSR_FIELD(S, f, int64_t), .max = {             \
            .i = 256                                                                               \
        }                                                                                          \
    }
#define TSR_PIPELINE_RUN_ON_OPTIONS(S, f, fl)                                                      \
    { .name = "backend",                                                                           \
      .help = "Backend that runs models: cpu, cuda, or auto (cuda if it has a device).",           \
      .type = TSR_OPT_STRING,                                                                      \
      .flags = fl,                                                                                 \
      .offset = TSR_FIELD(S, f.backend, const char *),                                             \
      .def = { .s = "cpu" } },                                                                     \
        { .name = "gpu_layers",                                                                    \
          .help = "How many layers the backend runs, from the first; the others and the head run " \
                  "on the CPU; -1: all.",                                                          \
          .unit = "layers",                                                                        \
          .type = TSR_OPT_INT,                                                                     \
          .flags = fl,                                                                             \
          .offset = TSR_FIELD(S, f.gpu_layers, int64_t),                                           \
          .def = { .i = -1 },                                                                      \
          .min = { .i = -1 },                                                                      \
          .max = { .i = 1 << 20 } },                                                               \
        { .name = "cpu_experts",                                                                   \
          .help = "In how many layers, from the first, the CPU runs the experts; the rest of a "   \
                  "layer stays on the backend; -1: all.",                                          \
          .unit = "layers",                                                                        \
          .type = TSR_OPT_INT,                                                                     \
          .flags = fl,                                                                             \
          .offset = TSR_FIELD(S, f.cpu_experts, int64_t),                                          \
          .min = { .i = -1 },                                                                      \
          .max = { .i = 1 << 20 } },                                                               \
        TSR_PIPELINE_THREADS_OPTION(S, f.threads, TSR_OPT_UNSAID),                                 \
    {                                                                                              \
        .name = "numerics",                                                                        \
        .help = "Which arithmetic: the bytes of every machine, or what is faster on some.",        \
        .type = TSR_OPT_ENUM, .flags = fl, .offset = TSR_FIELD(S, f.numerics, int64_t),            \
        .def = { .i = TSR_NUMERICS_AUTO }, .choices = tsr_numerics_choices,                        \
        .n_choices = TSR_NUMERICS_CHOICES                                                          \
    }
#define TSR_PIPELINE_N_RUN_ON_OPTIONS 5u
extern const struct tsr_option
    tsr_pipeline_run_on_options[TSR_PIPELINE_N_RUN_ON_OPTIONS]; /* the head's */
/* k must outlive the result. */
struct tsr_plugin_run_on tsr_pipeline_run_on_of(const struct tsr_pipeline_run_on_keys *k);

/* All that an engine of a step is made with. */
struct tsr_pipeline_running_keys {
    struct tsr_pipeline_run_on_keys     on;
    int64_t                             act, kv, chunk;
    const char                         *kv_layers; /* plugin/kv_layers.h */
    struct tsr_pipeline_compensate_keys compensation;
};
/* a: the default act of packed weights; where: which tokens are compensated by default. fl: flags of
 * compensation, kvfl: of kv. */
#define TSR_PIPELINE_RUNNING_OPTIONS(S, f, a, where, fl)                                           \
    TSR_PIPELINE_RUNNING_WAYS(S, f, a, where, fl, TSR_OPT_UNSAID),                                 \
        TSR_PIPELINE_RECALL_OPTION(S, f.compensation, fl)
/* The same but recall. */
#define TSR_PIPELINE_RUNNING_WAYS(S, f, a, where, fl, kvfl)                                        \
    { .name = "act",                                                                               \
      .help = "How activations enter packed weights; others take f32.",                            \
      .type = TSR_OPT_ENUM,                                                                        \
      .offset = TSR_FIELD(S, f.act, int64_t),                                                      \
      .def = { .i = a },                                                                           \
      .choices = tsr_act_choices,                                                                  \
      .n_choices = 3 },                                                                            \
        { .name = "kv",                                                                            \
          .help = "Type of the KV cache.",                                                         \
          .type = TSR_OPT_ENUM,                                                                    \
          .flags = kvfl,                                                                           \
          .offset = TSR_FIELD(S, f.kv, int64_t),                                                   \
          .def = { .i = TSR_KV_AUTO },                                                             \
          .choices = tsr_kv_run_choices,                                                           \
          .n_choices = TSR_KV_CHOICES + 2 },                                                       \
        { .name = "kv_layers",                                                                     \
          .help = TSR_KV_LAYERS_HELP,                                                              \
          .type = TSR_OPT_STRING,                                                                  \
          .flags = kvfl,                                                                           \
          .offset = TSR_FIELD(S, f.kv_layers, const char *),                                       \
          .def = { .s = "" } },                                                                    \
        { .name = "chunk",                                                                         \
          .help = "Most tokens in one pass; 0 takes the engine's choice.",                         \
          .unit = "tokens",                                                                        \
          .type = TSR_OPT_INT,                                                                     \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, f.chunk, int64_t),                                                \
          .min = { .i = 0 },                                                                       \
          .max = { .i = 1 << 20 } },                                                               \
        TSR_PIPELINE_RUN_ON_OPTIONS(S, f.on, TSR_OPT_UNSAID),                                      \
        TSR_PIPELINE_COMPENSATE_WAYS(S, f.compensation, where, fl)

/* An engine's options and their referents. */
struct tsr_pipeline_running {
    struct tsr_engine_options eo; /* one slot; context, split and the like are the step's to add */
    struct tsr_pipeline_compensating compensating;
    const struct tsr_model          *model; /* the caller's */
};
/* For m, whose residuals are those of the folder `packed` (NULL: its own).  close() also after an error.  [setup] */
tsr_status tsr_pipeline_running_open(struct tsr_pipeline_running *r, struct tsr_pipeline_job *job,
                                     const struct tsr_pipeline_running_keys *k,
                                     const struct tsr_model *m, const char *packed, uint64_t seed,
                                     struct tsr_err *err);
void       tsr_pipeline_running_close(struct tsr_pipeline_running *r);
/* Call when the engine is done and before anything is written: the files that it read all along, a prepacked
 * model and residuals, are those that were opened. TSR_E_INPUT names the one that changed. */
tsr_status tsr_pipeline_running_unchanged(const struct tsr_pipeline_running *r,
                                          struct tsr_err                    *err);
/* The same of one model and of residuals (NULL: none). */
tsr_status tsr_pipeline_mapped_unchanged(const struct tsr_model        *m,
                                         const struct tsr_compensation *c, struct tsr_err *err);
/* `by_layers` of a step: a pass over the layers, each in memory while windows go through it. */
#define TSR_PIPELINE_BY_LAYERS_OPTION(S, f)                                                        \
    {                                                                                              \
        .name = "by_layers",                                                                       \
        .help = "Read the weights one layer at a time, and run so many windows through each; 0: "  \
                "the model is in memory.",                                                         \
        .unit = "windows", .type = TSR_OPT_INT, .flags = TSR_OPT_UNSAID,                           \
        .offset = TSR_FIELD(S, f, int64_t), .min = { .i = 0 }, .max = {                            \
            .i = 1 << 20                                                                           \
        }                                                                                          \
    }
/* An error if `by_layers` is there with what such a pass does not do: what (NULL: nothing of the step), or a key of k
 * (NULL: none). */
void tsr_pipeline_by_layers_check(const struct tsr_pipeline_running_keys *k, const char *what,
                                  const struct tsr_config_node *node, struct tsr_diag *d);
/* The options of one that others are compared with: on the same backend, but exact, F32 and not compensated. */
struct tsr_engine_options tsr_pipeline_running_plain(const struct tsr_pipeline_running *r);

/* How e ran: act, packed_linears, and compensation if enabled. A loose job has no manifest, so kv,
 * numerics and device go here too. false: out of memory. */
bool tsr_pipeline_running_put(json_t *object, const struct tsr_pipeline_job *job,
                              const struct tsr_pipeline_running_keys *k,
                              const struct tsr_pipeline_running *r, const struct tsr_engine *e);
/* The same of a plain engine, which has no keys. */
bool tsr_pipeline_running_put_plain(json_t *object, const struct tsr_pipeline_job *job,
                                    const struct tsr_engine *e);

#endif
