#include "plan/search/whatif_internal.h"

#include "base/mem.h"
#include "plugin/choices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 8u

/* ---- missing resources ----------------------------------------------------------------- */

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

static tsr_status find(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                       const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    bool yes;
    TSR_TRY(tsr_plan_whatif_least_short(p, solver, r->short_of, &r->group, &r->bytes, err));
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        for (uint64_t x = 1; x <= DEVICES && !r->devices[g]; x *= 2) {
            TSR_TRY(tsr_plan_whatif_probe(p, solver, more_devices, &g, x, &yes, err));
            if (yes)
                TSR_TRY(tsr_plan_whatif_least(p, solver, more_devices, &g, x / 2, x, 1,
                                              &r->devices[g], err));
        }
    TSR_TRY(tsr_plan_whatif_most(p, solver, set_batch, NULL, p->memory.batch, &r->batch, err));
    TSR_TRY(tsr_plan_whatif_most(p, solver, set_prompt, NULL, p->memory.prompt, &r->prompt, err));
    TSR_TRY(tsr_plan_whatif_settings(r, p, solver, err));
    TSR_TRY(tsr_plan_whatif_schemes(r, p, solver, err));
    TSR_TRY(tsr_plan_whatif_pair_memory(r, p, solver, err));
    return tsr_plan_whatif_pair_schemes(r, p, solver, err);
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
                                     .pair = { .max_omega = NAN, .bytes = UINT64_MAX } };
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
