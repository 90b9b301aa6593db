#include "plan/search/front_internal.h"
#include "plan/search/kept.h"
#include "plan/search/lines.h"
#include "plan/search/whatif_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define MOST_BYTES (UINT64_C(64) << 20) /* of the instances of searches for any plan */
#define POINTS     14u                  /* as many are looked for */
#define SEARCHES   24u                  /* at most, after those of the ends */
#define EDGES      4u                   /* points from which on others come from limits alone */
#define WORTH      1e7  /* times of the fastest plan that its omega is worth where quality is all */
#define FIRST_PART 0.25 /* of the time of the job's plan, at most, for a search without its limit */
#define LESS       1e-6 /* of an omega: what is less than that is one that differs */

/* A plan of less than the value under a limit, with theta, and with the gap for times of `least` ms; q gets its setting.  It is
 * in one of the first n settings of z->order. */
static tsr_status better(struct tsr_front_drawn *z, struct tsr_plan_problem *q,
                         struct tsr_plan_planned *a, double limit, double theta, double value,
                         double least, uint64_t n, struct tsr_err *err)
{
    double     seconds = (z->end - tsr_now_s()) / (double)z->left;
    tsr_status st;
    *q = z->p;
    q->max_omega = limit;
    q->o.theta = theta;
    q->o.gap = theta > 0 ? q->o.gap * least / value : q->o.gap;
    q->o.time_limit = isfinite(seconds) ? fmax(seconds, 1e-3) : 0;
    z->left -= z->left > 1;
    if (value < INFINITY)
        st = tsr_plan_settings_better(a, q, z->solver, &z->bounds, value, z->order, n, err);
    else
        st = tsr_plan_settings_search(a, q, z->solver, err);
    z->f->solves += a->solves;
    tsr_logf(TSR_LOG_DEBUG,
             "front: omega of at most %.6g, theta %.6g, below %.6g ms: status %u, %llu solves, "
             "%.3g s",
             limit, theta, value, a->status, (unsigned long long)a->solves, a->seconds);
    return st;
}

/* The settings from i on that differ in the requests at once alone: they follow each other, the most requests first. */
static uint64_t family(const struct tsr_front_drawn *z, uint64_t i)
{
    uint64_t n = 1;
    while (i + n < z->bounds.n && tsr_front_alike(&z->bounds.list[i], &z->bounds.list[i + n]))
        n++;
    return n;
}

/* Whether a plan is known of a setting that takes as much memory or more: with as many requests at once, in chunks as large. */
static bool fits_more(const struct tsr_front_drawn *z, uint64_t i, double limit)
{
    const struct tsr_plan_setting *v = z->bounds.list;
    for (uint64_t k = 0; k < z->bounds.n; k++) {
        struct tsr_plan_setting s = v[k];
        s.chunk = v[i].chunk;
        bool larger = v[k].chunk == 0 || (v[i].chunk && v[k].chunk >= v[i].chunk);
        if (z->fits[k] <= limit && larger && s.concurrency >= v[i].concurrency &&
            tsr_front_alike(&s, &v[i]))
            return true;
    }
    return false;
}

static tsr_status has_plan(struct tsr_front_drawn *z, uint64_t i, double limit, bool *yes,
                           bool *known, struct tsr_err *err)
{
    struct tsr_plan_problem q = z->p;
    double                  left = z->end - tsr_now_s();
    *yes = *known = fits_more(z, i, limit);
    if (*yes || left <= 0)
        return TSR_OK;
    if (tsr_plan_bounds_get(&z->bounds, i, limit, 0) == INFINITY) {
        *known = true;
        return TSR_OK;
    }
    q.max_omega = limit;
    q.o.theta = 0;
    q.o.time_limit = isfinite(left) ? left : 0;
    q.lines = &z->any[i];
    tsr_plan_settings_put(&q, &z->bounds.list[i]);
    z->f->solves++;
    TSR_TRY(tsr_plan_whatif_feasible(q, z->solver, yes, known, err));
    if (*yes)
        z->fits[i] = limit;
    return TSR_OK;
}

/* More requests at once take as much memory or more with any layers and devices.  So of the n settings from i on, those without
 * a plan come first. */
static tsr_status rule_out(struct tsr_front_drawn *z, double limit, bool *all, struct tsr_err *err)
{
    *all = true;
    for (uint64_t i = 0, n; i < z->bounds.n; i += n) {
        uint64_t low = 0,
                 high = n = family(z, i); /* none below low has one; those from high on may */
        while (low < high) {
            uint64_t mid = high == n ? n - 1 : low + (high - low) / 2; /* the last one first */
            bool     yes, known;
            TSR_TRY(has_plan(z, i + mid, limit, &yes, &known, err));
            if (known && !yes)
                low = mid + 1;
            else
                high = mid;
        }
        for (uint64_t k = i; k < i + low; k++)
            if (tsr_plan_bounds_get(&z->bounds, k, limit, 0) < INFINITY)
                tsr_plan_bounds_put(&z->bounds, k, limit, 0, INFINITY);
        *all = *all && low == n;
    }
    return TSR_OK;
}

