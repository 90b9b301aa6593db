/* pipeline/step.h - helpers shared by several steps. */
#ifndef TSR_PIPELINE_STEP_H
#define TSR_PIPELINE_STEP_H

#include "eval/eval.h"
#include "pipeline/pipeline.h"
#include "pipeline/put.h"
#include "pipeline/running.h"
#include "plugin/choices.h"

/* Stores a step's result under its name in the results; a second step of that name becomes "name[2]" and
 * so on. Takes the reference; j NULL means out of memory. */
tsr_status tsr_pipeline_step_result(struct tsr_pipeline_job *job, const char *name, json_t *j,
                                    struct tsr_err *err);

/* Checks that the model is loaded and has a tokenizer; the error says why `what` needs one. */
tsr_status tsr_pipeline_step_need_tokenizer(struct tsr_pipeline_job *job, const char *what,
                                            struct tsr_err *err);

/* "1,5,9" -> ids; TSR_E_INPUT naming the item. Freed by the caller. */
tsr_status tsr_pipeline_step_ids(const char *text, uint32_t **ids, uint64_t *n,
                                 struct tsr_err *err);

/* For the manifest: a finished job checks whether its additional models are unchanged. */
tsr_status tsr_pipeline_job_note_model(struct tsr_pipeline_job *job, const char *path,
                                       const char *hash, struct tsr_err *err);

/* Checks that a node is a list of strings; wrong nodes go to d.  NULL is fine. */
void tsr_pipeline_check_strings(const struct tsr_config_node *list, const char *what,
                                struct tsr_diag *d);

/* Checks that the file named by `key` of a step's map exists; the error is at its place. */
void tsr_pipeline_check_input(const struct tsr_pipeline_job *job, const struct tsr_config_node *map,
                              const char *key, struct tsr_diag *d);

/* Checks that the path named by `key` of a step's map may be written: it stays in the job folder or is absolute.  The
 * error is at its place, before anything runs. */
void tsr_pipeline_check_output(const struct tsr_pipeline_job *job,
                               const struct tsr_config_node *map, const char *key,
                               struct tsr_diag *d);

/* Whether a step of that name stands before the one that is being checked. */
bool tsr_pipeline_after(const struct tsr_pipeline_job *job, const char *name);

/* Options of an evaluation, shared by the steps eval and compare. */
struct tsr_pipeline_eval_keys {
    const char *text, *join;
    int64_t     protocol, rows, window, max_windows;
    int32_t     add_bos;
};
#define TSR_PIPELINE_EVAL_OPTIONS(S, k) TSR_PIPELINE_EVAL_OPTIONS_TEXT(S, k, TSR_OPT_REQUIRED)
/* text_flags: 0 where the text may be missing. */
#define TSR_PIPELINE_EVAL_OPTIONS_TEXT(S, k, text_flags)                                           \
    { .name = "text",                                                                              \
      .help = "File to measure on.",                                                               \
      .type = TSR_OPT_STRING,                                                                      \
      .unit = "FILE",                                                                              \
      .flags = text_flags,                                                                         \
      .offset = TSR_FIELD(S, k.text, const char *),                                                \
      .def = { .s = "" } },                                                                        \
        { .name = "protocol",                                                                      \
          .help = "How perplexity is taken; no number is given without it.",                       \
          .type = TSR_OPT_ENUM,                                                                    \
          .offset = TSR_FIELD(S, k.protocol, int64_t),                                             \
          .def = { .i = TSR_EVAL_PPL_GPTQ_2048 },                                                  \
          .choices = tsr_protocol_choices,                                                         \
          .n_choices = 3 },                                                                        \
        { .name = "rows",                                                                          \
          .help = "What a row of the text is.",                                                    \
          .type = TSR_OPT_ENUM,                                                                    \
          .offset = TSR_FIELD(S, k.rows, int64_t),                                                 \
          .def = { .i = TSR_EVAL_ROWS_FILE },                                                      \
          .choices = tsr_rows_choices,                                                             \
          .n_choices = 3 },                                                                        \
        { .name = "join",                                                                          \
          .help = "Text between rows; \\n, \\t and \\\\ are understood.",                          \
          .type = TSR_OPT_STRING,                                                                  \
          .offset = TSR_FIELD(S, k.join, const char *),                                            \
          .def = { .s = "\\n\\n" } },                                                              \
        { .name = "window",                                                                        \
          .help = "Tokens in a window; 0: the protocol's, at most the model's.",                   \
          .unit = "tokens",                                                                        \
          .type = TSR_OPT_INT,                                                                     \
          .offset = TSR_FIELD(S, k.window, int64_t),                                               \
          .min = { .i = 0 },                                                                       \
          .max = { .i = 1 << 30 } },                                                               \
        { .name = "add_bos",                                                                       \
          .help = "Whether the tokenizer adds BOS to texts of lm-eval-wikitext and of tasks.",     \
          .type = TSR_OPT_BOOL,                                                                    \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, k.add_bos, int32_t),                                              \
          .def = { .i = 1 } },                                                                     \
    {                                                                                              \
        .name = "max_windows", .help = "Stop after this many windows; 0: all.", .unit = "windows", \
        .type = TSR_OPT_INT, .offset = TSR_FIELD(S, k.max_windows, int64_t), .min = { .i = 0 },    \
        .max = {                                                                                   \
            .i = 1 << 30                                                                           \
        }                                                                                          \
    }

/* Cuts `path` into windows for the model. */
tsr_status tsr_pipeline_eval_keys_windows(const struct tsr_pipeline_eval_keys *k, const char *path,
                                          const struct tsr_tokenizer *t, const struct tsr_model *m,
                                          struct tsr_eval_windows **w, struct tsr_err *err);

/* protocol, text, hashes, window, BOS policy, tokens: the conditions to report with a number. */
json_t *tsr_pipeline_windows_json(const struct tsr_eval_windows *w, const char *text,
                                  const struct tsr_tokenizer *t);
/* Adds perplexity and its statistics, KL only if there is one. false: out of memory. */
bool tsr_pipeline_eval_result_put(json_t *object, const struct tsr_eval_windows *w,
                                  const struct tsr_eval_result *r);

#endif
