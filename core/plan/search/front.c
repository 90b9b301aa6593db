#include "plan/search/front_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define POINTS   14u /* as many are looked for */
#define SEARCHES 24u /* at most, after those of the ends */
#define WORTH    1e7 /* times of the fastest plan that its omega is worth where quality is all */

/* A plan of less than the value under a limit, with theta, and with the gap for times of `least` ms; q gets its setting. */
static tsr_status better(struct tsr_front_drawn *z, struct tsr_plan_problem *q,
                         struct tsr_plan_planned *a, double limit, double theta, double value,
                         double least, const uint64_t first[2], struct tsr_err *err)
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
        st = tsr_plan_settings_better(a, q, z->solver, &z->bounds, value, first, err);
    else
        st = tsr_plan_settings_search(a, q, z->solver, err);
    z->f->solves += a->solves;
    return st;
}

/* The search between or beyond the points i and j; *at: the point that it finds, TSR_FRONT_NONE: there is none in time, which *sure
 * says is proved. */
static tsr_status look(struct tsr_front_drawn *z, double limit, double theta, double value,
                       uint64_t i, uint64_t j, uint64_t *at, bool *sure, struct tsr_err *err)
{
    struct tsr_plan_problem q;
    struct tsr_plan_planned a;
    uint64_t                n = z->f->n, first[2] = { i < n ? z->setting[i] : z->bounds.n,
                                       j < n ? z->setting[j] : z->bounds.n };
    double least = i < n ? z->charged[i] : 0;
    *at = TSR_FRONT_NONE;
    tsr_status st = better(z, &q, &a, limit, theta, value, least, first, err);
    bool       plan = st == TSR_OK && tsr_plan_planned_has_plan(&a);
    *sure = a.status == TSR_SOLVED_INFEASIBLE || a.status == TSR_SOLVED_OPTIMAL;
    if (plan)
        st = tsr_front_add(z, &q, &a, *sure, at, err);
    tsr_plan_planned_free(&a);
    return st;
}

/* The limit of the default without indicators by KL: 4 bits in all layers; NAN where no candidate has them. */
static double four_bits(const struct tsr_plan_problem *p)
{
    const struct tsr_plan_candidate *v = p->candidates.v;
    for (uint64_t c = 0; c < p->candidates.n; c++)
        if (v[c].bits == 4 && !v[c].mixed)
            return tsr_plan_quality_uniform(&p->quality, c) + tsr_plan_problem_kl_base(p);
    return NAN;
}

/* Omega that no plan has. */
static double most_of(const struct tsr_plan_problem *p)
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

/* The fastest plan within a limit: a point that is there, or a new one; TSR_FRONT_NONE: none. */
static tsr_status within(struct tsr_front_drawn *z, double limit, uint64_t *at, struct tsr_err *err)
{
    uint64_t known = tsr_front_fastest(z, limit);
    bool     sure;
    TSR_TRY(look(z, limit, 0, known == TSR_FRONT_NONE ? INFINITY : z->charged[known], known,
                 TSR_FRONT_NONE, at, &sure, err));
    if (*at == TSR_FRONT_NONE && known != TSR_FRONT_NONE) {
        *at = known;
        z->f->v[known].proved = z->f->v[known].proved || sure;
    }
    return TSR_OK;
}

