/* pipeline/planning.h - a job's `plan` step, from its keys to a solved problem; shared by the step
 * and the verb, which asks more questions of the same problem. */
#ifndef TSR_PIPELINE_PLANNING_H
#define TSR_PIPELINE_PLANNING_H

#include "pipeline/pipeline.h"
#include "plan/fleet.h"
#include "plan/plan_file.h"
#include "plan/search.h"
#include "plan/whatif.h"

struct tsr_plan_keys {
    const struct tsr_node *bits, *candidates, *quality;
    const char            *use, *solver, *codec, *tp_codec, *baselines, *to;
    int64_t objective, accounting, latency, head, layer_group, prefill_mb, decode_mb, min_tp,
        max_tp, copy_nodes, share_unit, seed;
    double  gap, time_limit;
    int32_t use_all;
};
#define TSR_PLAN_OPTIONS 24
extern const struct tsr_option tsr_plan_step_options[TSR_PLAN_OPTIONS];

/* Everything that a plan step opens.  Zeroed or filled for close. */
struct tsr_planning {
    struct tsr_cluster        *cluster;
    struct tsr_workload        work;
    struct tsr_problem_options options;
    char                     **texts; /* of the candidates */
    uint64_t                   n_texts;
    char                      *indicators;
    struct tsr_spec            solver;
    struct tsr_problem         problem; /* registry NULL: not open */
    struct tsr_problem         whole;   /* behind a check of one copy: what problem is a share of */
    struct tsr_cluster        *part;    /* its nodes; NULL: problem is the whole */
};

/* Reads what the job and the step say; what is wrong goes to d, and then pl has nothing to use.
 * No header of the model is read. */
tsr_status tsr_planning_read(struct tsr_planning *pl, struct tsr_job *job,
                             const struct tsr_plan_keys *k, const struct tsr_node *node,
                             struct tsr_diag *d, struct tsr_err *err);
/* Then the model's headers, sizes, times and quality. */
tsr_status tsr_planning_open(struct tsr_planning *pl, struct tsr_job *job, struct tsr_err *err);
void       tsr_planning_close(struct tsr_planning *pl);
/* One more candidate, before it is opened. */
tsr_status tsr_planning_add(struct tsr_planning *pl, const char *text, struct tsr_err *err);
/* The quantizer and the options of a candidate's text exist, or an error at the node's place. */
tsr_status tsr_planning_try(const struct tsr_job *job, const char *text, const struct tsr_node *at,
                            struct tsr_diag *d, struct tsr_err *err);
/* What a plan file says of a layer, as a candidate's text ("gptq:bits=4,group=128"): its rules behind
 * `use` and the scalar options of `node`, which may be NULL.  *last: the last of these rules, else
 * unchanged.  Rules of some tensors alone are errors in d. */
#define TSR_PLANNING_TEXT 400
tsr_status tsr_planning_layer(const struct tsr_plan_file *f, uint64_t layer, const char *use,
                              const struct tsr_node *node, char text[TSR_PLANNING_TEXT],
                              const struct tsr_node **last, struct tsr_diag *d,
                              struct tsr_err *err);
/* Is it a key of the step and not one of the quantizer's options beside them? */
bool tsr_planning_own(const char *key);

/* Instead of opening and searching: a plan file priced.  The candidates are the job's and what the
 * file's layers take.  TSR_E_INPUT with diagnostics in d or a sentence, TSR_E_INFEASIBLE where it does
 * not fit.  [setup] */
tsr_status tsr_planning_check(struct tsr_planning *pl, struct tsr_job *job,
                              const struct tsr_plan_keys *k, const struct tsr_node *node,
                              const struct tsr_plan_file *f, struct tsr_planned *a,
                              struct tsr_diag *d, struct tsr_err *err);
/* What the file said, to stand beside it; new reference, NULL when out of memory. */
json_t *tsr_planning_said(const struct tsr_planning *pl, const struct tsr_plan_file *f);

/* What was found as JSON: the plan, the same work under the baselines, why not wider, what fits; for
 * an infeasible one what would help.  alone: nothing but the plan.  New reference. */
tsr_status tsr_planning_json(const struct tsr_planning *pl, const struct tsr_plan_keys *k,
                             const struct tsr_planned *a, bool alone, json_t **out,
                             struct tsr_err *err);
/* What binds it, and what more of something buys: {"binds": [...], "buys": [...]}.  New reference. */
tsr_status tsr_planning_explain(const struct tsr_planning *pl, const struct tsr_planned *a,
                                json_t **out, struct tsr_err *err);
/* Many nodes: is the model planned in copies, each on a few nodes with a share of the batch? */
bool tsr_planning_copies(const struct tsr_planning *pl, const struct tsr_plan_keys *k);
/* Those copies; freed by the caller, also after an error. */
tsr_status tsr_planning_fleet(const struct tsr_planning *pl, const struct tsr_plan_keys *k,
                              struct tsr_fleet *f, struct tsr_err *err);
/* Writes them as files, one for each kind of copy: `path`, then with -2, -3 before its ending; and
 * says what was found, `said` in place of the path.  New reference. */
tsr_status tsr_planning_fleet_put(const struct tsr_planning *pl, const struct tsr_plan_keys *k,
                                  const struct tsr_fleet *f, const char *path, const char *said,
                                  json_t **out, struct tsr_err *err);
void       tsr_planning_fleet_print(const json_t *r, FILE *to);
/* What a planning is for, into its JSON; false when out of memory. */
bool tsr_planning_put_problem(json_t *j, const struct tsr_problem *p);
/* The part about one plan alone: devices, sizes, times, quality. */
json_t *tsr_outcome_json(const struct tsr_problem *p, const struct tsr_planned *a);
/* That as a table for a terminal of 80 columns. */
void tsr_planning_print(const json_t *r, FILE *to);
/* TSR_E_INFEASIBLE or TSR_E_NUMERIC with the sentence where r has no plan. */
tsr_status tsr_planning_verdict(const json_t *r, struct tsr_err *err);

#endif
