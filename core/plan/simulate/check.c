/* Whether a pipeline can be simulated. */
#include "plan/simulate/simulate_internal.h"

#include "base/mem.h"

static bool times_ok(const double *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!(v[i] >= 0 && isfinite(v[i])))
            return false;
    return true;
}

/* Visits of dealt micro-batches; UINT64_MAX: more than can be counted. */
static tsr_status check_dealt(const struct tsr_plan_pipeline *p, uint64_t *steps,
                              struct tsr_err *err)
{
    uint64_t places = tsr_simulate_positions(p), after = 1;
    *steps = p->n_pre;
    if (p->n_pre == 0)
        return tsr_fail(err, TSR_E_INPUT, "a pipeline without a micro-batch of prefill");
    for (uint64_t i = 0; i < p->n_pre; i++)
        if (!times_ok(p->pre[i].ms, places))
            return tsr_fail(err, TSR_E_INPUT, "a time of the pipeline is negative or no number");
    for (uint64_t i = 0; i < p->n_dec; i++) {
        const struct tsr_plan_dealt *d = &p->dec[i];
        if (!times_ok(d->ms, places))
            return tsr_fail(err, TSR_E_INPUT, "a time of the pipeline is negative or no number");
        if (d->after < after || d->after > p->n_pre)
            return tsr_fail(err, TSR_E_INPUT,
                            "decode micro-batch %llu begins after %llu of %llu prefill ones; each "
                            "needs one at least and no fewer than the one before",
                            (unsigned long long)i, (unsigned long long)d->after,
                            (unsigned long long)p->n_pre);
        after = d->after;
        if (!tsr_add(*steps, d->steps, steps))
            *steps = UINT64_MAX;
    }
    return TSR_OK;
}

static tsr_status check_even(const struct tsr_plan_pipeline *p, uint64_t *steps,
                             struct tsr_err *err)
{
    const struct tsr_plan_pipeline_back none = { 0, 0, 0, 0 }, *b = p->back ? p->back : &none;
    const double back[] = { b->link_pre_ms, b->link_dec_ms, b->head_pre_ms, b->head_dec_ms };
    if (p->batch == 0 || p->tokens == 0 || p->prefill_mb == 0 || p->decode_mb == 0 ||
        p->prefill_mb > p->batch || p->decode_mb > p->batch)
        return tsr_fail(err, TSR_E_INPUT,
                        "a pipeline of %llu requests, %llu tokens in micro-batches of %llu and "
                        "%llu cannot run; each must be at least 1, and no micro-batch larger than "
                        "the batch",
                        (unsigned long long)p->batch, (unsigned long long)p->tokens,
                        (unsigned long long)p->prefill_mb, (unsigned long long)p->decode_mb);
    if (!times_ok(p->pre_ms, p->stages) || !times_ok(p->dec_ms, p->stages) ||
        !times_ok(p->link_pre_ms, p->stages - 1) || !times_ok(p->link_dec_ms, p->stages - 1) ||
        (p->way_pre_ms && !times_ok(p->way_pre_ms, p->stages - 1)) ||
        (p->way_dec_ms && !times_ok(p->way_dec_ms, p->stages - 1)) ||
        !times_ok(back, p->back ? 4 : 0))
        return tsr_fail(err, TSR_E_INPUT, "a time of the pipeline is negative or no number");
    if (!(p->prefill_jobs >= 0 && (p->prefill_jobs == 0 || p->prefill_jobs >= 1) &&
          p->prefill_jobs < (double)TSR_SIMULATE_VISITS))
        return tsr_fail(err, TSR_E_INPUT,
                        "a prefill micro-batch of %g jobs cannot run; at least 1 is needed, fewer "
                        "than %llu",
                        p->prefill_jobs, (unsigned long long)TSR_SIMULATE_VISITS);
    uint64_t prefill;
    if (!tsr_mul(tsr_simulate_pieces(p->batch, p->decode_mb), p->tokens - 1, steps) ||
        !tsr_mul(tsr_simulate_pieces(p->batch, p->prefill_mb), tsr_simulate_jobs(p), &prefill) ||
        !tsr_add(*steps, prefill, steps))
        *steps = UINT64_MAX;
    return TSR_OK;
}

tsr_status tsr_simulate_check(const struct tsr_plan_pipeline *p, struct tsr_err *err)
{
    uint64_t steps = 0, places, visits;
    if (p->stages == 0)
        return tsr_fail(err, TSR_E_INPUT, "a pipeline of 0 stages cannot run");
    if (p->stages == 1 && p->back)
        return tsr_fail(err, TSR_E_INPUT, "one stage has no way back to itself");
    TSR_TRY(p->pre ? check_dealt(p, &steps, err) : check_even(p, &steps, err));
    if (!tsr_mul(p->stages, 2, &places) || !tsr_add(places, p->back ? 1 : 0, &places) ||
        !tsr_mul(steps, p->back ? places : places - 1, &visits) || visits > TSR_SIMULATE_VISITS)
        return tsr_fail(err, TSR_E_CONFIG,
                        "%llu tokens of %llu requests on %llu stages are too many to simulate; "
                        "fewer tokens show the same pattern",
                        (unsigned long long)p->tokens, (unsigned long long)p->batch,
                        (unsigned long long)p->stages);
    return TSR_OK;
}
