/* @NAME@ - greedy: one bit candidate for all layers, and each device takes the next layers as long
 * as they fit; then again with less work for the busiest device, until a layer finds no place. */
#include "@NAME@.h"

#include <cmath>
#include <time.h>
#include <tessera/guard.hpp>

static tsr_status create(const tsr_host *host, const void *, void **self, tsr_err *)
{
    *self = const_cast<tsr_host *>(host); /* no options and no state: it needs the host's table */
    return TSR_OK;
}

static void destroy(void *) {}

static double now_us()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) * 1e6 + double(t.tv_nsec) * 1e-3;
}

static uint32_t kind_of(const tsr_solver_instance *in, uint64_t device)
{
    uint32_t k = 0;
    for (uint64_t end = in->kinds[0]->count; !in->order && device >= end; k++)
        end += in->kinds[k + 1]->count;
    return in->order ? in->order[device] : k;
}

/* A plan with candidate q and less work than *limit for each device.  Returns its objective, or
 * INFINITY when a layer finds no place; *limit becomes the work of the busiest device. */
static double place(const tsr_solver_instance *in, const tsr_solver_option *o,
                    uint64_t q, double *limit, tsr_solver_solution *out)
{
    double steps = double(in->tokens) - 1, batch = double(in->batch), busiest = 0, omega = 0;
    double n_pre = std::ceil(batch / double(o->prefill_mb)), links_pre = 0, sum_pre = 0, P = 0;
    double n_dec = std::ceil(batch / double(o->decode_mb)), links_dec = 0, sum_dec = 0, D = 0;
    uint64_t l = 0, L = in->layers, devices = out->max_stages;
    out->stages = 0;
    for (uint64_t i = 0; i < devices && l < L; i++) {
        /* keep: layers for the devices after this one, where all must be used */
        uint64_t k = kind_of(in, i), first = l, keep = in->allow_unused ? 0 : devices - i - 1;
        uint64_t need = o->workspace_bytes[k] + (l ? 0 : in->embed_bytes);
        double   pre = l ? 0 : o->embed_pre_ms[k], dec = l ? 0 : o->embed_dec_ms[k];
        for (int end; l + keep < L; out->layer_bits[l++] = uint32_t(q)) {
            uint64_t c = in->layer_class[l], e = (k * in->classes + c) * in->bits + q;
            end = l + 1 == L;
            need += in->layer_bytes[c * in->bits + q] + (end ? in->head_bytes : 0);
            double p = pre + o->pre_ms[e] + (end ? o->head_pre_ms[k] : 0); /* NaN: forbidden */
            double d = dec + o->dec_ms[e] + (end ? o->head_dec_ms[k] : 0);
            if (need > in->kinds[k]->capacity_bytes || !(n_pre * p + n_dec * steps * d < *limit))
                break;
            pre = p;
            dec = d;
            omega += in->omega[l * in->bits + q];
        }
        if (l == first)
            continue;
        uint64_t e = first ? out->stage_kind[out->stages - 1] * in->n_kinds + k : 0;
        double   link_pre = first ? o->comm_pre_ms[e] : 0, link_dec = first ? o->comm_dec_ms[e] : 0;
        links_pre += link_pre, links_dec += link_dec;
        sum_pre += pre, sum_dec += dec;
        P = std::fmax(P, std::fmax(pre, link_pre));
        D = std::fmax(D, std::fmax(dec, link_dec));
        busiest = std::fmax(busiest, n_pre * pre + n_dec * steps * dec);
        out->stage_kind[out->stages] = uint32_t(k);
        out->stage_first[out->stages] = first;
        out->stage_count[out->stages++] = l - first;
    }
    *limit = busiest;
    if (l < L || (!in->allow_unused && out->stages < devices) ||
        (in->max_omega >= 0 && omega > in->max_omega * (1 + 1e-9)))
        return INFINITY;
    if (in->objective == TSR_OBJECTIVE_PAPER)
        return (n_pre - 1) * P + (n_dec - 1) * steps * D + sum_pre + sum_dec + in->theta * omega;
    double r = sum_dec + links_dec, fill = sum_pre + links_pre + (n_pre - 1) * P;
    double decode = std::fmax(steps * r + (n_dec - 1) * D, r + (steps * n_dec - 1) * D);
    return fill + (steps > 0 ? decode : 0) + in->theta * omega;
}

static tsr_status solve(void *self, const tsr_solver_instance *in,
                        tsr_solver_solution *out, tsr_err *err)
{
    auto    *host = static_cast<const tsr_host *>(self);
    double   end = in->deadline_us ? now_us() + 0.9 * double(in->deadline_us) : INFINITY;
    double   best = in->cutoff, best_limit = 0;
    uint64_t best_at = 0;
    out->status = TSR_SOLVED_UNKNOWN; /* infeasible and optimal would take a proof */
    out->bound = -INFINITY;
    for (uint64_t i = 0; i < in->n_options * in->bits; i++)
        for (double limit = INFINITY, value = 0, used; value < INFINITY && now_us() < end;) {
            used = limit;
            value = place(in, in->options[i / in->bits], i % in->bits, &limit, out);
            if (host->cancelled(host->ctx))
                return tsr_fail(err, TSR_E_CANCELLED, "stopped");
            if (value < best) {
                best = value, best_limit = used, best_at = i;
                out->status = TSR_SOLVED_FEASIBLE;
            }
        }
    if (out->status == TSR_SOLVED_FEASIBLE) /* the arrays hold the last try, not the best one */
        out->objective = place(in, in->options[best_at / in->bits], best_at % in->bits,
                               &best_limit, out);
    out->option = best_at / in->bits;
    return TSR_OK;
}

const tsr_solver_v1 table = {
    .struct_size = sizeof table, .reserved = 0,
    .supports = TSR_SOLVER_CLASSES | TSR_SOLVER_MAX_OMEGA | TSR_SOLVER_LINKS | TSR_SOLVER_USE_ALL |
        TSR_SOLVER_FORBIDDEN | TSR_SOLVER_WORKSPACE | TSR_SOLVER_ENDS | TSR_SOLVER_FIXED_ORDER,
    .create = tsr_guard<create>, .destroy = destroy, .solve = tsr_guard<solve>,
    .extension = nullptr,
};
