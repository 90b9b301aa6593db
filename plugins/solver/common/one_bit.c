#include "one_bit.h"

#include "host.h"
#include "partition.h"

#include <math.h>
#include <string.h>

struct one_bit {
    const struct tsr_host *host;
    struct one_bit_opts    opts;
};

struct search {
    const struct tsr_solver_instance *in;
    const struct tsr_solver_option   *o;
    struct tsr_solver_solution       *out;
    enum one_bit_policy               policy;
    struct partition                  p;
    uint64_t                          q;
    /* prefix sums over the layers: [K][L+1], bytes and host [L+1]; rest: least time of layers l.. */
    double   *pre, *dec, *rest_pre, *rest_dec;
    uint64_t *bytes, *host, *bad;
};

/* ---- one option, one bit --------------------------------------------------------- */

static bool block_of(const void *ctx, uint64_t k, uint64_t from, uint64_t to,
                     struct partition_block *b)
{
    const struct search *s = ctx;
    uint64_t             at = k * (s->in->layers + 1), need = s->bytes[to] - s->bytes[from];
    if (s->bytes[to] == UINT64_MAX || s->host[to] == UINT64_MAX ||
        s->bad[at + to] != s->bad[at + from] ||
        s->host[to] - s->host[from] > plan_host_room(s->in, k))
        return false;
    need = plan_add(need, from == 0 ? s->in->embed_bytes : 0);
    need = plan_add(need, to == s->in->layers ? s->in->head_bytes : 0);
    if (plan_add(need, s->o->workspace_bytes[k]) > s->in->kinds[k]->capacity_bytes)
        return false;
    *b = (struct partition_block){ s->pre[at + to] - s->pre[at + from],
                                   s->dec[at + to] - s->dec[at + from], 0 };
    return true;
}

static void fill_kind(struct search *s, uint64_t k)
{
    uint64_t at = k * (s->in->layers + 1);
    s->pre[at] = s->dec[at] = 0;
    s->bad[at] = 0;
    for (uint64_t l = 0; l < s->in->layers; l++, at++) {
        bool     ok = plan_can_run(s->in, s->o, k, l, s->q);
        uint64_t e = plan_entry(s->in, k, l, s->q);
        s->pre[at + 1] = s->pre[at] + (ok ? s->o->pre_ms[e] : 0);
        s->dec[at + 1] = s->dec[at] + (ok ? s->o->dec_ms[e] : 0);
        s->bad[at + 1] = s->bad[at] + !ok;
    }
}

/* Fills the sums; false when omega or a layer that runs nowhere rules this bit out. */
static bool prepare(struct search *s)
{
    const struct tsr_solver_instance *in = s->in;
    double                            omega = 0;
    s->bytes[0] = s->host[0] = 0;
    for (uint64_t l = 0; l < in->layers; l++) {
        omega += in->omega[l * in->bits + s->q];
        s->bytes[l + 1] = plan_add(s->bytes[l], plan_layer_bytes(in, l, s->q));
        s->host[l + 1] = plan_add(s->host[l], plan_host_bytes(in, l, s->q));
    }
    s->p.fixed = in->theta * omega;
    if (!(omega <= plan_omega_limit(in)))
        return false;
    for (uint64_t k = 0; k < in->n_kinds; k++)
        fill_kind(s, k);
    s->rest_pre[in->layers] = s->rest_dec[in->layers] = 0;
    for (uint64_t l = in->layers; l-- > 0;) {
        double lp = INFINITY, ld = INFINITY;
        for (uint64_t k = 0; k < in->n_kinds; k++)
            if (plan_can_run(in, s->o, k, l, s->q)) {
                lp = fmin(lp, s->o->pre_ms[plan_entry(in, k, l, s->q)]);
                ld = fmin(ld, s->o->dec_ms[plan_entry(in, k, l, s->q)]);
            }
        if (lp == INFINITY)
            return false;
        s->rest_pre[l] = s->rest_pre[l + 1] + lp;
        s->rest_dec[l] = s->rest_dec[l + 1] + ld;
    }
    return true;
}

