/* compare/compare.h - parts of the step `compare`.
 *
 *   arms_read.c, arms.c   what an arm is, and what it runs
 *   eval.c    arms and the reference on the same tokens, a few arms at a time
 *   speed.c   throughput, interleaved
 *   sizes.c   bytes, and where bits per weight go
 *   keep.c    stored results of a finished arm, so that it is not run again
 *   stats.c   differences and intervals of arms
 *   verdict.h words and sentences of verdicts
 *   texts.c   several texts, with a verdict of each
 *   pairs.c, pairs_stats.c   which arms are compared with each other, and what is said of them
 *   answers.c   accuracy on multiple-choice questions
 *   tasks.c, tasks_kept.c, tasks_stats.c   named tasks of every arm, what is kept of them, and their tests
 *   text.c    sentences
 *   gate.c    fail_if
 *   json.c, table.c, tasks_table.c   the result as JSON and as a text table
 *   file.c    a comparison file (base and arms) as a job
 */
#ifndef TSR_COMPARE_COMPARE_H
#define TSR_COMPARE_COMPARE_H

#include "eval/choices.h"
#include "eval/kld.h"
#include "eval/layers.h"
#include "eval/paired.h"
#include "eval/states.h"
#include "pipeline/codecs.h"
#include "pipeline/quantize_plan.h"
#include "pipeline/rotating.h"
#include "pipeline/sample.h"
#include "pipeline/tasks.h"
#include "tasks/paired.h"

#define TSR_COMPARE_DRAWS 10000u /* of a bootstrap */

struct compare_keys {
    const struct tsr_config_node *quantize, *arms, *measure, *pairs, *fail_if, *samples, *sampling,
        *baseline;
    double  alpha;
    int64_t together, by_layers;
};
struct measure_keys {
    const struct tsr_config_node  *perplexity, *speed, *text;
    const char                    *base, *save_base, *choices;
    struct tsr_pipeline_tasks_keys tasks;
    int32_t                        kl, a8, add_bos;
};
struct speed_keys {
    int64_t prompt, generate, repeats, act;
};

/* Median of an arm's rates over the original's of the same rounds. */
struct compare_ratio {
    double median, low, high;
};

enum compare_kind {
    COMPARE_ORIGINAL,
    COMPARE_QUANTIZE,
    COMPARE_PLAN,
    COMPARE_MODEL,
    COMPARE_CODEC,  /* the original's weights, split between simulated ranks */
    COMPARE_ROTATE, /* the original in a rotated basis */
    COMPARE_CACHE,  /* the original with another KV cache */
    COMPARE_INPUTS  /* the original with rounded inputs of linears */
};

/* One metric of one task, of one arm against another. */
struct compare_task_test {
    struct tsr_tasks_paired m;
    double                  p_holm;
};

/* One of several texts: its windows are those from `first` on of all, its tokens in a trace those from `at` on. */
struct compare_text {
    const char *path; /* as written */
    char        hash[48];
    uint64_t    first, n, at, scored;
};

/* An arm or a pair on one text. */
struct compare_text_test {
    struct tsr_eval_paired m;
    double                 p_holm, kl_p_holm;
};

