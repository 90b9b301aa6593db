#include "plan.h"

#include "host.h"
#include "parts.h"

#include <math.h>
#include <string.h>
#include <time.h>

void *plan_take_dirty(struct plan_arena *a, uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(a->bytes, bytes, &a->bytes))
        a->bytes = bytes = UINT64_MAX;
    void *p = a->n < PLAN_BLOCKS && bytes < UINT64_MAX
                  ? a->host->alloc(a->host->ctx, bytes ? bytes : 1, 16)
                  : NULL;
    if (!p) {
        a->failed = true;
        return NULL;
    }
    a->block[a->n] = p;
    a->size[a->n++] = bytes ? bytes : 1;
    return p;
}

void *plan_take(struct plan_arena *a, uint64_t n, uint64_t size)
{
    void *p = plan_take_dirty(a, n, size);
    return p ? memset(p, 0, n * size) : NULL;
}

void plan_release(struct plan_arena *a)
{
    while (a->n > 0) {
        a->n--;
        a->host->release(a->host->ctx, a->block[a->n], a->size[a->n]);
    }
}

struct tsr_solver_solution *plan_new(struct plan_arena *a, const struct tsr_solver_instance *in)
{
    uint64_t                    n = plan_devices(in);
    struct tsr_solver_solution *s = plan_take(a, 1, sizeof *s);
    uint64_t                   *stages = plan_take(a, n, 24);
    uint32_t                   *bits = plan_take(a, in->layers, sizeof *bits);
    if (!s || !stages || !bits)
        return NULL;
    s->struct_size = sizeof *s;
    s->max_stages = n;
    s->stage_first = stages;
    s->stage_count = stages + n;
    s->stage_kind = (uint32_t *)(void *)(stages + 2 * n);
    s->stage_link = s->stage_kind + n;
    s->layer_bits = bits;
    return s;
}

void plan_copy(struct tsr_solver_solution *to, const struct tsr_solver_solution *from,
               const struct tsr_solver_instance *in)
{
    to->option = from->option;
    to->stages = from->stages;
    to->objective = from->objective;
    memcpy(to->stage_kind, from->stage_kind, from->stages * sizeof *to->stage_kind);
    memcpy(to->stage_first, from->stage_first, from->stages * sizeof *to->stage_first);
    memcpy(to->stage_count, from->stage_count, from->stages * sizeof *to->stage_count);
    memcpy(to->layer_bits, from->layer_bits, in->layers * sizeof *to->layer_bits);
    if (plan_links(in) > 1)
        memcpy(to->stage_link, from->stage_link, from->stages * sizeof *to->stage_link);
}

/* ---- numbers of an instance ------------------------------------------------------ */

struct plan_counts plan_counts(const struct tsr_solver_instance *in,
                               const struct tsr_solver_option   *o)
{
    bool jobs = TSR_HAS(struct tsr_solver_option, o, prefill_jobs) && o->prefill_jobs > 0;
    return (struct plan_counts){ jobs ? o->prefill_jobs
                                      : ceil((double)in->batch / (double)o->prefill_mb),
                                 ceil((double)in->batch / (double)o->decode_mb),
                                 (double)(in->tokens - 1) };
}

uint64_t plan_devices(const struct tsr_solver_instance *in)
{
    uint64_t n = 0;
    for (uint64_t k = 0; k < in->n_kinds; k++)
        n += in->kinds[k]->count;
    return n;
}

uint64_t plan_entry(const struct tsr_solver_instance *in, uint64_t k, uint64_t layer, uint64_t q)
{
    return (k * in->classes + in->layer_class[layer]) * in->bits + q;
}

bool plan_can_run(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                  uint64_t k, uint64_t layer, uint64_t q)
{
    uint64_t e = plan_entry(in, k, layer, q);
    return !isnan(o->pre_ms[e]) && !isnan(o->dec_ms[e]);
}

uint64_t plan_layer_bytes(const struct tsr_solver_instance *in, uint64_t layer, uint64_t q)
{
    return in->layer_bytes[in->layer_class[layer] * in->bits + q];
}

uint64_t plan_room(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                   uint64_t k)
{
    uint64_t have = in->kinds[k]->capacity_bytes, takes = o->workspace_bytes[k];
    return have > takes ? have - takes : 0;
}

double plan_omega_limit(const struct tsr_solver_instance *in)
{
    return in->max_omega >= 0 ? in->max_omega + 1e-9 * fmax(1, in->max_omega) : INFINITY;
}

bool plan_has_links(const struct tsr_solver_instance *in, const struct tsr_solver_option *o)
{
    for (uint64_t e = 0; e < plan_links(in) * in->n_kinds * in->n_kinds; e++)
        if (o->comm_pre_ms[e] > 0 || o->comm_dec_ms[e] > 0)
            return true;
    return false;
}

/* ---- cost ------------------------------------------------------------------------- */

double plan_time(const struct tsr_solver_instance *in, const struct plan_counts *c, double pre,
                 double dec, double max_pre, double max_dec)
{
    if (in->objective == TSR_OBJECTIVE_PAPER)
        return (c->mu_pre - 1) * max_pre + (c->mu_dec - 1) * c->steps * max_dec + pre + dec;
    double decode = 0;
    if (in->tokens > 1)
        decode = fmax(c->steps * dec + (c->mu_dec - 1) * max_dec,
                      dec + (c->steps * c->mu_dec - 1) * max_dec);
    return pre + (c->mu_pre - 1) * max_pre + decode;
}

