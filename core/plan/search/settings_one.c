/* The search of one setting: its best plan, or a bound that rules it out. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/search/lines.h"
#include "plan/search/settings_internal.h"
#include "plugin/choices.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <string.h>

#define UNASKED   0.01 /* by so much what nobody asked for must be faster: a narrow cache, a chunk */
#define ANY_GAP   0.5  /* of a search for any plan below a limit */
#define EQUAL     1e-9 /* of a limit: a group's bound that is as far below it reaches it */
#define KV_NARROW TSR_I8

double tsr_plan_settings_burden(const struct tsr_plan_problem *p, uint32_t kv, uint64_t chunk)
{
    double one = 1 / (1 - UNASKED);
    return (p->o.n_kv == 0 && kv == KV_NARROW ? one : 1) * (p->o.free_chunk && chunk ? one : 1);
}

static double burden(const struct tsr_plan_problem *p)
{
    return tsr_plan_settings_burden(p, p->work.kv, p->work.chunk);
}

static double slope_of(const struct tsr_plan_problem *q)
{
    return q->o.theta * burden(q);
}

double tsr_settled_value(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a)
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

double tsr_settled_value_from(const struct tsr_plan_problem *p, double round)
{
    return (round * least_rounds(p) + p->o.theta * (p->kv_omega + p->ends_omega)) * burden(p);
}

double tsr_settled_round(const struct tsr_plan_problem *p, double value)
{
    return (value / burden(p) - p->o.theta * (p->kv_omega + p->ends_omega)) / least_rounds(p);
}

/* What a search has plans longer than they take, as a value of any setting.  rounds: as which it counts. */
static void count_over(struct settled *z, const struct tsr_plan_planned *a, double rounds)
{
    const double most = 1 / ((1 - UNASKED) * (1 - UNASKED)); /* of all burdens */
    z->over = fmax(z->over, a->over * rounds * most);
}

tsr_status tsr_settled_one(struct settled *z, uint64_t i, struct tsr_plan_problem *q, double limit,
                           struct tsr_plan_planned *a, struct tsr_err *err)
{
    struct tsr_plan_planned *b = z->best;
    double                   cutoff = tsr_settled_round(q, limit);
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN, .bound = cutoff };
    if (!(cutoff > 0)) /* its cache alone is worth more than the best plan */
        return TSR_OK;
    TSR_TRY(tsr_search(a, q, z->solver, cutoff, err));
    count_over(z, a, least_rounds(q));
    b->choices += a->choices;
    b->solves += a->solves;
    b->options += a->options;
    tsr_logf(TSR_LOG_DEBUG,
             "%llu at once, chunk %llu, cache of %s: status %u, %.6g ms of at least %.6g, "
             "%.3g s",
             (unsigned long long)z->list[i].concurrency, (unsigned long long)z->list[i].chunk,
             tsr_plugin_kv_name(z->list[i].kv), a->status,
             a->outcome.n_stages ? tsr_settled_value(q, a) : (double)INFINITY,
             tsr_settled_value_from(q, a->bound), a->seconds);
    return TSR_OK;
}

struct tsr_plan_lines *tsr_settled_lines(const struct settled *z, uint64_t i, unsigned of)
{
    return z->shared && z->shared->options ? &z->shared->options[i * TSR_PLAN_LINES_OF + of] : NULL;
}

tsr_status tsr_settled_all_rounds(struct settled *z, const struct tsr_plan_problem *of,
                                  double limit, struct tsr_plan_lines *lines, double *least,
                                  struct tsr_err *err)
{
    struct tsr_plan_problem     q = *of;
    struct tsr_plan_planned     a;
    const struct tsr_solver_v1 *t = z->solver->found.iface;
    double                      ends = q.o.theta * (q.kv_omega + q.ends_omega);
    double                      cutoff = limit / burden(&q) - ends;
    *least = -INFINITY;
    if (q.work.batch <= q.memory.batch || q.o.objective != TSR_OBJECTIVE_STEADY ||
        q.o.max_first_ms > 0 || !(t->supports & TSR_SOLVER_JOBS) || !isfinite(cutoff) ||
        !(cutoff > 0))
        return TSR_OK;
    q.whole = true;
    q.lines = lines;
    q.o.gap = fmax(q.o.gap, ANY_GAP);
    tsr_status st = tsr_search(&a, &q, z->solver, cutoff, err);
    count_over(z, &a, 1);
    z->best->choices += a.choices;
    z->best->solves += a.solves;
    z->best->options += a.options;
    if (st == TSR_OK)
        *least = (a.bound + ends) * burden(&q);
    tsr_logf(TSR_LOG_DEBUG, "%llu at once, all rounds: status %u, at least %.6g ms, %.3g s",
             (unsigned long long)q.memory.batch, a.status, *least, a.seconds);
    tsr_plan_planned_put_back(&a);
    return st;
}

