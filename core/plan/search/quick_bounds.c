/* What is proved of the settings of a changed problem. */
#include "base/clock.h"
#include "base/mem.h"
#include "plan/search/lines.h"
#include "plan/search/settings_quick.h"
#include "plugin/choices.h"

#include <math.h>
#include <stdlib.h>

double tsr_quick_part(const struct tsr_quick *z, double part)
{
    double left = z->s.end - tsr_now_s();
    return isfinite(left) ? fmax(left * part, 1e-3) : 0;
}

bool tsr_quick_is_late(const struct tsr_quick *z)
{
    return tsr_now_s() >= z->s.end;
}

double tsr_quick_limit(const struct tsr_quick *z)
{
    return z->s.value * (1 - z->s.p->o.gap);
}

/* Time of the best plan that is known. */
static double best_ms(const struct tsr_quick *z)
{
    const struct tsr_plan_planned *best = z->s.at < z->s.n ? z->s.best : z->before->known;
    return best ? best->outcome.latency_ms : INFINITY;
}

/* No plan of the setting is better, or none is faster.  more: added to what is proved. */
static bool reaches(const struct tsr_quick *z, uint64_t i, double more)
{
    struct tsr_plan_problem q = *z->s.p;
    double                  least = (z->proved[i] + more) * (1 + 1e-9);
    if (least >= tsr_quick_limit(z))
        return true;
    tsr_plan_settings_put(&q, &z->s.list[i]);
    least /= tsr_plan_settings_burden(&q, q.work.kv, q.work.chunk);
    return !(q.o.theta > 0) && least >= best_ms(z) * (1 - q.o.gap);
}

bool tsr_quick_is_proved(const struct tsr_quick *z, uint64_t i)
{
    return reaches(z, i, 0);
}

bool tsr_quick_is_settled(const struct tsr_quick *z, uint64_t i)
{
    return reaches(z, i, z->s.over);
}

void tsr_quick_note(struct tsr_quick *z, uint64_t i, double value)
{
    if (!isnan(value))
        z->proved[i] = fmax(z->proved[i], value);
}

bool tsr_quick_same_but_cache(const struct tsr_plan_setting *s, const struct tsr_plan_setting *t)
{
    return s->concurrency == t->concurrency && s->chunk == t->chunk && s->end == t->end &&
           s->types == t->types && s->most_k == t->most_k;
}

/* A bound of the time of a setting's rounds, whatever its cache costs. */
static void note_ms(struct tsr_quick *z, uint64_t i, double ms)
{
    struct tsr_plan_problem q = *z->s.p;
    tsr_plan_settings_put(&q, &z->s.list[i]);
    tsr_quick_note(z, i,
                   (ms + q.o.theta * q.kv_omega) *
                       tsr_plan_settings_burden(&q, q.work.kv, q.work.chunk));
}

void tsr_quick_note_wider(struct tsr_quick *z, uint64_t from, double ms)
{
    const struct tsr_plan_setting *v = z->s.list;
    for (uint64_t k = 0; k < z->s.n; k++)
        if (tsr_quick_same_but_cache(&v[k], &v[from]) &&
            tsr_settled_is_narrower(z->s.p, v[from].kv, v[k].kv))
            note_ms(z, k, ms);
}

void tsr_quick_take_floor(struct tsr_quick *z)
{
    const struct tsr_plan_floor *f = z->before->floor;
    for (uint64_t i = 0; f && i < z->s.n; i++)
        for (uint64_t k = 0; k < f->n; k++)
            if (tsr_quick_same_but_cache(&f->list[k], &z->s.list[i]) &&
                f->list[k].kv == z->s.list[i].kv)
                note_ms(z, i, f->ms[k]);
}

tsr_status tsr_quick_rounds(struct tsr_quick *z, uint64_t i, struct tsr_err *err)
{
    const struct tsr_plan_setting *v = z->s.list;
    struct tsr_plan_problem        q = *z->s.p;
    uint64_t                       narrow = i;
    double                         least;
    int64_t                       *room;
    for (uint64_t k = 0; k < z->s.n; k++)
        if (tsr_quick_same_but_cache(&v[k], &v[i]) &&
            tsr_settled_is_narrower(&q, v[k].kv, v[narrow].kv))
            narrow = k;
    tsr_plan_settings_put(&q, &v[narrow]);
    q.kv_omega = 0;
    q.o.time_limit = tsr_quick_part(z, 1);
    double by = tsr_plan_settings_burden(&q, q.work.kv, q.work.chunk),
           limit = tsr_quick_limit(z) * by;
    tsr_status st = tsr_settled_make_room(&q, &room, err);
    if (st == TSR_OK)
        st = tsr_settled_all_rounds(&z->s, &q, limit,
                                    tsr_settled_lines(&z->s, narrow, TSR_PLAN_LINES_ALL), &least,
                                    err);
    if (st == TSR_OK)
        tsr_quick_note_wider(z, narrow, fmin(least, limit) / by);
    free(room);
    return st;
}

