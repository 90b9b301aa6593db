/* The search for a plan of a changed problem: one in little time, and a bound of all others.
 *
 *   the plan before --its micro-batches--> a plan --limit--> the other settings, the plan's own --> what is proved of each
 */
#include "plan/search/settings_quick.h"
#include "base/clock.h"
#include "plan/search/lines.h"
#include "plugin/choices.h"

#include <math.h>
#include <stdlib.h>

#define LIKE_GAP 1e-2
/* Of the time, at most, for a plan with micro-batches as before: where there are other settings, none, nothing to prove. */
#define LIKE_PART  0.6
#define LIKE_ONE   0.7
#define LIKE_ALL   0.9
#define ROUGH      0.05
#define MOST_BYTES (UINT64_C(64) << 20) /* of the instances of a setting */
#define HALF       0.5 /* of the time that is left, for what may not take all of it */

/* No slower than the plan that may stay, whatever settings count as. */
static bool is_better(const struct tsr_quick *z, const struct tsr_plan_problem *q,
                      const struct tsr_plan_planned *a)
{
    const struct tsr_plan_planned *w = z->before->known;
    double                         theta = q->o.theta, value = tsr_settled_value(q, a);
    return value < tsr_quick_limit(z) &&
           (!w || a->outcome.latency_ms + theta * a->outcome.omega <
                      w->outcome.latency_ms + theta * w->outcome.omega);
}

/* Takes a plan of q over, which has setting i, if it is better. */
static void take(struct tsr_quick *z, uint64_t i, const struct tsr_plan_problem *q,
                 struct tsr_plan_planned *a)
{
    if (tsr_plan_planned_has_plan(a) && is_better(z, q, a))
        tsr_settled_take(&z->s, i, a, tsr_settled_value(q, a));
    z->s.best->lines = NULL; /* they are not there as long as the answer */
}

/* With the micro-batches of the plan before: one option in place of many, and mostly the best one. What it finds is the limit of
 * what follows. */
static tsr_status like_before(struct tsr_quick *z, struct tsr_err *err)
{
    struct tsr_plan_problem q = *z->s.p;
    struct tsr_plan_planned a;
    tsr_plan_settings_put(&q, &z->s.list[z->own]);
    q.o.prefill_mb = z->before->like->prefill_mb;
    q.o.decode_mb = z->before->like->decode_mb;
    q.o.gap = fmax(q.o.gap, LIKE_GAP);
    q.o.time_limit = tsr_quick_part(z, z->blind ? LIKE_ALL : z->s.n > 1 ? LIKE_PART : LIKE_ONE);
    double     limit = tsr_quick_limit(z) * (1 - LIKE_GAP); /* what is less comes later */
    tsr_status st = tsr_settled_one(&z->s, z->own, &q, limit, &a, err);
    if (st == TSR_OK)
        take(z, z->own, &q, &a);
    tsr_plan_planned_free(&a);
    return st;
}

/* What a search of q below a limit, which has setting i, proves of it: the least value. */
static double note(struct tsr_quick *z, uint64_t i, const struct tsr_plan_problem *q,
                   const struct tsr_plan_planned *a, double limit)
{
    double least = a->status == TSR_SOLVED_INFEASIBLE ? INFINITY : a->bound;
    double value = fmin(tsr_settled_value_from(q, least), limit);
    tsr_quick_note(z, i, value);
    z->s.least[i] = fmax(z->s.least[i], fmin(least, tsr_settled_round(q, limit)));
    return value;
}

/* Plans of q below a limit. */
static tsr_status below(struct tsr_quick *z, uint64_t i, struct tsr_plan_problem *q, double limit,
                        struct tsr_err *err)
{
    struct tsr_plan_planned a;
    tsr_status              st = tsr_settled_one(&z->s, i, q, limit, &a, err);
    if (st == TSR_OK) {
        (void)note(z, i, q, &a, limit);
        take(z, i, q, &a);
    }
    tsr_plan_planned_put_back(&a);
    return st;
}

/* The same with a cache that costs nothing, which says more of other settings.  *none: there are no such plans, nor any of q. */
static tsr_status below_free(struct tsr_quick *z, uint64_t i, struct tsr_plan_problem *q,
                             double limit, bool *none, struct tsr_err *err)
{
    struct tsr_plan_planned a;
    struct tsr_plan_problem free_q = *q;
    int64_t                *room;
    free_q.kv_omega = 0;
    TSR_TRY(tsr_settled_make_room(&free_q, &room, err));
    tsr_status st = tsr_settled_one(&z->s, i, &free_q, limit, &a, err);
    *none = st == TSR_OK && !tsr_plan_planned_has_plan(&a);
    if (st == TSR_OK) {
        double value = note(z, i, &free_q, &a, limit);
        tsr_quick_note_wider(z, i, value / tsr_plan_settings_burden(q, q->work.kv, q->work.chunk));
    }
    tsr_plan_planned_put_back(&a);
    free(room);
    return st;
}

