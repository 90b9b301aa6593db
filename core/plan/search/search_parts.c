/* The instances of a build, one after the other: the best plan of all, and a bound. */
#include "plan/search/search_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/instance/objective.h"
#include "plan/search/again.h"
#include "plan/search/lines.h"

#include <math.h>
#include <stdlib.h>

#define SAME       1e-12 /* of an objective: rounding */
#define FIRST_PART 0.9   /* of the time that is left, at most, for a part that is not the last */

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