/* One column of numbers.  Arm 0 is the original. */
struct compare_arm {
    const char                   *name;
    enum compare_kind             kind;
    const struct tsr_config_mark *mark;
    const char                   *path; /* COMPARE_MODEL: as written */
    struct tsr_config_node
        *quantize; /* the scheme's map, in the job's document; plan still in it */
    struct tsr_model
        *own;     /* COMPARE_MODEL, what is in `stored`, or the rotated original, while it is
                            * loaded; owned */
    bool rotated; /* `rotation` comes before `quantize` */
    struct tsr_pipeline_rotate_keys rotation;
    char                           *turned;      /* the folder of the rotated original; owned */
    struct tsr_quant_calibration   *calibration; /* of the rotated original; owned; NULL: none */
    uint32_t                        kv;          /* dtype of its KV cache */
    const char                 *kv_layers; /* and of some layers: plugin/kv_layers.h; "": of none */
    uint32_t                    act_bits;  /* of the inputs of its linears; 0: as they are */
    struct tsr_model_overlay   *overlay;   /* owned */
    struct tsr_pipeline_tp_keys tp;        /* simulate_tp 0: no ranks are simulated */
    struct tsr_tp              *ranks;     /* while it is ready; owned */
    bool                        ready;     /* own or overlay are there, or nothing is needed */
    struct tsr_engine          *engine;    /* of the measurement in work; owned */
    struct tsr_engine          *engine_a8; /* the same under act a8, with measure.a8; owned */
    struct tsr_eval_layers     *layers, *layers_a8; /* by_layers: in place of them; owned */
    char                       *stored; /* by_layers: the folder of its packed weights; owned */
    tsr_status                  status; /* the first thing that failed in this arm */
    struct tsr_errbuf           error;
    json_t                     *of;   /* inputs of its result; owned */
    json_t                     *json; /* its result so far; owned; NULL: not evaluated yet */
    struct tsr_eval_trace       at;
    bool                        has_paired, has_speed;
    struct tsr_eval_paired      paired;
    double                      p_holm;
    struct compare_text_test   *on;    /* [n_texts] against the reference; owned; NULL: none */
    struct tsr_tasks_marks    **marks; /* [tasks] of measure.tasks; owned; NULL: none */
    struct compare_task_test   *tests; /* [tests] against the original; owned; NULL: none */
    uint64_t                    ran[3], sampled[3]; /* tsr_engine_acts() of speed and samples */
    double                     *prefill, *decode;   /* [repeats] tokens/s */
    double                      prefill_median, decode_median;
    struct compare_ratio        prefill_ratio, decode_ratio;
};

/* Two arms that are compared with each other, by their names. */
struct compare_pair {
    const char *arm, *against;
};

struct compare {
    struct tsr_pipeline_job        *job;
    struct compare_keys             keys;
    struct measure_keys             measure;
    struct tsr_pipeline_eval_keys   eval;
    struct speed_keys               speed;
    struct tsr_pipeline_sample_keys sample;
    int64_t                         sample_act;
    bool                            do_eval, do_speed;
    struct compare_arm             *arms;
    uint64_t                        n;
    struct compare_pair            *pairs; /* of `pairs`, then those of `baseline`; owned */
    uint64_t                        n_pairs;
    uint64_t                        weights;
    struct tsr_eval_windows        *windows;
    struct compare_text            *texts; /* [n_texts]; 0 of one text; owned */
    uint64_t                        n_texts;
    struct tsr_eval_choices        *choices;              /* measure.choices; owned */
    struct tsr_pipeline_tasks      *tasks;                /* measure.tasks; owned */
    uint64_t                        tasks_context, tests; /* positions; metrics of all tasks */
    struct tsr_eval_kld            *base;                 /* measure.base; owned */
    struct tsr_eval_trace           base_at;              /* of base; owned */
    struct tsr_states *states; /* rows that the original stored for further arms, or NULL; owned */
    char              *folder; /* for results of finished arms; owned */
    char               device[128];
};

/* ---- arms ------------------------------------------------------------------------- */

/* Reads `arms`; errors go to d. */
tsr_status compare_read_arms(struct compare *c, struct tsr_diag *d, struct tsr_err *err);
/* What by_layers does not measure. */
void compare_check_by_layers(const struct compare *c, const struct tsr_config_node *node,
                             struct tsr_diag *d);
/* All checks of an arm that do not run it. */
tsr_status compare_check_arm(struct compare *c, const struct compare_arm *a, struct tsr_diag *d,
                             struct tsr_err *err);
/* TSR_NEED_* of an arm. */
tsr_status compare_arm_need(struct compare *c, const struct compare_arm *a, uint64_t *need,
                            struct tsr_err *err);
/* a->of: the same of two runs means the same numbers.  A model on disk is loaded for it. */
tsr_status compare_arm_of(struct compare *c, struct compare_arm *a, struct tsr_err *err);
/* arms.c: of its scheme. */
tsr_status compare_arm_fingerprint(struct compare *c, const struct compare_arm *a, json_t **of,
                                   struct tsr_err *err);
