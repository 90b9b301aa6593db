/* uniform - the baseline planner: one bit candidate for the whole model, and for it the best
 * contiguous partition over the devices.
 *
 * Labels (partial plans) run over states (devices used, layers placed, kind of the last stage).
 * A label is four numbers: the sums and the maxima of prefill and decode times; the objective
 * grows in each, so a label that is no better in any of them is dropped.  At most `labels` are
 * kept in a state; where more would be needed the partition is good but not proved best. */
#include "tessera/solver.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define MAX_SLOTS (UINT64_C(1) << 21) /* labels over all states: 96 MiB */

struct uniform_opts {
    int64_t labels;
};

struct uniform {
    const struct tsr_host *host;
    struct uniform_opts    opts;
};

struct label {
    double   pre, dec, max_pre, max_dec;
    double   least;  /* no completion costs less */
    uint32_t parent; /* slot; meaningless in the root */
    uint32_t pad;
};

struct search {
    const struct tsr_host            *host;
    const struct tsr_solver_instance *in;
    struct tsr_solver_solution       *out;
    const struct tsr_solver_option   *o;
    uint64_t                          K, L, q;
    const uint32_t                   *order; /* NULL: free */
    uint64_t                          order_len, devices;
    uint64_t                          places, cap; /* device states; labels per state */
    uint64_t                         *radix;       /* [K] free order: weight of a kind's digit */
    /* prefix sums over the layers, [K][L+1]; rest: least time of layers l.. */
    double       *pre, *dec, *rest_pre, *rest_dec;
    uint64_t     *bytes, *bad;                  /* [L+1], [K][L+1] */
    struct label *labels;                       /* [places * (L+1) * K * cap] */
    uint32_t     *n;                            /* labels in a state */
    double        fixed, mu_pre, mu_dec, steps; /* theta * omega; counts; n - 1 */
    double        best;
    uint64_t      end_us;
    bool          exact; /* nothing was cut off */
};

static uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* docs/formats/instance.md, without theta W.  pre and dec hold the link times already, as far
 * as the objective counts them. */
static double cost(const struct search *s, double pre, double dec, double max_pre, double max_dec)
{
    if (s->in->objective == TSR_OBJECTIVE_PAPER)
        return (s->mu_pre - 1) * max_pre + (s->mu_dec - 1) * s->steps * max_dec + pre + dec;
    double decode = 0;
    if (s->in->tokens > 1)
        decode = fmax(s->steps * dec + (s->mu_dec - 1) * max_dec,
                      dec + (s->steps * s->mu_dec - 1) * max_dec);
    return pre + (s->mu_pre - 1) * max_pre + decode;
}

