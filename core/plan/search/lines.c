#include "plan/search/lines.h"

#include "base/mem.h"
#include "plan/instance/instance.h"
#include "plan/instance/objective.h"
#include "plan/search/build.h"
#include "tessera/draft/lines.h"

#include <math.h>
#include <stdlib.h>

#define MORE 1e-9 /* of a bound: a line that says no more than that is not kept */

void tsr_plan_lines_free(struct tsr_plan_lines *l)
{
    free(l->of.used);
    free(l->of.lines);
    tsr_plan_built_destroy(l->built);
    *l = (struct tsr_plan_lines){ 0 };
}

static tsr_status open_lines(struct tsr_plan_lines *l, uint64_t all, struct tsr_err *err)
{
    if (l->of.n == all)
        return TSR_OK;
    free(l->of.used);
    free(l->of.lines);
    l->of = (struct tsr_plan_bounds){ 0 };
    l->of.used = tsr_new(all, sizeof *l->of.used);
    l->of.lines = tsr_new(all * TSR_PLAN_BOUND_LINES, sizeof *l->of.lines);
    if (!l->of.used || !l->of.lines)
        return tsr_fail_nomem(err, all * TSR_PLAN_BOUND_LINES * sizeof *l->of.lines,
                              "bounds of options");
    l->of.n = all;
    return TSR_OK;
}

static double limit_of(const struct tsr_solver_instance *in)
{
    return in->max_omega >= 0 ? in->max_omega : INFINITY;
}

tsr_status tsr_plan_lines_put(struct tsr_plan_lines *l, uint64_t option, uint64_t all,
                              const struct tsr_solver_instance *in, double bound,
                              struct tsr_err *err)
{
    TSR_TRY(open_lines(l, all, err));
    tsr_plan_bounds_put(&l->of, option, limit_of(in), in->theta, bound);
    return TSR_OK;
}

double tsr_plan_lines_get(const struct tsr_plan_lines *l, uint64_t option,
                          const struct tsr_solver_instance *in)
{
    return tsr_plan_bounds_get(&l->of, option, limit_of(in), in->theta);
}

/* The options that may be below the cutoff of the instance, with their bounds; *least: the least bound of the others. */
static uint64_t leave_out(const struct tsr_plan_lines *l, uint64_t first,
                          const struct tsr_solver_instance *in,
                          const struct tsr_solver_option **list, uint64_t *of,
                          struct tsr_solver_line *lines, double *least)
{
    uint64_t n = 0;
    *least = INFINITY;
    for (uint64_t i = 0; i < in->n_options; i++) {
        double bound = tsr_plan_lines_get(l, first + i, in);
        if (bound >= in->cutoff) {
            *least = fmin(*least, bound);
            continue;
        }
        lines[n] = (struct tsr_solver_line){ limit_of(in), 0, bound };
        of[n] = i;
        list[n++] = in->options[i];
    }
    return n;
}

static void keep(struct tsr_plan_lines *l, uint64_t option, const struct tsr_solver_instance *in,
                 const struct tsr_solver_line *line)
{
    double slope = in->theta + line->slope;
    if (line->value > -INFINITY && !(tsr_plan_bounds_get(&l->of, option, line->limit, slope) >=
                                     line->value - MORE * fabs(line->value)))
        tsr_plan_bounds_put(&l->of, option, line->limit, slope, line->value);
}

static tsr_status solve(struct tsr_plan_lines *l, uint64_t first, const struct tsr_instance *inst,
                        const struct tsr_plugin_spec *solver, struct tsr_solver_solution *s,
                        const struct tsr_solver_option **list, uint64_t *of,
                        struct tsr_solver_line *lines, struct tsr_err *err)
{
    struct tsr_instance some = *inst;
    double              least;
    some.in.n_options = leave_out(l, first, &inst->in, list, of, lines, &least);
    some.in.options = list;
    if (!some.in.n_options) {
        s->status = TSR_SOLVED_UNKNOWN;
        s->bound = fmin(least, fmax(1, inst->in.cutoff) * 1e9); /* an answer has a number */
        return TSR_OK;
    }
    TSR_TRY(tsr_plan_solve_lines(&some, &solver->found, solver->options, l->solver, s, lines, err));
    for (uint64_t i = 0; i < some.in.n_options; i++)
        keep(l, first + of[i], &inst->in, &lines[i]);
    if (s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_FEASIBLE)
        s->option = of[s->option];
    if (s->status == TSR_SOLVED_INFEASIBLE && least < INFINITY) {
        s->status = TSR_SOLVED_UNKNOWN;
        s->bound = least;
    }
    s->bound = fmin(s->bound, least);
    return TSR_OK;
}

tsr_status tsr_plan_lines_solve(struct tsr_plan_lines *l, uint64_t first, uint64_t all,
                                const struct tsr_instance    *inst,
                                const struct tsr_plugin_spec *solver, struct tsr_solver_solution *s,
                                struct tsr_err *err)
{
    uint64_t n = inst->in.n_options;
    TSR_TRY(open_lines(l, all, err));
    const struct tsr_solver_option **list = tsr_new(n, sizeof *list);
    uint64_t                        *of = tsr_new(n, sizeof *of);
    struct tsr_solver_line          *lines = tsr_new(n, sizeof *lines);
    tsr_status                       st = list && of && lines
                                              ? solve(l, first, inst, solver, s, list, of, lines, err)
                                              : tsr_fail_nomem(err, n * sizeof *lines, "options of a problem");
    free(lines);
    free(of);
    free(list);
    return st;
}
