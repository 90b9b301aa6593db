#include "plan/search/settings_internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "plugin/choices.h"

#include <math.h>
#include <stdlib.h>

#define COARSE     10u /* runs of layers in the search for a first plan */
#define COARSE_GAP 0.02

/* p's own cache is then the type that most layers have. */
static void put_most(struct tsr_plan_problem *p, const struct tsr_plan_planned *a)
{
    if (!p->kv_types || !tsr_plan_planned_has_plan(a))
        return;
    p->work.kv = tsr_plan_outcome_kv(&a->outcome, p->shape);
    tsr_plan_problem_refresh(p);
}

/* ---- search -------------------------------------------------------------------------- */

/* A plan of setting i with layers in few runs: soon found, and the limit of all further searches. */
static tsr_status coarse_one(struct settled *z, uint64_t i, double seconds, struct tsr_err *err)
{
    struct tsr_plan_problem q = *z->p;
    struct tsr_plan_planned a = { 0 };
    uint64_t                together = q.shape->layers / COARSE;
    tsr_plan_settings_put(&q, &z->list[i]);
    q.o.together = q.o.together > together ? q.o.together : together;
    q.o.gap = fmax(q.o.gap, COARSE_GAP);
    q.o.time_limit = seconds;
    q.few = true;
    tsr_status st = tsr_settled_one(z, i, &q, z->value, &a, err);
    if (st == TSR_OK && tsr_plan_planned_has_plan(&a)) {
        double value = tsr_settled_value(&q, &a);
        if (value < z->value * (1 - z->p->o.gap))
            tsr_settled_take(z, i, &a, value);
    }
    tsr_plan_planned_free(&a);
    return st;
}

tsr_status tsr_settled_coarse(struct settled *z, struct tsr_err *err)
{
    const struct tsr_plan_setting *last = &z->list[z->n - 1];
    double                         left = (z->end - tsr_now_s()) / 2 / (double)z->n;
    double                         seconds = isfinite(left) ? fmax(left, 1e-3) : 0;
    tsr_status                     st = TSR_OK;
    for (uint64_t i = 0; i < z->n && st == TSR_OK; i++)
        if (z->list[i].chunk == last->chunk && z->list[i].kv == last->kv &&
            z->list[i].types == last->types && z->list[i].end == last->end &&
            z->list[i].most_k == last->most_k)
            st = coarse_one(z, i, seconds, err);
    uint64_t best = z->at;
    for (uint64_t i = 0; i < z->n && st == TSR_OK && best < z->n; i++)
        if (i != best && z->list[i].concurrency == z->list[best].concurrency)
            st = coarse_one(z, i, seconds, err);
    return st;
}

tsr_status tsr_settled_few(struct settled *z, struct tsr_err *err)
{
    const struct tsr_plan_setting *last = &z->list[z->n - 1];
    tsr_status                     st = TSR_OK;
    for (uint64_t i = 0; i < z->n && st == TSR_OK; i++) {
        struct tsr_plan_problem q = *z->p;
        struct tsr_plan_planned a;
        int64_t                *room;
        double                  left = (z->end - tsr_now_s()) / 4;
        bool                    narrow = z->list[i].types || z->list[i].kv == last->kv;
        if (z->list[i].concurrency != last->concurrency || !narrow || left <= 0 ||
            tsr_settled_first(z, i) != i)
            continue;
        tsr_settled_put_group(z, i, &q);
        q.kv_omega = 0;
        q.o.time_limit = isfinite(left) ? left : 0;
        q.o.gap = fmax(q.o.gap, COARSE_GAP);
        st = tsr_settled_make_room(&q, &room, err);
        if (st != TSR_OK)
            break;
        st = tsr_settled_one(z, i, &q, INFINITY, &a, err);
        for (uint64_t k = i; k < z->n && st == TSR_OK && tsr_plan_planned_has_plan(&a); k++)
            if (tsr_settled_first(z, k) == i)
                z->free[k] = a.bound;
        tsr_plan_planned_free(&a);
        free(room);
    }
    return st;
}

void tsr_settled_conclude(struct settled *z, struct tsr_plan_planned *last)
{
    struct tsr_plan_planned *b = z->best;
    tsr_plan_settings_put(z->p, &z->list[z->at < z->n ? z->at : z->n - 1]);
    if (z->at == z->n) { /* of the setting that needs least memory */
        bool open = z->bound < INFINITY;
        tsr_settled_take(z, z->n, last, INFINITY);
        if (open && b->status == TSR_SOLVED_INFEASIBLE)
            b->status = TSR_SOLVED_UNKNOWN;
        return;
    }
    put_most(z->p, b);
    b->built->p = z->p;
    b->bound = b->objective * fmin(z->bound / z->value, 1);
    double gap = z->p->o.gap * fabs(b->objective) + 2e-6 * fabs(b->objective) + 1e-6;
    b->status = b->objective - b->bound <= gap ? TSR_SOLVED_OPTIMAL : TSR_SOLVED_FEASIBLE;
}

