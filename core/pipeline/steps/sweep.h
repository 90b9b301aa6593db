/* pipeline/steps/sweep.h - a sweep: its options, its evaluations and its findings; shared by sweep.c and
 * sweep_say.c. */
#ifndef TSR_PIPELINE_STEPS_SWEEP_H
#define TSR_PIPELINE_STEPS_SWEEP_H

#include "pipeline/step.h"
#include "pipeline/steps/tuning.h"

#include "eval/choices.h"
#include "eval/paired.h"

#include <jansson.h>
#include <stdio.h>

#define TSR_SWEEP_MOST  24u /* numbers in a list */
#define TSR_SWEEP_ALPHA 0.05

struct tsr_step_sweep_options {
    struct tsr_pipeline_eval_keys eval;
    const char                   *channels, *select, *targets, *choices;
    int64_t                       act, repeats, answers;
};

/* One evaluation. */
struct tsr_step_sweep_point {
    int                        select; /* -1: at a target */
    double                     k;      /* or the target */
    float                     *nll;    /* [scored]; owned */
    struct tsr_eval_result     result;
    double                     recall;
    struct tsr_eval_difference delta; /* from k = 0 */
    uint32_t                   site[TSR_MODEL_SITES];
    double                     base, ms; /* at a target: of a layer's linears, bare and with it */
    struct tsr_step_tuning_decoded decoded; /* and of a whole token, measured */
    struct tsr_eval_choice_marks   marks;
    unsigned char                 *same; /* [answers * TSR_ANSWER_TOKENS]; owned */
    double                         agreement;
    struct tsr_eval_difference     agreement_delta; /* from k = 0 */
};

struct tsr_step_sweep_run {
    struct tsr_pipeline_job             *job;
    const struct tsr_step_sweep_options *o;
    struct tsr_compensation             *c;
    struct tsr_eval_windows             *w;
    struct tsr_eval_choices             *questions; /* or NULL */
    struct tsr_engine                   *judge;     /* of answers, or NULL */
    uint64_t                             context;
    uint64_t                            *start; /* of the windows' scored tokens */
    double                              *d;     /* [scored] */
    struct tsr_step_sweep_point          point[(5 + 1) * TSR_SWEEP_MOST];
    uint64_t                             n;
    uint32_t                             k[TSR_SWEEP_MOST];
    double                               target[TSR_SWEEP_MOST];
    uint64_t                             n_k, n_target;
    int                                  select[5];
    uint64_t                             n_select;
    uint64_t                             ran[3]; /* tsr_engine_acts() */
};

/* What all points are together, for results.json, with differences from k = 0, trends, and dynamic selection
 * against a static one of four times as many; NULL where memory is out.  [setup] */
json_t *tsr_step_sweep_json(struct tsr_step_sweep_run *x);
void    tsr_step_sweep_print(const json_t *result, FILE *to);

#endif
