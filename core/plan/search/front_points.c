/* The points of a front: what was found, in order, and where there may be more. */
#include "plan/search/front_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SMALL 1e-5 /* of the rectangle of the ends: another point in less is not looked for */
#define SAME  1e-6 /* points that differ by less are one */

void tsr_plan_front_free(struct tsr_plan_front *f)
{
    for (uint64_t i = 0; i < f->n; i++)
        free(f->v[i].layers);
    *f = (struct tsr_plan_front){ 0 };
}

/* Whether all layers have one type of cache. */
static bool alike(const struct tsr_plan_outcome *o)
{
    bool same = true;
    for (uint64_t l = 1; l < o->layers; l++)
        same = same && o->kv[l] == o->kv[0];
    return same;
}

uint64_t tsr_front_setting(const struct tsr_plan_bounds *b, const struct tsr_plan_problem *p)
{
    for (uint64_t i = 0; i < b->n; i++) {
        const struct tsr_plan_setting *s = &b->list[i];
        if (s->concurrency == p->memory.batch && s->chunk == p->work.chunk && s->end == p->end &&
            s->most_k == p->most_k && s->types == p->kv_types && (s->types || s->kv == p->work.kv))
            return i;
    }
    return b->n;
}

bool tsr_front_alike(const struct tsr_plan_setting *s, const struct tsr_plan_setting *t)
{
    return s->chunk == t->chunk && s->kv == t->kv && s->types == t->types && s->end == t->end &&
           s->most_k == t->most_k;
}

double tsr_front_four_bits(const struct tsr_plan_problem *p)
{
    const struct tsr_plan_candidate *v = p->candidates.v;
    for (uint64_t c = 0; c < p->candidates.n; c++)
        if (v[c].bits == 4 && !v[c].mixed)
            return tsr_plan_quality_uniform(&p->quality, c) + tsr_plan_problem_kl_base(p);
    return NAN;
}

double tsr_front_most_omega(const struct tsr_plan_problem *p)
{
    double sum = isfinite(p->quality.eight) ? p->quality.eight : 0;
    for (uint64_t l = 0; l < p->quality.layers; l++) {
        double most = 0;
        for (uint64_t c = 0; c < p->candidates.n; c++)
            most = fmax(most, p->quality.omega[l * p->candidates.n + c]);
        sum += most;
    }
    for (uint32_t i = 0; i < p->quality.kl.n_end; i++)
        sum += p->quality.kl.end[i].kl;
    for (uint32_t i = 0; i < p->quality.kl.n_kv; i++)
        sum += p->quality.kl.kv[i].kl;
    return 2 * sum + 1;
}

/* Whether two plans are one. */
static bool same(const struct tsr_plan_front_point *v, double latency_ms, double omega)
{
    return fabs(v->latency_ms - latency_ms) <= SAME * latency_ms &&
           fabs(v->omega - omega) <= SAME * fmax(omega, SAME);
}

static tsr_status make_point(struct tsr_front_spare *to, const struct tsr_front_drawn *z,
                             const struct tsr_plan_problem *q, const struct tsr_plan_planned *a,
                             bool proved, struct tsr_err *err)
{
    const struct tsr_plan_outcome *o = &a->outcome;
    uint64_t                      *layers = tsr_new(q->candidates.n, sizeof *layers);
    if (!layers)
        return tsr_fail_nomem(err, q->candidates.n * sizeof *layers, "a point of the front");
    for (uint64_t l = 0; l < o->layers; l++)
        layers[o->bits[l]]++;
    struct tsr_plan_front_point *v = &to->v;
    *v =
        (struct tsr_plan_front_point){ .latency_ms = o->latency_ms,
                                       .tokens_per_second = o->tokens_per_second,
                                       .omega = o->omega,
                                       .kl = o->kl,
                                       .kl_half = o->kl_half,
                                       .stages = o->n_stages,
                                       .setting = { q->memory.batch, q->work.chunk, q->work.kv,
                                                    q->end, alike(o) ? 0 : q->kv_types, q->most_k },
                                       .layers = layers,
                                       .proved = proved };
    for (uint64_t i = 0; i < o->n_stages; i++)
        v->bytes += o->stages[i].memory.total;
    to->charged = v->latency_ms * tsr_plan_settings_burden(q, q->work.kv, q->work.chunk);
    to->setting = tsr_front_setting(&z->bounds, q);
    return TSR_OK;
}

static void put(struct tsr_front_drawn *z, const struct tsr_front_spare *s, uint64_t *at)
{
    *at = z->f->n++;
    z->f->v[*at] = s->v;
    z->charged[*at] = s->charged;
    z->setting[*at] = s->setting;
}

tsr_status tsr_front_add(struct tsr_front_drawn *z, const struct tsr_plan_problem *q,
                         const struct tsr_plan_planned *a, bool proved, uint64_t *at,
                         struct tsr_err *err)
{
    struct tsr_front_spare s;
    for (*at = 0; *at < z->f->n; ++*at)
        if (same(&z->f->v[*at], a->outcome.latency_ms, a->outcome.omega))
            return TSR_OK;
    TSR_TRY(make_point(&s, z, q, a, proved, err));
    put(z, &s, at);
    return TSR_OK;
}

