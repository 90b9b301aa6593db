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

uint32_t tsr_plan_problem_kv_types(const struct tsr_plan_problem *p, uint32_t *v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->o.n_kv; i++)
        if (p->kv_types >> i & 1)
            v[n++] = p->o.kv[i];
    if (n == 0)
        v[n++] = p->work.kv;
    return n;
}

double tsr_plan_problem_kv_omega(const struct tsr_plan_problem *p, uint32_t kv, uint64_t layer,
                                 double *half)
{
    const struct tsr_plan_shape          *s = p->shape;
    const struct tsr_plan_quality_choice *c;
    double                                share = 0, all = 0, other;
    bool                                  none;
    c = p->quality.kl.on ? tsr_plan_problem_kl_kv(p, kv, &none) : NULL;
    for (uint64_t l = 0; l < s->layers; l++) {
        double part = s->layer[s->layer_class[l]].recurrent ? 0 : 1;
        if (c && c->layers)
            part = c->layers[l];
        share = l == layer ? part : share;
        all += part;
    }
    share = all > 0 ? share / all : 0;
    if (half)
        *half = c ? share * c->half : 0;
    if (p->quality.kl.on)
        return c ? share * c->kl : 0;
    other = kv == TSR_I8 ? p->quality.eight : 0;
    return isfinite(other) ? share * other : 0;
}

tsr_status tsr_plan_problem_kl_need_kv(const struct tsr_plan_problem *p, uint32_t kv,
                                       struct tsr_err *err)
{
    char list[LIST];
    bool none;
    if (!p->quality.kl.on || tsr_plan_problem_kl_kv(p, kv, &none) || none)
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

void tsr_plan_problem_limit_text(const struct tsr_plan_problem *p, char *buf, size_t cap)
{
    char codecs[120] = "", ends[120] = "";
    if (p->wire_omega > 0)
        (void)snprintf(codecs, sizeof codecs, ", codecs between stages and inside them up to %.4g",
                       p->wire_omega);
    if (p->ends_omega > 0)
        (void)snprintf(ends, sizeof ends, ", embedding and head by %.40s %.4g",
                       p->ends.v[p->end].name, p->ends_omega);
    (void)snprintf(buf, cap,
                   "the limit on omega is %.4g, of which a KV cache of %s costs %.4g%s%s: too "
                   "little is left for the "
                   "weights; raise the limit%s or allow a wider cache",
                   p->max_omega, tsr_plugin_kv_name(p->work.kv), p->kv_omega, codecs, ends,
                   p->wire_omega > 0 ? ", use codec: plain" : "");
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
    for (uint32_t i = 0; i < p->o.n_kv; i++)
        if (!p->quality.kl.on && !tsr_plan_quality_prior_has(p->o.kv[i]))
            return tsr_fail(
                err, TSR_E_INPUT,
                "kv: what a cache of %s loses is not known without indicators by KL; give quality: "
                "{indicators: FILE} of tessera indicators --measure kl --kv %s, or fix the type "
                "with "
                "workload: {kv: %s}",
                tsr_plugin_kv_name(p->o.kv[i]), tsr_plugin_kv_name(p->o.kv[i]),
                tsr_plugin_kv_name(p->o.kv[i]));
    if (!p->quality.kl.on)
        return p->o.max_kl > 0
                   ? tsr_fail(
                         err, TSR_E_INPUT,
                         "at_most: {kl: %g} needs indicators by KL; give quality: {indicators: "
                         "FILE} of tessera indicators --measure kl",
                         p->o.max_kl)
                   : TSR_OK;
    for (uint32_t i = 0; i < p->o.n_kv; i++)
        TSR_TRY(tsr_plan_problem_kl_need_kv(p, p->o.kv[i], err));
    if (!p->o.n_kv)
        TSR_TRY(tsr_plan_problem_kl_need_kv(p, p->work.kv, err));
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        devices += p->cluster->groups[g].count;
    if (devices > p->shape->layers)
        devices = p->shape->layers;
    p->wire_omega = (double)(devices > 1 ? devices - 1 : 0) * p->links[p->least_link].cost.kl;
    p->wire_omega += p->o.max_tp == 1 ? 0 : p->sums[p->least_sum].cost.kl;
    return check_cache(p, tsr_plan_quality_sum_of(&p->quality, p->o.max_kl), err);
}