/* What is said where there is no plan is of the setting that needs least memory, though bounds of groups tell it before. */
static tsr_status least_memory(struct settled *z, struct tsr_plan_planned *last,
                               struct tsr_err *err)
{
    struct tsr_plan_problem q = *z->p;
    double                  left = z->end - tsr_now_s();
    if (!z->groups || left <= 0)
        return TSR_OK;
    tsr_plan_settings_put(&q, &z->list[z->n - 1]);
    q.o.time_limit = isfinite(left) ? left : 0;
    return tsr_settled_one(z, z->n - 1, &q, INFINITY, last, err);
}

/* The best coarse plan's setting is searched first; it is a tight limit for the others. */
static tsr_status search(struct settled *z, struct tsr_err *err)
{
    struct tsr_plan_planned last = { .status = TSR_SOLVED_UNKNOWN };
    TSR_TRY(tsr_settled_coarse(z, err));
    uint64_t   first = z->at;
    tsr_status st = first < z->n ? tsr_settled_search(z, first, true, &last, err) : TSR_OK;
    if (st == TSR_OK && z->list[0].concurrency != z->list[z->n - 1].concurrency)
        st = tsr_settled_few(z, err);
    for (uint64_t i = 0; i < z->n && st == TSR_OK; i++)
        if (i != first)
            st = tsr_settled_search(z, i, false, &last, err);
    if (st == TSR_OK && z->at == z->n && last.status == TSR_SOLVED_UNKNOWN)
        st = least_memory(z, &last, err);
    if (st == TSR_OK)
        tsr_settled_conclude(z, &last);
    tsr_plan_planned_put_back(&last);
    return st;
}

static tsr_status settle(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                         const struct tsr_plugin_spec *solver, struct tsr_plan_bounds *kept,
                         struct tsr_err *err)
{
    double                   start = tsr_now_s();
    struct tsr_plan_setting *list = tsr_new(TSR_PLAN_SETTINGS, sizeof *list);
    double                  *least = tsr_new(UINT64_C(2) * TSR_PLAN_SETTINGS, sizeof *least);
    tsr_status               st = TSR_OK;
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    if (!list || !least) {
        free(least);
        free(list);
        return tsr_fail_nomem(err, TSR_PLAN_SETTINGS * sizeof *list, "settings of a plan");
    }
    uint64_t       n = tsr_plan_settings_of(p, list);
    struct settled z = { .p = p,
                         .solver = solver,
                         .list = list,
                         .n = n,
                         .best = a,
                         .least = least,
                         .free = least + TSR_PLAN_SETTINGS,
                         .at = n,
                         .value = INFINITY,
                         .bound = INFINITY,
                         .end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY,
                         .shared = kept };
    for (uint64_t i = 0; i < n; i++)
        z.least[i] = z.free[i] = -INFINITY;
    if (n == 1) {
        tsr_plan_settings_put(p, list);
        st = tsr_search(a, p, solver, INFINITY, err);
        put_most(p, a);
    } else if (n) {
        st = tsr_settled_groups_open(&z, err);
        if (st == TSR_OK)
            st = search(&z, err);
    }
    a->settings = n;
    a->over = n > 1 ? z.over : a->over;
    a->seconds = tsr_now_s() - start;
    free(z.groups);
    free(least);
    free(list);
    return st;
}

tsr_status tsr_plan_settings_search(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    return settle(a, p, solver, NULL, err);
}

tsr_status tsr_plan_settings_search_kept(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                         const struct tsr_plugin_spec *solver,
                                         struct tsr_plan_bounds *kept, struct tsr_err *err)
{
    return settle(a, p, solver, kept, err);
}

tsr_status tsr_plan_settings_better(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver,
                                    struct tsr_plan_bounds *shared, double value,
                                    const uint64_t *order, uint64_t n, struct tsr_err *err)
{
    double                  start = tsr_now_s();
    uint64_t                all = shared->n;
    struct tsr_plan_planned last = { .status = TSR_SOLVED_UNKNOWN };
    double                 *least = tsr_new(2 * all, sizeof *least);
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    if (!least)
        return tsr_fail_nomem(err, 2 * all * sizeof *least, "settings of a plan");
    struct settled z = { .p = p,
                         .solver = solver,
                         .list = shared->list,
                         .n = all,
                         .best = a,
                         .least = least,
                         .free = least + all,
                         .at = all,
                         .value = value,
                         .bound = INFINITY,
                         .end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY,
                         .shared = shared };
    for (uint64_t i = 0; i < 2 * all; i++)
        least[i] = -INFINITY;
    tsr_status st = tsr_settled_groups_open(&z, err);
    for (uint64_t i = 0; i < n && st == TSR_OK; i++)
        st = tsr_settled_search(&z, order[i], i == 0, &last, err);
    if (st == TSR_OK && z.at < all)
        tsr_settled_conclude(&z, &last);
    else if (st == TSR_OK && z.bound >= value * (1 - p->o.gap) * (1 - 1e-9))
        a->status = TSR_SOLVED_INFEASIBLE;
    a->settings = n;
    a->over = z.over;
    a->seconds = tsr_now_s() - start;
    tsr_plan_planned_put_back(&last);
    free(z.groups);
    free(least);
    return st;
}
