#include "plan/search/search_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/instance/objective.h"
#include "plan/search/again.h"
#include "plan/search/lines.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAME       1e-12 /* of an objective: rounding */
#define FIRST_PART 0.9   /* of the time that is left, at most, for a part that is not the last */

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

static bool has_plan(const struct tsr_solver_solution *s)
{
    return s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_FEASIBLE;
}

/* The lower bound that one instance gives for all its plans. */
static double bound_of(const struct tsr_solver_solution *s)
{
    return s->status == TSR_SOLVED_INFEASIBLE ? INFINITY : s->bound;
}

/* Takes the solution over if it is the best so far. */
static bool take(struct tsr_searching *z, struct tsr_plan_built *b, uint64_t part,
                 struct tsr_solver_solution *s)
{
    struct tsr_plan_planned *a = z->a;
    if (!has_plan(s) || !(s->objective < a->objective))
        return false;
    if (a->built != b && a->built != z->base && a->built != z->set)
        tsr_plan_built_destroy(a->built);
    free(a->solution);
    a->built = b;
    a->part = part;
    a->solution = s;
    a->objective = s->objective;
    return true;
}

/* Options of the parts before; *all: of all. */
static uint64_t options_before(const struct tsr_plan_built *b, uint64_t part, uint64_t *all)
{
    uint64_t before = *all = 0;
    for (uint64_t i = 0; i < b->n_parts; i++) {
        before += i < part ? b->parts[i].inst.in.n_options : 0;
        *all += b->parts[i].inst.in.n_options;
    }
    return before;
}

/* One device alone, too small for any option: no solver is needed to tell. */
static bool is_too_small(const struct tsr_solver_instance *in)
{
    uint64_t least = 0;
    if (in->n_kinds != 1 || in->kinds[0]->count != 1)
        return false;
    for (uint64_t l = 0; l < in->layers; l++) {
        const uint64_t *v = in->layer_bytes + in->layer_class[l] * in->bits;
        uint64_t        one = v[0];
        for (uint64_t q = 1; q < in->bits; q++)
            one = v[q] < one ? v[q] : one;
        if (!tsr_add(least, one, &least))
            return true;
    }
    for (uint64_t i = 0; i < in->n_options; i++) {
        uint64_t room =
            tsr_capacity_left(in->kinds[0]->capacity_bytes, in->options[i]->workspace_bytes[0]);
        room = tsr_capacity_left(room, in->embed_bytes);
        if (least <= tsr_capacity_left(room, in->head_bytes))
            return false;
    }
    return true;
}

/* Whether a part has plans of several stages. */
static bool of_several(const struct tsr_plan_built *b, uint64_t part)
{
    return b->parts[part].inst.devices > 1;
}

/* One solve, with what is known of each option; w: as below. */
static tsr_status solve(struct tsr_searching *z, struct tsr_plan_built *b, uint64_t part,
                        struct tsr_search_nearest *w, struct tsr_solver_solution *s,
                        struct tsr_err *err)
{
    const struct tsr_instance *inst = &b->parts[part].inst;
    const uint64_t            *option = b->parts[part].option;
    struct tsr_plan_lines      own = { 0 }, *l = &own;
    uint64_t                   n = inst->in.n_options, all = n, first = 0;
    tsr_status                 st = TSR_OK;
    if (z->p->lines && b == z->base) {
        l = z->p->lines;
        first = options_before(b, part, &all);
    } else if (!w) {
        return tsr_plan_solve(inst, &z->solver->found, z->solver->options, s, err);
    }
    for (uint64_t i = 0; i < n && st == TSR_OK && w && !b->nearest; i++)
        st = tsr_plan_lines_put(l, i, n, &inst->in, w->of[option[i]], err);
    if (st == TSR_OK)
        st = tsr_plan_lines_solve(l, first, all, inst, z->solver, s, err);
    for (uint64_t i = 0; i < n && st == TSR_OK && w && b->nearest; i++)
        w->of[option[i]] = fmax(tsr_plan_lines_get(l, first + i, &inst->in), bound_of(s));
    tsr_plan_lines_free(&own);
    return st;
}