static uint64_t add_sat(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void set_counts(struct search *s)
{
    s->mu_pre = ceil((double)s->in->batch / (double)s->o->prefill_mb);
    s->mu_dec = ceil((double)s->in->batch / (double)s->o->decode_mb);
    s->steps = (double)(s->in->tokens - 1);
}

static uint64_t entry(const struct search *s, uint64_t k, uint64_t l, uint64_t q)
{
    return (k * s->in->classes + s->in->layer_class[l]) * s->in->bits + q;
}

static bool can_run(const struct search *s, uint64_t k, uint64_t l, uint64_t q)
{
    uint64_t e = entry(s, k, l, q);
    return !isnan(s->o->pre_ms[e]) && !isnan(s->o->dec_ms[e]);
}

/* ---- what no plan at all can do better ----------------------------------- */

/* A lower bound over every plan of the current option, of any bits; INFINITY when the option
 * allows none, with the reason. */
static double option_bound(struct search *s, const char **why)
{
    double   pre = 0, dec = 0, max_pre = 0, max_dec = 0, omega = 0;
    uint64_t bytes = add_sat(s->in->embed_bytes, s->in->head_bytes), room = 0;
    for (uint64_t k = 0; k < s->K; k++) {
        uint64_t cap = s->in->kinds[k]->capacity_bytes, ws = s->o->workspace_bytes[k];
        for (uint32_t i = 0; cap > ws && i < s->in->kinds[k]->count; i++)
            room = add_sat(room, cap - ws);
    }
    for (uint64_t l = 0; l < s->L; l++) {
        double   lp = INFINITY, ld = INFINITY, lw = INFINITY;
        uint64_t lb = UINT64_MAX;
        for (uint64_t q = 0; q < s->in->bits; q++) {
            uint64_t need = s->in->layer_bytes[s->in->layer_class[l] * s->in->bits + q];
            for (uint64_t k = 0; k < s->K; k++) {
                uint64_t e = entry(s, k, l, q), all = add_sat(need, s->o->workspace_bytes[k]);
                if (!can_run(s, k, l, q) || all > s->in->kinds[k]->capacity_bytes)
                    continue;
                lp = fmin(lp, s->o->pre_ms[e]);
                ld = fmin(ld, s->o->dec_ms[e]);
                lw = fmin(lw, s->in->omega[l * s->in->bits + q]);
                lb = need < lb ? need : lb;
            }
        }
        if (lb == UINT64_MAX) {
            *why = "a layer fits on no device in any bit that it can run";
            return INFINITY;
        }
        pre += lp;
        dec += ld;
        max_pre = fmax(max_pre, lp);
        max_dec = fmax(max_dec, ld);
        omega += lw;
        bytes = add_sat(bytes, lb);
    }
    if (bytes > room) {
        *why = "the smallest layers need more memory than all devices have";
        return INFINITY;
    }
    if (s->in->max_omega >= 0 &&
        omega > (s->in->max_omega + 1e-9 * fmax(1, s->in->max_omega)) * (1 + 1e-12)) {
        *why = "max_omega is below the smallest possible sum of omega";
        return INFINITY;
    }
    double most = (double)(s->devices < s->L ? s->devices : s->L);
    max_pre = fmax(max_pre, pre / most);
    max_dec = fmax(max_dec, dec / most);
    /* 1e-12: the sums above and a plan's are rounded differently */
    return (cost(s, pre, dec, max_pre, max_dec) + s->in->theta * omega) * (1 - 1e-12);
}

/* ---- one option, one bit --------------------------------------------------- */

/* Fills the prefix sums; false when omega rules this bit out. */
static bool prepare(struct search *s)
{
    uint64_t L1 = s->L + 1;
    double   omega = 0;
    s->bytes[0] = 0;
    for (uint64_t l = 0; l < s->L; l++) {
        omega += s->in->omega[l * s->in->bits + s->q];
        s->bytes[l + 1] =
            add_sat(s->bytes[l], s->in->layer_bytes[s->in->layer_class[l] * s->in->bits + s->q]);
    }
    s->fixed = s->in->theta * omega;
    if (s->in->max_omega >= 0 && !(omega <= s->in->max_omega + 1e-9 * fmax(1, s->in->max_omega)))
        return false;
    for (uint64_t k = 0; k < s->K; k++) {
        double   *pre = s->pre + k * L1, *dec = s->dec + k * L1;
        uint64_t *bad = s->bad + k * L1;
        pre[0] = dec[0] = 0;
        bad[0] = 0;
        for (uint64_t l = 0; l < s->L; l++) {
            bool     ok = can_run(s, k, l, s->q);
            uint64_t e = entry(s, k, l, s->q);
            pre[l + 1] = pre[l] + (ok ? s->o->pre_ms[e] : 0);
            dec[l + 1] = dec[l] + (ok ? s->o->dec_ms[e] : 0);
            bad[l + 1] = bad[l] + !ok;
        }
    }
    s->rest_pre[s->L] = s->rest_dec[s->L] = 0;
    for (uint64_t l = s->L; l-- > 0;) {
        double lp = INFINITY, ld = INFINITY;
        for (uint64_t k = 0; k < s->K; k++)
            if (can_run(s, k, l, s->q)) {
                lp = fmin(lp, s->o->pre_ms[entry(s, k, l, s->q)]);
                ld = fmin(ld, s->o->dec_ms[entry(s, k, l, s->q)]);
            }
        if (lp == INFINITY)
            return false;
        s->rest_pre[l] = s->rest_pre[l + 1] + lp;
        s->rest_dec[l] = s->rest_dec[l + 1] + ld;
    }
    return true;
}

static void insert(struct search *s, uint64_t state, struct label v)
{
    struct label *a = s->labels + state * s->cap;
    uint32_t      n = s->n[state], kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (a[i].pre <= v.pre && a[i].dec <= v.dec && a[i].max_pre <= v.max_pre &&
            a[i].max_dec <= v.max_dec)
            return;
    for (uint32_t i = 0; i < n; i++)
        if (!(v.pre <= a[i].pre && v.dec <= a[i].dec && v.max_pre <= a[i].max_pre &&
              v.max_dec <= a[i].max_dec))
            a[kept++] = a[i];
    if (kept < s->cap) {
        a[kept++] = v;
        s->n[state] = kept;
        return;
    }
    uint32_t worst = 0;
    for (uint32_t i = 1; i < kept; i++)
        if (a[i].least > a[worst].least)
            worst = i;
    if (v.least < a[worst].least)
        a[worst] = v;
    s->n[state] = kept;
    s->exact = false;
}

/* Writes the plan that ends with block [first, L) on `kind` behind the label in `parent`. */
static void record(struct search *s, uint64_t option, uint64_t kind, uint64_t first,
                   uint64_t parent)
{
    struct tsr_solver_solution *out = s->out;
    uint64_t                    n = 0, end = s->L;
    for (uint64_t pass = 0; pass < 2; pass++) {
        uint64_t k = kind, f = first, e = end, slot = parent, i = n;
        for (uint64_t count = 1;; count++) {
            if (pass) {
                i--;
                out->stage_kind[i] = (uint32_t)k;
                out->stage_first[i] = f;
                out->stage_count[i] = e - f;
            } else {
                n = count;
            }
            if (f == 0)
                break;
            uint64_t state = slot / s->cap;
            k = state % s->K;
            e = f;
            slot = s->labels[slot].parent;
            /* the block of that label begins where its parent's ended */
            f = slot / s->cap / s->K % (s->L + 1);
        }
    }
    out->stages = n;
    out->option = option;
    for (uint64_t l = 0; l < s->L; l++)
        out->layer_bits[l] = (uint32_t)s->q;
}

/* Puts every block that can follow the labels of a state on one more device of kind k. */
static void extend(struct search *s, uint64_t option, uint64_t state, uint64_t k, uint64_t place)
{
    const struct tsr_solver_instance *in = s->in;
    uint64_t                          L1 = s->L + 1, l = state / s->K % L1, last = state % s->K,
             ws = s->o->workspace_bytes[k];
    bool   root = l == 0, paper = in->objective == TSR_OBJECTIVE_PAPER;
    double link_pre = root ? 0 : s->o->comm_pre_ms[last * s->K + k];
    double link_dec = root ? 0 : s->o->comm_dec_ms[last * s->K + k];
    for (uint64_t to = l + 1; to <= s->L; to++) {
        bool     end = to == s->L;
        uint64_t need =
            add_sat(add_sat(s->bytes[to] - s->bytes[l], ws), root ? in->embed_bytes : 0);
        if (s->bytes[to] == UINT64_MAX || need > in->kinds[k]->capacity_bytes ||
            s->bad[k * L1 + to] != s->bad[k * L1 + l])
            return;
        if (end && add_sat(need, in->head_bytes) > in->kinds[k]->capacity_bytes)
            return;
        if (end && !in->allow_unused && place != s->places - 1)
            return;
        double pre = s->pre[k * L1 + to] - s->pre[k * L1 + l] + (root ? s->o->embed_pre_ms[k] : 0) +
                     (end ? s->o->head_pre_ms[k] : 0);
        double dec = s->dec[k * L1 + to] - s->dec[k * L1 + l] + (root ? s->o->embed_dec_ms[k] : 0) +
                     (end ? s->o->head_dec_ms[k] : 0);
        for (uint32_t i = 0; i < s->n[state]; i++) {
            uint64_t            slot = state * s->cap + i;
            const struct label *a = &s->labels[slot];
            struct label        v = { a->pre + pre + (paper ? 0 : link_pre),
                                      a->dec + dec + (paper ? 0 : link_dec),
                                      fmax(a->max_pre, fmax(pre, link_pre)),
                                      fmax(a->max_dec, fmax(dec, link_dec)),
                                      0,
                                      (uint32_t)slot,
                                      0 };
            v.least = s->fixed + cost(s, v.pre + s->rest_pre[to], v.dec + s->rest_dec[to],
                                      v.max_pre, v.max_dec);
            if (!(v.least < s->best))
                continue;
            if (end) {
                s->best = v.least;
                record(s, option, k, l, slot);
            } else {
                insert(s, (place * L1 + to) * s->K + k, v);
            }
        }
    }
}

/* All next devices of a state. */
static void follow(struct search *s, uint64_t option, uint64_t state)
{
    uint64_t place = state / s->K / (s->L + 1);
    if (!s->order) {
        for (uint64_t k = 0; k < s->K; k++) {
            uint64_t used = place / s->radix[k] % (s->in->kinds[k]->count + UINT64_C(1));
            if (used < s->in->kinds[k]->count)
                extend(s, option, state, k, place + s->radix[k]);
        }
        return;
    }
    for (uint64_t i = place; i < s->order_len; i++) {
        bool tried = false; /* an earlier device of the same kind leaves more behind it */
        for (uint64_t j = place; j < i; j++)
            tried |= s->order[j] == s->order[i];
        if (!tried)
            extend(s, option, state, s->order[i], i + 1);
        if (!s->in->allow_unused)
            return;
    }
}

/* TSR_OK, or TSR_E_CANCELLED; a passed deadline only ends the search. */
static tsr_status partition(struct search *s, uint64_t option)
{
    uint64_t per_place = (s->L + 1) * s->K;
    memset(s->n, 0, s->places * per_place * sizeof *s->n);
    s->labels[0] = (struct label){ 0, 0, 0, 0, 0, 0, 0 };
    s->n[0] = 1;
    for (uint64_t state = 0; state < s->places * per_place; state++) {
        if (s->n[state] == 0)
            continue;
        if (s->host->cancelled(s->host->ctx))
            return TSR_E_CANCELLED;
        if (s->end_us && now_us() > s->end_us) {
            s->exact = false;
            return TSR_OK;
        }
        follow(s, option, state);
    }
    return TSR_OK;
}

/* ---- the whole ------------------------------------------------------------- */

/* Chooses the device states; with too many combinations of a free order only the order in
 * which the instance lists its kinds is looked at. */
static bool lay_out(struct search *s, uint32_t *listed, uint64_t labels)
{
    uint64_t per_place = (s->L + 1) * s->K, limit = MAX_SLOTS / per_place;
    s->places = 1;
    for (uint64_t k = 0; k < s->K && !s->order; k++) {
        s->radix[k] = s->places;
        s->places *= s->in->kinds[k]->count + UINT64_C(1);
        if (s->places > limit) {
            uint64_t at = 0;
            for (uint64_t j = 0; j < s->K; j++)
                for (uint32_t i = 0; i < s->in->kinds[j]->count; i++)
                    listed[at++] = (uint32_t)j;
            s->order = listed;
            s->order_len = s->devices;
            s->exact = false;
        }
    }
    if (s->order)
        s->places = s->order_len + 1;
    if (s->places > limit)
        return false;
    s->cap = MAX_SLOTS / (s->places * per_place);
    s->cap = s->cap > labels ? labels : s->cap;
    return true;
}

static void answer(struct search *s, double bound, const char *why)
{
    struct tsr_solver_solution *out = s->out;
    bool whole = s->in->bits == 1 && s->exact; /* one bit: uniform plans are all plans */
    bool any = s->best < s->in->cutoff;
    out->bound = bound;
    if (any) {
        if (whole && s->best > bound)
            out->bound = s->best;
        out->objective = s->best;
        out->status =
            s->best - out->bound <= s->in->gap * s->best ? TSR_SOLVED_OPTIMAL : TSR_SOLVED_FEASIBLE;
        return;
    }
    out->status = TSR_SOLVED_UNKNOWN;
    if (whole && s->in->cutoff == INFINITY)
        why = "no contiguous partition fits the devices";
    if (bound == INFINITY || (whole && s->in->cutoff == INFINITY)) {
        out->status = TSR_SOLVED_INFEASIBLE;
        out->bound = -INFINITY;
        (void)snprintf(out->reason, out->reason_cap, "%s", why);
    }
}

static tsr_status run(struct search *s)
{
    const struct tsr_solver_instance *in = s->in;
    double                            bound = INFINITY;
    const char                       *why = "more devices than layers, and all must be used";
    s->best = in->cutoff;
    if (!in->allow_unused && s->devices > s->L) {
        answer(s, bound, why);
        return TSR_OK;
    }
    for (uint64_t i = 0; i < in->n_options; i++) {
        s->o = in->options[i];
        set_counts(s);
        double b = option_bound(s, &why);
        bound = fmin(bound, b);
        if (!(b < s->best))
            continue;
        for (s->q = 0; s->q < in->bits; s->q++) {
            tsr_status st = prepare(s) ? partition(s, i) : TSR_OK;
            if (st != TSR_OK)
                return st;
        }
    }
    answer(s, bound, why);
    return TSR_OK;
}

static tsr_status uniform_solve(void *self, const struct tsr_solver_instance *in,
                                struct tsr_solver_solution *out, struct tsr_err *err)
{
    struct uniform *u = self;
    uint64_t        start = now_us(), L1 = in->layers + 1, K = in->n_kinds, devices = 0;
    struct search   s = { .host = u->host,
                          .in = in,
                          .out = out,
                          .K = K,
                          .L = in->layers,
                          .order = in->order,
                          .order_len = in->order_len,
                          .exact = true };
    s.end_us = in->deadline_us ? add_sat(start, in->deadline_us) : 0;
    for (uint64_t k = 0; k < K; k++)
        devices += in->kinds[k]->count;
    s.devices = devices;
    if (K == 0 || in->layers == 0 || in->n_options == 0)
        return tsr_fail(err, TSR_E_INVAL, "uniform: the instance has no layers, kinds or options");
    if (L1 > MAX_SLOTS / K)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "uniform: %llu layers on %llu kinds are too many",
                        (unsigned long long)in->layers, (unsigned long long)K);
    /* small tables first, since they decide how large the big one is */
    uint64_t       small = (2 * K + 2) * L1 * 8 + (K + 1) * L1 * 8 + K * 8 + devices * 4;
    unsigned char *a = u->host->alloc(u->host->ctx, small, 8), *b = NULL;
    uint64_t       big = 0;
    tsr_status     st = TSR_E_NOMEM;
    if (a) {
        s.pre = (double *)(void *)a;
        s.dec = s.pre + K * L1;
        s.rest_pre = s.dec + K * L1;
        s.rest_dec = s.rest_pre + L1;
        s.bad = (uint64_t *)(void *)(s.rest_dec + L1);
        s.bytes = s.bad + K * L1;
        s.radix = s.bytes + L1;
        if (!lay_out(&s, (uint32_t *)(void *)(s.radix + K), (uint64_t)u->opts.labels)) {
            u->host->release(u->host->ctx, a, small);
            return tsr_fail(err, TSR_E_UNSUPPORTED,
                            "uniform: %llu layers on %llu devices of %llu kinds are too many",
                            (unsigned long long)in->layers, (unsigned long long)devices,
                            (unsigned long long)K);
        }
        uint64_t states = s.places * L1 * K;
        big = states * (s.cap * sizeof(struct label) + sizeof(uint32_t));
        b = u->host->alloc(u->host->ctx, big, 8);
        s.labels = (struct label *)(void *)b;
        s.n = b ? (uint32_t *)(void *)(s.labels + states * s.cap) : NULL;
    }
    if (b)
        st = run(&s);
    u->host->release(u->host->ctx, b, big);
    u->host->release(u->host->ctx, a, small);
    if (st == TSR_E_NOMEM)
        return tsr_fail(err, st, "out of memory: %llu bytes for solver uniform",
                        (unsigned long long)(small + big));
    return st == TSR_OK ? st : tsr_fail(err, st, "uniform: stopped by the user");
}

