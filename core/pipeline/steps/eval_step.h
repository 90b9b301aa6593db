/* pipeline/steps/eval_step.h - one evaluation: its options, resources and results.
 *
 *   eval.c             options, checks, and running the engines
 *   eval_reference.c   the reference: the model before quantize, another model, a .kld file
 *   eval_result.c      the result, and its text output
 */
#ifndef TSR_PIPELINE_STEPS_EVAL_STEP_H
#define TSR_PIPELINE_STEPS_EVAL_STEP_H

#include "compare/compare.h"
#include "eval/choices.h"
#include "eval/kld.h"
#include "eval/layers.h"
#include "eval/paired.h"
#include "pipeline/codecs.h"
#include "pipeline/tasks.h"

#define EVAL_ALPHA 0.05

struct eval_step_keys {
    struct tsr_pipeline_eval_keys    eval;
    struct tsr_pipeline_tasks_keys   tasks;
    const char                      *log_samples, *against, *choices, *save_kld;
    int32_t                          kl;
    int64_t                          by_layers; /* windows; 0: the model is in memory */
    struct tsr_pipeline_running_keys run;
    struct tsr_pipeline_tp_keys      tp;
};

/* What is NULL was not made. */
struct eval_step {
    struct tsr_pipeline_job     *job;
    const struct eval_step_keys *o;
    struct tsr_eval_windows     *windows;
    struct tsr_eval_kld         *base;      /* against a .kld file */
    struct tsr_model            *other;     /* against another model */
    struct tsr_model            *packed;    /* by layers: what `quantize` stored */
    const struct tsr_model      *reference; /* other, the job's with kl, or NULL */
    struct tsr_eval_choices     *questions;
    struct tsr_pipeline_tasks   *tasks;
    struct tsr_tp               *ranks; /* simulated, of the model and not of the reference */
    struct tsr_pipeline_running  running;
    struct tsr_engine           *engine, *reference_engine;
    struct tsr_eval_layers      *layers, *reference_layers; /* in place of them */
    const struct tsr_engine     *ran, *reference_ran;       /* whichever it is */
    struct tsr_eval_choice_marks marks, reference_marks;
    struct tsr_eval_result       result;
    struct tsr_eval_paired       paired; /* with `against` */
};

bool eval_is_kld(const char *path);
/* The text, or that of the .kld file, into windows; and the reference, if there is one. */
tsr_status eval_open_windows(struct eval_step *e, struct tsr_err *err);
tsr_status eval_open_reference(struct eval_step *e, struct tsr_err *err);
void       eval_close_reference(struct eval_step *e);

/* New reference, NULL when out of memory. */
json_t *eval_result_json(const struct eval_step *e);
void    eval_result_print(const json_t *r, FILE *to);

#endif
