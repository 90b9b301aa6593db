/* Whether a changed problem has a plan, and the least or the largest change with one. */
#include "plan/search/whatif_internal.h"

#include <math.h>

#define SECONDS 5.0 /* to find any plan */

tsr_status tsr_plan_whatif_feasible(struct tsr_plan_problem p, const struct tsr_plugin_spec *solver,
                                    bool *yes, bool *known, struct tsr_err *err)
{
    struct tsr_plan_planned a;
    uint64_t                devices = 0;
    for (uint64_t g = 0; g < p.cluster->n_groups; g++)
        devices += tsr_plan_problem_devices(&p, g);
    if (devices > p.shape->layers)
        devices = p.shape->layers;
    if (!devices)
        devices = 1;
    /* the same sizes as the search has, the smallest of them; larger ones may have prompts done in time */
    bool sizes = p.o.max_first_ms > 0;
    if (!p.o.decode_mb && !sizes) {
        uint64_t m = 2 * devices;
        p.o.decode_mb = p.memory.batch / m + (p.memory.batch % m != 0);
    }
    if (p.o.decode_mb > p.memory.batch)
        p.o.decode_mb = p.memory.batch;
    if (p.o.prefill_mb > p.o.decode_mb && p.o.decode_mb)
        p.o.prefill_mb = p.o.decode_mb;
    if (!p.o.prefill_mb && !sizes)
        p.o.prefill_mb = 1;
    p.o.gap = 1;
    p.any = true;
    p.o.time_limit = p.o.time_limit > 0 ? fmin(p.o.time_limit, SECONDS) : SECONDS;
    tsr_status st = tsr_search(&a, &p, solver, INFINITY, err);
    *yes = st == TSR_OK && tsr_plan_planned_has_plan(&a);
    *known = *yes || a.status == TSR_SOLVED_INFEASIBLE;
    tsr_plan_planned_put_back(&a);
    return st;
}

tsr_status tsr_plan_whatif_probe(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, tsr_plan_change change,
                                 const void *ctx, uint64_t x, bool *yes, struct tsr_err *err)
{
    struct tsr_plan_variant v;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    bool                    known;
    TSR_TRY(tsr_plan_variant_make(&v, p, err));
    change(&v.p, ctx, x);
    tsr_status st = tsr_plan_whatif_feasible(v.p, solver, yes, &known, &e.err);
    tsr_plan_variant_free(&v);
    if (st == TSR_E_INPUT) /* impossible change: a second device without a link to it */
        return TSR_OK;
    return st == TSR_OK ? st : tsr_err_copy(err, st, &e.err);
}

tsr_status tsr_plan_whatif_least(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, tsr_plan_change change,
                                 const void *ctx, uint64_t lo, uint64_t hi, uint64_t step,
                                 uint64_t *x, struct tsr_err *err)
{
    while (hi - lo > step) {
        uint64_t mid = lo + (hi - lo) / 2;
        bool     yes;
        TSR_TRY(tsr_plan_whatif_probe(p, solver, change, ctx, mid, &yes, err));
        if (yes)
            hi = mid;
        else
            lo = mid;
    }
    *x = hi;
    return TSR_OK;
}

tsr_status tsr_plan_whatif_most(const struct tsr_plan_problem *p,
                                const struct tsr_plugin_spec *solver, tsr_plan_change change,
                                const void *ctx, uint64_t hi, uint64_t *x, struct tsr_err *err)
{
    uint64_t lo = 0;
    while (hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        bool     yes;
        TSR_TRY(tsr_plan_whatif_probe(p, solver, change, ctx, mid, &yes, err));
        if (yes)
            lo = mid;
        else
            hi = mid;
    }
    *x = lo;
    return TSR_OK;
}