tsr_status tsr_front_keep(void *ctx, uint64_t i, const struct tsr_plan_problem *q,
                          const struct tsr_plan_planned *a, struct tsr_err *err)
{
    struct tsr_front_drawn *z = ctx;
    if (i < z->bounds.n)
        z->fits[i] = fmin(z->fits[i], a->outcome.omega);
    for (uint64_t k = 0; k < z->spares; k++)
        if (same(&z->spare[k].v, a->outcome.latency_ms, a->outcome.omega))
            return TSR_OK;
    if (z->spares == TSR_FRONT_SPARES)
        return TSR_OK;
    TSR_TRY(make_point(&z->spare[z->spares], z, q, a, false, err));
    z->spares++;
    return TSR_OK;
}

tsr_status tsr_front_take(struct tsr_front_drawn *z, uint64_t k, bool proved, uint64_t *at,
                          struct tsr_err *err)
{
    struct tsr_front_spare s = z->spare[k];
    uint64_t               n = z->p.candidates.n;
    for (*at = 0; *at < z->f->n; ++*at)
        if (same(&z->f->v[*at], s.v.latency_ms, s.v.omega)) {
            z->f->v[*at].proved = z->f->v[*at].proved || proved;
            return TSR_OK;
        }
    s.v.layers = tsr_new(n, sizeof *s.v.layers);
    if (!s.v.layers)
        return tsr_fail_nomem(err, n * sizeof *s.v.layers, "a point of the front");
    memcpy(s.v.layers, z->spare[k].v.layers, n * sizeof *s.v.layers);
    s.v.proved = proved;
    put(z, &s, at);
    return TSR_OK;
}

uint64_t tsr_front_spare(const struct tsr_front_drawn *z, double limit, double theta, double value)
{
    uint64_t best = TSR_FRONT_NONE;
    for (uint64_t k = 0; k < z->spares; k++) {
        const struct tsr_front_spare *s = &z->spare[k];
        double                        v = s->charged * (1 + theta * s->v.omega / s->v.latency_ms);
        if (s->v.omega <= limit && v < value) {
            value = v;
            best = k;
        }
    }
    return best;
}

/* Whether each part of a setting is that of one of two others. */
static bool is_mixed(const struct tsr_plan_setting *s, const struct tsr_plan_setting *x,
                     const struct tsr_plan_setting *y)
{
    bool cache =
        (s->kv == x->kv && s->types == x->types) || (s->kv == y->kv && s->types == y->types);
    return cache && (s->concurrency == x->concurrency || s->concurrency == y->concurrency) &&
           (s->chunk == x->chunk || s->chunk == y->chunk) &&
           (s->end == x->end || s->end == y->end) &&
           (s->most_k == x->most_k || s->most_k == y->most_k);
}

uint64_t tsr_front_between(const struct tsr_front_drawn *z, uint64_t i, uint64_t j, double limit)
{
    const struct tsr_plan_setting *v = z->bounds.list;
    uint64_t n = z->bounds.n, x = z->setting[i], y = z->setting[j], best = TSR_FRONT_NONE;
    double   least = INFINITY;
    if (x >= n || y >= n)
        return best;
    uint64_t most = v[x].concurrency, fewest = v[y].concurrency;
    if (most < fewest) {
        most = v[y].concurrency;
        fewest = v[x].concurrency;
    }
    double mean = 0.5 * (log((double)most) + log((double)fewest));
    for (uint64_t k = 0; k < n; k++) {
        if (v[k].concurrency <= fewest || v[k].concurrency >= most)
            continue;
        double away = fabs(log((double)v[k].concurrency) - mean);
        if (away < least && (tsr_front_alike(&v[k], &v[x]) || tsr_front_alike(&v[k], &v[y])) &&
            tsr_plan_bounds_get(&z->bounds, k, limit, 0) < z->charged[j]) {
            least = away;
            best = k;
        }
    }
    for (uint64_t k = 0; k < n && best == TSR_FRONT_NONE; k++)
        if (k != x && k != y && is_mixed(&v[k], &v[x], &v[y]) &&
            tsr_plan_bounds_get(&z->bounds, k, limit, 0) < z->charged[j])
            best = k;
    return best == TSR_FRONT_NONE && x == y ? x : best;
}

uint64_t tsr_front_most(const struct tsr_front_drawn *z, double limit)
{
    uint64_t best = TSR_FRONT_NONE;
    for (uint64_t k = 0; k < z->bounds.n; k++)
        if (tsr_plan_bounds_get(&z->bounds, k, limit, 0) < INFINITY &&
            (best == TSR_FRONT_NONE ||
             z->bounds.list[k].concurrency > z->bounds.list[best].concurrency))
            best = k;
    return best;
}