void tsr_settled_take(struct settled *z, uint64_t i, struct tsr_plan_planned *a, double value)
{
    struct tsr_plan_planned *b = z->best;
    a->choices = b->choices;
    a->solves = b->solves;
    a->options = b->options;
    tsr_plan_planned_put_back(b);
    *b = *a;
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    z->at = i;
    z->value = value;
}

/* What all caches of type kv take more on tp ranks than on one. */
static uint64_t excess_of(const struct tsr_plan_problem *p, uint32_t kv, uint32_t tp)
{
    const struct tsr_plan_shape *s = p->shape;
    struct tsr_plan_memory_job   j = p->memory;
    uint64_t                     sum = 0, one, each;
    j.kv = kv;
    for (uint64_t l = 0; l < s->layers; l++) {
        uint64_t c = s->layer_class[l];
        if (!s->layer[c].recurrent && tsr_plan_memory_cache(&j, c, 1, &one) &&
            tsr_plan_memory_cache(&j, c, tp, &each) && each * tp > one)
            sum += each * tp - one;
    }
    return sum;
}

/* For each device, of the width that takes most. */
static uint64_t excess(const struct tsr_plan_problem *p, uint32_t kv)
{
    uint64_t most = 0;
    for (uint32_t tp = 2; tp <= p->shape->kv_heads; tp++) {
        uint64_t each = p->shape->kv_heads % tp ? 0 : excess_of(p, kv, tp) / tp + 1;
        most = each > most ? each : most;
    }
    return p->o.accounting == TSR_PLAN_ACCOUNT_PAPER ? 0 : most;
}

/* Devices of several backends, whose layers may differ in bytes by a part. */
static bool has_backends(const struct tsr_plan_cluster *c)
{
    for (uint64_t g = 1; g < c->n_groups; g++) {
        const char *a = c->groups[g].profile->backend, *b = c->groups[0].profile->backend;
        if (a && b ? strcmp(a, b) != 0 : a != b)
            return true;
    }
    return false;
}

tsr_status tsr_settled_make_room(struct tsr_plan_problem *q, int64_t **bytes, struct tsr_err *err)
{
    uint64_t n = q->cluster->n_groups, more = excess(q, q->work.kv);
    *bytes = tsr_new(n, sizeof **bytes);
    if (!*bytes)
        return tsr_fail_nomem(err, n * sizeof **bytes, "a planning problem");
    for (uint64_t g = 0; g < n; g++)
        (*bytes)[g] = q->more_bytes[g] + (int64_t)more;
    q->more_bytes = *bytes;
    return TSR_OK;
}

bool tsr_settled_is_narrower(const struct tsr_plan_problem *p, uint32_t a, uint32_t b)
{
    const struct tsr_plan_shape *s = p->shape;
    struct tsr_plan_memory_job   x = p->memory, y = p->memory;
    uint64_t                     most, bytes;
    if (a == b || p->o.accounting == TSR_PLAN_ACCOUNT_PAPER)
        return tsr_plugin_kv_bits(a) <= tsr_plugin_kv_bits(b);
    x.kv = a;
    y.kv = b;
    for (uint64_t c = 0; c < s->classes; c++)
        for (uint32_t tp = 1; tp <= s->kv_heads && !s->layer[c].recurrent; tp++)
            if (s->kv_heads % tp == 0 && (!tsr_plan_memory_cache(&x, c, tp, &bytes) ||
                                          !tsr_plan_memory_cache(&y, c, tp, &most) || bytes > most))
                return false;
    return tsr_plugin_kv_bits(a) <= tsr_plugin_kv_bits(b) && !has_backends(p->cluster);
}

