/* The settings that a problem leaves open, and one of them in the problem. */
#include "plan/search/settings.h"

#include "plugin/choices.h"
#include "plugin/kv_sizes.h"

#include <math.h>

#define ALL_PARTS 64u /* up to this many requests every number of rounds is tried */
#define KV_USUAL  TSR_F16
#define KV_NARROW TSR_I8

/* Requests at once for 1, 2, 3 ... rounds, descending; of many requests 1, 2, 3, 4, 6, 8, 12 ... rounds. */
static uint64_t concurrencies(const struct tsr_plan_problem *p, uint64_t *v)
{
    uint64_t batch = p->work.batch, n = 0, least = p->o.decode_mb;
    if (!p->o.free_concurrency) {
        v[0] = p->memory.batch;
        return 1;
    }
    if (p->o.prefill_mb > least)
        least = p->o.prefill_mb;
    for (uint64_t rounds = 1; rounds <= batch;) {
        uint64_t at_once = batch / rounds + (batch % rounds != 0);
        if (n && at_once < least)
            break;
        if (n == 0 || v[n - 1] != at_once)
            v[n++] = at_once;
        bool power = (rounds & (rounds - 1)) == 0;
        if (batch <= ALL_PARTS || rounds < 4)
            rounds++;
        else
            rounds = power ? rounds / 2 * 3 : rounds / 3 * 4;
    }
    return n;
}

#define CHUNKS 5u

/* Whole prompts, and chunks that cut the longest: the usual ones, and the one that the workload has. */
static uint64_t chunks(const struct tsr_plan_problem *p, uint64_t v[CHUNKS])
{
    static const uint64_t sizes[] = { 2048, 512, 128 };
    uint64_t              n = 0, own = p->work.chunk;
    v[n++] = p->o.free_chunk ? 0 : own;
    for (size_t i = 0; p->o.free_chunk && i < sizeof sizes / sizeof *sizes; i++) {
        if (own > sizes[i]) {
            v[n++] = own;
            own = 0;
        }
        own = own == sizes[i] ? 0 : own;
        if (sizes[i] < p->memory.prompt)
            v[n++] = sizes[i];
    }
    if (p->o.free_chunk && own)
        v[n++] = own;
    return n;
}

/* What the KV type costs in omega; NAN: not known. */
static double kv_omega(const struct tsr_plan_problem *p, uint32_t kv)
{
    bool none;
    if (p->quality.kl.on) {
        const struct tsr_plan_quality_choice *c = tsr_plan_problem_kl_kv(p, kv, &none);
        return none ? 0 : c ? c->kl : (double)NAN;
    }
    return kv == KV_NARROW ? p->quality.eight : 0;
}

struct cache {
    uint32_t kv, types; /* as in a setting */
};

/* By bits; of equal bits int8 comes before fp8. */
static bool is_wider(uint32_t a, uint32_t b)
{
    uint32_t x = tsr_plugin_kv_bits(a), y = tsr_plugin_kv_bits(b);
    return x != y ? x > y : a < b;
}

/* The listed types, or those that are there unlisted, the widest first. */
static uint32_t widest_first(const struct tsr_plan_problem *p, uint32_t v[TSR_PLAN_KV_TYPES])
{
    static const uint32_t unlisted[] = { KV_USUAL, KV_NARROW };
    const uint32_t       *from = p->o.n_kv ? p->o.kv : unlisted;
    uint32_t              n = p->o.n_kv ? p->o.n_kv : p->o.free_kv ? 2 : 0, at;
    for (uint32_t i = 0; i < n; i++) {
        for (at = i; at > 0 && is_wider(from[i], v[at - 1]); at--)
            v[at] = v[at - 1];
        v[at] = from[i];
    }
    return n;
}

/* By indicators of KL layers choose among the listed types.  The same without those in blocks is another choice, because
 * blocks in one layer make all caches longer (build.h). */
