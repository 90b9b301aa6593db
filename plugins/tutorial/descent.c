/* descent - from an even plan in each bit candidate and micro-batch option, takes each change that
 * helps, of a layer's bits or of a border.  docs/formats/instance.md has the rules. */
#include <math.h>
#include <tessera/solver.h>
#include <time.h>

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    (void)opts, (void)err;
    *self = (void *)(uintptr_t)host; /* no options and no state */
    return TSR_OK;
}
static void destroy(void *self) { (void)self; }
static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* The objective; 1e100 and more, by how far it is off, for a plan that is not allowed. */
static double cost(const struct tsr_solver_instance *in, const struct tsr_solver_solution *p)
{
    const struct tsr_solver_option *o = in->options[p->option];
    double n_pre = ceil((double)in->batch / (double)o->prefill_mb), steps = (double)in->tokens - 1;
    double n_dec = ceil((double)in->batch / (double)o->decode_mb), P = 0, D = 0, omega = 0;
    double sum_pre = 0, sum_dec = 0, links_pre = 0, links_dec = 0, off = 0;
    for (uint64_t i = 0, l = 0, last = 0; i < p->stages; i++) {
        uint64_t k = p->stage_kind[i], link = last * in->n_kinds + k, end = i + 1 == p->stages;
        uint64_t need =
            o->workspace_bytes[k] + (i ? 0 : in->embed_bytes) + (end ? in->head_bytes : 0);
        double pre = (i ? 0 : o->embed_pre_ms[k]) + (end ? o->head_pre_ms[k] : 0);
        double dec = (i ? 0 : o->embed_dec_ms[k]) + (end ? o->head_dec_ms[k] : 0);
        for (uint64_t n = p->stage_count[i]; n > 0; n--, l++) {
            uint64_t c = in->layer_class[l], q = p->layer_bits[l];
            uint64_t e = (k * in->classes + c) * in->bits + q;
            pre += o->pre_ms[e], dec += o->dec_ms[e];
            off += isnan(o->pre_ms[e] + o->dec_ms[e]) ? 1e18 : 0; /* forbidden */
            need += in->layer_bytes[c * in->bits + q];
            omega += in->omega[l * in->bits + q];
        }
        off += fmax(0, (double)need - (double)in->kinds[k]->capacity_bytes);
        double link_pre = i ? o->comm_pre_ms[link] : 0, link_dec = i ? o->comm_dec_ms[link] : 0;
        sum_pre += pre, sum_dec += dec, links_pre += link_pre, links_dec += link_dec;
        P = fmax(P, fmax(pre, link_pre)), D = fmax(D, fmax(dec, link_dec));
        last = k;
    }
    off += in->max_omega >= 0 ? fmax(0, omega - in->max_omega * (1 + 1e-9)) : 0;
    if (off > 0)
        return 1e100 * (1 + off);
    if (in->objective == TSR_OBJECTIVE_PAPER)
        return (n_pre - 1) * P + (n_dec - 1) * steps * D + sum_pre + sum_dec + in->theta * omega;
    double r = sum_dec + links_dec, fill = sum_pre + links_pre + (n_pre - 1) * P;
    double decode = fmax(steps * r + (n_dec - 1) * D, r + (steps * n_dec - 1) * D);
    return fill + (steps > 0 ? decode : 0) + in->theta * omega;
}

/* The same bits for all layers, and to each device its share, by capacity, of what is left. */
static void begin(const struct tsr_solver_instance *in, struct tsr_solver_solution *p, uint64_t at)
{
    double left = 0;
    for (uint64_t l = 0; l < in->layers; l++)
        p->layer_bits[l] = (uint32_t)(at % in->bits);
    for (uint64_t k = 0; k < in->n_kinds; k++)
        left += in->kinds[k]->count * (1 + (double)in->kinds[k]->capacity_bytes);
    p->option = at / in->bits, p->stages = 0;
    for (uint64_t k = 0, l = 0; k < in->n_kinds; k++)
        for (uint32_t i = 0; i < in->kinds[k]->count && l < in->layers; i++) {
            double   room = 1 + (double)in->kinds[k]->capacity_bytes;
            uint64_t n = (uint64_t)ceil((double)(in->layers - l) * fmin(1, room / left));
            p->stage_kind[p->stages] = (uint32_t)k;
            p->stage_first[p->stages] = l;
            p->stage_count[p->stages++] = n;
            left -= room, l += n;
        }
}

/* The border behind stage i by one layer; up: stage i grows. */
static void shift(struct tsr_solver_solution *p, uint64_t i, uint64_t up)
{
    uint64_t by = up ? 1 : UINT64_MAX; /* -1 */
    p->stage_count[i] += by, p->stage_first[i + 1] += by;
    p->stage_count[i + 1] -= by;
}

/* Changes the plan as long as that helps. */
static tsr_status descend(const struct tsr_host *host, const struct tsr_solver_instance *in,
                          double end_us, struct tsr_solver_solution *p)
{
    uint64_t bits = in->layers * in->bits, n = bits + 2 * (p->stages - 1), m = 0;
    p->objective = cost(in, p);
    for (uint64_t idle = 0; idle < n && now_us() < end_us; idle++, m = (m + 1) % n) {
        uint64_t l = m / in->bits, i = (m - bits) / 2, up = (m - bits) % 2;
        uint32_t before = m < bits ? p->layer_bits[l] : 0;
        if (host->cancelled(host->ctx))
            return TSR_E_CANCELLED;
        if (m < bits)
            p->layer_bits[l] = (uint32_t)(m % in->bits);
        else if (p->stage_count[i + up] == 1)
            continue;
        else
            shift(p, i, up);
        double now = cost(in, p);
        if (now < p->objective)
            p->objective = now, idle = 0;
        else if (m < bits)
            p->layer_bits[l] = before;
        else
            shift(p, i, !up);
    }
    return TSR_OK;
}

static tsr_status solve(void *self, const struct tsr_solver_instance *in,
                        struct tsr_solver_solution *out, struct tsr_err *err)
{
    double   end = in->deadline_us ? now_us() + 0.9 * (double)in->deadline_us : INFINITY;
    double   best = INFINITY;
    uint64_t starts = in->n_options * in->bits, at = 0;
    if (in->order || !in->allow_unused) /* as .supports says; a part is never just ignored */
        return tsr_fail(err, TSR_E_UNSUPPORTED, "descent: no fixed order, no use of every device");
    for (uint64_t i = 0; i <= starts; i++) { /* in the end the best one once more */
        begin(in, out, i < starts ? i : at);
        if (descend(self, in, end, out) != TSR_OK)
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        at = out->objective < best ? i : at;
        best = fmin(best, out->objective);
    }
    out->bound = -INFINITY; /* optimal or infeasible would take a proof */
    out->status =
        out->objective < fmin(in->cutoff, 1e100) ? TSR_SOLVED_FEASIBLE : TSR_SOLVED_UNKNOWN;
    return TSR_OK;
}

static const struct tsr_solver_v1 table = {
    .struct_size = sizeof table, .create = create, .destroy = destroy, .solve = solve,
    .supports = TSR_SOLVER_CLASSES | TSR_SOLVER_MAX_OMEGA | TSR_SOLVER_LINKS |
        TSR_SOLVER_FORBIDDEN | TSR_SOLVER_WORKSPACE | TSR_SOLVER_ENDS,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SOLVER, .name = "descent", .iface = &table,
    .summary = "Improves an even plan change by change until none helps.",
};
TSR_PLUGIN_SYMBOL(descent) = {
    TSR_PLUGIN_HEADER, .id = "org.example.descent", .version = "0.1.0", .license = "MIT",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