bool tsr_quick_has_rounds(const struct tsr_quick *z)
{
    bool any = false;
    for (uint64_t i = 0; i < z->s.n; i++)
        any = any ||
              (z->s.list[i].concurrency < z->s.list[0].concurrency && !tsr_quick_is_settled(z, i));
    return any;
}

/* ---- of latencies ---------------------------------------------------------------------- */

double tsr_quick_ms(const struct tsr_plan_problem *p, double value)
{
    double ms = value / tsr_plan_settings_burden(p, p->work.kv, p->work.chunk);
    if (p->o.objective != TSR_OBJECTIVE_STEADY)
        return -INFINITY;
    if (p->o.theta > 0 && isfinite(value))
        ms = p->max_omega >= 0 ? ms - p->o.theta * p->max_omega : -INFINITY;
    return ms > 0 ? ms : -INFINITY;
}

double tsr_plan_settings_least(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a)
{
    bool one_round = p->memory.batch >= p->work.batch;
    if (!tsr_plan_planned_has_plan(a) || !a->solves || !(a->bound > 0) || !a->joint)
        return -INFINITY;
    if (a->settings > 1 && !one_round) /* what is said of the batch is by the bound of a round */
        return -INFINITY;
    double value = tsr_settled_value(p, a) * fmin(a->bound / a->objective, 1);
    value = a->settings > 1 ? tsr_plan_planned_least(value, a->over)
                            : tsr_settled_value_from(p, tsr_plan_planned_least(a->bound, a->over));
    return fmin(tsr_quick_ms(p, value), a->outcome.latency_ms);
}

tsr_status tsr_quick_open(struct tsr_quick *z, struct tsr_plan_planned *a,
                          struct tsr_plan_problem *p, const struct tsr_plugin_spec *solver,
                          const struct tsr_plan_before *before, struct tsr_err *err)
{
    struct tsr_plan_setting *list = tsr_new(TSR_PLAN_SETTINGS, sizeof *list);
    double                  *least = tsr_new(UINT64_C(3) * TSR_PLAN_SETTINGS, sizeof *least);
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    *z = (struct tsr_quick){
        .s = { .p = p, .solver = solver, .list = list, .best = a, .least = least }, .before = before
    };
    if (!list || !least)
        return tsr_fail_nomem(err, TSR_PLAN_SETTINGS * sizeof *list, "settings of a plan");
    p->exact_ms = true;
    z->s.n = z->s.at = tsr_plan_settings_of(p, list);
    z->s.free = least + TSR_PLAN_SETTINGS;
    z->proved = least + UINT64_C(2) * TSR_PLAN_SETTINGS;
    z->s.value = z->s.bound = INFINITY;
    z->s.end = p->o.time_limit > 0 ? tsr_now_s() + p->o.time_limit : INFINITY;
    for (uint64_t i = 0; i < z->s.n; i++)
        z->s.least[i] = z->s.free[i] = z->proved[i] = -INFINITY;
    return TSR_OK;
}

void tsr_quick_close(struct tsr_quick *z)
{
    free(z->s.least);
    free((void *)(uintptr_t)z->s.list);
}

tsr_status tsr_plan_floor_make(struct tsr_plan_floor *f, struct tsr_plan_problem *p,
                               const struct tsr_plugin_spec *solver, double ms, struct tsr_err *err)
{
    const struct tsr_plan_before none = { .least_ms = -INFINITY };
    struct tsr_plan_planned      a;
    struct tsr_quick             z;
    *f = (struct tsr_plan_floor){ 0 };
    tsr_status st = tsr_quick_open(&z, &a, p, solver, &none, err);
    z.s.value = ms;
    z.blind = !tsr_search_joint(solver);
    if (st == TSR_OK && p->o.theta == 0 && !z.blind && tsr_quick_has_rounds(&z)) {
        st = tsr_settled_few(&z.s, err);
        for (uint64_t i = 0; i < z.s.n && st == TSR_OK && !tsr_quick_is_late(&z); i++) {
            struct tsr_plan_problem q = *p;
            tsr_plan_settings_put(&q, &z.s.list[i]);
            tsr_quick_note(&z, i, tsr_settled_value_from(&q, tsr_settled_known_round(&z.s, i)));
            if (!tsr_quick_is_settled(&z, i))
                st = tsr_quick_rounds(&z, i, err);
        }
    }
    for (uint64_t i = 0; i < z.s.n && st == TSR_OK; i++) {
        struct tsr_plan_problem q = *p;
        tsr_plan_settings_put(&q, &z.s.list[i]);
        z.proved[i] = tsr_quick_ms(&q, z.proved[i]);
    }
    if (st == TSR_OK)
        *f = (struct tsr_plan_floor){
            .list = z.s.list, .ms = z.proved, .n = z.s.n, .own = z.s.least
        };
    else
        tsr_quick_close(&z);
    return st;
}

void tsr_plan_floor_free(struct tsr_plan_floor *f)
{
    free(f->own);
    free((void *)(uintptr_t)f->list);
    *f = (struct tsr_plan_floor){ 0 };
}
