/* pipeline/sweep.h - a sweep: what it was asked, its evaluations, and what it says of them; shared by
 * step_sweep.c and sweep_say.c. */
#ifndef TSR_PIPELINE_SWEEP_H
#define TSR_PIPELINE_SWEEP_H

#include "pipeline/step.h"
#include "pipeline/tuning.h"

#include "eval/choices.h"
#include "eval/paired.h"

#include <jansson.h>
#include <stdio.h>

#define TSR_SWEEP_MOST  24u /* numbers in a list */
#define TSR_SWEEP_ALPHA 0.05

struct tsr_sweep_options {
    struct tsr_eval_keys eval;
    const char          *channels, *select, *targets, *choices;
    int64_t              act, repeats, answers;
};

/* One evaluation. */
struct tsr_sweep_point {
    int                       select; /* -1: at a target */
    double                    k;      /* or the target */
    float                    *nll;    /* [scored]; owned */
    struct tsr_eval_result    result;
    double                    recall;
    struct tsr_difference     delta; /* from k = 0 */
    uint32_t                  site[TSR_SITES];
    double                    ms, slower; /* at a target: of the linears of a layer */
    struct tsr_tuning_decoded decoded;    /* and of a whole token, measured */
    struct tsr_choice_marks   marks;
    unsigned char            *same; /* [answers * TSR_ANSWER_TOKENS]; owned */
    double                    agreement;
    struct tsr_difference     agreement_delta; /* from k = 0 */
};

struct tsr_sweep {
    struct tsr_job                 *job;
    const struct tsr_sweep_options *o;
    struct tsr_compensation        *c;
    struct tsr_windows             *w;
    struct tsr_choices             *questions; /* or NULL */
    struct tsr_engine              *judge;     /* of answers, or NULL */
    uint64_t                        context;
    uint64_t                       *start; /* of the windows' scored tokens */
    double                         *d;     /* [scored] */
    struct tsr_sweep_point          point[(5 + 1) * TSR_SWEEP_MOST];
    uint64_t                        n;
    uint32_t                        k[TSR_SWEEP_MOST];
    double                          target[TSR_SWEEP_MOST];
    uint64_t                        n_k, n_target;
    int                             select[5];
    uint64_t                        n_select;
    uint64_t                        ran[3]; /* tsr_engine_acts() */
};

/* What all points are together, for results.json, with differences from k = 0, trends, and dynamic selection
 * against a static one of four times as many; NULL where memory is out.  [setup] */
json_t *tsr_sweep_json(struct tsr_sweep *x);
void    tsr_sweep_print(const json_t *result, FILE *to);

#endif
