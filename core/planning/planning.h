/* planning/planning.h - a job's `plan` step, from its keys to a solved problem; shared by the step and the
 * verb, which makes further queries on the same problem. */
#ifndef TSR_PLANNING_PLANNING_H
#define TSR_PLANNING_PLANNING_H

#include "pipeline/pipeline.h"
#include "plan/file/plan_file.h"
#include "plan/search/fleet.h"
#include "plan/search/front.h"
#include "plan/search/parts.h"
#include "plan/search/search.h"
#include "plan/search/settings.h"
#include "plan/search/whatif.h"
#include "planning/options.h"

/* A number of copies that was searched. */
struct tsr_planning_tried {
    uint64_t copies;
    double   latency_ms, omega; /* NAN: no plan was found */
};

/* Copies on groups of whole nodes with other shares, next to equal parts. */
enum tsr_planning_groups {
    TSR_PLANNING_GROUPS_NONE,   /* there are none, or the job says how many copies */
    TSR_PLANNING_GROUPS_CHOSEN, /* they are the plan */
    TSR_PLANNING_GROUPS_SLOWER,
    TSR_PLANNING_GROUPS_LATE, /* none was found in time */
    TSR_PLANNING_GROUPS_OUT,  /* later steps run by one plan file, or a time is given */
};

/* Everything that a plan step opens.  Zeroed or filled for close. */
struct tsr_planning {
    struct tsr_plan_cluster        *cluster;
    struct tsr_plan_workload        work;
    struct tsr_plan_problem_options options;
    char                          **texts; /* of the candidates */
    uint64_t                        n_texts;
    char                          **ends; /* of embedding and head */
    uint64_t                        n_ends;
    struct tsr_plan_draft_options  *drafts; /* of steps after the plan that run by it */
    uint64_t                        n_drafts;
    char                           *indicators, *routing;
    const char                    **links, **sums; /* lists of codecs; texts are the job's */
    double                          at_most_ms;    /* of the batch; 0: the fastest plan */
    struct tsr_plugin_spec          solver;
    struct tsr_plan_problem         problem; /* registry NULL: not open */
    struct tsr_plan_problem
        whole; /* where `problem` is that of one copy: all requests, all nodes */
    struct tsr_plan_cluster *part;     /* its nodes; NULL: problem is the whole */
    uint64_t                 replicas; /* that the job asks for; 0: as many as are fastest */
    struct tsr_plan_parts
        parts; /* of the copies, with `part`; nodes NULL: a file leaves them open */
    struct tsr_planning_tried tried[TSR_PLAN_PARTS_MOST + 1];
    uint64_t                  n_tried; /* 0: the number of copies was not searched */
    enum tsr_planning_groups  groups;
    struct tsr_plan_fleet     fleet;      /* n_kinds 0: the plan is not of groups of nodes */
    uint64_t                  share_unit; /* of the keys */
    bool                      followed;   /* later steps of the job run by the plan, or verify it */
    struct tsr_plan_bounds   *kept; /* what the search proves, for a front; owned; NULL: not kept */
};

/* Reads the keys of the job and the step; errors go to d, and then pl is unusable. Does not read the
 * model's headers. */
tsr_status tsr_planning_read(struct tsr_planning *pl, struct tsr_pipeline_job *job,
                             const struct tsr_planning_plan_keys *k,
                             const struct tsr_config_node *node, struct tsr_diag *d,
                             struct tsr_err *err);
/* Takes the counts of the job's calibration, where the keys name none. */
void tsr_planning_routing(struct tsr_planning *pl, const struct tsr_pipeline_job *job);
/* Then the model's headers, sizes, times and quality. */
tsr_status tsr_planning_open(struct tsr_planning *pl, struct tsr_pipeline_job *job,
                             struct tsr_err *err);
/* The best plan of the open problem, which then has what was chosen for the keys that the workload leaves open.
 * The answer is freed by the caller, also after an error. */
tsr_status tsr_planning_search(struct tsr_planning *pl, struct tsr_plan_planned *a,
                               struct tsr_err *err);
/* Before the search: it keeps what it proves for tsr_planning_front(). */
tsr_status tsr_planning_keep(struct tsr_planning *pl, struct tsr_err *err);
void       tsr_planning_close(struct tsr_planning *pl);
/* Reads `replicas` into pl; errors go to d. */
void tsr_planning_replicas_read(struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                                const struct tsr_config_node *node, struct tsr_diag *d);
/* Searches pl->problem, as one pipeline. */
typedef tsr_status tsr_planning_one(struct tsr_planning *pl, struct tsr_plan_problem *p,
                                    struct tsr_plan_planned *a, struct tsr_err *err);
