#include "plan/search/settings.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/choices.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <stdlib.h>

#define UNASKED    0.01 /* by so much what nobody asked for must be faster: a narrow cache, a chunk */
#define COARSE     10u /* runs of layers in the search for a first plan */
#define COARSE_GAP 0.02
#define KV_NARROW  TSR_I8

/* p's own cache is then the type that most layers have. */
static void put_most(struct tsr_plan_problem *p, const struct tsr_plan_planned *a)
{
    if (!p->kv_types || !tsr_plan_planned_has_plan(a))
        return;
    p->work.kv = tsr_plan_outcome_kv(&a->outcome, p->shape);
    tsr_plan_problem_refresh(p);
}

/* ---- search -------------------------------------------------------------------------- */

struct settled {
    struct tsr_plan_problem       *p;
    const struct tsr_plugin_spec  *solver;
    const struct tsr_plan_setting *list;
    uint64_t                       n;
    struct tsr_plan_planned       *best;
    double                        *least,
        *free; /* [n] bounds of one round that were found on the way; free: of a cache that costs nothing */
    uint64_t at;    /* setting of the best plan; n: none yet */
    double   value; /* of it, by value_of() */
    double   bound; /* over all settings */
    double   end;   /* of the time; INFINITY: none */
};

/* What a second counts as where nobody asked for the cache type or the chunk. */
static double burden(const struct tsr_plan_problem *p)
{
    double one = 1 / (1 - UNASKED);
    return (p->o.n_kv == 0 && p->work.kv == KV_NARROW ? one : 1) *
           (p->o.free_chunk && p->work.chunk ? one : 1);
}

/* Time of a plan for the whole batch, with what it costs in quality by theta. */
static double value_of(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a)
{
    return (a->outcome.latency_ms + p->o.theta * a->outcome.omega) * burden(p);
}

/* How many times the time of a round the batch takes at least: requests that take the slots of a whole round add at least
 * half of its time, for tsr_plan_outcome_time() adds the larger of two terms whose sum is more than a round. */
static double least_rounds(const struct tsr_plan_problem *p)
{
    uint64_t whole = p->work.batch / p->memory.batch;
    return 1 + (double)(whole > 1 ? whole - 1 : 0) / 2;
}

/* The least value of a plan whose round takes this time, or more. */
static double value_from(const struct tsr_plan_problem *p, double round)
{
    return (round * least_rounds(p) + p->o.theta * (p->kv_omega + p->ends_omega)) * burden(p);
}

/* The longest round that a plan of this value, or less, can have. */
static double round_of(const struct tsr_plan_problem *p, double value)
{
    return (value / burden(p) - p->o.theta * (p->kv_omega + p->ends_omega)) / least_rounds(p);
}

/* Searches q, which is the problem with setting i; plans that are not below `limit` do not matter. */
static tsr_status one(struct settled *z, uint64_t i, struct tsr_plan_problem *q, double limit,
                      struct tsr_plan_planned *a, struct tsr_err *err)
{
    struct tsr_plan_planned *b = z->best;
    double                   cutoff = round_of(q, limit);
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN, .bound = cutoff };
    if (!(cutoff > 0)) /* its cache alone is worth more than the best plan */
        return TSR_OK;
    TSR_TRY(tsr_search(a, q, z->solver, cutoff, err));
    b->choices += a->choices;
    b->solves += a->solves;
    b->options += a->options;
    tsr_logf(TSR_LOG_DEBUG,
             "%llu at once, chunk %llu, cache of %s: status %u, %.6g ms of at least %.6g, "
             "%.3g s",
             (unsigned long long)z->list[i].concurrency, (unsigned long long)z->list[i].chunk,
             tsr_plugin_kv_name(z->list[i].kv), a->status,
             tsr_plan_planned_has_plan(a) ? value_of(q, a) : (double)INFINITY,
             value_from(q, a->bound), a->seconds);
    return TSR_OK;
}