static bool partition(struct search *s)
{
    struct partition *p = &s->p;
    uint64_t          L = s->in->layers, before = 0;
    bool              found = false;
    p->least = 1;
    p->most = L;
    switch (s->policy) {
    case ONE_BIT_ANY:
        return partition_run(p);
    case ONE_BIT_DECODE:
        return partition_criterion(p, PARTITION_DECODE) < INFINITY && partition_run(p);
    case ONE_BIT_EVEN:
        break;
    }
    /* stages of b and b + 1 layers, whatever their number */
    for (uint64_t n = 1; n <= p->devices && n <= L; n++) {
        if (L / n == before)
            continue;
        before = p->least = L / n;
        p->most = L / n + (L / n < L);
        found |= partition_run(p);
    }
    return found;
}

/* ---- all options and bits ----------------------------------------------------------- */

static void try_bit(struct search *s, uint64_t option)
{
    s->o = s->in->options[option];
    partition_option(&s->p, option);
    if (!prepare(s) || !partition(s))
        return;
    for (uint64_t l = 0; l < s->in->layers; l++)
        s->out->layer_bits[l] = (uint32_t)s->q;
}

/* Bytes of all layers: the meaning of wide and narrow. */
static uint64_t width(const struct tsr_solver_instance *in, uint64_t q)
{
    uint64_t bytes = 0;
    for (uint64_t l = 0; l < in->layers; l++)
        bytes = plan_add(bytes, plan_layer_bytes(in, l, q));
    return bytes;
}

static bool wider(const struct tsr_solver_instance *in, uint64_t a, uint64_t b)
{
    uint64_t wa = width(in, a), wb = width(in, b);
    return wa > wb || (wa == wb && a < b);
}

static void run(struct search *s, int64_t pick, double *bound, const char **why)
{
    const struct tsr_solver_instance *in = s->in;
    *bound = plan_bound_all(in, why);
    s->p.best = in->cutoff;
    s->p.plan = s->out;
    s->p.block = block_of;
    s->p.ctx = s;
    s->p.rest_pre = s->rest_pre;
    s->p.rest_dec = s->rest_dec;
    if (*bound == INFINITY)
        return;
    for (uint64_t i = 0; i < in->bits; i++) {
        /* of equal rank are none, so each is taken once */
        for (s->q = 0; s->q < in->bits; s->q++) {
            uint64_t rank = 0;
            for (uint64_t q = 0; q < in->bits; q++)
                rank += wider(in, q, s->q);
            if (rank == i)
                break;
        }
        for (uint64_t o = 0; o < in->n_options && !plan_over(s->p.clock); o++)
            try_bit(s, o);
        if (pick == ONE_BIT_WIDEST && s->p.best < in->cutoff)
            return;
    }
}

/* Whether a stage's time, the difference of two sums over layers, is what its layers take: a layer that
 * takes 10^8 times as long as the best plan swallows digits of all others. */
static bool can_tell_layers(const struct search *s, double best)
{
    const struct tsr_solver_instance *in = s->in;
    double                            most = 0;
    for (uint64_t o = 0; o < in->n_options; o++)
        for (uint64_t k = 0; k < in->n_kinds; k++)
            for (uint64_t l = 0; l < in->layers; l++)
                for (uint64_t q = 0; q < in->bits; q++)
                    if (plan_can_run(in, in->options[o], k, l, q)) {
                        uint64_t e = plan_entry(in, k, l, q);
                        most =
                            fmax(most, fmax(in->options[o]->pre_ms[e], in->options[o]->dec_ms[e]));
                    }
    return most * (double)in->layers <= 1e8 * best;
}

