/* Settings that differ in the most k of compensation alone: one bound of all of them.
 *
 * The bound has all k of the group and reserves the work memory of its smallest. So it allows what any of its settings allows, and
 * mostly no more: the largest k takes some 10 MB more of a device. Without a plan below the limit, none of the settings
 * has one. Else its plan is tried where it belongs: in the setting of the largest k that one of its layers has. Where it fits
 * there, no setting of the group is better. Where it does not, the bound stays, and the settings are searched one by one.
 *
 * Bounds of a batch in several rounds say less than those of one (build_rounds.c): settings of a smaller k are then searched, too.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/search/again.h"
#include "plan/search/lines.h"
#include "plan/search/settings_internal.h"

#include <math.h>
#include <stdlib.h>

static bool is_alike(const struct tsr_plan_setting *s, const struct tsr_plan_setting *t)
{
    return s->concurrency == t->concurrency && s->chunk == t->chunk && s->kv == t->kv &&
           s->types == t->types && s->end == t->end;
}

tsr_status tsr_settled_groups_open(struct settled *z, struct tsr_err *err)
{
    bool some = false;
    for (uint64_t i = 1; i < z->n && !some; i++)
        some = z->list[i].most_k != z->list[0].most_k;
    if (!some || !tsr_search_joint(z->solver))
        return TSR_OK;
    z->groups = tsr_new(z->n, sizeof *z->groups);
    if (!z->groups)
        return tsr_fail_nomem(err, z->n * sizeof *z->groups, "groups of settings");
    for (uint64_t i = 0; i < z->n; i++)
        z->groups[i].next = i;
    return TSR_OK;
}

/* The largest k comes first in a list, and the smallest last (settings_list.c). */
uint64_t tsr_settled_first(const struct settled *z, uint64_t i)
{
    uint64_t k = 0;
    while (z->groups && k < i && !is_alike(&z->list[k], &z->list[i]))
        k++;
    return z->groups ? k : i;
}

/* The one of the smallest k, likewise. */
static uint64_t last_of(const struct settled *z, uint64_t i)
{
    uint64_t k = z->n - 1;
    while (z->groups && k > i && !is_alike(&z->list[k], &z->list[i]))
        k--;
    return z->groups ? k : i;
}

void tsr_settled_put_group(const struct settled *z, uint64_t i, struct tsr_plan_problem *q)
{
    tsr_plan_settings_put(q, &z->list[tsr_settled_first(z, i)]);
    q->work_k = z->list[last_of(z, i)].most_k;
}

/* The greatest bound of a round of the group that others tell (tsr_settled_known_round()). */
static double known_round(const struct settled *z, uint64_t first)
{
    const struct tsr_plan_setting *s = &z->list[first], *t = z->list;
    double                         bound = z->free[first];
    for (uint64_t k = 0; k < z->n; k++) {
        if (t[k].chunk != s->chunk || t[k].concurrency > s->concurrency || t[k].types != s->types ||
            t[k].end != s->end || t[k].most_k != s->most_k)
            continue;
        if (t[k].kv == s->kv)
            bound = fmax(bound, z->groups[k].round);
        if (z->free[k] > bound && tsr_settled_is_narrower(z->p, t[k].kv, s->kv))
            bound = z->free[k];
    }
    return bound;
}

/* The plan of the group's bound in setting i, which `a` then is one of; false: it does not fit there. */
static tsr_status put_plan(struct settled *z, uint64_t i, const struct tsr_plan_planned *bound,
                           bool own, bool *fits, struct tsr_err *err)
{
    struct tsr_plan_problem     q = *z->p;
    struct tsr_plan_planned     a;
    const struct tsr_plan_again again = { bound->built, bound->solution, bound->part,
                                          bound->bound };
    tsr_plan_settings_put(&q, &z->list[i]);
    q.again = &again;
    q.o.time_limit = 0;
    q.lines = tsr_settled_lines(z, i, TSR_PLAN_LINES_ROUND);
    tsr_status st = tsr_search(&a, &q, z->solver, INFINITY, err);
    q.again = NULL;
    *fits = st == TSR_OK && tsr_plan_planned_has_plan(&a);
    if (*fits) {
        double value = tsr_settled_value(&q, &a);
        z->bound = fmin(z->bound, value * fmin(a.bound / a.objective, 1));
        z->groups[i].done = true;
        if (z->shared && z->shared->found)
            st = z->shared->found(z->shared->ctx, i, &q, &a, err);
        if (value < z->value * (own ? 1 + 1e-6 : 1))
            tsr_settled_take(z, i, &a, value);
    }
    tsr_plan_planned_put_back(&a);
    return st;
}