/* The search for a plan of less than the value; *at: the point that it finds, TSR_FRONT_NONE: there is none in time, which *sure
 * says is proved.  Times are of `least` ms and more. */
static tsr_status look(struct tsr_front_drawn *z, double limit, double theta, double value,
                       double least, uint64_t *at, bool *sure, struct tsr_err *err)
{
    struct tsr_plan_problem q;
    struct tsr_plan_planned a;
    uint64_t k = tsr_front_spare(z, limit, theta, value * (1 - z->p.o.gap * least / value));
    *at = TSR_FRONT_NONE;
    if (k != TSR_FRONT_NONE)
        value = z->spare[k].charged * (1 + theta * z->spare[k].v.omega / z->spare[k].v.latency_ms);
    if (limit < z->most)
        TSR_TRY(rule_out(z, limit, sure, err));
    TSR_TRY(tsr_front_sort(z, k, limit, theta, err));
    tsr_status st = better(z, &q, &a, limit, theta, value, least, z->bounds.n, err);
    bool       plan = st == TSR_OK && tsr_plan_planned_has_plan(&a);
    *sure = a.status == TSR_SOLVED_INFEASIBLE || a.status == TSR_SOLVED_OPTIMAL;
    if (plan)
        st = tsr_front_keep(z, tsr_front_setting(&z->bounds, &q), &q, &a, err);
    if (plan && st == TSR_OK)
        st = tsr_front_add(z, &q, &a, *sure, at, err);
    else if (!plan && st == TSR_OK && k != TSR_FRONT_NONE)
        st = tsr_front_take(z, k, *sure, at, err);
    tsr_plan_planned_put_back(&a);
    return st;
}

/* The fastest plan within a limit: a point that is there, or a new one; TSR_FRONT_NONE: none. */
static tsr_status within(struct tsr_front_drawn *z, double limit, uint64_t *at, struct tsr_err *err)
{
    uint64_t known = tsr_front_fastest(z, limit);
    bool     sure;
    double   value = known == TSR_FRONT_NONE ? INFINITY : z->charged[known];
    TSR_TRY(look(z, limit, 0, value, value, at, &sure, err));
    if (*at == TSR_FRONT_NONE && known != TSR_FRONT_NONE) {
        *at = known;
        z->f->v[known].proved = z->f->v[known].proved || sure;
    }
    return TSR_OK;
}

/* z->order: of settings that differ in the requests at once alone, the one with the fewest.  More requests take as much memory or
 * more with any layers and devices, so it has a plan of the least omega.  Returns how many, the last of the list first. */
static uint64_t fewest(struct tsr_front_drawn *z)
{
    const struct tsr_plan_setting *v = z->bounds.list;
    uint64_t                       n = 0;
    for (uint64_t i = z->bounds.n; i-- > 0;) {
        bool fewer = false;
        for (uint64_t k = 0; k < z->bounds.n && !fewer; k++)
            fewer = tsr_front_alike(&v[k], &v[i]) && v[k].concurrency < v[i].concurrency;
        if (!fewer)
            z->order[n++] = i;
    }
    return n;
}

/* The least omega, and the fastest plan with it. */
static tsr_status least_omega(struct tsr_front_drawn *z, uint64_t high, struct tsr_err *err)
{
    struct tsr_plan_problem q;
    struct tsr_plan_planned a;
    double                  omega = z->f->v[high].omega;
    double                  theta = WORTH * z->f->v[high].latency_ms / omega;
    double                  value = tsr_front_value(z, high, theta), ms = z->charged[high];
    uint64_t                n = fewest(z), at;
    bool                    none = true, sure;
    tsr_status              st = better(z, &q, &a, z->most, theta, value, value, n, err);
    if (st == TSR_OK && tsr_plan_planned_has_plan(&a)) {
        omega = a.outcome.omega;
        ms = a.outcome.latency_ms * tsr_plan_settings_burden(&q, q.work.kv, q.work.chunk);
    }
    if (st == TSR_OK && omega > 0)
        st = rule_out(z, omega * (1 - LESS), &none, err);
    for (unsigned part = 64; part > 1 && st == TSR_OK; part /= 4)
        st = rule_out(z, omega + (z->f->v[high].omega - omega) / part, &sure, err);
    z->likely = tsr_front_most(z, omega * (1 + 1e-9));
    if (st == TSR_OK)
        st = look(z, omega * (1 + 1e-9), 0, 2 * ms, ms, &at, &sure, err); /* not this plan alone */
    z->likely = TSR_FRONT_NONE;
    if (st == TSR_OK && at != TSR_FRONT_NONE)
        z->f->v[at].proved = z->f->v[at].proved && sure && none;
    tsr_plan_planned_put_back(&a);
    return st;
}

