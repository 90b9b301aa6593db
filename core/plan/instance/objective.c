#include "plan/instance/objective.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define BAD(...) tsr_fail(err, TSR_E_INPUT, __VA_ARGS__)
#define NOT(...) tsr_fail(err, TSR_E_INFEASIBLE, __VA_ARGS__)
#define U(x)     ((unsigned long long)(x))

/* Rules 1, 2 and the ranges of all indices. */
static tsr_status check_shape(const struct tsr_solver_instance *in,
                              const struct tsr_solver_solution *s, struct tsr_err *err)
{
    uint64_t next = 0;
    if (s->option >= in->n_options)
        return BAD("option %llu of %llu", U(s->option), U(in->n_options));
    if (s->stages == 0 || s->stages > s->max_stages)
        return BAD("%llu stages, 1 to %llu are possible", U(s->stages), U(s->max_stages));
    for (uint64_t i = 0; i < s->stages; i++) {
        if (s->stage_kind[i] >= in->n_kinds)
            return BAD("stage %llu: kind %u of %llu", U(i), s->stage_kind[i], U(in->n_kinds));
        if (s->stage_count[i] == 0 || s->stage_first[i] != next ||
            s->stage_count[i] > in->layers - next)
            return BAD("stage %llu: layers %llu to %llu do not follow layer %llu of %llu", U(i),
                       U(s->stage_first[i]), U(s->stage_first[i] + s->stage_count[i]), U(next),
                       U(in->layers));
        next += s->stage_count[i];
    }
    if (next != in->layers)
        return BAD("the stages hold %llu of %llu layers", U(next), U(in->layers));
    for (uint64_t l = 0; l < in->layers; l++)
        if (s->layer_bits[l] >= in->bits)
            return BAD("layer %llu: bit candidate %u of %llu", U(l), s->layer_bits[l], U(in->bits));
    if (in->n_links > 1 && !s->stage_link)
        return BAD("no codec for any link; expected one of %llu after each stage but the last",
                   U(in->n_links));
    for (uint64_t i = 0; in->n_links > 1 && i + 1 < s->stages; i++)
        if (s->stage_link[i] >= in->n_links)
            return BAD("stage %llu: codec %u of %llu", U(i), s->stage_link[i], U(in->n_links));
    return TSR_OK;
}

/* Of each pool at most its devices; all of them where all must be used. */
static tsr_status check_pools(const struct tsr_solver_instance *in,
                              const struct tsr_solver_solution *s, struct tsr_err *err)
{
    for (uint64_t g = 0; g < in->n_pools; g++) {
        uint64_t used = 0, have = in->pool_devices[g];
        for (uint64_t i = 0; i < s->stages; i++) {
            const struct tsr_solver_kind *k = in->kinds[s->stage_kind[i]];
            if (k->pool == g && !tsr_add(used, k->takes, &used))
                used = UINT64_MAX;
        }
        if (used > have)
            return BAD("the stages take %llu devices of pool %llu, which has %llu", U(used), U(g),
                       U(have));
        if (!in->allow_unused && used != have)
            return NOT("%llu of %llu devices of pool %llu are used, all must be", U(used), U(have),
                       U(g));
    }
    return TSR_OK;
}

/* Where the devices of the next stage end in a fixed order, from entry `at`; UINT64_MAX: nowhere.
 * A stage takes the next entry of its kind, or with pools the next run of `takes` entries of its pool. */
static uint64_t after_stage(const struct tsr_solver_instance *in, uint32_t kind, uint64_t at)
{
    uint64_t what = in->n_pools ? in->kinds[kind]->pool : kind, run = 0;
    uint64_t takes = in->n_pools ? in->kinds[kind]->takes : 1;
    for (; at < in->order_len; at++) {
        run = in->order[at] == what ? run + 1 : 0;
        if (run == takes)
            return at + 1;
    }
    return UINT64_MAX;
}

static tsr_status check_devices(const struct tsr_solver_instance *in,
                                const struct tsr_solver_solution *s, struct tsr_err *err)
{
    uint64_t devices = 0, at = 0;
    for (uint64_t k = 0; k < in->n_kinds; k++) {
        uint64_t used = 0;
        for (uint64_t i = 0; i < s->stages; i++)
            used += s->stage_kind[i] == k;
        if (used > in->kinds[k]->count)
            return BAD("%llu stages on kind %llu, which has %u devices", U(used), U(k),
                       in->kinds[k]->count);
        devices += in->kinds[k]->count;
    }
    if (!in->n_pools && !in->allow_unused && s->stages != devices)
        return NOT("%llu of %llu devices are used, all must be", U(s->stages), U(devices));
    TSR_TRY(check_pools(in, s, err));
    for (uint64_t i = 0; in->order && i < s->stages; i++) {
        at = after_stage(in, s->stage_kind[i], at);
        if (at == UINT64_MAX)
            return BAD("stage %llu: kind %u does not come in the fixed order any more", U(i),
                       s->stage_kind[i]);
    }
    return TSR_OK;
}