/* One bit: the plans of `het` are all plans. */
static void answer(struct search *s, double bound, const char *why)
{
    double best = s->p.best;
    bool   found = best < s->in->cutoff;
    if (found) /* from its layers themselves, not from differences of sums */
        (void)plan_cost(s->in, s->out, &best);
    bool whole = s->policy == ONE_BIT_ANY && s->in->bits == 1 && s->p.exact &&
                 !plan_over(s->p.clock) && (!found || can_tell_layers(s, best));
    if (whole && found)
        bound = fmax(bound, best);
    if (whole && s->p.best == INFINITY) {
        bound = INFINITY;
        why = why ? why : "no contiguous partition fits the devices";
    }
    if (bound < INFINITY) /* of some options then, not of all */
        why = s->in->cutoff < INFINITY || !s->p.exact || plan_over(s->p.clock) ? NULL
              : s->policy == ONE_BIT_EVEN
                  ? "no even stages of one bit width keep to the memory and to the quality"
                  : "no stages of one bit width keep to the memory and to the quality";
    plan_answer(s->in, s->out, best, bound, why);
}

tsr_status one_bit_solve(void *self, const char *name, enum one_bit_policy policy,
                         const struct tsr_solver_instance *in, struct tsr_solver_solution *out,
                         struct tsr_err *err)
{
    struct one_bit   *u = self;
    struct plan_clock clock;
    struct plan_arena a = { .host = u->host };
    struct search     s = { .in = in, .out = out, .policy = policy };
    bool              too_many = false;
    double            bound = 0;
    const char       *why = NULL;
    if (in->n_kinds == 0 || in->layers == 0 || in->n_options == 0)
        return tsr_fail(err, TSR_E_INVAL, "%s: the instance has no layers, kinds or options", name);
    plan_clock_start(&clock, u->host, in->deadline_us);
    uint64_t L1 = in->layers + 1, KL1 = in->n_kinds * L1;
    s.pre = plan_take(&a, KL1, sizeof *s.pre);
    s.dec = plan_take(&a, KL1, sizeof *s.dec);
    s.bad = plan_take(&a, KL1, sizeof *s.bad);
    s.rest_pre = plan_take(&a, L1, sizeof *s.rest_pre);
    s.rest_dec = plan_take(&a, L1, sizeof *s.rest_dec);
    s.bytes = plan_take(&a, L1, sizeof *s.bytes);
    s.host = plan_take(&a, L1, sizeof *s.host);
    tsr_status st = TSR_OK;
    if (!a.failed &&
        partition_start(&s.p, in, &clock, NULL, (uint64_t)u->opts.labels, &a, &too_many)) {
        run(&s, u->opts.pick, &bound, &why);
        answer(&s, bound, why);
        if (clock.cancelled)
            st = tsr_fail(err, TSR_E_CANCELLED, "%s: stopped by the user", name);
    } else if (too_many) {
        st = tsr_fail(err, TSR_E_UNSUPPORTED,
                      "%s: %llu layers on %llu devices of %llu kinds are too many", name,
                      (unsigned long long)in->layers, (unsigned long long)plan_devices(in),
                      (unsigned long long)in->n_kinds);
    } else {
        st = tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for solver %s",
                      (unsigned long long)a.bytes, name);
    }
    plan_release(&a);
    return st;
}

/* ---- create, destroy, options --------------------------------------------------------- */

tsr_status one_bit_create(const struct tsr_host *host, const void *opts, void **self,
                          struct tsr_err *err)
{
    struct one_bit *u = host->alloc(host->ctx, sizeof *u, _Alignof(struct one_bit));
    if (!u)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for a solver", sizeof *u);
    u->host = host;
    memcpy(&u->opts, opts, sizeof u->opts);
    *self = u;
    return TSR_OK;
}

void one_bit_destroy(void *self)
{
    struct one_bit *u = self;
    if (u)
        u->host->release(u->host->ctx, u, sizeof *u);
}

static const struct tsr_choice picks[] = {
    { .name = "best", .help = "the bit with the least objective", .value = ONE_BIT_BEST },
    { .name = "widest", .help = "the widest bit with a plan", .value = ONE_BIT_WIDEST },
};

const struct tsr_option one_bit_options[2] = {
    TSR_OPTION_INT(struct one_bit_opts, labels, 32, 1, 4096, "plans",
                   "Partial plans kept per state; more is better and slower."),
    TSR_OPTION_ENUM(struct one_bit_opts, pick, ONE_BIT_BEST, picks, "Which of the bits it takes."),
};