/* Whether it has another KV cache than the original. */
static inline bool compare_arm_cache(const struct compare_arm *a)
{
    return a->kv != TSR_F32 || (a->kv_layers && *a->kv_layers);
}
/* Quantizes or loads, so that compare_arm_model() and the overlay can be run. */
tsr_status compare_arm_ready(struct compare *c, struct compare_arm *a, struct tsr_err *err);
void       compare_arm_release(struct compare_arm *a);
/* An engine for an arm that is ready: eo with the arm's cache, ranks and bits of inputs. */
tsr_status              compare_arm_engine(const struct compare *c, const struct compare_arm *a,
                                           struct tsr_engine_options eo, struct tsr_engine **e,
                                           struct tsr_err *err);
const struct tsr_model *compare_arm_model(const struct compare *c, const struct compare_arm *a);
const struct tsr_model_overlay *compare_arm_overlay(const struct compare     *c,
                                                    const struct compare_arm *a);
/* Puts the failure into the arm, once.  TSR_E_CANCELLED and TSR_E_NOMEM are handed back in err,
 * since nothing can go on after them. */
tsr_status compare_arm_failed(struct compare_arm *a, tsr_status st, const char *text,
                              struct tsr_err *err);

/* ---- measuring -------------------------------------------------------------------- */

/* Text or base file into c->windows. */
tsr_status compare_windows(struct compare *c, struct tsr_err *err);
/* The file of questions into c->choices. */
tsr_status compare_questions(struct compare *c, struct tsr_err *err);
/* Quantizes, evaluates and samples every arm that has no result yet. */
tsr_status compare_run_arms(struct compare *c, struct tsr_err *err);
/* Prefill and decode speed of every arm that has not failed, interleaved, medians. */
tsr_status compare_speed(struct compare *c, struct tsr_err *err);
/* Rates of a over those of b in the same rounds; both have speeds. */
tsr_status compare_speed_ratios(const struct compare *c, const struct compare_arm *a,
                                const struct compare_arm *b, struct compare_ratio *prefill,
                                struct compare_ratio *decode, struct tsr_err *err);
/* "faster" or "slower" if the interval lies on one side of 1, else "alike"; NULL without an interval. */
const char *compare_speed_word(const struct compare_ratio *r);
/* Of a against b on each text, not corrected: fresh memory [c->n_texts], NULL with one text.  texts.c */
tsr_status compare_texts_measure(const struct compare *c, const struct tsr_eval_trace *a,
                                 const struct tsr_eval_trace *b, struct compare_text_test **out,
                                 struct tsr_err *err);
/* Over n lists, of which some may be NULL, and all texts. */
tsr_status compare_texts_correct(const struct compare *c, struct compare_text_test *const *lists,
                                 uint64_t n, struct tsr_err *err);
/* "texts" of an arm or a pair. */
bool compare_put_texts(json_t *j, const struct compare *c, const struct compare_text_test *tests,
                       bool pair);
/* Differences of every arm from the reference, corrected over all of them. */
tsr_status compare_stats(struct compare *c, struct tsr_err *err);
/* The baseline of the comparison; NULL if there is none. */
const struct tsr_eval_trace *compare_reference(const struct compare *c);
const char                  *compare_reference_name(const struct compare *c);

/* ---- stored results of finished arms (keep.c) ------------------------------------- */

/* Sets c->folder; with again, discards stored results. */
tsr_status compare_keep_open(struct compare *c, struct tsr_err *err);
/* Reuses an arm's stored result if its inputs are the same. */
tsr_status compare_keep_load(struct compare *c, struct compare_arm *a, struct tsr_err *err);
tsr_status compare_keep_store(const struct compare *c, const struct compare_arm *a,
                              struct tsr_err *err);
/* The file of c->states, in fresh memory, or NULL; and the end of both. */
char *compare_states_path(const struct compare *c);
/* The folder of an arm's packed weights, which ends with the arm; fresh memory, or NULL. */
char *compare_stored_path(const struct compare *c, const struct compare_arm *a);
char *compare_turned_path(const struct compare *c, const struct compare_arm *a);
void  compare_states_end(struct compare *c);

/* ---- the result -------------------------------------------------------------------- */

json_t *compare_json(const struct compare *c);
/* What of an arm is known once it was evaluated. */
json_t *compare_arm_json(const struct compare *c, const struct compare_arm *a,
                         const struct tsr_eval_result *r, const struct tsr_eval_result *a8,
                         json_t *texts, json_t *questions, json_t *tasks);
