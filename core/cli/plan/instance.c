/* The raw form of `tessera plan`: a problem given as tables. */
#include "cli/plan/plan_verb.h"
#include "cli/plan/simulate.h"

#include "base/clock.h"
#include "plan/instance/instance.h"
#include "plan/instance/objective.h"
#include "plugin/spec.h"

#include <stdlib.h>

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
        if (s->stage_link && i + 1 < s->stages)
            (void)printf("  link codec %u", s->stage_link[i]);
        (void)printf("\n");
    }
}

static tsr_status report(const struct tsr_cli *c, const struct tsr_plan_call *opt,
                         const struct tsr_instance *inst, const struct tsr_solver_solution *s,
                         const struct tsr_plugin_spec *spec, double time_s, struct tsr_err *err)
{
    const char *solver = spec->found.component->name;
    bool        plan = s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_FEASIBLE;
    json_t     *simulation = NULL;
    if (plan && opt->gantt[0])
        TSR_TRY(tsr_cli_plan_gantt(&inst->in, s, NULL, NULL, NULL,
                                   inst->name[0] ? inst->name : opt->instance, opt->gantt, err));
    if (plan && opt->simulate)
        TSR_TRY(tsr_cli_plan_simulate(&inst->in, s, NULL, NULL, &simulation, err));
    if (c->json) {
        json_t *o = tsr_plan_solution_json(inst, s, solver, time_s);
        if (o && simulation && json_object_set(o, "simulation", simulation) != 0) {
            json_decref(o);
            o = NULL;
        }
        json_decref(simulation);
        TSR_TRY(tsr_cli_print_json(o, err));
    } else if (plan) {
        print_plan(inst, s, solver, time_s);
        if (simulation)
            tsr_cli_plan_simulation_print(simulation);
        json_decref(simulation);
    }
    if (s->status == TSR_SOLVED_INFEASIBLE)
        return tsr_fail(err, TSR_E_INFEASIBLE, "no plan exists: %s", s->reason);
    if (!plan && *s->reason) /* the solver's policy has none */
        return tsr_fail(err, TSR_E_INFEASIBLE, "solver \"%s\" has no plan: %s; try another solver",
                        solver, s->reason);
    if (!plan) /* neither is a failure of the input */
        return tsr_fail(
            err, TSR_E_NUMERIC,
            "solver \"%s\" found no plan, and no proof that none exists; try another solver or "
            "a longer --time-limit",
            solver);
    return TSR_OK;
}

static tsr_status solve(const struct tsr_cli *c, const struct tsr_plan_call *o,
                        struct tsr_instance *inst, const struct tsr_plugin_spec *spec,
                        struct tsr_err *err)
{
    struct tsr_solver_solution *s = NULL;
    inst->in.gap = o->gap;
    inst->in.deadline_us = (uint64_t)(o->time_limit * 1e6);
    inst->in.seed = (uint64_t)o->seed;
    TSR_TRY(tsr_plan_solution_create(&s, inst, err));
    double     start = tsr_now_s();
    tsr_status st = tsr_plan_solve(inst, &spec->found, spec->options, s, err);
    if (st == TSR_OK)
        st = report(c, o, inst, s, spec, tsr_now_s() - start, err);
    free(s);
    return st;
}

tsr_status tsr_cli_plan_instance(struct tsr_cli *c, const struct tsr_plan_call *o,
                                 struct tsr_err *err)
{
    struct tsr_registry   *r = NULL;
    struct tsr_instance   *inst = NULL;
    struct tsr_plugin_spec spec = { 0 };
    TSR_TRY(tsr_instance_load(&inst, o->instance, err));
    tsr_status st = tsr_cli_registry(c, &r, err);
    if (st == TSR_OK)
        st = tsr_plugin_spec_open(&spec, r, TSR_KIND_SOLVER, o->solver, err);
    if (st == TSR_OK)
        st = solve(c, o, inst, &spec, err);
    tsr_plugin_spec_close(&spec);
    tsr_instance_destroy(inst);
    return st;
}
