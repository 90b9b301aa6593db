/* cli/plan/plan_verb.h - the forms of `tessera plan`: a raw problem, a job, two plan files. */
#ifndef TSR_CLI_PLAN_PLAN_VERB_H
#define TSR_CLI_PLAN_PLAN_VERB_H

#include "cli/cli.h"
#include "planning/planning.h"

enum tsr_plan_export { TSR_PLAN_EXPORT_NONE, TSR_PLAN_EXPORT_VLLM, TSR_PLAN_EXPORT_LLAMACPP };

/* What the verb reads itself; other options are the step's. */
struct tsr_plan_call {
    const char *instance, *output, *check, *gantt, *chart, *cluster, *workload;
    int64_t     export_to;
    int32_t     diff, explain, front, simulate;
    /* of the raw form alone */
    const char *solver;
    double      gap, time_limit;
    int64_t     seed;
    /* options of the step as "key=value" */
    struct tsr_pipeline_step_pair *pairs;
    uint64_t                       n_pairs;
};

tsr_status tsr_cli_plan_instance(struct tsr_cli *c, const struct tsr_plan_call *o,
                                 struct tsr_err *err);
tsr_status tsr_cli_plan_diff(struct tsr_cli *c, const char *a, const char *b, struct tsr_err *err);
tsr_status tsr_cli_plan_job(struct tsr_cli *c, const struct tsr_plan_call *o, const char *arg,
                            struct tsr_err *err);

/* The points of a front as a picture in path.svg: time against omega. */
tsr_status tsr_cli_plan_chart(const json_t *front, const char *model, const char *path,
                              struct tsr_err *err);

/* The plan for another program, on standard output. */
tsr_status tsr_cli_plan_export(struct tsr_cli *c, int64_t to, const struct tsr_plan_problem *p,
                               const struct tsr_plan_outcome *o, struct tsr_err *err);

#endif