/* How an arm is rotated; NULL when out of memory. */
json_t *compare_rotation_json(const struct compare *c, const struct compare_arm *a);
/* Bytes and bits per weight of an arm that is ready, as stored, with "bits_of" and, where they are well above what its
 * scheme names, "remark". */
bool compare_put_size(json_t *j, const struct compare *c, const struct compare_arm *a);
/* What an arm's linears take on the device of an engine, and how many of them are there as F32. */
bool compare_put_resident(json_t *j, const struct compare_arm *a, const struct tsr_engine *e);
/* Adds differences, speed and verdict. */
bool compare_put_stats(json_t *j, const struct compare *c, const struct compare_arm *a);
bool compare_put_ratio(json_t *s, const char *key, const struct compare_ratio *r);
/* McNemar's p of every arm, corrected over the arms; false when out of memory. */
bool compare_correct_choices(json_t *arms);
/* Next to the original's answers; the marks themselves stay in the arm's own file. */
bool compare_put_answers(json_t *j, const struct compare *c, const struct compare_arm *a);
/* The list `pairs`, corrected over them; NULL when out of memory. */
tsr_status compare_pairs_json(const struct compare *c, json_t **out, struct tsr_err *err);
bool       tsr_compare_json_put_difference(json_t *o, const char *key,
                                           const struct tsr_eval_difference *d);
void       compare_print(const json_t *result, FILE *to);
/* Accuracy with its interval; with b the questions that only one has right, and their test.  NULL
 * when out of memory. */
json_t *tsr_compare_choices_json(const struct tsr_eval_choice_marks *a,
                                 const struct tsr_eval_choice_marks *b, double alpha);

/* ---- named tasks ------------------------------------------------------------------- */

/* Finds the rows. */
tsr_status compare_tasks_open(struct compare *c, struct tsr_err *err);
/* Runs an arm.  *out: "tasks" of its result, with what every question counted; NULL without tasks. */
tsr_status compare_tasks_run(struct compare *c, const struct compare_arm *a, json_t **out,
                             struct tsr_err *err);
/* What every question counted, from an arm's result into a->marks.  name: for messages. */
tsr_status compare_tasks_take(const struct compare *c, struct compare_arm *a, const json_t *result,
                              const char *name, struct tsr_err *err);
void       compare_tasks_end(const struct compare *c, struct compare_arm *a);
/* Tests of every arm against the original, corrected over arms, tasks and metrics. */
tsr_status compare_tasks_stats(struct compare *c, struct tsr_err *err);
/* Tests of a against b, not corrected: fresh memory [c->tests], or NULL if one of them has no marks. */
tsr_status compare_tasks_measure(const struct compare *c, const struct compare_arm *a,
                                 const struct compare_arm *b, struct compare_task_test **out,
                                 struct tsr_err *err);
/* Over n lists, of which some may be NULL. */
tsr_status compare_tasks_correct(const struct compare *c, struct compare_task_test *const *lists,
                                 uint64_t n, struct tsr_err *err);
/* tasks.NAME.delta of an arm or a pair; in an arm's result also removes what each question counted. */
bool compare_put_tasks(json_t *j, const struct compare *c, const struct compare_task_test *tests);
/* The word of all tests, and their text appended. */
const char *compare_tasks_say(char *text, size_t cap, const struct compare *c,
                              const struct compare_task_test *tests);
json_t     *compare_tasks_of_json(const struct compare *c);
void        compare_print_tasks(const json_t *result, int name, FILE *to);
void        compare_print_choices(const json_t *result, int name, FILE *to);

/* ---- fail_if ----------------------------------------------------------------------- */

/* Reads `pairs` and `baseline` into c->pairs; errors go to d. */
tsr_status compare_read_pairs(struct compare *c, struct tsr_diag *d, struct tsr_err *err);
/* Checks `fail_if` against the arms and pairs. */
void compare_check_gate(const struct compare *c, struct tsr_diag *d);
/* Puts result.gate. */
bool compare_put_gate(json_t *result, const struct compare *c);

void compare_arm_what(char what[96], const char *name);
bool compare_is_text(const struct tsr_config_node *n, const char *what, struct tsr_diag *d);

#endif
