/* cli/bench/plan.h - `tessera bench plan`. */
#ifndef TSR_CLI_BENCH_PLAN_H
#define TSR_CLI_BENCH_PLAN_H

#include "cli/bench/bench.h"

struct bench_plan_options {
    const char *solver, *only;   /* only: clusters whose name contains it; "": all */
    double      gap, time_limit; /* s for each problem, 0: none */
    uint64_t    repeats;         /* solves of a file, at least 1 */
};

/* Solves the problems of cases.h and prints CPU times.  [setup] */
tsr_status bench_plan(struct tsr_cli *c, const struct bench_plan_options *o, struct tsr_err *err);
/* Solves the problem in the file `only` several times in this process and prints CPU times.  [setup] */
tsr_status bench_solve(struct tsr_cli *c, const struct bench_plan_options *o, struct tsr_err *err);

#endif