/* Another point between two: below their line, or with half of the omega between them. */
static tsr_status divide(struct tsr_front_drawn *z, uint64_t i, uint64_t j, struct tsr_err *err)
{
    const struct tsr_plan_front_point *v = z->f->v;
    struct tsr_front_between          *b = &z->between[i][j];
    double   by_i = z->charged[i] / v[i].latency_ms, by_j = z->charged[j] / v[j].latency_ms;
    double   less = v[i].omega * by_i - v[j].omega * by_j;
    uint64_t n = z->f->n, at;
    bool     sure;
    if (!b->edge && n < EDGES) {
        b->edge = true;
        if (!(less > 0)) /* what nobody asked for costs more than they differ */
            return TSR_OK;
        double theta = (z->charged[j] - z->charged[i]) / less;
        double value = fmin(tsr_front_value(z, i, theta), tsr_front_value(z, j, theta));
        z->likely = tsr_front_between(z, i, j, z->most);
        tsr_status st = look(z, z->most, theta, value, z->charged[i], &at, &sure, err);
        z->likely = TSR_FRONT_NONE;
        return st;
    }
    double floor = fmax(b->floor, v[j].omega), limit = 0.5 * (floor + v[i].omega);
    b->floor = limit;
    z->likely = tsr_front_between(z, i, j, limit);
    tsr_status st = look(z, limit, 0, z->charged[j], z->charged[j], &at, &sure, err);
    z->likely = TSR_FRONT_NONE;
    TSR_TRY(st);
    if (at == TSR_FRONT_NONE || at < n)
        return TSR_OK;
    z->between[i][at] = (struct tsr_front_between){ .edge = true, .floor = limit };
    z->between[at][j] = (struct tsr_front_between){ .edge = true, .floor = floor };
    return TSR_OK;
}

/* The ends, then points between. */
static tsr_status find(struct tsr_front_drawn *z, bool default_limit, struct tsr_err *err)
{
    uint64_t high, i = 0, j = 0, v[TSR_PLAN_FRONT];
    double   four = default_limit ? tsr_front_four_bits(&z->p) : NAN;
    z->left = 4; /* the ends decide what is between: more time for them */
    TSR_TRY(within(z, z->most, &high, err));
    if (high == TSR_FRONT_NONE ||
        !(z->f->v[high].omega > 0)) /* no plan in time, or it loses nothing */
        return TSR_OK;
    TSR_TRY(least_omega(z, high, err));
    z->left = POINTS + 2;
    for (uint64_t k = 0;
         k < SEARCHES && tsr_front_order(z, v) < POINTS && z->f->n + 2 < TSR_PLAN_FRONT &&
         tsr_now_s() < z->end && tsr_front_widest(z, &i, &j);
         k++)
        TSR_TRY(divide(z, i, j, err));
    uint64_t n = tsr_front_order(z, v);
    if (!(four >= z->f->v[v[n - 1]].omega))
        return TSR_OK;
    if (four >= z->f->v[high].omega)
        i = high;
    else
        TSR_TRY(within(z, four, &i, err));
    if (i != TSR_FRONT_NONE)
        z->f->v[i].four = true;
    return TSR_OK;
}

/* A search that starts with what kept has; kept then has the settings of p. */
static tsr_status own_of(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                         struct tsr_plan_bounds *kept, const struct tsr_plugin_spec *solver,
                         struct tsr_err *err)
{
    struct tsr_plan_bounds before = *kept;
    *kept = (struct tsr_plan_bounds){ 0 };
    tsr_status st = tsr_plan_kept_open(kept, p, err);
    if (st == TSR_OK) {
        tsr_plan_kept_take(kept, &before);
        st = tsr_plan_settings_search_kept(a, p, solver, kept, err);
    }
    tsr_plan_kept_close(&before);
    return st;
}

