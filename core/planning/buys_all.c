/* Several changes at once: what is proved with all of them holds with each. */
#include "base/clock.h"
#include "planning/buys.h"

#include <math.h>

#define SHARES 6 /* of the time, for each of both */

bool tsr_planning_has_link(const struct tsr_plan_node_info *node)
{
    return node->link[TSR_PLAN_PREFILL].rate > 0 && node->link[TSR_PLAN_DECODE].rate > 0;
}

/* The problem with all that only adds, in v; links inside nodes are w's.  devices: with one more of each group, too. */
static tsr_status all_changes(const struct tsr_plan_problem *p, struct tsr_plan_variant *v,
                              struct tsr_plan_variant *w, bool devices, struct tsr_err *err)
{
    TSR_TRY(tsr_plan_variant_make(v, p, err));
    for (uint64_t g = 0; g < p->cluster->n_groups; g++) {
        v->p.more_bytes[g] += TSR_PLANNING_MORE_BYTES;
        v->p.more[g] += devices && !p->o.use_all &&
                        tsr_planning_has_link(&p->cluster->nodes[p->cluster->groups[g].node]);
    }
    v->p.max_omega *= TSR_PLANNING_LOOSER;
    TSR_TRY(tsr_plan_variant_links(v, false, 2, err));
    TSR_TRY(tsr_plan_variant_make(w, &v->p, err));
    return tsr_plan_variant_links(w, true, 2, err);
}

tsr_status tsr_planning_buys_floor(struct tsr_planning_buying *z, struct tsr_err *err)
{
    struct tsr_plan_variant v = { 0 }, w = { 0 };
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    tsr_status              st = all_changes(&z->pl->problem, &v, &w, true, err);
    if (st == TSR_OK) {
        w.p.o.time_limit = SHARES * (z->end - tsr_now_s()) / (double)z->left;
        st = tsr_plan_floor_make(&z->floor, &w.p, &z->pl->solver, z->a->outcome.latency_ms, &e.err);
        if (st != TSR_OK && st != TSR_E_INPUT)
            (void)tsr_err_copy(err, st, &e.err);
        st = st == TSR_E_INPUT ? TSR_OK : st;
    }
    tsr_plan_variant_free(&w);
    tsr_plan_variant_free(&v);
    return st;
}

tsr_status tsr_planning_buys_all(struct tsr_planning_buying *z, struct tsr_err *err)
{
    const struct tsr_plan_before was = { .own = z->own,
                                         .like = &z->a->outcome,
                                         .known = z->a,
                                         .least_ms = z->least_ms,
                                         .floor = &z->floor };
    struct tsr_plan_variant      v = { 0 }, w = { 0 };
    struct tsr_plan_planned      b = { 0 };
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    double                       now = z->a->outcome.latency_ms, gap = z->pl->problem.o.gap;
    tsr_status                   st = all_changes(&z->pl->problem, &v, &w, false, &e.err);
    if (st == TSR_OK) {
        v.p.o.time_limit = SHARES * (z->end - tsr_now_s()) / (double)z->left;
        st = tsr_plan_settings_quick(&b, &v.p, &z->pl->solver, &was, &z->all_ms, &e.err);
    }
    z->none = st == TSR_OK && !(z->pl->problem.o.theta > 0) && !tsr_plan_planned_has_plan(&b) &&
              z->all_ms >= now * (1 - gap) * (1 - 1e-6);
    if (st != TSR_OK)
        z->all_ms = -INFINITY;
    if (st != TSR_OK && st != TSR_E_INPUT)
        (void)tsr_err_copy(err, st, &e.err);
    tsr_plan_planned_free(&b);
    tsr_plan_variant_free(&w);
    tsr_plan_variant_free(&v);
    return st == TSR_E_INPUT ? TSR_OK : st;
}