static uint64_t mixed(const struct tsr_plan_problem *p, struct cache v[TSR_PLAN_KV_TYPES])
{
    uint32_t all = 0, blocks = 0, other = 0, types[TSR_PLAN_KV_TYPES];
    uint64_t n = 0;
    for (uint32_t k = 0; k < p->o.n_kv; k++) {
        all |= 1u << k;
        blocks |= tsr_plugin_kv_has_blocks(p->o.kv[k]) ? 1u << k : 0;
    }
    for (uint32_t i = widest_first(p, types); i-- > 0;)
        other = tsr_plugin_kv_has_blocks(types[i]) ? other : types[i];
    if (blocks && all != blocks)
        v[n++] = (struct cache){ other, all & ~blocks };
    v[n++] = (struct cache){ types[0], all };
    return n;
}

/* Types within the limit on omega, the widest first. */
static uint64_t kv_types(const struct tsr_plan_problem *p, struct cache v[TSR_PLAN_KV_TYPES])
{
    uint32_t all[TSR_PLAN_KV_TYPES], types;
    uint64_t n = 0;
    if (p->quality.kl.on && p->o.n_kv > 1)
        return mixed(p, v);
    types = widest_first(p, all);
    for (uint32_t i = 0; i < types; i++) {
        bool listed = p->o.n_kv || all[i] == KV_USUAL || kv_omega(p, all[i]) <= p->max_omega;
        /* of what is listed, a cost that is not known does not count */
        if (listed && !(p->max_omega >= 0 && kv_omega(p, all[i]) > p->max_omega))
            v[n++] = (struct cache){ all[i], 0 };
    }
    if (n == 0)
        v[n++] = (struct cache){ p->o.n_kv ? p->o.kv[0] : p->work.kv, 0 };
    return n;
}

/* The listed k of compensation, the largest first. */
static uint64_t largest_first(const struct tsr_plan_problem *p, uint32_t v[TSR_PLAN_K])
{
    uint64_t n = 0;
    v[0] = 0;
    for (uint32_t i = 0; i < p->o.n_k; i++) {
        uint64_t at = n++;
        for (; at > 0 && v[at - 1] < p->o.k[i]; at--)
            v[at] = v[at - 1];
        v[at] = p->o.k[i];
    }
    return n ? n : 1;
}

uint64_t tsr_plan_settings_of(const struct tsr_plan_problem *p, struct tsr_plan_setting *v)
{
    uint64_t     at_once[ALL_PARTS], chunk[CHUNKS], n = 0;
    struct cache kv[TSR_PLAN_KV_TYPES];
    uint64_t n_once = concurrencies(p, at_once), n_chunk = chunks(p, chunk), n_kv = kv_types(p, kv);
    uint64_t n_end = p->ends.n ? p->ends.n : 1;
    uint32_t k[TSR_PLAN_K];
    uint64_t n_k = largest_first(p, k);
    for (uint64_t m = 0; m < n_end * n_kv * n_k; m++)
        for (uint64_t c = 0; c < n_chunk; c++)
            for (uint64_t i = 0; i < n_once && n < TSR_PLAN_SETTINGS; i++)
                v[n++] = (struct tsr_plan_setting){ .concurrency = at_once[i],
                                                    .chunk = chunk[c],
                                                    .kv = kv[m / n_k % n_kv].kv,
                                                    .end = m / n_k / n_kv,
                                                    .types = kv[m / n_k % n_kv].types,
                                                    .most_k = k[m % n_k] };
    return n;
}

void tsr_plan_settings_put(struct tsr_plan_problem *p, const struct tsr_plan_setting *s)
{
    double cost = kv_omega(p, s->kv);
    p->work.concurrency = s->concurrency;
    p->work.chunk = s->chunk;
    p->work.kv = s->kv;
    p->kv_types = s->types;
    p->most_k = p->work_k = s->most_k;
    tsr_plan_problem_put_end(p, s->end);
    /* a type that the workload names is part of the work and costs nothing, but where its KL is known */
    bool counts = p->o.free_kv || p->o.n_kv || p->quality.kl.on;
    p->kv_omega = counts && !s->types && isfinite(cost) ? cost : 0;
    tsr_plan_problem_refresh(p);
}