void plan_bottleneck_weights(const struct tsr_solver_instance *in, const struct plan_counts *c,
                             double *pre, double *dec)
{
    *pre = c->mu_pre;
    *dec = in->objective == TSR_OBJECTIVE_PAPER ? (c->mu_dec - 1) * c->steps + 1
                                                : c->steps * c->mu_dec;
}

/* The codec of the link after stage i. */
static uint64_t link_of(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
                        uint64_t i)
{
    return plan_links(in) > 1 ? s->stage_link[i] : 0;
}

double plan_omega(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s)
{
    double w = plan_option_omega(in->options[s->option]);
    for (uint64_t l = 0; l < in->layers; l++)
        w += in->omega[l * in->bits + s->layer_bits[l]];
    for (uint64_t i = 0; i < s->stages; i++) {
        uint64_t end = s->stage_first[i] + s->stage_count[i];
        for (uint64_t l = s->stage_first[i]; l < end; l++)
            w += plan_kind_omega(in, s->stage_kind[i], l);
        if (i + 1 < s->stages)
            w += plan_link_omega(in, link_of(in, s, i), end - 1);
    }
    return w;
}

/* Times of one stage; false when it cannot be. */
static bool stage(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
                  uint64_t i, double *pre, double *dec)
{
    const struct tsr_solver_option *o = in->options[s->option];
    uint64_t                        k = s->stage_kind[i], bytes = o->workspace_bytes[k];
    if (i == 0) {
        bytes = plan_add(bytes, plan_embed_bytes(in, o));
        *pre += o->embed_pre_ms[k];
        *dec += o->embed_dec_ms[k];
    }
    if (i + 1 == s->stages) {
        bytes = plan_add(bytes, plan_head_bytes(in, o));
        *pre += o->head_pre_ms[k];
        *dec += o->head_dec_ms[k];
    }
    for (uint64_t l = s->stage_first[i]; l < s->stage_first[i] + s->stage_count[i]; l++) {
        uint64_t q = s->layer_bits[l];
        if (!plan_can_run(in, o, k, l, q))
            return false;
        *pre += o->pre_ms[plan_entry(in, k, l, q)];
        *dec += o->dec_ms[plan_entry(in, k, l, q)];
        bytes = plan_add(bytes, plan_layer_bytes(in, l, q));
    }
    return bytes <= in->kinds[k]->capacity_bytes && plan_host_fits_stage(in, s, i);
}

bool plan_cost(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
               double *cost)
{
    const struct tsr_solver_option *o = in->options[s->option];
    struct plan_counts              c = plan_counts(in, o);
    double                          pre = 0, dec = 0, max_pre = 0, max_dec = 0, links = 0;
    bool                            paper = in->objective == TSR_OBJECTIVE_PAPER;
    for (uint64_t i = 0; i < s->stages; i++) {
        double p = 0, d = 0;
        if (!stage(in, s, i, &p, &d))
            return false;
        pre += p;
        dec += d;
        max_pre = fmax(max_pre, p);
        max_dec = fmax(max_dec, d);
        if (i + 1 == s->stages)
            break;
        uint64_t v = link_of(in, s, i), k = s->stage_kind[i], j = s->stage_kind[i + 1];
        double   t = plan_link_ms(in, o, v, k, j, false), u = plan_link_ms(in, o, v, k, j, true);
        links += t;
        dec += paper ? 0 : u;
        max_pre = fmax(max_pre, t);
        max_dec = fmax(max_dec, u);
    }
    double w = plan_omega(in, s);
    if (!(w <= plan_omega_limit(in)) ||
        !(pre + links + (c.mu_pre - 1) * max_pre <= plan_first_limit(in)))
        return false;
    *cost = plan_time(in, &c, pre + (paper ? 0 : links), dec, max_pre, max_dec) + in->theta * w;
    return true;
}

/* ---- time ------------------------------------------------------------------------------ */

uint64_t plan_now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

void plan_clock_start(struct plan_clock *c, const struct tsr_host *host, uint64_t deadline_us)
{
    *c = (struct plan_clock){ .host = host };
    if (deadline_us)
        c->end_us = plan_add(plan_now_us(), deadline_us);
}

bool plan_over(struct plan_clock *c)
{
    if (!c->cancelled && c->host->cancelled(c->host->ctx))
        c->cancelled = true;
    if (!c->late && c->end_us && plan_now_us() > c->end_us)
        c->late = true;
    return c->cancelled || c->late;
}

void plan_answer(const struct tsr_solver_instance *in, struct tsr_solver_solution *out, double best,
                 double bound, const char *why)
{
    out->bound = bound < INFINITY ? bound : -INFINITY;
    if (best < in->cutoff) {
        out->bound = fmin(bound, best);
        out->objective = best;
        out->status =
            best - out->bound <= in->gap * best ? TSR_SOLVED_OPTIMAL : TSR_SOLVED_FEASIBLE;
        return;
    }
    out->status = bound < INFINITY ? TSR_SOLVED_UNKNOWN : TSR_SOLVED_INFEASIBLE;
    (void)snprintf(out->reason, out->reason_cap, "%s", why ? why : "");
}