/* The largest k of a layer of a plan. */
static uint32_t most_of(const struct tsr_plan_planned *a)
{
    uint32_t most = 0;
    for (uint64_t u = 0; u < a->built->units; u++) {
        uint32_t k = tsr_plan_built_item(a->built, a->solution->layer_bits[u])->k;
        most = k > most ? k : most;
    }
    return most;
}

/* The plan of the bound where it belongs; and in settings of a larger k that the bound does not rule out with that. */
static tsr_status place(struct settled *z, uint64_t first, double at_least, bool own,
                        const struct tsr_plan_planned *a, struct tsr_err *err)
{
    uint64_t at = first;
    uint32_t most = most_of(a);
    bool     fits;
    for (uint64_t k = first; k < z->n; k++) /* the smallest k that is enough comes last */
        if (is_alike(&z->list[k], &z->list[first]) && z->list[k].most_k >= most)
            at = k;
    for (uint64_t k = first; k < z->n; k++)
        if (is_alike(&z->list[k], &z->list[first]))
            z->groups[k].next = at;
    TSR_TRY(put_plan(z, at, a, own, &fits, err));
    for (uint64_t k = first; k < at && fits && at_least < z->value * (1 - z->p->o.gap); k++)
        if (is_alike(&z->list[k], &z->list[first])) {
            bool also;
            TSR_TRY(put_plan(z, k, a, false, &also, err));
        }
    return TSR_OK;
}

/* Nothing is asked where the settings are ruled out without. */
static bool is_open(const struct settled *z, uint64_t first, double limit)
{
    for (uint64_t k = first; k < z->n; k++) {
        struct tsr_plan_problem q = *z->p;
        if (!is_alike(&z->list[k], &z->list[first]))
            continue;
        tsr_plan_settings_put(&q, &z->list[k]);
        if (!(tsr_settled_known(z, k, &q) >= limit))
            return true;
    }
    return false;
}

/* Once for each group: its bound, and its plan where that is one of a setting. */
static tsr_status search_group(struct settled *z, uint64_t i, bool likely, struct tsr_err *err)
{
    struct tsr_plan_problem q = *z->p;
    struct tsr_plan_planned a;
    uint64_t                first = tsr_settled_first(z, i);
    struct settled_member  *g = &z->groups[first];
    double                  left = z->end - tsr_now_s(), least;
    bool   own = z->at < z->n && is_alike(&z->list[z->at], &z->list[first]), asked = g->asked;
    double limit = z->value * (own ? 1 + 1e-6 : 1 - z->p->o.gap);
    g->asked = true;
    if (asked || left <= 0 || !is_open(z, first, limit))
        return TSR_OK;
    tsr_settled_put_group(z, first, &q);
    q.o.time_limit = isfinite(left) ? left / 2 : 0; /* its plan may not fit */
    double known = tsr_settled_value_from(&q, known_round(z, first));
    if (known < limit && !own && !likely) {
        TSR_TRY(tsr_settled_all_rounds(z, &q, limit,
                                       tsr_settled_lines(z, first, TSR_PLAN_LINES_GROUP_ALL),
                                       &least, err));
        known = fmax(known, least);
    }
    a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    if (known < limit) {
        q.lines = tsr_settled_lines(z, first, TSR_PLAN_LINES_GROUP);
        TSR_TRY(tsr_settled_one(z, first, &q, limit, &a, err));
        g->round = a.status == TSR_SOLVED_INFEASIBLE ? INFINITY : a.bound;
        known = fmax(known, tsr_settled_value_from(&q, g->round));
    }
    for (uint64_t k = first; k < z->n; k++)
        if (is_alike(&z->list[k], &z->list[first])) {
            z->groups[k].at_least = known;
            tsr_settled_keep(z, k, &q, known);
        }
    tsr_status st = TSR_OK;
    if (tsr_plan_planned_has_plan(&a) && a.built)
        st = place(z, first, known, own, &a, err);
    tsr_logf(TSR_LOG_DEBUG, "%llu at once, every k up to %u: at least %.6g ms, best %.6g ms",
             (unsigned long long)z->list[first].concurrency, z->list[first].most_k, known,
             z->value);
    tsr_plan_planned_put_back(&a);
    return st;
}

tsr_status tsr_settled_search(struct settled *z, uint64_t i, bool likely,
                              struct tsr_plan_planned *last, struct tsr_err *err)
{
    if (!z->groups)
        return tsr_settled_member(z, i, likely, last, err);
    if (likely) /* soon told, and often as good: then the group's bound only has to prove it */
        TSR_TRY(tsr_settled_member(z, last_of(z, i), likely, last, err));
    TSR_TRY(search_group(z, i, likely, err));
    uint64_t next = z->groups[i].next;
    if (next == i)
        return tsr_settled_member(z, i, likely, last, err);
    TSR_TRY(tsr_settled_member(z, next, likely, last, err));
    return tsr_settled_member(z, i, false, last, err);
}