/* Takes a plan over; what the best one counted so far goes on. */
static void take(struct settled *z, uint64_t i, struct tsr_plan_planned *a, double value)
{
    struct tsr_plan_planned *b = z->best;
    a->choices = b->choices;
    a->solves = b->solves;
    a->options = b->options;
    tsr_plan_planned_free(b);
    *b = *a;
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    z->at = i;
    z->value = value;
}

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
    tsr_status st = one(z, i, &q, z->value, &a, err);
    if (st == TSR_OK && tsr_plan_planned_has_plan(&a)) {
        double value = value_of(&q, &a);
        if (value < z->value * (1 - z->p->o.gap))
            take(z, i, &a, value);
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
            z->list[i].types == last->types && z->list[i].end == last->end)
            st = coarse_one(z, i, seconds, err);
    uint64_t best = z->at;
    for (uint64_t i = 0; i < z->n && st == TSR_OK && best < z->n; i++)
        if (i != best && z->list[i].concurrency == z->list[best].concurrency)
            st = coarse_one(z, i, seconds, err);
    return st;
}

/* The greatest known bound of a round of setting i: a round of fewer requests in the same chunks takes no longer, nor
 * does one with a narrower cache, if that is not charged to the limit on omega. */
static double known_bound(const struct settled *z, uint64_t i)
{
    const struct tsr_plan_setting *s = &z->list[i], *t = z->list;
    double                         bound = -INFINITY;
    for (uint64_t k = 0; k < z->n; k++) {
        if (t[k].chunk != s->chunk || t[k].concurrency > s->concurrency || t[k].types != s->types ||
            t[k].end != s->end)
            continue;
        if (t[k].kv == s->kv)
            bound = fmax(bound, z->least[k]);
        if (tsr_plugin_kv_bits(t[k].kv) <= tsr_plugin_kv_bits(s->kv))
            bound = fmax(bound, z->free[k]);
    }
    return bound;
}