/* In a part of the time.  lines: of the setting's searches. */
static tsr_status search_below(struct tsr_quick *z, uint64_t i, double limit, double part,
                               struct tsr_plan_lines *lines, struct tsr_err *err)
{
    struct tsr_plan_problem q = *z->s.p;
    bool                    none;
    tsr_plan_settings_put(&q, &z->s.list[i]);
    q.lines = lines;
    q.o.time_limit = tsr_quick_part(z, part);
    if (!isfinite(limit) || q.o.theta > 0 || q.quality.kl.on || !(q.kv_omega > 0))
        return below(z, i, &q, limit, err);
    TSR_TRY(below_free(z, i, &q, limit, &none, err));
    q.lines = NULL; /* the instances differ */
    q.o.time_limit = tsr_quick_part(z, part);
    return none ? TSR_OK : below(z, i, &q, limit, err);
}

/* All plans of a setting, in a part of the time: first below a limit that soon rules most options out. */
static tsr_status setting(struct tsr_quick *z, uint64_t i, double part, struct tsr_err *err)
{
    struct tsr_plan_lines lines = { .most = MOST_BYTES };
    tsr_status            st = TSR_OK;
    if (isfinite(z->s.value) && isfinite(z->s.end))
        st = search_below(z, i, tsr_quick_limit(z) * (1 - ROUGH), HALF * part, &lines, err);
    if (st == TSR_OK)
        st = search_below(z, i, tsr_quick_limit(z), part, &lines, err);
    tsr_plan_lines_free(&lines);
    return st;
}

/* ---- the other settings -------------------------------------------------------------- */

/* A setting that differs from the plan's by its cache alone: the plan's one may settle it, and it is no use before that. */
static bool waits(const struct tsr_quick *z, uint64_t i)
{
    const struct tsr_plan_setting *s = &z->s.list[i], *own = &z->s.list[z->own];
    bool                           wider = tsr_plugin_kv_bits(s->kv) >= tsr_plugin_kv_bits(own->kv);
    bool                           late = isfinite(z->s.end) && !tsr_quick_is_settled(z, z->own);
    return tsr_quick_same_but_cache(s, own) && (!z->tried || (wider && late));
}

/* Rules the other settings out, or finds a better plan; as far as there is time. */
static tsr_status others(struct tsr_quick *z, struct tsr_err *err)
{
    for (uint64_t i = 0; i < z->s.n && !tsr_quick_is_late(z); i++) {
        struct tsr_plan_problem q = *z->s.p;
        if (i == z->own || waits(z, i) || tsr_quick_is_settled(z, i))
            continue;
        tsr_plan_settings_put(&q, &z->s.list[i]);
        tsr_quick_note(z, i,
                       fmin(tsr_settled_value_from(&q, tsr_settled_known_round(&z->s, i)),
                            tsr_quick_limit(z)));
        if (!tsr_quick_is_settled(z, i))
            TSR_TRY(tsr_quick_rounds(z, i, err));
        if (!tsr_quick_is_settled(z, i) && !tsr_quick_is_late(z))
            TSR_TRY(setting(z, i, HALF, err));
    }
    return TSR_OK;
}

/* The others in a part of the time. */
static tsr_status others_in(struct tsr_quick *z, double part, struct tsr_err *err)
{
    double end = z->s.end;
    if (isfinite(end))
        z->s.end = tsr_now_s() + tsr_quick_part(z, part);
    tsr_status st = others(z, err);
    z->s.end = end;
    return st;
}

/* ---- the whole ----------------------------------------------------------------------- */

/* What a change leaves open, while the plan's setting stays as it was: quick plans, then the best of them. */
static tsr_status opened(struct tsr_quick *z, struct tsr_err *err)
{
    struct tsr_plan_planned none = { .status = TSR_SOLVED_UNKNOWN };
    struct tsr_plan_problem q = *z->s.p;
    double                  before = z->s.value;
    TSR_TRY(tsr_settled_coarse(&z->s, err));
    uint64_t at = z->s.at;
    double   found = z->s.value;
    if (at == z->s.n)
        return TSR_OK;
    tsr_plan_settings_put(&q, &z->s.list[at]);
    z->s.value = before;
    if (is_better(z, &q, z->s.best))
        z->s.value = found;
    else
        tsr_settled_take(&z->s, z->s.n, &none, before);
    return setting(z, at, HALF, err);
}

