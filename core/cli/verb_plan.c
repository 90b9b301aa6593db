/* tessera plan: solves a planning problem given as tables. */
#include "cli/cli.h"

#include "base/clock.h"
#include "plan/instance.h"
#include "plan/objective.h"
#include "plugin/spec.h"

#include <stdlib.h>

struct plan_options {
    const char *instance, *solver;
    double      gap, time_limit;
    int64_t     seed;
};

#define S struct plan_options
static const struct tsr_option options[] = {
    { .name = "instance",
      .help = "problem file, tessera.instance/1",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, instance, const char *) },
    TSR_OPTION_STRING(S, solver, "uniform", "solver, with its options as NAME:key=value,..."),
    TSR_OPTION_REAL(S, gap, 1e-4, 0.0, 1.0, NULL, "relative gap at which a plan counts as optimal"),
    TSR_OPTION_REAL(S, time_limit, 0.0, 0.0, 1e6, "s",
                    "stop with the best plan so far; 0: no limit"),
    TSR_OPTION_INT(S, seed, 0, 0, INT64_MAX, NULL, "seed of solvers that draw"),
};
#undef S

/* "16 x 12, 8 x 4": runs of equal bits of a stage. */
static void print_bits(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
                       uint64_t stage)
{
    uint64_t end = s->stage_first[stage] + s->stage_count[stage];
    for (uint64_t l = s->stage_first[stage], n; l < end; l += n) {
        for (n = 1; l + n < end && s->layer_bits[l + n] == s->layer_bits[l]; n++) {
        }
        (void)printf("%s%s x %llu", l == s->stage_first[stage] ? "" : ", ",
                     in->bit_names[s->layer_bits[l]], (unsigned long long)n);
    }
}

static void print_plan(const struct tsr_instance *inst, const struct tsr_solver_solution *s,
                       const char *solver, double time_s)
{
    const struct tsr_solver_instance *in = &inst->in;
    const struct tsr_solver_option   *o = in->options[s->option];
    (void)printf("%s plan by %s in %.3f s: %.6g ms",
                 s->status == TSR_SOLVED_OPTIMAL ? "optimal" : "feasible", solver, time_s,
                 s->objective);
    if (s->bound > -1e300)
        (void)printf(", no plan is below %.6g ms", s->bound);
    (void)printf("\nmicro-batches: prefill %llu, decode %llu\n", (unsigned long long)o->prefill_mb,
                 (unsigned long long)o->decode_mb);
    for (uint64_t i = 0; i < s->stages; i++) {
        (void)printf("stage %llu  %-16s layers %llu-%llu  bits ", (unsigned long long)i,
                     in->kinds[s->stage_kind[i]]->name, (unsigned long long)s->stage_first[i],
                     (unsigned long long)(s->stage_first[i] + s->stage_count[i] - 1));
        print_bits(in, s, i);
        (void)printf("\n");
    }
}

static tsr_status report(const struct tsr_cli *c, const struct tsr_instance *inst,
                         const struct tsr_solver_solution *s, const struct tsr_spec *spec,
                         double time_s, struct tsr_err *err)
{
    const char *solver = spec->found.component->name;
    bool        plan = s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_FEASIBLE;
    if (c->json)
        TSR_TRY(tsr_cli_print_json(tsr_solution_json(inst, s, solver, time_s), err));
    else if (plan)
        print_plan(inst, s, solver, time_s);
    if (s->status == TSR_SOLVED_INFEASIBLE)
        return tsr_fail(err, TSR_E_INFEASIBLE, "no plan exists: %s", s->reason);
    if (!plan) /* neither is a failure of the input */
        return tsr_fail(
            err, TSR_E_NUMERIC,
            "solver \"%s\" found no plan, and no proof that none exists; try another solver or "
            "a longer --time-limit",
            solver);
    return TSR_OK;
}

static tsr_status solve(const struct tsr_cli *c, const struct plan_options *o,
                        struct tsr_instance *inst, const struct tsr_spec *spec, struct tsr_err *err)
{
    struct tsr_solver_solution *s = NULL;
    inst->in.gap = o->gap;
    inst->in.deadline_us = (uint64_t)(o->time_limit * 1e6);
    inst->in.seed = (uint64_t)o->seed;
    TSR_TRY(tsr_solution_create(&s, inst, err));
    double     start = tsr_now_s();
    tsr_status st = tsr_plan_solve(inst, &spec->found, spec->options, s, err);
    if (st == TSR_OK)
        st = report(c, inst, s, spec, tsr_now_s() - start, err);
    free(s);
    return st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct plan_options *o = opts;
    struct tsr_registry       *r = NULL;
    struct tsr_instance       *inst = NULL;
    struct tsr_spec            spec = { 0 };
    (void)args;
    (void)n_args;
    TSR_TRY(tsr_instance_load(&inst, o->instance, err));
    tsr_status st = tsr_cli_registry(c, &r, err);
    if (st == TSR_OK)
        st = tsr_spec_open(&spec, r, TSR_KIND_SOLVER, o->solver, err);
    if (st == TSR_OK)
        st = solve(c, o, inst, &spec, err);
    tsr_spec_close(&spec);
    tsr_instance_destroy(inst);
    return st;
}

const struct tsr_verb tsr_verb_plan;
const struct tsr_verb tsr_verb_plan = {
    .name = "plan",
    .summary = "chooses bits and places of layers for a planning problem",
    .args = "",
    .min_args = 0,
    .max_args = 0,
    .details =
        "Reads a raw problem (docs/formats/instance.md), solves it with a solver plugin, checks "
        "the plan and recomputes its objective. With --json the solution is one object of "
        "tessera.solution/1. Exit code 3: it is proved that no plan exists.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct plan_options),
    .run = run,
};
