#include "plan/instance/instance.h"
#include "plan/instance/objective.h"
#include "plan/search/isolate.h"

#include "base/log.h"
#include "base/mem.h"
#include "plugin/registry.h"
#include "tessera/draft/lines.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* "solver "x" returned a wrong plan: ..." */
static tsr_status wrong(const struct tsr_plugin_found *f, struct tsr_err *err, const char *why)
{
    return tsr_fail(err, TSR_E_INPUT,
                    "solver \"%s\" (%s) returned a wrong answer: %s; report it to its author",
                    f->component->name, f->info->path, why);
}

static tsr_status check_claims(const struct tsr_instance *inst, const struct tsr_plugin_found *f,
                               struct tsr_solver_solution *s, struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    double            mine = NAN;
    if (s->reason_cap)
        s->reason[s->reason_cap - 1] = '\0';
    if (s->status > TSR_SOLVED_UNKNOWN)
        return wrong(f, err, "a status that does not exist");
    if (isnan(s->bound) || s->bound == INFINITY)
        return wrong(f, err, "a bound that is not a number");
    if (s->status == TSR_SOLVED_INFEASIBLE && s->reason[0] == '\0')
        return wrong(f, err, "infeasible without a reason");
    if (s->status == TSR_SOLVED_INFEASIBLE || s->status == TSR_SOLVED_UNKNOWN)
        return TSR_OK;
    if (tsr_plan_evaluate(&inst->in, s, &mine, &why.err) != TSR_OK)
        return wrong(f, err, why.text);
    /* the validator's tolerance in docs/formats/instance.md, item 6: order of summation */
    double band = 1e-6 * fabs(mine) + 1e-6;
    if (!(fabs(mine - s->objective) <= band)) {
        (void)snprintf(why.text, sizeof why.text, "objective %.9g, from the tables it is %.9g",
                       s->objective, mine);
        return wrong(f, err, why.text);
    }
    double gap = inst->in.gap * fabs(mine);
    if (s->bound > mine + band ||
        (s->status == TSR_SOLVED_OPTIMAL && !(mine - s->bound <= gap + band))) {
        (void)snprintf(why.text, sizeof why.text, "status %s with objective %.9g and bound %.9g",
                       s->status == TSR_SOLVED_OPTIMAL ? "optimal" : "feasible", mine, s->bound);
        return wrong(f, err, why.text);
    }
    s->objective = mine;
    return TSR_OK;
}

void tsr_plan_solver_end(struct tsr_plan_solver *one)
{
    if (one->self)
        one->iface->destroy(one->self);
    *one = (struct tsr_plan_solver){ 0 };
}

/* one: gets an instance of the solver where it has none. */
static tsr_status solve_here(const struct tsr_instance *inst, const struct tsr_plugin_found *f,
                             const void *opts, struct tsr_plan_solver *one,
                             struct tsr_solver_solution *s, struct tsr_solver_line *lines,
                             struct tsr_err *err)
{
    const struct tsr_solver_v1       *t = one->iface = f->iface;
    const struct tsr_solver_lines_v1 *more = NULL;
    if (!one->self)
        TSR_TRY(t->create(f->host, opts, &one->self, err));
    void *self = one->self;
    /* the plugin may move the pointers of its copy, not ours */
    struct tsr_solver_solution out = *s;
    if (lines && TSR_HAS(struct tsr_solver_v1, t, extension) && t->extension)
        more = t->extension(self, TSR_SOLVER_LINES);
    for (uint64_t i = 0; lines && !more && i < inst->in.n_options; i++)
        lines[i] = (struct tsr_solver_line){ .value = -INFINITY };
    tsr_status st = more ? more->solve(self, &inst->in, &out, lines, err)
                         : t->solve(self, &inst->in, &out, err);
    s->status = out.status;
    s->objective = out.objective;
    s->bound = out.bound;
    s->option = out.option;
    s->stages = out.stages;
    return st;
}

/* one NULL: an instance for this solve.  lines NULL: nobody keeps them. */
static tsr_status solve(const struct tsr_instance *inst, const struct tsr_plugin_found *f,
                        const void *opts, struct tsr_plan_solver *one,
                        struct tsr_solver_solution *s, struct tsr_solver_line *lines,
                        struct tsr_err *err)
{
    const struct tsr_solver_v1 *t = f->iface;
    struct tsr_plan_solver      own = { 0 };
    tsr_status                  st = f->isolate || t->supports & TSR_SOLVER_ISOLATED
                                         ? tsr_plan_isolated(&inst->in, f, opts, f->isolate, s, err)
                                         : solve_here(inst, f, opts, one ? one : &own, s, lines, err);
    tsr_plan_solver_end(&own);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "solver \"%s\"", f->component->name);
    return check_claims(inst, f, s, err);
}

