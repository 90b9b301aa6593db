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

/* Whether it is within 2 % of the least. */
static bool is_proved(const struct tsr_planning_omega *o)
{
    return o->omega <= o->bound * CLOSE * (1 + 1e-9) || o->omega == 0;
}

/* Whether a search for a plan below a cutoff proved that there is none. */
static bool proves_none(const struct tsr_plan_planned *a, double cutoff)
{
    return !a->ignored && !tsr_plan_planned_has_plan(a) &&
           (a->status == TSR_SOLVED_INFEASIBLE || a->bound >= cutoff * (1 - 1e-9));
}

tsr_status tsr_planning_least_omega(const struct tsr_planning_buying *z,
                                    const struct tsr_plan_problem *p, double ms, double known,
                                    double end, struct tsr_planning_omega *o, struct tsr_err *err)
{
    double low = 0; /* below that none was found */
    *o = (struct tsr_planning_omega){ .omega = known, .bound = NAN };
    for (int i = 0; i < PROBES && o->omega > 0 && o->omega > low * CLOSE; i++) {
        struct tsr_plan_problem q = *p;
        struct tsr_plan_planned a;
        double                  left = end - tsr_now_s(), cutoff = ms * (1 + 1e-9);
        if (left < MOMENT)
            return TSR_OK;
        q.max_omega = low > 0 ? sqrt(low * o->omega) : o->omega / FIRST;
        q.o.theta = 0;
        q.exact_ms = true;
        q.o.gap = fmax(q.o.gap, ANY_GAP);
        q.o.time_limit = left;
        tsr_status st = tsr_search(&a, &q, &z->pl->solver, cutoff, err);
        bool       yes = st == TSR_OK && tsr_plan_planned_has_plan(&a) &&
                   a.outcome.latency_ms <= ms * (1 + 1e-6) && a.outcome.omega < o->omega;
        if (yes)
            o->omega = a.outcome.omega;
        else
            low = q.max_omega;
        if (st == TSR_OK && proves_none(&a, cutoff))
            o->bound = fmax(o->bound, q.max_omega); /* of NaN the other */
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

/* A plan, or that nothing is better; and what is proved of it. */
struct answer {
    const struct tsr_plan_problem *p,
        *was; /* the changed problem with the plan's setting; before settings were chosen */
    const struct tsr_plan_planned *plan;
    double                         least_ms; /* -INFINITY: not known */
    bool                           proved;
    uint64_t                       settings; /* that p leaves open */
};

bool tsr_planning_omega_put(json_t *j, const struct tsr_planning_omega *o)
{
    return tsr_pipeline_json_put_real(j, "omega_in_time", o->omega) &&
           tsr_pipeline_json_put_real(j, "omega_bound", o->bound) &&
           tsr_pipeline_json_put(j, "omega_proved", json_boolean(is_proved(o)));
}

static tsr_status found(struct tsr_planning_buying *z, const struct answer *x, const char *what,
                        enum tsr_planning_change change, double end, struct tsr_err *err)
{
    const struct tsr_plan_outcome *o = &x->plan->outcome;
    struct tsr_planning_omega      in_time = { NAN, NAN };
    double  now = z->a->outcome.latency_ms, ms = o->latency_ms, least = o->omega;
    bool    priced = change != TSR_PLANNING_UNPRICED;
    bool    steady = x->p->o.objective == TSR_OBJECTIVE_STEADY;
    double  bound = x->least_ms > 0 ? x->least_ms : (double)NAN;
    char    with[160];
    json_t *j = json_object();
    if (change != TSR_PLANNING_OTHER && priced) /* it has the plans without the change, too */
        least = fmin(least, z->least);
    if (priced && steady && ms <= now * (1 + 1e-6))
        TSR_TRY(tsr_planning_least_omega(z, x->p, fmax(now, ms), least, end, &in_time, err));
    if (x->settings > 1) /* of the others nothing is proved */
        in_time.bound = NAN;
    differs(x->p, x->was, with);
    bool ok = tsr_pipeline_json_put_text(j, "what", what) &&
              tsr_pipeline_json_put_real(j, "latency_ms", ms) &&
              tsr_pipeline_json_put_real(j, "bound_ms", bound) &&
              tsr_pipeline_json_put_real(j, "omega", priced ? o->omega : (double)NAN) &&
              tsr_planning_omega_put(j, &in_time) &&
              tsr_pipeline_json_put(j, "proved", json_boolean(x->proved)) &&
              tsr_pipeline_json_put_text(j, "with", with) &&
              tsr_pipeline_json_put_real(j, "change", ms / now - 1) &&
              tsr_pipeline_json_put_real(j, "at_most", bound / now - 1);
    ok = json_array_append_new(z->list, j) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(err, 64, "an explanation");
}

/* The plan before the change, as far as it says something of the changed problem. */
static struct tsr_plan_before before(const struct tsr_planning_buying *z,
                                     enum tsr_planning_change          change)
{
    return (struct tsr_plan_before){
        .own = z->own,
        .like = change == TSR_PLANNING_OPEN ? NULL : &z->a->outcome,
        .known = change == TSR_PLANNING_OTHER ? NULL : z->a,
        .other = change == TSR_PLANNING_UNPRICED,
        .least_ms = z->least_ms,
        .floor = change == TSR_PLANNING_MORE || change == TSR_PLANNING_SMALL ? &z->floor : NULL
    };
}

tsr_status tsr_planning_bought(struct tsr_planning_buying    *z,
                               const struct tsr_plan_problem *changed, const char *what,
                               enum tsr_planning_change change, struct tsr_err *err)
{
    struct tsr_plan_planned      b;
    struct tsr_plan_problem      p = *changed;
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    const struct tsr_plan_before was = before(z, change);
    struct answer                x = { .p = &p, .was = changed, .plan = &b };
    double                       left = (z->end - tsr_now_s()) * (double)z->share / (double)z->left;
    double                       end = tsr_now_s() + fmax(left, MOMENT);
    z->left -= z->share;
    p.o.time_limit = fmax(SPEED * left, MOMENT);
    bool       small = change == TSR_PLANNING_SMALL, none = small && z->none;
    tsr_status st = TSR_OK;
    if (none)
        b = (struct tsr_plan_planned){ .status = TSR_SOLVED_INFEASIBLE,
                                       .settings = z->a->settings };
    else
        st = tsr_plan_settings_quick(&b, &p, &z->pl->solver, &was, &x.least_ms, &e.err);
    if (small)
        x.least_ms = none ? z->all_ms : fmax(x.least_ms, z->all_ms);
    p.o.time_limit = changed->o.time_limit;
    bool plan = st == TSR_OK && tsr_plan_planned_has_plan(&b);
    x.settings = b.settings;
    x.proved = b.status == TSR_SOLVED_OPTIMAL;
    if (st == TSR_OK && !plan && was.known) { /* nothing better: it stays as it is */
        p = *changed;
        tsr_plan_settings_put(&p, &z->own);
        x.plan = was.known;
        x.proved = b.status == TSR_SOLVED_INFEASIBLE;
    }
    if (st == TSR_E_INPUT) { /* impossible change */
        st = tsr_planning_unknown(z, what, e.text, err);
    } else if (st != TSR_OK) {
        (void)tsr_err_copy(err, st, &e.err);
    } else if (plan || was.known) {
        double ms = x.plan->outcome.latency_ms;
        x.proved = x.proved || x.least_ms >= ms * (1 - p.o.gap) - 1e-6 * ms;
        st = found(z, &x, what, change, end, err);
    } else {
        st = tsr_planning_unknown(z, what,
                                  b.status == TSR_SOLVED_INFEASIBLE
                                      ? ""
                                      : "no plan was found in a few solves' time",
                                  err);
    }
    tsr_plan_planned_free(&b);
    return st;
}