/* Rules 3 and 4, and the stage's times. */
tsr_status tsr_plan_stage(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
                          uint64_t i, struct tsr_plan_stage_cost *cost, struct tsr_err *err)
{
    const struct tsr_solver_option *o = in->options[s->option];
    uint64_t                        k = s->stage_kind[i], bytes = 0, host = 0, all;
    bool                            last = i + 1 == s->stages;
    double                          pre = i == 0 ? o->embed_pre_ms[k] : 0;
    double                          dec = i == 0 ? o->embed_dec_ms[k] : 0;
    pre += last ? o->head_pre_ms[k] : 0;
    dec += last ? o->head_dec_ms[k] : 0;
    bool fits = tsr_add(i == 0 ? in->embed_bytes : 0, last ? in->head_bytes : 0, &bytes) &&
                tsr_add(bytes, i == 0 ? o->embed_bytes : 0, &bytes) &&
                tsr_add(bytes, last ? o->head_bytes : 0, &bytes);
    for (uint64_t l = s->stage_first[i]; fits && l < s->stage_first[i] + s->stage_count[i]; l++) {
        uint64_t c = in->layer_class[l], q = s->layer_bits[l],
                 e = (k * in->classes + c) * in->bits + q;
        if (isnan(o->pre_ms[e]) || isnan(o->dec_ms[e]))
            return NOT("layer %llu: kind %llu cannot run bit candidate %llu", U(l), U(k), U(q));
        pre += o->pre_ms[e];
        dec += o->dec_ms[e];
        fits = tsr_add(bytes, in->layer_bytes[c * in->bits + q], &bytes);
        if (in->host_bytes && !tsr_add(host, in->host_bytes[c * in->bits + q], &host))
            host = UINT64_MAX;
    }
    fits = fits && tsr_add(bytes, o->workspace_bytes[k], &all);
    if (!fits || all > in->kinds[k]->capacity_bytes)
        return NOT("stage %llu: needs %llu bytes of the %llu of kind %llu", U(i),
                   U(fits ? all : UINT64_MAX), U(in->kinds[k]->capacity_bytes), U(k));
    if (host > in->kinds[k]->host_capacity_bytes)
        return NOT("stage %llu: needs %llu bytes of the %llu of the host of kind %llu", U(i),
                   U(host), U(in->kinds[k]->host_capacity_bytes), U(k));
    *cost = (struct tsr_plan_stage_cost){ pre, dec, bytes, o->workspace_bytes[k] };
    return TSR_OK;
}

uint64_t tsr_plan_link(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
                       uint64_t i)
{
    uint64_t v = in->n_links > 1 ? s->stage_link[i] : 0;
    return (v * in->n_kinds + s->stage_kind[i]) * in->n_kinds + s->stage_kind[i + 1];
}

/* The sum of omega: of bits, kinds and links, and of the option. */
static double omega_of(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s)
{
    double w = in->options[s->option]->omega;
    for (uint64_t i = 0; i < s->stages; i++) {
        uint64_t end = s->stage_first[i] + s->stage_count[i], k = s->stage_kind[i];
        for (uint64_t l = s->stage_first[i]; l < end; l++) {
            w += in->omega[l * in->bits + s->layer_bits[l]];
            w += in->kind_omega ? in->kind_omega[k * in->layers + l] : 0;
        }
        if (in->link_omega && end < in->layers)
            w += in->link_omega[(in->n_links > 1 ? s->stage_link[i] : 0) * in->layers + end - 1];
    }
    return w;
}

/* A limit with the tolerance of docs/formats/instance.md. */
static bool within(double v, double limit)
{
    return v <= limit + 1e-9 * fmax(1, limit);
}

tsr_status tsr_plan_evaluate(const struct tsr_solver_instance *in,
                             const struct tsr_solver_solution *s, double *objective,
                             struct tsr_err *err)
{
    TSR_TRY(check_shape(in, s, err));
    TSR_TRY(check_devices(in, s, err));
    const struct tsr_solver_option *o = in->options[s->option];
    double sum_pre = 0, sum_dec = 0, link_pre = 0, link_dec = 0, p = 0, d = 0, w = omega_of(in, s);
    for (uint64_t i = 0; i < s->stages; i++) {
        struct tsr_plan_stage_cost c = { 0 };
        TSR_TRY(tsr_plan_stage(in, s, i, &c, err));
        sum_pre += c.pre_ms;
        sum_dec += c.dec_ms;
        p = fmax(p, c.pre_ms);
        d = fmax(d, c.dec_ms);
        if (i + 1 == s->stages)
            break;
        uint64_t e = tsr_plan_link(in, s, i);
        link_pre += o->comm_pre_ms[e];
        link_dec += o->comm_dec_ms[e];
        p = fmax(p, o->comm_pre_ms[e]);
        d = fmax(d, o->comm_dec_ms[e]);
    }
    if (in->max_omega >= 0 && !within(w, in->max_omega))
        return NOT("omega sums to %.10g, above max_omega %.10g", w, in->max_omega);
    double steps = (double)(in->tokens - 1);
    double mu_pre =
        o->prefill_jobs > 0 ? o->prefill_jobs : ceil((double)in->batch / (double)o->prefill_mb);
    double mu_dec = ceil((double)in->batch / (double)o->decode_mb);
    double first = sum_pre + link_pre + (mu_pre - 1) * p;
    if (in->max_first_ms > 0 && !within(first, in->max_first_ms))
        return NOT("all prompts are done after %.10g ms, above max_first_ms %.10g", first,
                   in->max_first_ms);
    if (in->objective == TSR_OBJECTIVE_PAPER) {
        *objective =
            (mu_pre - 1) * p + (mu_dec - 1) * steps * d + sum_pre + sum_dec + in->theta * w;
    } else {
        double r = sum_dec + link_dec, decode = 0;
        if (in->tokens > 1)
            decode = fmax(steps * r + (mu_dec - 1) * d, r + (steps * mu_dec - 1) * d);
        *objective = first + decode + in->theta * w;
    }
    return TSR_OK;
}