/* The best plan over the numbers of copies that the job allows. Where there are several, pl->problem is then that of one
 * copy, as after a check; or they are pl->fleet, and the answer has no plan.  The answer is freed by the caller, also after an
 * error. */
tsr_status tsr_planning_replicas_search(struct tsr_planning *pl, struct tsr_plan_planned *a,
                                        tsr_planning_one *one, struct tsr_err *err);
/* Whether copies on groups of whole nodes are in the space of `replicas: auto`; pl->groups says so where they are not. */
bool tsr_planning_grouped(struct tsr_planning *pl);
/* The best of these in `seconds`, 0: without a limit. Where one is below `value` (share.h) it becomes pl->fleet, and `a` is
 * freed.  *bound, of what else was tried, is then of these, too. */
tsr_status tsr_planning_groups_search(struct tsr_planning *pl, struct tsr_plan_planned *a,
                                      double seconds, double value, double *bound,
                                      struct tsr_err *err);
/* Writes the plan of an open problem as a file, with its copies. */
tsr_status tsr_planning_write(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                              const char *path, struct tsr_err *err);
/* The copies as JSON, "replicas" of j, and as a line; nothing where there is one and no other number was tried.  False when
 * out of memory. */
bool tsr_planning_replicas_put(json_t *j, const struct tsr_planning *pl,
                               const struct tsr_plan_planned *a);
void tsr_planning_replicas_print(const json_t *r, FILE *to);
/* The numbers of copies that were searched, as a list; and as what is appended to text of TSR_TABLE_SENTENCE bytes, of
 * which *at are used: "; 1 takes 21.81 s, 2 take 20.4 s".  but: this number is left out. */
json_t *tsr_planning_tried_json(const struct tsr_planning *pl);
void    tsr_planning_tried_text(const json_t *tried, long long but, char *text, size_t *at);
/* Whether a later step of the job takes the plan of k, or verifies it: such a step takes one file. */
bool tsr_planning_followed(const struct tsr_pipeline_job       *job,
                           const struct tsr_planning_plan_keys *k);
/* One more candidate, before it is opened. */
tsr_status tsr_planning_add(struct tsr_planning *pl, const char *text, struct tsr_err *err);
/* The quantizer and the options of a candidate's text exist, or an error at the node's place. */
tsr_status tsr_planning_try(struct tsr_registry *r, const char *text,
                            const struct tsr_config_node *at, struct tsr_diag *d,
                            struct tsr_err *err);
#define TSR_PLANNING_TEXT 400 /* of a candidate: "gptq:bits=4,group=128" */
/* Whether a plan is verified; its keys, errors of which go to d. */
bool tsr_planning_verifies(const struct tsr_planning_plan_keys *k);
void tsr_planning_verify_fill(struct tsr_planning_verify_keys     *v,
                              const struct tsr_planning_plan_keys *k, struct tsr_diag *d);
/* Reports what a verification lacks. */
void tsr_planning_verify_read(const struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                              const struct tsr_planning_plan_keys *k, struct tsr_diag *d);
/* What it found, as a line; nothing without r's "verify". */
void tsr_planning_verify_print(const json_t *r, FILE *to);
/* Whether it is a key of the step rather than one of the quantizer's options next to them. */
bool tsr_planning_own(const char *key);
/* What the workload does not say is the planner's to choose; a table of a paper has what the paper has.  Errors go
 * to d.  [setup] */
void tsr_planning_open_settings(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                                const struct tsr_planning_plan_keys *k, struct tsr_diag *d);
/* compensate: [0, 8, 16], or "0,8,16" of a command line; NULL: nothing.  Errors go to d.  [setup] */
void tsr_planning_channels(struct tsr_planning *pl, const struct tsr_config_node *list,
                           struct tsr_diag *d);
/* Reads `codecs`, `sums` and `tp` into pl; errors go to d. */
tsr_status tsr_planning_codecs(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                               const struct tsr_planning_plan_keys *k,
                               const struct tsr_config_node *node, struct tsr_diag *d,
                               struct tsr_err *err);
/* Reads `bits` or `candidates` into pl; errors go to d. */
tsr_status tsr_planning_candidates(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                                   const struct tsr_planning_plan_keys *k,
                                   const struct tsr_config_node *node, struct tsr_diag *d,
                                   struct tsr_err *err);

/* Takes the draft models of the steps after the plan step of k that run by its plan.  [setup] */
tsr_status tsr_planning_drafts(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                               const struct tsr_planning_plan_keys *k, struct tsr_err *err);
void       tsr_planning_drafts_free(struct tsr_planning *pl);
/* "draft" of j, the bytes that one takes on a device, at most, where there is one. */
tsr_status tsr_planning_drafts_put(json_t *j, const struct tsr_plan_problem *p,
                                   struct tsr_err *err);

