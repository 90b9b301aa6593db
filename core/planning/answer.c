/* One changed problem, solved again: for speed within the quality of the plan, then for quality within its time. */
#include "base/clock.h"
#include "base/mem.h"
#include "pipeline/step.h"
#include "planning/buys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROBES  6    /* limits on omega that are tried for one answer */
#define CLOSE   1.02 /* of the least one, which is then enough */
#define FIRST   8.0  /* the first limit is that much below */
#define ANY_GAP 0.5  /* any plan within the time tells that there is one */
#define SPEED   0.9  /* of an answer's time, at most, for the first of its two questions */
#define MOMENT  0.05 /* s that an answer has in any case */

/* ---- quality ------------------------------------------------------------------------- */

tsr_status tsr_planning_least_omega(const struct tsr_planning_buying *z,
                                    const struct tsr_plan_problem *p, double ms, double known,
                                    double end, double *omega, struct tsr_err *err)
{
    double low = 0;
    *omega = known;
    for (int i = 0; i<PROBES && * omega> 0 && *omega > low * CLOSE; i++) {
        struct tsr_plan_problem q = *p;
        struct tsr_plan_planned a;
        double                  left = end - tsr_now_s();
        if (left < MOMENT)
            return TSR_OK;
        q.max_omega = low > 0 ? sqrt(low * *omega) : *omega / FIRST;
        q.o.theta = 0;
        q.o.gap = fmax(q.o.gap, ANY_GAP);
        q.o.time_limit = left;
        tsr_status st = tsr_search(&a, &q, &z->pl->solver, ms * (1 + 1e-9), err);
        bool       yes = st == TSR_OK && tsr_plan_planned_has_plan(&a) &&
                   a.outcome.latency_ms <= ms * (1 + 1e-6) && a.outcome.omega < *omega;
        if (yes)
            *omega = a.outcome.omega;
        else
            low = q.max_omega;
        tsr_plan_planned_free(&a);
        TSR_TRY(st);
    }
    return TSR_OK;
}

/* ---- one answer ------------------------------------------------------------------------ */

/* The settings of p that v did not come with: "16 requests at once, an int8 cache"; "" if none differs. */
static void differs(const struct tsr_plan_problem *p, const struct tsr_plan_problem *was,
                    char text[160])
{
    size_t at = 0;
    text[0] = '\0';
    if (p->memory.batch != was->memory.batch)
        at += (size_t)snprintf(text + at, 160 - at, "%llu requests at once",
                               (unsigned long long)p->memory.batch);
    if (p->work.chunk != was->work.chunk && p->work.chunk == 0)
        at += (size_t)snprintf(text + at, 160 - at, "%swhole prompts", at ? ", " : "");
    else if (p->work.chunk != was->work.chunk)
        at += (size_t)snprintf(text + at, 160 - at, "%schunks of %llu tokens", at ? ", " : "",
                               (unsigned long long)p->work.chunk);
    if (p->work.kv != was->work.kv)
        (void)snprintf(text + at, 160 - at, "%sa cache of %s", at ? ", " : "",
                       tsr_plugin_kv_name(p->work.kv));
}

tsr_status tsr_planning_unknown(const struct tsr_planning_buying *z, const char *what,
                                const char *reason, struct tsr_err *err)
{
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "what", what) &&
              tsr_pipeline_json_put_text(j, "reason", reason);
    ok = json_array_append_new(z->list, j) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(err, 64, "an explanation");
}

/* A plan of the changed problem p, which has its setting; was: the problem before settings were chosen. */
static tsr_status found(struct tsr_planning_buying *z, const struct tsr_plan_problem *p,
                        const struct tsr_plan_problem *was, const struct tsr_plan_planned *b,
                        const char *what, enum tsr_planning_change change, bool proved, double end,
                        struct tsr_err *err)
{
    double  now = z->a->outcome.latency_ms, ms = b->outcome.latency_ms, omega = NAN;
    double  least = b->outcome.omega;
    bool    priced = change != TSR_PLANNING_UNPRICED;
    bool    steady = p->o.objective == TSR_OBJECTIVE_STEADY;
    char    with[160];
    json_t *j = json_object();
    if (change == TSR_PLANNING_MORE) /* it has the plans without the change, too */
        least = fmin(least, z->least);
    if (priced && steady && ms <= now * (1 + 1e-6))
        TSR_TRY(tsr_planning_least_omega(z, p, fmax(now, ms), least, end, &omega, err));
    differs(p, was, with);
    bool ok = tsr_pipeline_json_put_text(j, "what", what) &&
              tsr_pipeline_json_put_real(j, "latency_ms", ms) &&
              tsr_pipeline_json_put_real(j, "omega", priced ? b->outcome.omega : (double)NAN) &&
              tsr_pipeline_json_put_real(j, "omega_in_time", omega) &&
              tsr_pipeline_json_put(j, "proved", json_boolean(proved)) &&
              tsr_pipeline_json_put_text(j, "with", with) &&
              tsr_pipeline_json_put_real(j, "change", ms / now - 1);
    ok = json_array_append_new(z->list, j) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(err, 64, "an explanation");
}

tsr_status tsr_planning_bought(struct tsr_planning_buying    *z,
                               const struct tsr_plan_problem *changed, const char *what,
                               enum tsr_planning_change change, struct tsr_err *err)
{
    struct tsr_plan_planned        b;
    struct tsr_plan_problem        p = *changed;
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    const struct tsr_plan_planned *known = change == TSR_PLANNING_MORE ? z->a : NULL;
    double                         left = (z->end - tsr_now_s()) / (double)(z->left ? z->left : 1);
    double                         end = tsr_now_s() + fmax(left, MOMENT);
    if (z->left)
        z->left--;
    p.o.time_limit = fmax(SPEED * left, MOMENT);
    tsr_status st =
        tsr_plan_settings_quick(&b, &p, &z->pl->solver, &z->own, known, &z->a->outcome, &e.err);
    p.o.time_limit = changed->o.time_limit;
    bool plan = st == TSR_OK && tsr_plan_planned_has_plan(&b);
    bool proved = b.status == TSR_SOLVED_OPTIMAL;
    if (st == TSR_OK && !plan && known) { /* nothing better: it stays as it is */
        p = *changed;
        tsr_plan_settings_put(&p, &z->own);
        proved = b.settings == 1 && b.status == TSR_SOLVED_INFEASIBLE;
    }
    if (st == TSR_E_INPUT) /* impossible change */
        st = tsr_planning_unknown(z, what, e.text, err);
    else if (st != TSR_OK)
        (void)tsr_err_copy(err, st, &e.err);
    else if (plan || known)
        st = found(z, &p, changed, plan ? &b : known, what, change, proved, end, err);
    else
        st = tsr_planning_unknown(z, what,
                                  b.status == TSR_SOLVED_INFEASIBLE
                                      ? ""
                                      : "no plan was found in a few solves' time",
                                  err);
    tsr_plan_planned_free(&b);
    return st;
}
