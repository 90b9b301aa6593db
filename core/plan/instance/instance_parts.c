/* Which optional parts of a planning problem its tables use. */
#include "plan/instance/instance.h"

#include <math.h>
#include <stdio.h>

static bool any(const double *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!(v[i] == 0)) /* NaN counts */
            return true;
    return false;
}

static bool any_nan(const double *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (isnan(v[i]))
            return true;
    return false;
}

uint64_t tsr_instance_features(const struct tsr_solver_instance *in)
{
    uint64_t k = in->n_kinds, kcq = k * in->classes * in->bits, f = 0;
    uint64_t links = in->n_links ? in->n_links : 1;
    f |= in->classes > 1 ? TSR_SOLVER_CLASSES : 0;
    f |= in->max_omega >= 0 ? TSR_SOLVER_MAX_OMEGA : 0;
    f |= in->allow_unused ? 0 : TSR_SOLVER_USE_ALL;
    f |= in->order ? TSR_SOLVER_FIXED_ORDER : 0;
    for (uint64_t i = 0; in->host_bytes && i < in->classes * in->bits; i++)
        f |= in->host_bytes[i] ? TSR_SOLVER_HOST : 0;
    f |= in->embed_bytes || in->head_bytes ? TSR_SOLVER_ENDS : 0;
    f |= in->n_pools ? TSR_SOLVER_POOLS : 0;
    if (in->kind_omega && any(in->kind_omega, k * in->layers))
        f |= TSR_SOLVER_KIND_OMEGA;
    if (links > 1 || (in->link_omega && any(in->link_omega, in->layers)))
        f |= TSR_SOLVER_LINK_CODECS;
    f |= in->max_first_ms > 0 ? TSR_SOLVER_MAX_FIRST : 0;
    for (uint64_t i = 0; i < in->n_options; i++) {
        const struct tsr_solver_option *o = in->options[i];
        if (any(o->comm_pre_ms, links * k * k) || any(o->comm_dec_ms, links * k * k))
            f |= TSR_SOLVER_LINKS;
        if (any(o->embed_pre_ms, k) || any(o->embed_dec_ms, k) || any(o->head_pre_ms, k) ||
            any(o->head_dec_ms, k))
            f |= TSR_SOLVER_ENDS;
        f |= o->prefill_jobs > 0 ? TSR_SOLVER_JOBS : 0;
        f |= o->embed_bytes || o->head_bytes || o->omega > 0 ? TSR_SOLVER_OPTION_ENDS : 0;
        if (any_nan(o->pre_ms, kcq) || any_nan(o->dec_ms, kcq))
            f |= TSR_SOLVER_FORBIDDEN;
        for (uint64_t j = 0; j < k; j++)
            f |= o->workspace_bytes[j] ? TSR_SOLVER_WORKSPACE : 0;
    }
    return f;
}

char *tsr_plan_solver_parts(uint64_t mask, char *buf, size_t cap)
{
    static const struct {
        uint64_t    bit;
        const char *name;
    } parts[] = {
        { TSR_SOLVER_CLASSES, "several layer classes" },
        { TSR_SOLVER_MAX_OMEGA, "max_omega" },
        { TSR_SOLVER_LINKS, "links" },
        { TSR_SOLVER_USE_ALL, "allow_unused: false" },
        { TSR_SOLVER_FORBIDDEN, "forbidden entries" },
        { TSR_SOLVER_WORKSPACE, "workspace" },
        { TSR_SOLVER_ENDS, "embedding and head" },
        { TSR_SOLVER_FIXED_ORDER, "a fixed order" },
        { TSR_SOLVER_HOST, "the memory of hosts" },
        { TSR_SOLVER_JOBS, "prompts in chunks" },
        { TSR_SOLVER_POOLS, "pools of devices" },
        { TSR_SOLVER_KIND_OMEGA, "kind_omega" },
        { TSR_SOLVER_LINK_CODECS, "codecs of links" },
        { TSR_SOLVER_OPTION_ENDS, "ends of an option" },
        { TSR_SOLVER_MAX_FIRST, "max_first_ms" },
    };
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if ((mask & parts[i].bit) && n < cap) {
            int w = snprintf(buf + n, cap - n, "%s%s", n ? ", " : "", parts[i].name);
            n += w > 0 ? (size_t)w : 0;
        }
    return buf;
}
