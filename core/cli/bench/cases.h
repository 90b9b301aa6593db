/* cli/bench/cases.h - planning problems for `tessera bench plan`: the published clusters of
 * configs/clusters with their models, and omegas that differ from layer to layer. */
#ifndef TSR_CLI_BENCH_CASES_H
#define TSR_CLI_BENCH_CASES_H

#include "plan/search/problem.h"

struct bench_case {
    const char *cluster, *model; /* names below configs */
    bool        tp;              /* all widths of meshes in a node */
    bool        paper;           /* one of a paper's table */
};
extern const struct bench_case bench_cases[];
extern const uint64_t          bench_n_cases;

/* The settings of a case. */
struct bench_ask {
    int64_t  objective; /* TSR_OBJECTIVE_* */
    bool     limit;     /* no worse than 4 bits everywhere; else 5 s for the quality loss of that */
    uint64_t batch, prompt, tokens;
    uint32_t min_tp;
    double   gap, time_limit;
};

struct bench_problem {
    char                    *config;
    struct tsr_plan_cluster *cluster;
    struct tsr_plan_workload work;
    struct tsr_plan_problem  p;
};
/* Opened from the files that come with the program.  text: instead of the case's file, a cluster;
 * NULL: the file.  Zeroed or filled for close.  [setup] */
tsr_status bench_problem_open(struct bench_problem *b, struct tsr_registry *r,
                              const struct bench_case *c, const char *text,
                              const struct bench_ask *ask, struct tsr_err *err);
void       bench_problem_close(struct bench_problem *b);

#endif
