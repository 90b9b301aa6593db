#include "plan/search/settings_internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "plugin/choices.h"

#include <math.h>
#include <stdlib.h>

#define COARSE     10u /* runs of layers in the search for a first plan */
#define COARSE_GAP 0.02
#define LIKE_GAP   5e-3
/* Of the time for a changed problem, at most, for a plan with micro-batches as before. */
#define FIRST_PART 0.9

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

/* First the number of requests, with the cache and the chunk that need least memory; then these for the best one. */
static tsr_status coarse(struct settled *z, struct tsr_err *err)
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

/* The bound of a round of the fewest requests with the narrowest cache, which costs nothing here, for each chunk: it rules
 * out most settings with many rounds. */
static tsr_status few_requests(struct settled *z, struct tsr_err *err)
{
    const struct tsr_plan_setting *last = &z->list[z->n - 1];
    tsr_status                     st = TSR_OK;
    for (uint64_t i = 0; i < z->n && st == TSR_OK; i++) {
        struct tsr_plan_problem q = *z->p;
        struct tsr_plan_planned a;
        double                  left = (z->end - tsr_now_s()) / 4;
        bool                    narrow = z->list[i].types || z->list[i].kv == last->kv;
        if (z->list[i].concurrency != last->concurrency || !narrow || left <= 0 ||
            tsr_settled_first(z, i) != i)
            continue;
        tsr_settled_put_group(z, i, &q);
        q.kv_omega = 0;
        q.o.time_limit = isfinite(left) ? left : 0;
        q.o.gap = fmax(q.o.gap, COARSE_GAP);
        st = tsr_settled_one(z, i, &q, INFINITY, &a, err);
        for (uint64_t k = i; k < z->n && st == TSR_OK && tsr_plan_planned_has_plan(&a); k++)
            if (tsr_settled_first(z, k) == i)
                z->free[k] = a.bound;
        tsr_plan_planned_free(&a);
    }
    return st;
}

/* What is said of the whole, in the words of one round of the best setting. */
static void conclude(struct settled *z, struct tsr_plan_planned *last)
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
    TSR_TRY(coarse(z, err));
    uint64_t   first = z->at;
    tsr_status st = first < z->n ? tsr_settled_search(z, first, true, &last, err) : TSR_OK;
    if (st == TSR_OK && z->list[0].concurrency != z->list[z->n - 1].concurrency)
        st = few_requests(z, err);
    for (uint64_t i = 0; i < z->n && st == TSR_OK; i++)
        if (i != first)
            st = tsr_settled_search(z, i, false, &last, err);
    if (st == TSR_OK && z->at == z->n && last.status == TSR_SOLVED_UNKNOWN)
        st = least_memory(z, &last, err);
    if (st == TSR_OK)
        conclude(z, &last);
    tsr_plan_planned_put_back(&last);
    return st;
}

/* Seconds of the time that is left, for a part of the search; 0: without a limit. */
static double part_of(const struct settled *z, double part)
{
    double left = z->end - tsr_now_s();
    return isfinite(left) ? fmax(left * part, 1e-3) : 0;
}

/* A setting with the micro-batches of a plan of the problem before a change: one option in place of many, and mostly the best
 * one. What it finds is the limit of what follows. */
static tsr_status like_before(struct settled *z, uint64_t i, struct tsr_err *err)
{
    struct tsr_plan_problem q = *z->p;
    struct tsr_plan_planned a = { 0 };
    tsr_plan_settings_put(&q, &z->list[i]);
    q.o.prefill_mb = z->like->prefill_mb;
    q.o.decode_mb = z->like->decode_mb;
    q.o.gap = fmax(q.o.gap, LIKE_GAP);
    q.o.time_limit = part_of(z, FIRST_PART);
    tsr_status st = tsr_settled_one(z, i, &q, z->value, &a, err);
    if (st == TSR_OK && tsr_plan_planned_has_plan(&a) &&
        tsr_settled_value(&q, &a) < z->value * (1 - z->p->o.gap))
        tsr_settled_take(z, i, &a, tsr_settled_value(&q, &a));
    tsr_plan_planned_free(&a);
    return st;
}

/* A setting roughly, since there may be time for no more, and then to the end in half of the time that is left. */
static tsr_status search_own(struct settled *z, uint64_t i, struct tsr_plan_planned *last,
                             struct tsr_err *err)
{
    double end = z->end;
    TSR_TRY(like_before(z, i, err));
    if (isfinite(end))
        z->end = tsr_now_s() + part_of(z, 0.5);
    tsr_status st = tsr_settled_search(z, i, false, last, err);
    z->end = end;
    return st;
}

