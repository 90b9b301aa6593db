/* pipeline/step.h - what several steps need. */
#ifndef TSR_PIPELINE_STEP_H
#define TSR_PIPELINE_STEP_H

#include "eval/eval.h"
#include "pipeline/pipeline.h"

/* Files what a step found under its name in the results; a second step of that name becomes
 * "name[2]" and so on.  Takes the reference; j NULL means out of memory. */
tsr_status tsr_step_result(struct tsr_job *job, const char *name, json_t *j, struct tsr_err *err);

/* The model is loaded and has a tokenizer, or a sentence that says why `what` needs one. */
tsr_status tsr_step_need_tokenizer(struct tsr_job *job, const char *what, struct tsr_err *err);

/* object[key] = value, a number, or null where it is not finite.  false: out of memory.  The
 * first takes the reference. */
bool tsr_json_put(json_t *object, const char *key, json_t *value);
bool tsr_json_put_real(json_t *object, const char *key, double value);
bool tsr_json_put_int(json_t *object, const char *key, uint64_t value);
bool tsr_json_put_text(json_t *object, const char *key, const char *value); /* NULL: null */

/* "f32", "a16", "a8". */
extern const struct tsr_choice tsr_act_choices[3];
const char                    *tsr_act_name(uint32_t act);
/* "act", which was asked for, and "packed_linears", how many ran with each (tsr_engine_acts). */
bool tsr_json_put_act(json_t *object, uint32_t act, const uint64_t ran[3]);
/* What packed linears took: act, or f32 where none of them has a form for it. */
uint32_t tsr_act_ran(uint32_t act, const uint64_t ran[3]);
/* ", f32 on 7 packed linears" where an object of tsr_json_put_act() says so beside another act; else "". */
const char *tsr_act_also(const json_t *object, char text[64]);

/* Checks that a node is a list of strings; wrong nodes go to d.  NULL is fine. */
void tsr_check_strings(const struct tsr_node *list, const char *what, struct tsr_diag *d);

/* Checks that the file named by `key` of a step's map exists; said at its place if not. */
void tsr_check_input(const struct tsr_job *job, const struct tsr_node *map, const char *key,
                     struct tsr_diag *d);

/* Options of an evaluation, shared by the steps eval and compare. */
struct tsr_eval_keys {
    const char *text, *join;
    int64_t     protocol, rows, window, max_windows;
};
#define TSR_EVAL_OPTIONS(S, k) TSR_EVAL_OPTIONS_TEXT(S, k, TSR_OPT_REQUIRED)
/* text_flags: 0 where the text may be missing. */
#define TSR_EVAL_OPTIONS_TEXT(S, k, text_flags)                                                    \
    { .name = "text",                                                                              \
      .help = "File to measure on.",                                                               \
      .type = TSR_OPT_STRING,                                                                      \
      .flags = text_flags,                                                                         \
      .offset = TSR_FIELD(S, k.text, const char *),                                                \
      .def = { .s = "" } },                                                                        \
        { .name = "protocol",                                                                      \
          .help = "How perplexity is taken; no number is given without it.",                       \
          .type = TSR_OPT_ENUM,                                                                    \
          .offset = TSR_FIELD(S, k.protocol, int64_t),                                             \
          .def = { .i = TSR_PPL_GPTQ_2048 },                                                       \
          .choices = tsr_protocol_choices,                                                         \
          .n_choices = 3 },                                                                        \
        { .name = "rows",                                                                          \
          .help = "What a row of the text is.",                                                    \
          .type = TSR_OPT_ENUM,                                                                    \
          .offset = TSR_FIELD(S, k.rows, int64_t),                                                 \
          .def = { .i = TSR_ROWS_FILE },                                                           \
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
    {                                                                                              \
        .name = "max_windows", .help = "Stop after this many windows; 0: all.", .unit = "windows", \
        .type = TSR_OPT_INT, .offset = TSR_FIELD(S, k.max_windows, int64_t), .min = { .i = 0 },    \
        .max = {                                                                                   \
            .i = 1 << 30                                                                           \
        }                                                                                          \
    }

/* Cuts `path` into windows for the model. */
tsr_status tsr_eval_keys_windows(const struct tsr_eval_keys *k, const char *path,
                                 const struct tsr_tokenizer *t, const struct tsr_model *m,
                                 struct tsr_windows **w, struct tsr_err *err);

/* protocol, text, hashes, window, BOS policy, tokens: what has to stand beside a number. */
json_t *tsr_windows_json(const struct tsr_windows *w, const char *text,
                         const struct tsr_tokenizer *t);
/* Adds perplexity and what goes with it, KL only where there is one.  false: out of memory. */
bool tsr_eval_result_put(json_t *object, const struct tsr_windows *w,
                         const struct tsr_eval_result *r);

#endif
