/* What error compensation leaves of the KL of a scheme: the member `compensation` of tessera.indicators/2
 * (docs/formats/indicators.md). */
#include "base/mem.h"
#include "plan/cost/quality_internal.h"

#include <math.h>

#define CHANNELS 1024

/* In its place among ascending k; false: it is there already, or there is no room. */
static bool insert(struct tsr_plan_quality_kept *p, double k, double kept, double half)
{
    uint32_t at = p->n;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->k[i] == k)
            return false;
    if (p->n == TSR_PLAN_QUALITY_KEPT)
        return false;
    for (; at > 0 && p->k[at - 1] > k; at--) {
        p->k[at] = p->k[at - 1];
        p->kept[at] = p->kept[at - 1];
        p->half[at] = p->half[at - 1];
    }
    p->k[at] = k;
    p->kept[at] = kept;
    p->half[at] = half;
    p->n++;
    return true;
}

bool tsr_quality_read_interval(const json_t *v, double *half)
{
    const json_t *low = json_array_get(v, 0), *high = json_array_get(v, 1);
    *half = NAN;
    if (!v || json_is_null(v))
        return true;
    if (json_array_size(v) != 2 || !json_is_number(low) || !json_is_number(high))
        return false;
    *half = (json_number_value(high) - json_number_value(low)) / 2;
    return *half >= 0 && *half <= TSR_QUALITY_MOST;
}

static tsr_status read_entry(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                             const json_t *one, const struct tsr_plan_candidates *c,
                             struct tsr_err *err)
{
    const char   *scheme = json_string_value(json_object_get(one, "scheme"));
    const json_t *v = json_object_get(one, "kept");
    int64_t       k;
    double        kept = json_is_number(v) ? json_number_value(v) : (double)NAN, half;
    if (!scheme || !*scheme)
        return tsr_fail(err, TSR_E_INPUT, "%s: an entry of \"compensation\" has no \"scheme\"",
                        t->path);
    TSR_TRY(tsr_json_int(one, t->path, "k", true, 1, CHANNELS, &k, err));
    if (!(kept >= 0 && kept <= TSR_QUALITY_MOST))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"kept\" of '%.80s' with k = %lld is not a share from 0 on", t->path,
                        scheme, (long long)k);
    if (!tsr_quality_read_interval(json_object_get(one, "interval"), &half))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"interval\" of '%.80s' with k = %lld is not [low, high]", t->path,
                        scheme, (long long)k);
    for (uint64_t i = 0; i < c->n; i++) {
        if (c->v[i].mixed || !c->v[i].q.self || !tsr_quality_is_scheme(&c->v[i], scheme))
            continue;
        if (!insert(&q->kl.kept[i], (double)k, kept, half))
            return tsr_fail(
                err, TSR_E_INPUT,
                "%s: \"compensation\" has k = %lld of '%.80s' twice, or more than %u k of it",
                t->path, (long long)k, scheme, TSR_PLAN_QUALITY_KEPT - 1);
    }
    return TSR_OK;
}

tsr_status tsr_quality_read_kept(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                                 const struct tsr_plan_candidates *c, struct tsr_err *err)
{
    json_t       *list = NULL;
    const json_t *one;
    size_t        i;
    TSR_TRY(tsr_json_sub(t->root, t->path, "compensation", false, JSON_ARRAY, &list, err));
    q->kl.kept = tsr_new(c->n, sizeof *q->kl.kept);
    if (!q->kl.kept)
        return tsr_fail_nomem(err, c->n * sizeof *q->kl.kept, "figures of compensation");
    for (uint64_t k = 0; k < c->n; k++)
        (void)insert(&q->kl.kept[k], 0, 1, 0);
    json_array_foreach (list, i, one)
        TSR_TRY(read_entry(q, t, one, c, err));
    return TSR_OK;
}

bool tsr_plan_quality_kept_of(const struct tsr_plan_quality *q, uint64_t candidate, uint32_t k,
                              double *kept, double *half)
{
    const struct tsr_plan_quality_kept *p = q->kl.kept ? &q->kl.kept[candidate] : NULL;
    double                              share = 1, spread = 0;
    uint32_t                            i = 0;
    while (p && i < p->n && p->k[i] < k)
        i++;
    if (k && (!p || i == p->n))
        return false;
    if (k) {
        double at = (k - p->k[i - 1]) / (p->k[i] - p->k[i - 1]);
        share = p->kept[i - 1] + at * (p->kept[i] - p->kept[i - 1]);
        spread = at < 1 ? p->half[i - 1] + at * (p->half[i] - p->half[i - 1]) : p->half[i];
    }
    if (kept)
        *kept = share;
    if (half)
        *half = spread;
    return true;
}
