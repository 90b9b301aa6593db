#include "plan/search/whatif_internal.h"

#include "base/mem.h"
#include "plugin/choices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB     (UINT64_C(1) << 20)
#define MOST    (UINT64_C(1) << 42) /* no device gets more than 4 TiB */
#define SECONDS 5.0                 /* to find any plan */
#define DEVICES 8u

/* ---- variants ---------------------------------------------------------------- */

static tsr_status variant(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                          struct tsr_err *err)
{
    uint64_t n = p->cluster->n_groups;
    *v = (struct tsr_plan_variant){ .p = *p };
    v->p.more_bytes = tsr_new(n, sizeof *v->p.more_bytes);
    v->p.more = tsr_new(n, sizeof *v->p.more);
    if (!v->p.more_bytes || !v->p.more) {
        tsr_plan_variant_free(v);
        return tsr_fail_nomem(err, n * 16, "a planning problem");
    }
    memcpy(v->p.more_bytes, p->more_bytes, n * sizeof *p->more_bytes);
    memcpy(v->p.more, p->more, n * sizeof *p->more);
    return TSR_OK;
}

tsr_status tsr_plan_variant_make(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                 struct tsr_err *err)
{
    return variant(v, p, err);
}

tsr_status tsr_plan_variant_only(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                 uint64_t c, struct tsr_err *err)
{
    uint64_t layers = p->shape->layers;
    TSR_TRY(variant(v, p, err));
    v->omega = tsr_new(layers, sizeof *v->omega);
    if (!v->omega) {
        tsr_plan_variant_free(v);
        return tsr_fail_nomem(err, layers * sizeof *v->omega, "a planning problem");
    }
    for (uint64_t l = 0; l < layers; l++)
        v->omega[l] = p->quality.omega[l * p->candidates.n + c];
    v->p.quality.omega = v->omega;
    v->p.quality.candidates = 1;
    v->p.quality.kl.half = NULL; /* of all candidates */
    v->p.candidates.v = p->candidates.v + c;
    v->p.candidates.n = 1;
    v->p.max_omega = -1;
    return TSR_OK;
}

/* ---- feasibility ----------------------------------------------------------------- */

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
    p.o.gap = 1; /* any plan will do */
    p.o.time_limit = p.o.time_limit > 0 ? fmin(p.o.time_limit, SECONDS) : SECONDS;
    tsr_status st = tsr_search(&a, &p, solver, INFINITY, err);
    *yes = st == TSR_OK && tsr_plan_planned_has_plan(&a);
    *known = *yes || a.status == TSR_SOLVED_INFEASIBLE;
    tsr_plan_planned_free(&a);
    return st;
}

tsr_status tsr_plan_whatif_probe(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, tsr_plan_change change,
                                 const void *ctx, uint64_t x, bool *yes, struct tsr_err *err)
{
    struct tsr_plan_variant v;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    bool                    known;
    TSR_TRY(variant(&v, p, err));
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

/* ---- missing resources ----------------------------------------------------------------- */

/* ctx: the profile whose devices get x bytes more. */
static void more_memory(struct tsr_plan_problem *p, const void *ctx, uint64_t x)
{
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        if (p->cluster->groups[g].profile == ctx)
            p->more_bytes[g] += (int64_t)x;
}

tsr_status tsr_plan_whatif_short(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, uint64_t group,
                                 uint64_t *bytes, struct tsr_err *err)
{
    const void *profile = p->cluster->groups[group].profile;
    uint64_t    lo = 0, hi = 64 * MIB;
    bool        yes;
    *bytes = UINT64_MAX;
    TSR_TRY(tsr_plan_whatif_probe(p, solver, more_memory, profile, MOST, &yes, err));
    if (!yes)
        return TSR_OK;
    for (; hi < MOST; lo = hi, hi *= 2) {
        TSR_TRY(tsr_plan_whatif_probe(p, solver, more_memory, profile, hi, &yes, err));
        if (yes)
            break;
    }
    return tsr_plan_whatif_least(p, solver, more_memory, profile, lo, hi, MIB, bytes, err);
}

/* ctx: the group that gets x devices more. */
static void more_devices(struct tsr_plan_problem *p, const void *ctx, uint64_t x)
{
    p->more[*(const uint64_t *)ctx] += (int64_t)x;
}

static void set_batch(struct tsr_plan_problem *p, const void *ctx, uint64_t x)
{
    (void)ctx;
    p->work.batch = p->work.concurrency = x;
    p->memory.batch = x;
    if (p->o.decode_mb > x)
        p->o.decode_mb = x;
}

static void set_prompt(struct tsr_plan_problem *p, const void *ctx, uint64_t x)
{
    (void)ctx;
    p->memory.prompt = x;
}

static tsr_status lacking(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                          const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    uint64_t least = UINT64_MAX;
    for (uint64_t g = 0; g < p->cluster->n_groups; g++) {
        uint64_t same = g, devices = 0, all;
        for (uint64_t h = 0; h < p->cluster->n_groups; h++)
            if (p->cluster->groups[h].profile == p->cluster->groups[g].profile) {
                same = h < same ? h : same;
                devices += tsr_plan_problem_devices(p, h);
            }
        if (same < g)
            r->short_of[g] = r->short_of[same];
        else
            TSR_TRY(tsr_plan_whatif_short(p, solver, g, &r->short_of[g], err));
        if (r->short_of[g] == UINT64_MAX || !tsr_mul(r->short_of[g], devices, &all))
            continue;
        if (all < least) {
            least = all;
            r->group = g;
            r->bytes = r->short_of[g];
        }
    }
    return TSR_OK;
}

static tsr_status find(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                       const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    bool yes;
    TSR_TRY(lacking(r, p, solver, err));
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        for (uint64_t x = 1; x <= DEVICES && !r->devices[g]; x *= 2) {
            TSR_TRY(tsr_plan_whatif_probe(p, solver, more_devices, &g, x, &yes, err));
            if (yes)
                TSR_TRY(tsr_plan_whatif_least(p, solver, more_devices, &g, x / 2, x, 1,
                                              &r->devices[g], err));
        }
    TSR_TRY(tsr_plan_whatif_most(p, solver, set_batch, NULL, p->memory.batch, &r->batch, err));
    TSR_TRY(tsr_plan_whatif_most(p, solver, set_prompt, NULL, p->memory.prompt, &r->prompt, err));
    return tsr_plan_whatif_settings(r, p, solver, err);
}

tsr_status tsr_plan_whatif_remedies(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    uint64_t n = p->cluster->n_groups;
    *r = (struct tsr_plan_remedies){ .group = UINT64_MAX,
                                     .bytes = UINT64_MAX,
                                     .short_of = tsr_new(n, sizeof *r->short_of),
                                     .devices = tsr_new(n, sizeof *r->devices),
                                     .max_omega = NAN,
                                     .max_first_ms = NAN,
                                     .pair = { .max_omega = NAN } };
    tsr_status st = r->short_of && r->devices
                        ? find(r, p, solver, err)
                        : tsr_fail_nomem(err, n * 16, "what could be changed");
    if (st != TSR_OK)
        tsr_plan_remedies_free(r);
    return st;
}

void tsr_plan_remedies_free(struct tsr_plan_remedies *r)
{
    free(r->short_of);
    free(r->devices);
    *r = (struct tsr_plan_remedies){ 0 };
}