/* The least omega, and the fastest plan with it. */
static tsr_status least_omega(struct tsr_front_drawn *z, uint64_t high, struct tsr_err *err)
{
    struct tsr_plan_problem q;
    struct tsr_plan_planned a, b = { .status = TSR_SOLVED_UNKNOWN };
    double                  omega = z->f->v[high].omega;
    double                  theta = WORTH * z->f->v[high].latency_ms / omega;
    double                  value = tsr_front_value(z, high, theta);
    uint64_t                at, first[2] = { z->setting[high], z->bounds.n };
    tsr_status              st = better(z, &q, &a, z->most, theta, value, value, first, err);
    if (st == TSR_OK && tsr_plan_planned_has_plan(&a)) {
        struct tsr_plan_problem r;
        double ms = a.outcome.latency_ms * tsr_plan_settings_burden(&q, q.work.kv, q.work.chunk);
        first[0] = tsr_front_setting(&z->bounds, &q);
        st = better(z, &r, &b, a.outcome.omega * (1 + 1e-9), 0, ms, ms, first, err);
        bool faster = st == TSR_OK && tsr_plan_planned_has_plan(&b);
        if (faster)
            st = tsr_front_add(z, &r, &b, b.status == TSR_SOLVED_OPTIMAL, &at, err);
        else if (st == TSR_OK)
            st = tsr_front_add(z, &q, &a, b.status == TSR_SOLVED_INFEASIBLE, &at, err);
    }
    tsr_plan_planned_free(&a);
    tsr_plan_planned_free(&b);
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
    if (!b->edge) {
        b->edge = true;
        if (!(less > 0)) /* what nobody asked for costs more than they differ */
            return TSR_OK;
        double theta = (z->charged[j] - z->charged[i]) / less;
        double value = fmin(tsr_front_value(z, i, theta), tsr_front_value(z, j, theta));
        return look(z, z->most, theta, value, i, j, &at, &sure, err);
    }
    double floor = fmax(b->floor, v[j].omega), limit = 0.5 * (floor + v[i].omega);
    b->floor = limit;
    TSR_TRY(look(z, limit, 0, z->charged[j], j, i, &at, &sure, err));
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
    double   four = default_limit ? four_bits(&z->p) : NAN;
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

static tsr_status draw(struct tsr_front_drawn *z, const struct tsr_plan_problem *p,
                       const struct tsr_plan_planned *own, struct tsr_plan_setting *list,
                       struct tsr_err *err)
{
    uint64_t at;
    z->p = *p;
    z->p.max_omega = z->most;
    if (p->max_omega < 0 && !p->quality.kl.on) /* nothing says what a narrow cache may cost */
        z->p.o.free_kv = false;
    z->bounds.list = list;
    z->bounds.n = tsr_plan_settings_of(&z->p, list);
    z->bounds.used = tsr_new(z->bounds.n, sizeof *z->bounds.used);
    z->bounds.lines = tsr_new(z->bounds.n * TSR_PLAN_BOUND_LINES, sizeof *z->bounds.lines);
    if (!z->bounds.used || !z->bounds.lines)
        return tsr_fail_nomem(err, z->bounds.n * TSR_PLAN_BOUND_LINES * sizeof *z->bounds.lines,
                              "bounds of settings");
    if (own) {
        TSR_TRY(tsr_front_add(z, p, own, own->status == TSR_SOLVED_OPTIMAL, &at, err));
        z->f->v[at].job = true;
    }
    return find(z, own != NULL, err);
}

tsr_status tsr_plan_front_find(struct tsr_plan_front *f, const struct tsr_plan_problem *p,
                               const struct tsr_plan_planned *own,
                               const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    double                  start = tsr_now_s();
    struct tsr_front_drawn *z = tsr_new(1, sizeof *z);
    *f = (struct tsr_plan_front){ 0 };
    if (!z)
        return tsr_fail_nomem(err, sizeof *z, "a front");
    z->f = f;
    z->solver = solver;
    z->most = most_of(p);
    z->end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY;
    struct tsr_plan_setting *list = tsr_new(TSR_PLAN_SETTINGS, sizeof *list);
    tsr_status               st =
        list ? draw(z, p, own, list, err)
                           : tsr_fail_nomem(err, TSR_PLAN_SETTINGS * sizeof *list, "settings of a front");
    free(z->bounds.used);
    free(z->bounds.lines);
    free(list);
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
    tsr_status st = tsr_plan_front_find(&f, p, NULL, solver, err);
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