/* Reads `ends` into pl; errors go to d. */
tsr_status tsr_planning_ends(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                             const struct tsr_config_node *list, struct tsr_diag *d,
                             struct tsr_err *err);
/* What a plan file packs embedding and head by, in the place of that. */
tsr_status tsr_planning_ends_of(struct tsr_planning *pl, struct tsr_registry *r,
                                const struct tsr_plan_file *f, const char *use, struct tsr_diag *d,
                                struct tsr_err *err);

/* Instead of opening and searching: computes the cost of a plan file. The candidates are the job's and
 * those of the file's layers. TSR_E_INPUT with diagnostics in d or a message; TSR_E_INFEASIBLE if it does
 * not fit. [setup] */
tsr_status tsr_planning_check(struct tsr_planning *pl, struct tsr_pipeline_job *job,
                              const struct tsr_planning_plan_keys *k,
                              const struct tsr_config_node *node, const struct tsr_plan_file *f,
                              struct tsr_plan_planned *a, struct tsr_diag *d, struct tsr_err *err);
/* The values that the file states, for comparison; new reference, NULL when out of memory. */
json_t *tsr_planning_said(const struct tsr_planning *pl, const struct tsr_plan_file *f);

/* The result as JSON: the plan, the baselines on the same work, why not wider, what fits; for an
 * infeasible problem, what would help. alone: only the plan. New reference. */
tsr_status tsr_planning_json(const struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                             const struct tsr_plan_planned *a, bool alone, json_t **out,
                             struct tsr_err *err);
/* The lists of codecs to choose from; those of one stage; what the solver did not know of the problem.  False when out of
 * memory. */
bool tsr_planning_put_codecs(json_t *j, const struct tsr_plan_problem *p);
bool tsr_planning_put_stage_codecs(json_t *j, const struct tsr_plan_problem *p,
                                   const struct tsr_plan_outcome *o, uint64_t stage);
bool tsr_planning_put_ignored(json_t *j, const struct tsr_plan_planned *a);
/* Names of TSR_SOLVED_*. */
extern const char *const tsr_planning_statuses[4];
/* {"3": 6, "4": 12}: how many layers of a run are at each candidate. */
json_t *tsr_planning_counts(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o,
                            uint64_t first, uint64_t n);
/* Its parts: the plans of the named solvers on the same work; the candidates above the mean of the plan alone; what
 * would help. */
tsr_status tsr_planning_baselines(const struct tsr_plan_problem *p, const char *names, json_t *list,
                                  struct tsr_err *err);
tsr_status tsr_planning_wider(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                              json_t *list, struct tsr_err *err);
tsr_status tsr_planning_remedies(const struct tsr_planning *pl, json_t **out, struct tsr_err *err);
/* The bottlenecks, and the gain from more of each resource: {"binds": [...], "buys": [...]}. New
 * reference. */
tsr_status tsr_planning_explain(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                                json_t **out, struct tsr_err *err);
/* Adds to e's "buys" what each change would buy in speed and in quality, solved again in a few solves' time. */
tsr_status tsr_planning_buys(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                             json_t *e, struct tsr_err *err);
/* What speed costs in quality: {"points": [...], "solves", "seconds"}, and as a table under r's "front"; nothing without
 * it.  a: the plan of the job.  New reference. */
tsr_status tsr_planning_front(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                              json_t **out, struct tsr_err *err);
void       tsr_planning_front_print(const json_t *r, FILE *to);
/* Many nodes: is the model planned in copies, each on a few nodes with a share of the batch? */
bool tsr_planning_copies(const struct tsr_planning *pl, const struct tsr_planning_plan_keys *k);
/* Those copies, into pl->fleet. */
tsr_status tsr_planning_fleet(struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                              struct tsr_err *err);
/* Writes them as files, one for each kind of copy: `path`, then with -2, -3 before its extension. Reports
 * the result, with `said` in place of the path. New reference. */
tsr_status tsr_planning_fleet_put(const struct tsr_planning           *pl,
                                  const struct tsr_planning_plan_keys *k, const char *path,
                                  const char *said, json_t **out, struct tsr_err *err);
void       tsr_planning_fleet_print(const json_t *r, FILE *to);
/* What a planning is for, into its JSON; false when out of memory. */
bool tsr_planning_put_problem(json_t *j, const struct tsr_plan_problem *p);
/* The part about one plan alone: devices, sizes, times, quality. */
json_t *tsr_planning_outcome_json(const struct tsr_plan_problem *p,
                                  const struct tsr_plan_planned *a);
/* That as a table for a terminal of 80 columns. */
void tsr_planning_print(const json_t *r, FILE *to);
/* TSR_E_INFEASIBLE or TSR_E_NUMERIC with the sentence where r has no plan. */
tsr_status tsr_planning_verdict(const json_t *r, struct tsr_err *err);

#endif
