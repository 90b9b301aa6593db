/* What a plan loses next to its weights, by indicators of KL: its cache, and codecs on links and in sums. */
#include "plan/search/problem.h"
#include "plugin/choices.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <string.h>

#define LIST 400

static void names_of(const struct tsr_plan_quality_choice *v, uint32_t n, char *buf)
{
    size_t at = 0;
    (void)snprintf(buf, LIST, "none");
    for (uint32_t i = 0; i < n && at < LIST; i++) {
        at += (size_t)snprintf(buf + at, LIST - at, "%s%s", at ? ", " : "", v[i].name);
        if (v[i].context && at < LIST)
            at += (size_t)snprintf(buf + at, LIST - at, " over %llu tokens",
                                   (unsigned long long)v[i].context);
    }
}

tsr_status tsr_plan_problem_kl_codec(const struct tsr_plan_problem *p, bool sum,
                                     struct tsr_plan_codec *codec, struct tsr_err *err)
{
    const struct tsr_plan_quality  *q = &p->quality;
    const struct tsr_plan_wire     *w = codec->wire;
    struct tsr_plan_quality_choice *out = &codec->cost;
    char                            list[LIST];
    *out = (struct tsr_plan_quality_choice){ .name = "exact" };
    for (int k = 0; k < 2; k++) {
        if (!w[k].iface || w[k].iface->exactness(w[k].self) == TSR_CODEC_EXACT)
            continue;
        const struct tsr_plan_quality_choice *c =
            sum ? tsr_plan_quality_sum(q, w[k].text) : tsr_plan_quality_link(q, w[k].text);
        if (!c) {
            names_of(sum ? q->kl.sum : q->kl.link, sum ? q->kl.n_sum : q->kl.n_link, list);
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: it has no KL of the codec '%s' %s, only of %s; measure it too "
                            "(tessera indicators --measure kl --%s '[\"%s\"]')",
                            p->o.indicators, w[k].text, sum ? "inside a stage" : "between stages",
                            list, sum ? "sums" : "codecs", w[k].text);
        }
        if (c->kl >= out->kl)
            *out = *c;
    }
    return TSR_OK;
}

const struct tsr_plan_quality_choice *tsr_plan_problem_kl_kv(const struct tsr_plan_problem *p,
                                                             uint32_t kv, bool *none)
{
    *none = kv == TSR_F32;
    return *none ? NULL
                 : tsr_plan_quality_kv(&p->quality, tsr_plugin_kv_name(kv), p->work.s + p->work.n);
}

static tsr_status need_kv(const struct tsr_plan_problem *p, uint32_t kv, struct tsr_err *err)
{
    char list[LIST];
    bool none;
    if (tsr_plan_problem_kl_kv(p, kv, &none) || none)
        return TSR_OK;
    names_of(p->quality.kl.kv, p->quality.kl.n_kv, list);
    return tsr_fail(
        err, TSR_E_INPUT,
        "%s: it has no KL of a KV cache of %s over the %llu tokens of a request, only of "
        "%s; measure it too (tessera indicators --measure kl --kv %s --seqlen %llu)",
        p->o.indicators, tsr_plugin_kv_name(kv), (unsigned long long)(p->work.s + p->work.n), list,
        tsr_plugin_kv_name(kv), (unsigned long long)(p->work.s + p->work.n));
}

double tsr_plan_problem_kl_base(const struct tsr_plan_problem *p)
{
    bool                                  none;
    const struct tsr_plan_quality_choice *kv =
        p->quality.kl.on ? tsr_plan_problem_kl_kv(p, p->work.kv, &none) : NULL;
    return (kv ? kv->kl : 0) + p->wire_omega;
}

/* One of the caches that the job allows leaves something of the limit for the weights. */
static tsr_status check_cache(const struct tsr_plan_problem *p, double limit, struct tsr_err *err)
{
    double   least = INFINITY;
    uint32_t of = p->work.kv, n = p->o.n_kv ? p->o.n_kv : 1;
    if (!(p->o.max_kl > 0) || limit < 0)
        return TSR_OK;
    for (uint32_t i = 0; i < n; i++) {
        bool                                  none;
        uint32_t                              kv = p->o.n_kv ? p->o.kv[i] : p->work.kv;
        const struct tsr_plan_quality_choice *c = tsr_plan_problem_kl_kv(p, kv, &none);
        double                                kl = c ? c->kl : 0;
        of = kl < least ? kv : of;
        least = kl < least ? kl : least;
    }
    if (least <= limit)
        return TSR_OK;
    return tsr_fail(
        err, TSR_E_INPUT,
        "at_most: {kl: %g}: a KV cache of %s costs %.3g alone; allow a wider one, or raise "
        "the limit",
        p->o.max_kl, tsr_plugin_kv_name(of), least);
}

tsr_status tsr_plan_problem_kl_open(struct tsr_plan_problem *p, struct tsr_err *err)
{
    uint64_t devices = 0;
    if (!p->quality.kl.on)
        return p->o.max_kl > 0
                   ? tsr_fail(
                         err, TSR_E_INPUT,
                         "at_most: {kl: %g} needs indicators by KL; give quality: {indicators: "
                         "FILE} of tessera indicators --measure kl",
                         p->o.max_kl)
                   : TSR_OK;
    for (uint32_t i = 0; i < p->o.n_kv; i++)
        TSR_TRY(need_kv(p, p->o.kv[i], err));
    if (!p->o.n_kv)
        TSR_TRY(need_kv(p, p->work.kv, err));
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        devices += p->cluster->groups[g].count;
    if (devices > p->shape->layers)
        devices = p->shape->layers;
    p->wire_omega = (double)(devices > 1 ? devices - 1 : 0) * p->links[p->least_link].cost.kl;
    p->wire_omega += p->o.max_tp == 1 ? 0 : p->sums[p->least_sum].cost.kl;
    return check_cache(p, tsr_plan_quality_sum_of(&p->quality, p->o.max_kl), err);
}
