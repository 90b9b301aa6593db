/* Memory that makes an infeasible problem feasible: of one profile, of two, or with a higher limit on omega. */
#include "plan/search/whatif_internal.h"

#include "base/mem.h"

#include <math.h>

#define MIB  (UINT64_C(1) << 20)
#define MOST (UINT64_C(1) << 42) /* no device gets more than 4 TiB */

/* Profiles whose devices get more. */
struct who {
    const void *profile[2];
};

static void more_memory(struct tsr_plan_problem *p, const void *ctx, uint64_t x)
{
    const struct who *w = ctx;
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        if (p->cluster->groups[g].profile == w->profile[0] ||
            p->cluster->groups[g].profile == w->profile[1])
            p->more_bytes[g] += (int64_t)x;
}

static struct who who_of(const struct tsr_plan_problem *p, uint64_t group, uint64_t also)
{
    return (struct who){ { p->cluster->groups[group].profile, p->cluster->groups[also].profile } };
}

tsr_status tsr_plan_whatif_short(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, uint64_t group,
                                 uint64_t also, uint64_t *bytes, struct tsr_err *err)
{
    const struct who w = who_of(p, group, also);
    uint64_t         lo = 0, hi = 64 * MIB;
    bool             yes;
    *bytes = UINT64_MAX;
    TSR_TRY(tsr_plan_whatif_probe(p, solver, more_memory, &w, MOST, &yes, err));
    if (!yes)
        return TSR_OK;
    for (; hi < MOST; lo = hi, hi *= 2) {
        TSR_TRY(tsr_plan_whatif_probe(p, solver, more_memory, &w, hi, &yes, err));
        if (yes)
            break;
    }
    return tsr_plan_whatif_least(p, solver, more_memory, &w, lo, hi, MIB, bytes, err);
}

/* ---- which profiles ----------------------------------------------------------------------------- */

/* So many bytes more on each device of the profiles of two groups, as a part of what these devices have. */
static double part_of(const struct tsr_plan_problem *p, uint64_t group, uint64_t also,
                      uint64_t bytes)
{
    const struct who w = who_of(p, group, also);
    double           have = 0, more = 0;
    for (uint64_t g = 0; g < p->cluster->n_groups; g++) {
        double               devices = (double)tsr_plan_problem_devices(p, g);
        struct tsr_plan_mesh m;
        if (p->cluster->groups[g].profile != w.profile[0] &&
            p->cluster->groups[g].profile != w.profile[1])
            continue;
        tsr_plan_mesh_of(p->cluster, g, 1, &m);
        have += devices * (double)tsr_plan_problem_capacity(p, g, &m);
        more += devices * (double)bytes;
    }
    return have > 0 ? more / have : INFINITY;
}

tsr_status tsr_plan_whatif_least_short(const struct tsr_plan_problem *p,
                                       const struct tsr_plugin_spec *solver, uint64_t *short_of,
                                       uint64_t *group, uint64_t *bytes, struct tsr_err *err)
{
    double least = INFINITY;
    *group = *bytes = UINT64_MAX;
    for (uint64_t g = 0; g < p->cluster->n_groups; g++) {
        uint64_t same = 0;
        while (p->cluster->groups[same].profile != p->cluster->groups[g].profile)
            same++;
        if (same < g) {
            short_of[g] = short_of[same];
            continue;
        }
        TSR_TRY(tsr_plan_whatif_short(p, solver, g, g, &short_of[g], err));
        double part = part_of(p, g, g, short_of[g]);
        if (short_of[g] == UINT64_MAX || (*bytes != UINT64_MAX && !(part < least)))
            continue;
        least = part;
        *group = g;
        *bytes = short_of[g];
    }
    return TSR_OK;
}

/* ---- pairs ------------------------------------------------------------------------------------ */

/* Devices of the profile of a group; 0 for a group whose profile an earlier one has. */
static uint64_t devices_of(const struct tsr_plan_problem *p, uint64_t group)
{
    uint64_t n = 0;
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        if (p->cluster->groups[g].profile == p->cluster->groups[group].profile) {
            if (g < group)
                return 0;
            n += tsr_plan_problem_devices(p, g);
        }
    return n;
}

/* Of all pairs of profiles, or of each alone, the one that needs the least part of what it has. */
static tsr_status least_of(struct tsr_plan_pair *pair, const struct tsr_plan_problem *p,
                           const struct tsr_plugin_spec *solver, bool two, struct tsr_err *err)
{
    uint64_t n = p->cluster->n_groups;
    double   least = INFINITY;
    for (uint64_t g = 0; g < n; g++)
        for (uint64_t h = g; h < n; h++) {
            uint64_t own = devices_of(p, g), other = h > g ? devices_of(p, h) : 0, bytes;
            if (!own || (h > g) != two || (two && !other))
                continue;
            TSR_TRY(tsr_plan_whatif_short(p, solver, g, h, &bytes, err));
            double part = part_of(p, g, h, bytes);
            if (bytes == UINT64_MAX || (pair->bytes != UINT64_MAX && !(part < least)))
                continue;
            least = part;
            pair->group = g;
            pair->also = h;
            pair->bytes = bytes;
        }
    return TSR_OK;
}

tsr_status tsr_plan_whatif_pair_memory(struct tsr_plan_remedies      *r,
                                       const struct tsr_plan_problem *p,
                                       const struct tsr_plugin_spec *solver, struct tsr_err *err)
{
    struct tsr_plan_pair   *pair = &r->pair;
    struct tsr_plan_problem wide = *p;
    struct tsr_plan_variant v;
    if (r->bytes != UINT64_MAX || pair->batch || pair->chunk || pair->kv8)
        return TSR_OK;
    TSR_TRY(least_of(pair, p, solver, true, err));
    wide.max_omega = tsr_plan_whatif_worst(p);
    if (pair->bytes != UINT64_MAX || !isnan(r->max_omega) || !(p->max_omega >= 0) ||
        !(wide.max_omega > p->max_omega))
        return TSR_OK;
    TSR_TRY(least_of(pair, &wide, solver, false, err));
    if (pair->bytes == UINT64_MAX)
        return TSR_OK;
    const struct who w = who_of(p, pair->group, pair->group);
    TSR_TRY(tsr_plan_variant_make(&v, p, err));
    more_memory(&v.p, &w, pair->bytes);
    tsr_status st = tsr_plan_whatif_relax(&v.p, solver, false, &pair->max_omega, err);
    tsr_plan_variant_free(&v);
    return st;
}