struct key {
    double   bound;
    uint64_t i;
};

static int by_bound(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

tsr_status tsr_front_sort(struct tsr_front_drawn *z, uint64_t k, double limit, double theta,
                          struct tsr_err *err)
{
    uint64_t n = z->bounds.n, at = k < z->spares ? z->spare[k].setting : n;
    at = z->likely < n ? z->likely : at;
    struct key *v = tsr_new(n, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, n * sizeof *v, "settings of a front");
    for (uint64_t i = 0; i < n; i++) {
        const struct tsr_plan_setting *s = &z->bounds.list[i];
        double slope = theta * tsr_plan_settings_burden(&z->p, s->kv, s->chunk);
        v[i].i = i;
        v[i].bound = i == at ? -INFINITY : tsr_plan_bounds_get(&z->bounds, i, limit, slope);
        v[i].bound = i == at ? v[i].bound : fmax(v[i].bound, 0); /* times are not negative */
    }
    qsort(v, n, sizeof *v, by_bound);
    for (uint64_t i = 0; i < n; i++)
        z->order[i] = v[i].i;
    free(v);
    return TSR_OK;
}

double tsr_front_value(const struct tsr_front_drawn *z, uint64_t i, double theta)
{
    const struct tsr_plan_front_point *v = &z->f->v[i];
    return z->charged[i] * (1 + theta * v->omega / v->latency_ms);
}

static int by_time(const void *a, const void *b)
{
    const struct tsr_plan_front_point *x = a, *y = b;
    if (x->latency_ms != y->latency_ms)
        return x->latency_ms < y->latency_ms ? -1 : 1;
    return x->omega < y->omega ? -1 : x->omega > y->omega;
}

void tsr_front_thin(struct tsr_plan_front *f)
{
    uint64_t n = 0;
    qsort(f->v, f->n, sizeof *f->v, by_time);
    for (uint64_t i = 0; i < f->n; i++) {
        if (n && f->v[i].omega >= f->v[n - 1].omega) {
            f->v[n - 1].job = f->v[n - 1].job || f->v[i].job;
            f->v[n - 1].four = f->v[n - 1].four || f->v[i].four;
            free(f->v[i].layers);
            continue;
        }
        f->v[n++] = f->v[i];
    }
    f->n = n;
}

void tsr_front_mark_knee(struct tsr_plan_front *f)
{
    if (f->n == 0)
        return;
    const struct tsr_plan_front_point *a = &f->v[0], *b = &f->v[f->n - 1];
    double                             far = 0;
    uint64_t                           at = 0;
    for (uint64_t i = 1; i + 1 < f->n; i++) {
        double x = (f->v[i].latency_ms - a->latency_ms) / (b->latency_ms - a->latency_ms);
        double y = (f->v[i].omega - b->omega) / (a->omega - b->omega);
        if (1 - x - y > far) {
            far = 1 - x - y;
            at = i;
        }
    }
    f->v[at].knee = far > 0;
}

uint64_t tsr_front_order(const struct tsr_front_drawn *z, uint64_t v[TSR_PLAN_FRONT])
{
    uint64_t n = 0, kept = 0;
    for (uint64_t i = 0; i < z->f->n; i++) {
        uint64_t k = n++;
        for (; k > 0 && (z->charged[i] < z->charged[v[k - 1]] ||
                         (z->charged[i] <= z->charged[v[k - 1]] &&
                          z->f->v[i].omega < z->f->v[v[k - 1]].omega));
             k--)
            v[k] = v[k - 1];
        v[k] = i;
    }
    for (uint64_t k = 0; k < n; k++)
        if (!kept || z->f->v[v[k]].omega < z->f->v[v[kept - 1]].omega)
            v[kept++] = v[k];
    return kept;
}

uint64_t tsr_front_fastest(const struct tsr_front_drawn *z, double limit)
{
    uint64_t best = TSR_FRONT_NONE;
    for (uint64_t i = 0; i < z->f->n; i++)
        if (z->f->v[i].omega <= limit &&
            (best == TSR_FRONT_NONE || z->charged[i] < z->charged[best]))
            best = i;
    return best;
}

bool tsr_front_widest(const struct tsr_front_drawn *z, uint64_t *i, uint64_t *j)
{
    uint64_t v[TSR_PLAN_FRONT], n = tsr_front_order(z, v);
    double   most = 0;
    for (uint64_t k = 0; k + 1 < n; k++) {
        double floor = fmax(z->between[v[k]][v[k + 1]].floor, z->f->v[v[k + 1]].omega);
        double area = (z->charged[v[k + 1]] - z->charged[v[k]]) * (z->f->v[v[k]].omega - floor);
        if (area > most) {
            most = area;
            *i = v[k];
            *j = v[k + 1];
        }
    }
    if (n < 2)
        return false;
    double all =
        (z->charged[v[n - 1]] - z->charged[v[0]]) * (z->f->v[v[0]].omega - z->f->v[v[n - 1]].omega);
    return most > SMALL * all;
}
