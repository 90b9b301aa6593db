#include "plan/search/search_internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "plan/search/lines.h"

#include <math.h>
#include <stdlib.h>

bool tsr_search_joint(const struct tsr_plugin_spec *solver)
{
    const struct tsr_solver_v1 *t = solver->found.iface;
    uint64_t parts = TSR_SOLVER_POOLS | TSR_SOLVER_KIND_OMEGA | TSR_SOLVER_LINK_CODECS;
    return (t->supports & parts) == parts;
}

bool tsr_plan_planned_has_plan(const struct tsr_plan_planned *a)
{
    return a->status == TSR_SOLVED_OPTIMAL || a->status == TSR_SOLVED_FEASIBLE;
}

/* The instances of a joint search are those of the last one that kept its lines. */
static tsr_status build(struct tsr_searching *z, const struct tsr_plan_space *space,
                        struct tsr_plan_built **b, struct tsr_err *err)
{
    struct tsr_plan_lines *l = z->p->lines;
    if (!l || !l->built || !space->codecs)
        return tsr_plan_build(b, z->p, space, err);
    *b = l->built;
    l->built = NULL;
    tsr_plan_built_put(*b, z->p);
    return TSR_OK;
}

/* After a search that does not need it for its answer. */
static void keep(struct tsr_plan_lines *l, struct tsr_plan_built *b)
{
    if (l && b && !l->built && b->codecs && b->bytes <= l->most)
        l->built = b;
    else
        tsr_plan_built_destroy(b);
}

static tsr_status solve_choice(struct tsr_searching *z, const struct tsr_plan_space *of,
                               struct tsr_err *err)
{
    struct tsr_plan_space  space = *of;
    struct tsr_plan_built *b;
    space.nearest = z->p->memory.place == TSR_PLAN_HEAD_FIRST;
    TSR_TRY(build(z, &space, &b, err));
    z->base = b;
    z->a->over = fmax(z->a->over, tsr_plan_built_over(b));
    if (z->p->exact_ms && space.codecs)
        z->cutoff += z->a->over;
    tsr_status st = tsr_search_set(z, &space, b, err);
    if (st == TSR_OK && b->meshes.total > 1 && !z->p->again)
        st = tsr_search_sides(z, &space, err);
    if (z->p->any && z->a->solution) /* the others are unknown */
        z->a->bound = -INFINITY;
    z->base = NULL;
    if (z->a->built != b)
        keep(z->p->lines, b);
    z->a->choices++;
    return st;
}

static void conclude(struct tsr_searching *z)
{
    struct tsr_plan_planned *a = z->a;
    if (a->solution) {
        a->bound = fmin(a->bound, a->objective);
        double gap = z->p->o.gap * fabs(a->objective) + 1e-6 * fabs(a->objective) + 1e-6;
        bool   proved = a->objective - a->bound <= gap;
        a->status = proved ? TSR_SOLVED_OPTIMAL : TSR_SOLVED_FEASIBLE;
        return;
    }
    a->objective = NAN;
    a->status = z->open || isfinite(z->cutoff) ? TSR_SOLVED_UNKNOWN : TSR_SOLVED_INFEASIBLE;
}

/* What is left of the limit on omega after cache and codecs does not cover the plan: it is none. */
static bool over(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o)
{
    return p->max_omega >= 0 && !(o->omega <= p->max_omega * (1 + 1e-9) + 1e-12);
}

static void refuse(struct tsr_plan_planned *a, const struct tsr_plan_problem *p)
{
    tsr_plan_outcome_free(&a->outcome);
    tsr_plan_built_destroy(a->built);
    free(a->solution);
    a->built = NULL;
    a->solution = NULL;
    a->objective = NAN;
    a->status = TSR_SOLVED_INFEASIBLE;
    tsr_plan_problem_limit_text(p, a->reason, sizeof a->reason);
}

/* What the problem has that a solver which is not joint gets nothing of. */
static uint32_t ignored(const struct tsr_plan_problem *p)
{
    uint32_t w[TSR_PLAN_MESH_WIDTHS], what = 0;
    for (uint64_t g = 0; g < p->cluster->n_groups && !p->widths; g++)
        if (tsr_plan_meshes_widths(p, g, true, w, NULL, 0) > 1)
            what |= TSR_PLAN_IGNORED_WIDTHS;
    if (p->n_links > 1 || p->n_sums > 1)
        what |= TSR_PLAN_IGNORED_CODECS;
    return what | (p->max_omega >= 0 && p->wire_omega > 0 ? TSR_PLAN_IGNORED_COSTS : 0);
}