/* The search of setting i; the best plan's own setting may come out as good again. */
static tsr_status fine(struct settled *z, uint64_t i, struct tsr_plan_planned *last,
                       struct tsr_err *err)
{
    struct tsr_plan_problem q = *z->p;
    double                  left = z->end - tsr_now_s();
    bool                    own = z->at == i;
    double                  limit = z->value * (own ? 1 + 1e-6 : 1 - z->p->o.gap);
    tsr_plan_settings_put(&q, &z->list[i]);
    double known = value_from(&q, known_bound(z, i));
    if (known >= limit) {
        z->bound = fmin(z->bound, known);
        return TSR_OK;
    }
    if (left <= 0) {
        z->bound = -INFINITY;
        return TSR_OK;
    }
    q.o.time_limit = isfinite(left) ? left : 0;
    tsr_plan_planned_free(last);
    TSR_TRY(one(z, i, &q, limit, last, err));
    z->least[i] = last->status == TSR_SOLVED_INFEASIBLE ? INFINITY : last->bound;
    if (!tsr_plan_planned_has_plan(last)) {
        z->bound = fmin(z->bound, value_from(&q, z->least[i]));
        return TSR_OK;
    }
    double value = value_of(&q, last);
    z->bound = fmin(z->bound, value * fmin(last->bound / last->objective, 1));
    if (own || value < z->value)
        take(z, i, last, value);
    return TSR_OK;
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
        if (z->list[i].concurrency != last->concurrency || !narrow || left <= 0)
            continue;
        tsr_plan_settings_put(&q, &z->list[i]);
        q.kv_omega = 0;
        q.o.time_limit = isfinite(left) ? left : 0;
        q.o.gap = fmax(q.o.gap, COARSE_GAP);
        st = one(z, i, &q, INFINITY, &a, err);
        if (st == TSR_OK && tsr_plan_planned_has_plan(&a))
            z->free[i] = a.bound;
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
        take(z, z->n, last, INFINITY);
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

/* The best coarse plan's setting is searched first; it is a tight limit for the others. */
static tsr_status search(struct settled *z, struct tsr_err *err)
{
    struct tsr_plan_planned last = { .status = TSR_SOLVED_UNKNOWN };
    TSR_TRY(coarse(z, err));
    uint64_t   first = z->at;
    tsr_status st = first < z->n ? fine(z, first, &last, err) : TSR_OK;
    if (st == TSR_OK && z->list[0].concurrency != z->list[z->n - 1].concurrency)
        st = few_requests(z, err);
    for (uint64_t i = 0; i < z->n && st == TSR_OK; i++)
        if (i != first)
            st = fine(z, i, &last, err);
    if (st == TSR_OK)
        conclude(z, &last);
    tsr_plan_planned_free(&last);
    return st;
}

/* The setting of the problem before a change, then what is roughly better. */
static tsr_status search_quick(struct settled *z, const struct tsr_plan_setting *own,
                               struct tsr_err *err)
{
    struct tsr_plan_planned last = { .status = TSR_SOLVED_UNKNOWN };
    tsr_status              st = TSR_OK;
    uint64_t                i = 0;
    while (i < z->n && !(z->list[i].concurrency == own->concurrency &&
                         z->list[i].chunk == own->chunk && z->list[i].kv == own->kv &&
                         z->list[i].end == own->end && z->list[i].types == own->types))
        i++;
    if (i < z->n)
        st = fine(z, i, &last, err);
    if (st == TSR_OK)
        st = coarse(z, err);
    if (st == TSR_OK && z->at < z->n && z->at != i)
        st = fine(z, z->at, &last, err);
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

/* own NULL: everything is searched to the end. */
static tsr_status settle(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                         const struct tsr_plugin_spec *solver, const struct tsr_plan_setting *own,
                         const struct tsr_plan_planned *known, struct tsr_err *err)
{
    double                   start = tsr_now_s();
    struct tsr_plan_setting *list = tsr_new(TSR_PLAN_SETTINGS, sizeof *list);
    double                  *least = tsr_new(UINT64_C(2) * TSR_PLAN_SETTINGS, sizeof *least);
    tsr_status               st = TSR_OK;
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    if (!list || !least)
        st = tsr_fail_nomem(err, TSR_PLAN_SETTINGS * sizeof *list, "settings of a plan");
    uint64_t       n = st == TSR_OK ? tsr_plan_settings_of(p, list) : 0;
    struct settled z = { .p = p,
                         .solver = solver,
                         .list = list,
                         .n = n,
                         .best = a,
                         .least = least,
                         .free = least ? least + TSR_PLAN_SETTINGS : NULL,
                         .at = n,
                         .value = INFINITY,
                         .bound = INFINITY,
                         .end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY };
    for (uint64_t i = 0; i < n; i++)
        z.least[i] = z.free[i] = -INFINITY;
    if (n && known) {
        tsr_plan_settings_put(p, own);
        z.value = value_of(p, known);
    }
    if (n == 1) {
        tsr_plan_settings_put(p, list);
        st = tsr_search(a, p, solver,
                        known ? round_of(p, z.value * (1 - p->o.gap)) : (double)INFINITY, err);
        put_most(p, a);
        if (st == TSR_OK && known && tsr_plan_planned_has_plan(a) && value_of(p, a) >= z.value) {
            bool settled = a->status == TSR_SOLVED_OPTIMAL;
            tsr_plan_planned_free(a);
            a->status = settled ? TSR_SOLVED_INFEASIBLE : TSR_SOLVED_UNKNOWN;
        }
    } else if (n) {
        st = own ? search_quick(&z, own, err) : search(&z, err);
    }
    a->settings = n;
    a->seconds = tsr_now_s() - start;
    free(least);
    free(list);
    return st;
}

tsr_status tsr_plan_settings_search(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    return settle(a, p, solver, NULL, NULL, err);
}

tsr_status tsr_plan_settings_quick(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                   const struct tsr_plugin_spec  *solver,
                                   const struct tsr_plan_setting *own,
                                   const struct tsr_plan_planned *known, struct tsr_err *err)
{
    return settle(a, p, solver, own, known, err);
}
