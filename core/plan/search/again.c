#include "plan/search/again.h"

#include "plan/instance/objective.h"

#include <string.h>

/* Whether a part has the same kinds and options in both. */
static bool has_part(const struct tsr_plan_built *a, const struct tsr_plan_built *b, uint64_t part)
{
    if (a->led || b->led || part >= b->n_parts || a->units != b->units ||
        a->whole.n_kinds != b->whole.n_kinds)
        return false;
    const struct tsr_plan_part *x = &a->parts[part], *y = &b->parts[part];
    return x->first_kind == y->first_kind && x->inst.in.n_kinds == y->inst.in.n_kinds &&
           x->inst.in.n_options == y->inst.in.n_options &&
           memcmp(x->option, y->option, x->inst.in.n_options * sizeof *x->option) == 0;
}

tsr_status tsr_plan_again(const struct tsr_plan_again *of, const struct tsr_plan_built *b,
                          uint64_t part, struct tsr_solver_solution *s, struct tsr_err *err)
{
    const struct tsr_solver_solution *was = of->solution;
    struct tsr_errbuf                 why = TSR_ERRBUF(why);
    s->status = TSR_SOLVED_UNKNOWN;
    s->bound = of->bound;
    if (part != of->part || !has_part(of->built, b, part))
        return TSR_OK;
    s->option = was->option;
    s->stages = was->stages;
    memcpy(s->stage_first, was->stage_first, was->stages * sizeof *s->stage_first);
    memcpy(s->stage_count, was->stage_count, was->stages * sizeof *s->stage_count);
    memcpy(s->stage_kind, was->stage_kind, was->stages * sizeof *s->stage_kind);
    if (s->stage_link && was->stage_link)
        memcpy(s->stage_link, was->stage_link, was->stages * sizeof *s->stage_link);
    for (uint64_t u = 0; u < b->units; u++)
        if (!tsr_plan_built_find(b, tsr_plan_built_item(of->built, was->layer_bits[u]),
                                 &s->layer_bits[u]))
            return TSR_OK;
    tsr_status st = tsr_plan_evaluate(&b->parts[part].inst.in, s, &s->objective, &why.err);
    if (st == TSR_E_INFEASIBLE)
        return TSR_OK;
    if (st != TSR_OK)
        return tsr_err_copy(err, st, &why.err);
    s->status = TSR_SOLVED_FEASIBLE;
    return TSR_OK;
}