/* One width for each group, and the least lossy codecs, in one solve after another. */
static tsr_status one_by_one(struct tsr_searching *z, struct tsr_plan_width_choices *c,
                             struct tsr_err *err)
{
    uint32_t             *tp = tsr_new(z->p->cluster->n_groups, sizeof *tp);
    struct tsr_plan_space space = { .ways = tp, .stride = 1 };
    tsr_status            st = TSR_OK;
    if (!tp)
        return tsr_fail_nomem(err, z->p->cluster->n_groups * sizeof *tp, "widths of meshes");
    while (st == TSR_OK && tsr_plan_width_choices_next(c, tp)) {
        if (z->a->choices && tsr_now_s() >= z->end) { /* untried choices have no bound */
            z->open = true;
            z->a->bound = -INFINITY;
            break;
        }
        st = solve_choice(z, &space, err);
    }
    free(tp);
    return st;
}

/* What the objective of a solver leaves out, of messages on their way: the bound stays one. */
static void on_way(struct tsr_searching *z)
{
    struct tsr_plan_planned *a = z->a;
    if (z->p->o.objective == TSR_OBJECTIVE_PAPER)
        return;
    double more = tsr_plan_outcome_on_way(&a->outcome, &z->p->work, z->p->memory.batch);
    a->outcome.objective_ms += more;
    a->objective += more;
    conclude(z);
}

static tsr_status run(struct tsr_searching *z, struct tsr_plan_width_choices *c,
                      struct tsr_err *err)
{
    struct tsr_plan_space all = {
        .ways = c->w, .n = c->n, .stride = TSR_PLAN_MESH_WIDTHS, .codecs = true
    };
    z->a->joint = tsr_search_joint(z->solver);
    z->a->ignored = z->a->joint ? 0 : ignored(z->p);
    TSR_TRY(z->a->joint ? solve_choice(z, &all, err) : one_by_one(z, c, err));
    conclude(z);
    bool bound = z->p->whole || z->p->work_k < z->p->most_k;
    if (!z->a->solution || bound) /* that is what is wanted */
        return TSR_OK;
    TSR_TRY(tsr_plan_outcome_of(&z->a->outcome, z->a->built, z->a->part, z->a->solution, err));
    if (over(z->p, &z->a->outcome))
        refuse(z->a, z->p);
    else
        on_way(z);
    return TSR_OK;
}

double tsr_plan_planned_least(double bound, double over)
{
    if (isinf(over))
        return -INFINITY;
    return bound > 0 && isfinite(bound) ? fmax(bound - over, bound / 2) : bound;
}

/* A bound of objectives as one of times; where instances say nothing of these, nor do they of there being no plan. */
static void of_times(struct tsr_plan_planned *a)
{
    a->bound = tsr_plan_planned_least(a->bound, a->over);
    if (isinf(a->over) && a->status == TSR_SOLVED_INFEASIBLE)
        a->status = TSR_SOLVED_UNKNOWN;
}

tsr_status tsr_search(struct tsr_plan_planned *a, const struct tsr_plan_problem *p,
                      const struct tsr_plugin_spec *solver, double cutoff, struct tsr_err *err)
{
    double                        start = tsr_now_s();
    struct tsr_plan_width_choices c;
    struct tsr_searching          z = { .p = p,
                                        .solver = solver,
                                        .a = a,
                                        .cutoff = cutoff,
                                        .end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY };
    *a = (struct tsr_plan_planned){
        .status = TSR_SOLVED_UNKNOWN, .objective = INFINITY, .bound = INFINITY, .lines = p->lines
    };
    (void)snprintf(a->solver, sizeof a->solver, "%s", solver->found.component->name);
    if (p->max_omega >= 0 &&
        p->kv_omega + p->ends_omega > p->max_omega) { /* whatever the weights are */
        refuse(a, p);
        return TSR_OK;
    }
    TSR_TRY(tsr_plan_width_choices_make(&c, p, tsr_search_joint(solver), err));
    tsr_status st = run(&z, &c, err);
    tsr_plan_width_choices_free(&c);
    if (p->exact_ms)
        of_times(a);
    a->seconds = tsr_now_s() - start;
    return st;
}

void tsr_plan_planned_free(struct tsr_plan_planned *a)
{
    tsr_plan_outcome_free(&a->outcome);
    tsr_plan_built_destroy(a->built);
    free(a->solution);
    *a = (struct tsr_plan_planned){ 0 };
}

void tsr_plan_planned_put_back(struct tsr_plan_planned *a)
{
    keep(a->lines, a->built);
    a->built = NULL;
    tsr_plan_planned_free(a);
}