/* Writes the n numbers v, each times `by`, at *at and moves it past them; what was written. */
static double *stretched(double **at, const double *v, uint64_t n, double by)
{
    double *to = *at;
    for (uint64_t i = 0; i < n; i++)
        to[i] = by * v[i];
    *at += n;
    return to;
}

/* An option without jobs of prefill, each of whose micro-batches takes as long as its jobs do, one after another.  at: room for
 * the times. */
static void put_whole(struct tsr_solver_option *o, const struct tsr_solver_instance *in,
                      double **at)
{
    uint64_t n = in->n_kinds, links = in->n_links > 1 ? in->n_links : 1;
    double   by = o->prefill_jobs / ceil((double)in->batch / (double)o->prefill_mb);
    o->pre_ms = stretched(at, o->pre_ms, n * in->classes * in->bits, by);
    o->embed_pre_ms = stretched(at, o->embed_pre_ms, n, by);
    o->head_pre_ms = stretched(at, o->head_pre_ms, n, by);
    o->comm_pre_ms = stretched(at, o->comm_pre_ms, links * n * n, by);
    o->prefill_jobs = 0;
}

/* The problem as a solver knows it that does not know jobs of prefill: prompts run whole.  Its plan is one of the problem
 * as it is, and has that one's objective; its bound is not, for jobs that follow one another through the stages take less. */
static tsr_status solve_whole(const struct tsr_instance *inst, const struct tsr_plugin_found *f,
                              const void *opts, struct tsr_solver_solution *s, struct tsr_err *err)
{
    static atomic_bool               said;
    uint64_t                         n = inst->in.n_options, k = inst->in.n_kinds;
    uint64_t                         links = inst->in.n_links > 1 ? inst->in.n_links : 1, each;
    struct tsr_instance              whole = *inst;
    struct tsr_solver_option        *o = tsr_new(n, sizeof *o);
    const struct tsr_solver_option **list = tsr_new(n, sizeof *list);
    each = k * inst->in.classes * inst->in.bits + 2 * k + links * k * k;
    double    *ms = tsr_new(n, each * sizeof *ms), *at = ms;
    tsr_status st =
        o && list && ms ? TSR_OK : tsr_fail_nomem(err, n * sizeof *o, "options of a problem");
    for (uint64_t i = 0; st == TSR_OK && i < n; i++) {
        o[i] = *inst->in.options[i];
        if (o[i].prefill_jobs > 0)
            put_whole(&o[i], &inst->in, &at);
        list[i] = &o[i];
    }
    whole.in.options = list;
    whole.features &= ~TSR_SOLVER_JOBS;
    if (!atomic_exchange(&said, true))
        tsr_logf(TSR_LOG_WARN,
                 "solver \"%s\" does not support prefill_jobs: it decides as if prompts ran whole "
                 "and in even groups; the times of its plan are those of what runs",
                 f->component->name);
    if (st == TSR_OK)
        st = solve(&whole, f, opts, NULL, s, NULL, err);
    if (st == TSR_OK && (s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_FEASIBLE)) {
        s->status = TSR_SOLVED_FEASIBLE;
        s->bound = -INFINITY;
        st = tsr_plan_evaluate(&inst->in, s, &s->objective, err);
    }
    free(ms);
    free(list);
    free(o);
    return st;
}

tsr_status tsr_plan_solve_lines(const struct tsr_instance *inst, const struct tsr_plugin_found *f,
                                const void *opts, struct tsr_plan_solver *one,
                                struct tsr_solver_solution *s, struct tsr_solver_line *lines,
                                struct tsr_err *err)
{
    const struct tsr_solver_v1 *t = f->iface;
    uint64_t                    missing = inst->features & ~t->supports;
    char                        parts[256];
    if (missing == TSR_SOLVER_JOBS)
        return solve_whole(inst, f, opts, s, err);
    if (missing)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "solver \"%s\" does not support %s; choose another one", f->component->name,
                        tsr_plan_solver_parts(missing, parts, sizeof parts));
    return solve(inst, f, opts, one, s, lines, err);
}

tsr_status tsr_plan_solve(const struct tsr_instance *inst, const struct tsr_plugin_found *f,
                          const void *opts, struct tsr_solver_solution *s, struct tsr_err *err)
{
    return tsr_plan_solve_lines(inst, f, opts, NULL, s, NULL, err);
}