double tsr_settled_known_round(const struct settled *z, uint64_t i)
{
    const struct tsr_plan_setting *s = &z->list[i], *t = z->list;
    double                         bound = -INFINITY;
    for (uint64_t k = 0; k < z->n; k++) {
        if (t[k].chunk != s->chunk || t[k].concurrency > s->concurrency || t[k].types != s->types ||
            t[k].end != s->end || t[k].most_k != s->most_k)
            continue;
        if (t[k].kv == s->kv)
            bound = fmax(bound, z->least[k]);
        if (z->free[k] > bound && tsr_settled_is_narrower(z->p, t[k].kv, s->kv))
            bound = z->free[k];
    }
    return bound;
}

double tsr_settled_known(const struct settled *z, uint64_t i, const struct tsr_plan_problem *q)
{
    double known = tsr_settled_value_from(q, tsr_settled_known_round(z, i));
    if (z->shared)
        known = fmax(known, tsr_plan_bounds_get(z->shared, i, q->max_omega, slope_of(q)));
    return z->groups ? fmax(known, z->groups[i].at_least) : known;
}

void tsr_settled_keep(const struct settled *z, uint64_t i, const struct tsr_plan_problem *q,
                      double value)
{
    if (z->shared)
        tsr_plan_bounds_put(z->shared, i, q->max_omega, slope_of(q), value);
}

tsr_status tsr_settled_member(struct settled *z, uint64_t i, bool likely,
                              struct tsr_plan_planned *last, struct tsr_err *err)
{
    struct tsr_plan_problem q = *z->p;
    double                  left = z->end - tsr_now_s();
    bool                    own = z->at == i;
    double                  limit = z->value * (own ? 1 + 1e-6 : 1 - z->p->o.gap);
    if (z->groups && z->groups[i].done)
        return TSR_OK;
    tsr_plan_settings_put(&q, &z->list[i]);
    double known = tsr_settled_known(z, i, &q);
    /* of another setting: a next search has only this one's */
    if (z->shared && known >= limit &&
        known > tsr_plan_bounds_get(z->shared, i, q.max_omega, slope_of(&q)))
        tsr_settled_keep(z, i, &q, known);
    if (known >= limit * (1 - (z->groups ? EQUAL : 0))) {
        z->bound = fmin(z->bound, known);
        return TSR_OK;
    }
    if (left <= 0) {
        z->bound = z->groups ? fmin(z->bound, known) : -INFINITY;
        return TSR_OK;
    }
    q.o.time_limit = isfinite(left) ? left : 0;
    if (!own && !likely) {
        double least;
        TSR_TRY(tsr_settled_all_rounds(z, &q, limit, tsr_settled_lines(z, i, TSR_PLAN_LINES_ALL),
                                       &least, err));
        known = fmax(known, least);
        tsr_settled_keep(z, i, &q, least);
    }
    if (known >= limit) {
        z->bound = fmin(z->bound, known);
        return TSR_OK;
    }
    tsr_plan_planned_put_back(last);
    q.lines = tsr_settled_lines(z, i, TSR_PLAN_LINES_ROUND);
    TSR_TRY(tsr_settled_one(z, i, &q, limit, last, err));
    if (z->groups)
        z->groups[i].done = true;
    z->least[i] = last->status == TSR_SOLVED_INFEASIBLE ? INFINITY : last->bound;
    tsr_settled_keep(z, i, &q, tsr_settled_value_from(&q, z->least[i]));
    if (!tsr_plan_planned_has_plan(last)) {
        z->bound = fmin(z->bound, tsr_settled_value_from(&q, z->least[i]));
        return TSR_OK;
    }
    double value = tsr_settled_value(&q, last);
    z->bound = fmin(z->bound, value * fmin(last->bound / last->objective, 1));
    if (z->shared && z->shared->found)
        TSR_TRY(z->shared->found(z->shared->ctx, i, &q, last, err));
    if (own || value < z->value)
        tsr_settled_take(z, i, last, value);
    return TSR_OK;
}