/* Gives a plan by the fastest ways back the objective by its own. */
static tsr_status price(const struct tsr_plan_built *b, uint64_t part, struct tsr_search_nearest *w,
                        struct tsr_solver_solution *s, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    double            nearest = s->objective, least = bound_of(s);
    w->bound = fmin(w->bound, least);
    if (has_plan(s)) {
        tsr_status st = tsr_plan_built_price(b, part, s, &s->objective, &e.err);
        if (st != TSR_OK && st != TSR_E_INFEASIBLE)
            return tsr_err_copy(err, st, &e.err);
        if (st == TSR_E_INFEASIBLE) /* by its own way prompts are done too late */
            s->objective = INFINITY;
        if (s->status == TSR_SOLVED_OPTIMAL && s->objective <= nearest * (1 + SAME))
            least = s->objective;
    }
    w->least = fmin(w->least, least);
    return TSR_OK;
}

static tsr_status solve_part(struct tsr_searching *z, struct tsr_plan_built *b, uint64_t part,
                             struct tsr_search_nearest *w, struct tsr_err *err)
{
    struct tsr_instance        *inst = &b->parts[part].inst;
    struct tsr_solver_solution *s;
    struct tsr_plan_planned    *a = z->a;
    double                      left = z->end - tsr_now_s();
    bool                        nearest = w && b->nearest;
    if (part > 0 && is_too_small(&inst->in)) /* the first one's reason is that of all */
        return TSR_OK;
    if (left <= 0) {
        z->open = true;
        a->bound = w && !nearest ? fmin(a->bound, w->bound) : -INFINITY;
        return TSR_OK;
    }
    if (part + 1 < b->n_parts) /* a bound of the whole needs one of each */
        left *= FIRST_PART;
    inst->in.cutoff = fmin(z->cutoff, a->objective);
    inst->in.deadline_us = isfinite(left) ? (uint64_t)(left * 1e6) + 1 : 0;
    TSR_TRY(tsr_plan_solution_create(&s, inst, err));
    tsr_status st =
        z->p->again ? tsr_plan_again(z->p->again, b, part, s, err) : solve(z, b, part, w, s, err);
    if (st != TSR_OK) {
        free(s);
        return st;
    }
    a->solves += !z->p->again;
    a->options += z->p->again ? 0 : inst->in.n_options;
    tsr_logf(TSR_LOG_DEBUG, "part %llu: status %u, objective %.6g, bound %.6g, %llu options",
             (unsigned long long)part, s->status, s->objective, s->bound,
             (unsigned long long)inst->in.n_options);
    bool open = s->status == TSR_SOLVED_UNKNOWN && !(s->bound >= inst->in.cutoff);
    /* the reason of one that is open goes before that of one that cannot be */
    if ((s->status == TSR_SOLVED_INFEASIBLE && !a->reason[0]) || (open && !z->open))
        (void)snprintf(a->reason, sizeof a->reason, "%s", s->reason);
    if (nearest) {
        st = price(b, part, w, s, err);
    } else {
        a->bound = fmin(a->bound, bound_of(s));
        z->open = z->open || open;
    }
    if (st != TSR_OK || (nearest && !(s->objective < z->cutoff)) || !take(z, b, part, s))
        free(s);
    return st;
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

tsr_status tsr_search_parts(struct tsr_searching *z, struct tsr_plan_built *b,
                            struct tsr_search_nearest *w, struct tsr_err *err)
{
    for (uint64_t i = 0; i < b->n_parts && !(z->p->any && z->a->solution); i++) {
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "while planning");
        TSR_TRY(solve_part(z, b, i, of_several(b, i) ? w : NULL, err));
    }
    return TSR_OK;
}

static tsr_status solve_choice(struct tsr_searching *z, const struct tsr_plan_space *of,
                               struct tsr_err *err)
{
    struct tsr_plan_space  space = *of;
    struct tsr_plan_built *b;
    space.nearest = z->p->memory.place == TSR_PLAN_HEAD_FIRST;
    TSR_TRY(build(z, &space, &b, err));
    z->base = b;
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
