/* tessera bench plan FILE.json: one planning problem, solved again and again in one process. */
#include "cli/bench/plan.h"

#include "plan/instance/instance.h"
#include "plan/instance/objective.h"

#include <math.h>
#include <stdlib.h>

struct times {
    double  *s; /* [n] processor seconds, in the order of the solves */
    uint64_t n;
};

/* The first solve touches code and memory that later solves find in caches, so it is reported separately. */
static tsr_status print(struct tsr_cli *c, const struct tsr_instance *inst, const char *file,
                        const char *solver, const struct tsr_solver_solution *s, struct times *t,
                        struct tsr_err *err)
{
    static const char *const status[] = { "optimal", "feasible", "infeasible", "unknown" };
    bool                     plan = s->status <= TSR_SOLVED_FEASIBLE;
    const char              *name = inst->name[0] ? inst->name : file;
    double                   first = t->s[0], median = NAN, least = NAN;
    if (t->n > 1) {
        median = bench_median(t->s + 1, t->n - 1);
        least = t->s[1]; /* sorted */
    }
    if (c->json)
        return tsr_cli_print_json(json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:f, s:o, s:o}",
                                            "solver", solver, "problem", name, "status",
                                            status[s->status], "objective",
                                            plan ? json_real(s->objective) : json_null(), "bound",
                                            isfinite(s->bound) ? json_real(s->bound) : json_null(),
                                            "solves", (json_int_t)t->n, "first_s", first,
                                            "median_s", t->n > 1 ? json_real(median) : json_null(),
                                            "least_s", t->n > 1 ? json_real(least) : json_null()),
                                  err);
    (void)printf("%s by %s: %s", name, solver, status[s->status]);
    if (plan)
        (void)printf(", %.9g ms, no plan is below %.9g ms", s->objective, s->bound);
    (void)printf("\nprocessor time: first solve %.1f us", first * 1e6);
    if (t->n > 1)
        (void)printf(", median of the other %llu %.1f us, least %.1f us",
                     (unsigned long long)(t->n - 1), median * 1e6, least * 1e6);
    (void)printf("\n");
    return TSR_OK;
}

static tsr_status solve_all(const struct tsr_instance *inst, const struct tsr_plugin_spec *spec,
                            struct tsr_solver_solution *s, struct times *t, struct tsr_err *err)
{
    for (uint64_t i = 0; i < t->n; i++) {
        double start = bench_cpu_s();
        TSR_TRY(tsr_plan_solve(inst, &spec->found, spec->options, s, err));
        t->s[i] = bench_cpu_s() - start;
    }
    return TSR_OK;
}

static bool isolated(const struct tsr_plugin_spec *spec)
{
    const struct tsr_solver_v1 *t = spec->found.iface;
    return t->supports & TSR_SOLVER_ISOLATED;
}

tsr_status bench_solve(struct tsr_cli *c, const struct bench_plan_options *o, struct tsr_err *err)
{
    struct tsr_registry        *r = NULL;
    struct tsr_instance        *inst = NULL;
    struct tsr_solver_solution *s = NULL;
    struct tsr_plugin_spec      spec = { 0 };
    struct times                t = { .n = o->repeats };
    TSR_TRY(tsr_instance_load(&inst, o->only, err));
    inst->in.gap = o->gap;
    inst->in.deadline_us = (uint64_t)(o->time_limit * 1e6);
    t.s = calloc(t.n, sizeof *t.s);
    tsr_status st = t.s ? TSR_OK : tsr_fail_nomem(err, t.n * sizeof *t.s, "times of a benchmark");
    if (st == TSR_OK)
        st = tsr_plan_solution_create(&s, inst, err);
    if (st == TSR_OK)
        st = tsr_cli_registry(c, &r, err);
    if (st == TSR_OK)
        st = tsr_plugin_spec_open(&spec, r, TSR_KIND_SOLVER, o->solver, err);
    if (st == TSR_OK && isolated(&spec))
        st = tsr_fail(err, TSR_E_INPUT,
                      "bench plan: solver \"%s\" runs in its own process, whose start would be "
                      "counted; time it by tools/bench-ilp",
                      spec.found.component->name);
    if (st == TSR_OK)
        st = solve_all(inst, &spec, s, &t, err);
    if (st == TSR_OK)
        st = print(c, inst, o->only, spec.found.component->name, s, &t, err);
    tsr_plugin_spec_close(&spec);
    free(s);
    free(t.s);
    tsr_instance_destroy(inst);
    return st;
}
