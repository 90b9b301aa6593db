/* The least omega within a time, by searches under limits on omega: the time of the fastest plan falls as they grow. */
#include "base/clock.h"
#include "plan/search/settings.h"

#include <math.h>

#define CLOSE  1e-3 /* of the least omega that is found */
#define NONE   1e-6 /* of the first plan's omega: less is not worth a search */
#define WIDE   8.0  /* first steps */
#define PROBES 40

/* Takes the plan over, with its setting, but not its limit. */
static void keep(struct tsr_plan_planned *a, struct tsr_plan_problem *p, struct tsr_plan_planned *b,
                 const struct tsr_plan_problem *q)
{
    double limit = p->max_omega;
    b->choices += a->choices;
    b->solves += a->solves;
    b->options += a->options;
    tsr_plan_planned_free(a);
    *a = *b;
    *b = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    *p = *q;
    p->max_omega = limit;
    a->built->p = p;
}

/* The fastest plan under a limit; *yes: in time. */
static tsr_status probe(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                        const struct tsr_plugin_spec *solver, double ms, double limit, double left,
                        bool *yes, struct tsr_err *err)
{
    struct tsr_plan_problem q = *p;
    struct tsr_plan_planned b;
    double                  seconds = p->o.time_limit;
    q.max_omega = limit;
    q.o.time_limit = isfinite(left) ? left : 0;
    tsr_status st = tsr_plan_settings_search(&b, &q, solver, err);
    q.o.time_limit = seconds;
    *yes = st == TSR_OK && tsr_plan_planned_has_plan(&b) && b.outcome.latency_ms <= ms;
    if (*yes)
        keep(a, p, &b, &q);
    tsr_plan_planned_free(&b);
    return st;
}

tsr_status tsr_plan_settings_within(struct tsr_plan_planned *a, struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, double ms,
                                    struct tsr_err *err)
{
    double start = tsr_now_s(), end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY;
    TSR_TRY(tsr_plan_settings_search(a, p, solver, err));
    if (!tsr_plan_planned_has_plan(a))
        return TSR_OK;
    if (!(a->outcome.latency_ms <= ms))
        return tsr_fail(err, TSR_E_INFEASIBLE,
                        "at_most: no plan %stakes at most %.6g s; the fastest that was found takes "
                        "%.6g s, with omega %.4g",
                        a->status == TSR_SOLVED_OPTIMAL ? "" : "was found that ", ms / 1e3,
                        a->outcome.latency_ms / 1e3, a->outcome.omega);
    double first = a->outcome.omega, low = 0;
    bool   yes = false, late = false;
    if (first > 0)
        TSR_TRY(probe(a, p, solver, ms, 0, end - tsr_now_s(), &yes, err));
    for (int i = 0; i < PROBES && !yes && a->outcome.omega > first * NONE; i++) {
        double high = a->outcome.omega, left = end - tsr_now_s();
        bool   better;
        late = left <= 0;
        if (late || high <= low * (1 + CLOSE))
            break;
        double limit = low > high / WIDE / WIDE ? sqrt(low * high) : high / WIDE;
        TSR_TRY(probe(a, p, solver, ms, limit, left, &better, err));
        if (!better)
            low = limit;
    }
    if (late)
        a->status = TSR_SOLVED_FEASIBLE;
    a->seconds = tsr_now_s() - start;
    return TSR_OK;
}