static tsr_status run(struct tsr_quick *z, struct tsr_err *err)
{
    bool changed = z->before->like != NULL;
    TSR_TRY(changed ? like_before(z, err) : opened(z, err));
    if (z->blind)
        return setting(z, z->own, 1, err);
    tsr_quick_take_floor(z);
    if (tsr_quick_has_rounds(z) && !tsr_quick_is_late(z))
        TSR_TRY(tsr_settled_few(&z->s, err));
    TSR_TRY(others_in(z, HALF, err));
    if (!tsr_quick_is_settled(z, z->own) && !tsr_quick_is_late(z)) {
        struct tsr_plan_problem q = *z->s.p;
        tsr_plan_settings_put(&q, &z->s.list[z->own]);
        if (q.work.batch > q.memory.batch)
            TSR_TRY(tsr_quick_rounds(z, z->own, err));
        TSR_TRY(setting(z, z->own, 1, err));
    }
    z->tried = true;
    return others(z, err);
}

/* The setting of the plan, or the one that is most like it. */
static void find_own(struct tsr_quick *z)
{
    const struct tsr_plan_setting *own = &z->before->own, *v = z->s.list;
    uint64_t                       like = z->s.n;
    for (uint64_t i = 0; i < z->s.n; i++) {
        if (tsr_quick_same_but_cache(&v[i], own) && v[i].kv == own->kv) {
            z->own = i;
            z->listed = true;
            return;
        }
        if (like == z->s.n && v[i].concurrency == own->concurrency && v[i].chunk == own->chunk)
            like = i;
    }
    z->own = like < z->s.n ? like : 0;
}

/* What is proved of all settings: z->s.bound in value; returned in latency. */
static double bound_all(struct tsr_quick *z)
{
    double least = INFINITY;
    if (z->before->known && (z->before->other || !z->listed))
        least = z->before->least_ms;
    for (uint64_t i = 0; i < z->s.n; i++) {
        struct tsr_plan_problem q = *z->s.p;
        tsr_plan_settings_put(&q, &z->s.list[i]);
        z->s.bound = fmin(z->s.bound, z->proved[i]);
        least = fmin(least, tsr_quick_ms(&q, z->proved[i]));
    }
    if (z->s.at < z->s.n)
        least = fmin(least, z->s.best->outcome.latency_ms);
    else if (z->before->known)
        least = fmin(least, z->before->known->outcome.latency_ms);
    if (z->blind || isinf(least)) /* without a plan there is nothing to bound */
        least = -INFINITY;
    if (z->blind)
        z->s.bound = -INFINITY;
    return least;
}

static tsr_status answer(struct tsr_quick *z, double *least_ms, struct tsr_err *err)
{
    const struct tsr_plan_before *w = z->before;
    struct tsr_plan_planned       last = { .status = TSR_SOLVED_UNKNOWN };
    struct tsr_plan_problem       q = *z->s.p;
    z->blind = !tsr_search_joint(z->s.solver);
    find_own(z);
    if (w->known) {
        tsr_plan_settings_put(&q, &w->own);
        z->s.value = tsr_settled_value(&q, w->known);
    }
    if (z->listed && w->known && !w->like) /* it is searched already */
        tsr_quick_note(z, z->own,
                       w->least_ms * tsr_plan_settings_burden(&q, q.work.kv, q.work.chunk));
    TSR_TRY(run(z, err));
    *least_ms = bound_all(z);
    bool settled = !z->blind && *least_ms > -INFINITY;
    if (w->known && (w->other || !z->listed)) /* the plan itself may not be the best one */
        settled =
            settled && w->least_ms >= w->known->outcome.latency_ms * (1 - q.o.gap) * (1 - 1e-6);
    for (uint64_t i = 0; i < z->s.n; i++)
        settled = settled && tsr_quick_is_proved(z, i);
    tsr_settled_conclude(&z->s, &last);
    z->s.best->status = z->s.at < z->s.n ? (settled ? TSR_SOLVED_OPTIMAL : TSR_SOLVED_FEASIBLE)
                        : settled        ? TSR_SOLVED_INFEASIBLE
                                         : TSR_SOLVED_UNKNOWN;
    return TSR_OK;
}

tsr_status tsr_plan_settings_quick(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                   const struct tsr_plugin_spec *solver,
                                   const struct tsr_plan_before *before, double *least_ms,
                                   struct tsr_err *err)
{
    double           start = tsr_now_s();
    struct tsr_quick z;
    *least_ms = -INFINITY;
    tsr_status st = tsr_quick_open(&z, a, p, solver, before, err);
    if (st == TSR_OK && z.s.n)
        st = answer(&z, least_ms, err);
    a->settings = z.s.n;
    a->seconds = tsr_now_s() - start;
    tsr_quick_close(&z);
    return st;
}