static tsr_status uniform_create(const struct tsr_host *host, const void *opts, void **self,
                                 struct tsr_err *err)
{
    struct uniform *u = host->alloc(host->ctx, sizeof *u, _Alignof(struct uniform));
    if (!u)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for solver uniform", sizeof *u);
    u->host = host;
    memcpy(&u->opts, opts, sizeof u->opts);
    *self = u;
    return TSR_OK;
}

static void uniform_destroy(void *self)
{
    struct uniform *u = self;
    if (u)
        u->host->release(u->host->ctx, u, sizeof *u);
}

static const struct tsr_solver_v1 uniform_iface = {
    .struct_size = sizeof uniform_iface,
    .supports = TSR_SOLVER_CLASSES | TSR_SOLVER_MAX_OMEGA | TSR_SOLVER_LINKS | TSR_SOLVER_USE_ALL |
                TSR_SOLVER_FORBIDDEN | TSR_SOLVER_WORKSPACE | TSR_SOLVER_ENDS |
                TSR_SOLVER_FIXED_ORDER,
    .create = uniform_create,
    .destroy = uniform_destroy,
    .solve = uniform_solve,
};

static const struct tsr_option uniform_options[] = {
    TSR_OPTION_INT(struct uniform_opts, labels, 32, 1, 4096, "plans",
                   "Partial plans kept per state; more is better and slower."),
};

static const struct tsr_component uniform_component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SOLVER,
    .name = "uniform",
    .summary = "One bit width for every layer, best contiguous partition over the devices.",
    .iface = &uniform_iface,
    .options = uniform_options,
    .n_options = sizeof uniform_options / sizeof uniform_options[0],
    .options_size = sizeof(struct uniform_opts),
};

static const struct tsr_component *const components[] = { &uniform_component };

TSR_PLUGIN_SYMBOL(uniform) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.uniform", .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,    .n_components = 1,
};