tsr_status tsr_plan_front_own(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                              struct tsr_plan_bounds *kept, const struct tsr_plugin_spec *solver,
                              struct tsr_err *err)
{
    struct tsr_plan_problem q = *p;
    double start = tsr_now_s(), most = tsr_front_most_omega(p), limit = p->o.time_limit;
    tsr_plan_kept_close(kept); /* it may be of another problem */
    if (!(p->max_omega >= 0 && p->max_omega < most))
        return own_of(a, p, kept, solver, err);
    q.max_omega = most;
    q.o.time_limit = limit * FIRST_PART;
    TSR_TRY(own_of(a, &q, kept, solver, err));
    uint64_t solves = a->solves, choices = a->choices, options = a->options;
    if (a->status == TSR_SOLVED_OPTIMAL && a->outcome.omega <= p->max_omega) {
        q.max_omega = p->max_omega;
        q.o.time_limit = limit;
        *p = q;
        tsr_plan_built_put(a->built, p);
        return TSR_OK;
    }
    tsr_plan_planned_put_back(a);
    q = *p;
    q.o.time_limit = limit > 0 ? fmax(limit - (tsr_now_s() - start), limit / 2) : limit;
    tsr_status st = own_of(a, &q, kept, solver, err);
    q.o.time_limit = limit;
    *p = q;
    if (a->built)
        a->built->p = p;
    a->solves += solves;
    a->choices += choices;
    a->options += options;
    a->seconds = tsr_now_s() - start;
    return st;
}

static tsr_status draw(struct tsr_front_drawn *z, const struct tsr_plan_problem *p,
                       const struct tsr_plan_planned *own, struct tsr_plan_bounds *known,
                       struct tsr_err *err)
{
    uint64_t at;
    z->p = *p;
    z->p.max_omega = z->most;
    z->likely = TSR_FRONT_NONE;
    if (p->max_omega < 0 && !p->quality.kl.on) /* nothing says what a narrow cache may cost */
        z->p.o.free_kv = false;
    TSR_TRY(tsr_plan_kept_open(&z->bounds, &z->p, err));
    if (known)
        tsr_plan_kept_take(&z->bounds, known);
    z->bounds.found = tsr_front_keep;
    z->bounds.ctx = z;
    z->order = tsr_new(z->bounds.n, sizeof *z->order);
    z->fits = tsr_new(z->bounds.n, sizeof *z->fits);
    z->any = tsr_new(z->bounds.n, sizeof *z->any);
    if (!z->order || !z->fits || !z->any)
        return tsr_fail_nomem(err, z->bounds.n * sizeof *z->any, "settings of a front");
    for (uint64_t i = 0; i < z->bounds.n; i++) {
        z->fits[i] = INFINITY;
        z->any[i].most = MOST_BYTES / z->bounds.n;
        z->any[i].solver = z->bounds.solver;
    }
    if (own) {
        TSR_TRY(tsr_front_add(z, p, own, own->status == TSR_SOLVED_OPTIMAL, &at, err));
        TSR_TRY(tsr_front_keep(z, z->setting[at], p, own, err));
        z->f->v[at].job = true;
    }
    return find(z, own != NULL, err);
}

tsr_status tsr_plan_front_find(struct tsr_plan_front *f, const struct tsr_plan_problem *p,
                               const struct tsr_plan_planned *own, struct tsr_plan_bounds *known,
                               const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    double                  start = tsr_now_s();
    struct tsr_front_drawn *z = tsr_new(1, sizeof *z);
    *f = (struct tsr_plan_front){ 0 };
    if (!z)
        return tsr_fail_nomem(err, sizeof *z, "a front");
    z->f = f;
    z->solver = solver;
    z->most = tsr_front_most_omega(p);
    z->end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY;
    tsr_status st = draw(z, p, own, known, err);
    for (uint64_t i = 0; i < z->spares; i++)
        free(z->spare[i].v.layers);
    for (uint64_t i = 0; z->any && i < z->bounds.n; i++)
        tsr_plan_lines_free(&z->any[i]);
    tsr_plan_kept_close(&z->bounds);
    free(z->any);
    free(z->fits);
    free(z->order);
    free(z);
    tsr_front_thin(f);
    tsr_front_mark_knee(f);
    f->seconds = tsr_now_s() - start;
    return st;
}

tsr_status tsr_plan_front_knee(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                               const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    struct tsr_plan_front f;
    double                start = tsr_now_s();
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    tsr_status st = tsr_plan_front_find(&f, p, NULL, NULL, solver, err);
    for (uint64_t i = 0; st == TSR_OK && i < f.n; i++)
        if (f.v[i].knee || i + 1 == f.n) {
            /* the front counts what codecs cost in fact; a projected problem reserves what they can cost */
            double room = tsr_search_joint(solver) ? 0 : p->wire_omega;
            p->max_omega = f.v[i].omega * (1 + 1e-9) + room;
            break;
        }
    tsr_plan_front_free(&f);
    if (st == TSR_OK)
        st = tsr_plan_settings_search(a, p, solver, err);
    a->seconds = tsr_now_s() - start;
    return st;
}