/* The setting of the problem before a change, then what is roughly better. */
static tsr_status search_quick(struct settled *z, const struct tsr_plan_setting *own,
                               struct tsr_err *err)
{
    struct tsr_plan_planned last = { .status = TSR_SOLVED_UNKNOWN };
    tsr_status              st = TSR_OK;
    uint64_t                i = 0;
    while (i < z->n &&
           !(z->list[i].concurrency == own->concurrency && z->list[i].chunk == own->chunk &&
             z->list[i].kv == own->kv && z->list[i].end == own->end &&
             z->list[i].types == own->types && z->list[i].most_k == own->most_k))
        i++;
    if (i < z->n)
        st = search_own(z, i, &last, err);
    if (st == TSR_OK)
        st = coarse(z, err);
    if (st == TSR_OK && z->at < z->n && z->at != i)
        st = tsr_settled_search(z, z->at, true, &last, err);
    z->bound = -INFINITY;                /* of the others nothing is proved */
    if (st == TSR_OK && z->at == z->n) { /* what was found last is no better than what was known */
        tsr_plan_planned_free(&last);
        last.status = TSR_SOLVED_UNKNOWN;
    }
    if (st == TSR_OK)
        conclude(z, &last);
    tsr_plan_planned_free(&last);
    return st;
}

/* The only setting of a changed problem: roughly first, since there may be time for no more. known: z has the value of a plan
 * that p allows, too, of which the best one is not searched for again. */
static tsr_status search_alone(struct settled *z, bool known, struct tsr_err *err)
{
    struct tsr_plan_problem  q = *z->p;
    struct tsr_plan_planned *b = z->best, last;
    TSR_TRY(like_before(z, 0, err));
    double limit = z->value * (1 - q.o.gap), cutoff = tsr_settled_round(&q, limit);
    q.o.time_limit = part_of(z, 1);
    tsr_status st = tsr_settled_one(z, 0, &q, limit, &last, err);
    bool       has = st == TSR_OK && tsr_plan_planned_has_plan(&last);
    /* without one below the cutoff the best known is as good as any, within the gap */
    bool settled = last.status == TSR_SOLVED_INFEASIBLE || last.bound >= cutoff * (1 - 1e-9);
    if (has && tsr_settled_value(&q, &last) < z->value) {
        tsr_settled_take(z, 0, &last, tsr_settled_value(&q, &last));
    } else if (tsr_plan_planned_has_plan(b)) {
        b->bound = fmin(b->objective, last.bound);
        b->status = settled ? TSR_SOLVED_OPTIMAL : TSR_SOLVED_FEASIBLE;
    } else if (known) {
        b->status = settled ? TSR_SOLVED_INFEASIBLE : TSR_SOLVED_UNKNOWN;
    } else if (st == TSR_OK) {
        tsr_settled_take(z, 0, &last, INFINITY);
    }
    if (b->built)
        b->built->p = z->p;
    tsr_plan_planned_free(&last);
    return st;
}

/* own NULL: everything is searched to the end. */
static tsr_status settle(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                         const struct tsr_plugin_spec *solver, const struct tsr_plan_setting *own,
                         const struct tsr_plan_planned *known, const struct tsr_plan_outcome *like,
                         struct tsr_plan_bounds *kept, struct tsr_err *err)
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
                         .like = like,
                         .least = least,
                         .free = least + TSR_PLAN_SETTINGS,
                         .at = n,
                         .value = INFINITY,
                         .bound = INFINITY,
                         .end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY,
                         .shared = kept };
    for (uint64_t i = 0; i < n; i++)
        z.least[i] = z.free[i] = -INFINITY;
    if (n && known) {
        tsr_plan_settings_put(p, own);
        z.value = tsr_settled_value(p, known);
    }
    if (n == 1) {
        tsr_plan_settings_put(p, list);
        st = own ? search_alone(&z, known != NULL, err) : tsr_search(a, p, solver, INFINITY, err);
        put_most(p, a);
    } else if (n) {
        st = own ? TSR_OK : tsr_settled_groups_open(&z, err);
        if (st == TSR_OK)
            st = own ? search_quick(&z, own, err) : search(&z, err);
    }
    a->settings = n;
    a->seconds = tsr_now_s() - start;
    free(z.groups);
    free(least);
    free(list);
    return st;
}

tsr_status tsr_plan_settings_search(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    return settle(a, p, solver, NULL, NULL, NULL, NULL, err);
}

tsr_status tsr_plan_settings_search_kept(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                         const struct tsr_plugin_spec *solver,
                                         struct tsr_plan_bounds *kept, struct tsr_err *err)
{
    return settle(a, p, solver, NULL, NULL, NULL, kept, err);
}

tsr_status tsr_plan_settings_quick(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                   const struct tsr_plugin_spec  *solver,
                                   const struct tsr_plan_setting *own,
                                   const struct tsr_plan_planned *known,
                                   const struct tsr_plan_outcome *like, struct tsr_err *err)
{
    return settle(a, p, solver, own, known, like, NULL, err);
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
        conclude(&z, &last);
    else if (st == TSR_OK && z.bound >= value * (1 - p->o.gap) * (1 - 1e-9))
        a->status = TSR_SOLVED_INFEASIBLE;
    a->settings = n;
    a->seconds = tsr_now_s() - start;
    tsr_plan_planned_put_back(&last);
    free(z.groups);
    free(least);
    return st;
}
