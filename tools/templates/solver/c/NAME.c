/* @NAME@ - greedy: one bit candidate for all layers. Each device takes the next layers as long as they
 * fit; this repeats with less work for the busiest device until a layer finds no place. The answer is the
 * best of these plans. docs/formats/instance.md has the objective and the rules. */
#include <math.h>
#include <tessera/solver.h>
#include <time.h>

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    (void)opts, (void)err;
    *self = (void *)(uintptr_t)host; /* no options and no state: the host's table is all it needs */
    return TSR_OK;
}

static void destroy(void *self) { (void)self; }

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static uint32_t kind_of(const struct tsr_solver_instance *in, uint64_t device)
{
    uint32_t k = 0;
    for (uint64_t end = in->kinds[0]->count; !in->order && device >= end; k++)
        end += in->kinds[k + 1]->count;
    return in->order ? in->order[device] : k;
}

/* A plan with candidate q and less work than *limit for each device.  Returns its objective, or
 * INFINITY when a layer finds no place; *limit becomes the work of the busiest device. */
static double place(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                    uint64_t q, double *limit, struct tsr_solver_solution *out)
{
    double n_pre = ceil((double)in->batch / (double)o->prefill_mb), steps = (double)in->tokens - 1;
    double n_dec = ceil((double)in->batch / (double)o->decode_mb), busiest = 0, omega = 0;
    double sum_pre = 0, sum_dec = 0, links_pre = 0, links_dec = 0, P = 0, D = 0;
    uint64_t l = 0, L = in->layers, devices = out->max_stages;
    out->stages = 0;
    for (uint64_t i = 0; i < devices && l < L; i++) {
        /* keep: layers for the later devices, where all must be used */
        uint64_t k = kind_of(in, i), first = l, keep = in->allow_unused ? 0 : devices - i - 1;
        uint64_t need = o->workspace_bytes[k] + (l ? 0 : in->embed_bytes);
        double   pre = l ? 0 : o->embed_pre_ms[k], dec = l ? 0 : o->embed_dec_ms[k];
        for (int end; l + keep < L; out->layer_bits[l++] = (uint32_t)q) {
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
        links_pre += link_pre;
        links_dec += link_dec;
        sum_pre += pre;
        sum_dec += dec;
        P = fmax(P, fmax(pre, link_pre));
        D = fmax(D, fmax(dec, link_dec));
        busiest = fmax(busiest, n_pre * pre + n_dec * steps * dec);
        out->stage_kind[out->stages] = (uint32_t)k;
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
    double decode = fmax(steps * r + (n_dec - 1) * D, r + (steps * n_dec - 1) * D);
    return fill + (steps > 0 ? decode : 0) + in->theta * omega;
}

static tsr_status solve(void *self, const struct tsr_solver_instance *in,
                        struct tsr_solver_solution *out, struct tsr_err *err)
{
    const struct tsr_host *host = self;
    double   end = in->deadline_us ? now_us() + 0.9 * (double)in->deadline_us : INFINITY;
    double   best = in->cutoff, best_limit = 0;
    uint64_t best_at = 0;
    out->status = TSR_SOLVED_UNKNOWN; /* infeasible and optimal would take a proof */
    out->bound = -INFINITY;
    for (uint64_t i = 0; i < in->n_options * in->bits; i++)
        for (double limit = INFINITY, objective = 0, used;
             now_us() < end && objective < INFINITY;) {
            used = limit;
            objective = place(in, in->options[i / in->bits], i % in->bits, &limit, out);
            if (host->cancelled(host->ctx))
                return tsr_fail(err, TSR_E_CANCELLED, "stopped");
            if (objective < best) {
                best = objective;
                best_limit = used;
                best_at = i;
                out->status = TSR_SOLVED_FEASIBLE;
            }
        }
    if (out->status == TSR_SOLVED_FEASIBLE) /* the arrays hold the last try, not the best one */
        out->objective =
            place(in, in->options[best_at / in->bits], best_at % in->bits, &best_limit, out);
    out->option = best_at / in->bits;
    return TSR_OK;
}

static const struct tsr_solver_v1 table = {
    .struct_size = sizeof table, .create = create, .destroy = destroy, .solve = solve,
    .supports = TSR_SOLVER_CLASSES | TSR_SOLVER_MAX_OMEGA | TSR_SOLVER_LINKS | TSR_SOLVER_USE_ALL |
        TSR_SOLVER_FORBIDDEN | TSR_SOLVER_WORKSPACE | TSR_SOLVER_ENDS | TSR_SOLVER_FIXED_ORDER,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SOLVER, .name = "@NAME@", .iface = &table,
    .summary = "Fills the devices in turn and evens out their work, one bit width for all layers.",
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
