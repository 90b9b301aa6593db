/* What a layer may take: each a bit candidate of the instances. */
#include "plan/search/build_internal.h"

#include "base/mem.h"
#include "plugin/choices.h"
#include "plugin/kv_sizes.h"

#include <string.h>

#define NAME_TEXT 160

#define NEW(b, v, n)                                                                               \
    if (!((v) = tsr_plan_build_alloc(b, n, sizeof *(v))))                                          \
    return tsr_fail_nomem(err, n, "a planning problem")

bool tsr_plan_built_find(const struct tsr_plan_built *b, const struct tsr_plan_item *item,
                         uint32_t *bits)
{
    for (uint64_t i = 0; i < b->whole.bits; i++) {
        const struct tsr_plan_item *t = &b->items[i];
        if (t->candidate == item->candidate && t->kv == item->kv && t->k == item->k &&
            t->on_cpu == item->on_cpu) {
            *bits = (uint32_t)i;
            return true;
        }
    }
    return false;
}

struct tsr_plan_memory_job tsr_plan_built_memory(const struct tsr_plan_built *b,
                                                 const struct tsr_plan_item  *item)
{
    struct tsr_plan_memory_job j = b->p->memory;
    uint32_t                   kv[TSR_PLAN_KV_TYPES], n = tsr_plan_problem_kv_types(b->p, kv);
    for (uint32_t i = 0; i < n; i++)
        j.blocks = j.blocks || tsr_plugin_kv_has_blocks(kv[i]);
    j.kv = item ? item->kv : kv[0];
    return j;
}

double tsr_plan_built_weights(const struct tsr_plan_built *b, uint64_t layer,
                              const struct tsr_plan_item *item)
{
    return b->p->quality.omega[layer * b->p->candidates.n + item->candidate];
}

double tsr_plan_built_left(const struct tsr_plan_built *b, uint64_t layer,
                           const struct tsr_plan_item *item)
{
    double kept = 1;
    if (item->k && !tsr_plan_quality_kept_of(&b->p->quality, item->candidate, item->k, &kept, NULL))
        kept = 1;
    return kept * tsr_plan_built_weights(b, layer, item);
}

/* "gptq-4, int8 cache, k = 16, experts on the CPU": what tells items apart. */
static tsr_status name_of(struct tsr_plan_built *b, const struct tsr_plan_item *item, bool kv,
                          const char **name, struct tsr_err *err)
{
    const char *candidate = b->p->candidates.v[item->candidate].name;
    char        buf[NAME_TEXT], *text, k[24] = "";
    *name = candidate;
    if (!kv && !item->on_cpu && !item->k)
        return TSR_OK;
    if (item->k)
        (void)snprintf(k, sizeof k, ", k = %u", item->k);
    int n = snprintf(buf, sizeof buf, "%s%s%s%s%s%s", candidate, kv ? ", " : "",
                     kv ? tsr_plugin_kv_name(item->kv) : "", kv ? " cache" : "", k,
                     item->on_cpu ? ", experts on the CPU" : "");
    NEW(b, text, (uint64_t)n + 1);
    memcpy(text, buf, (size_t)n + 1);
    *name = text;
    return TSR_OK;
}

static tsr_status names(struct tsr_plan_built *b, bool kv, struct tsr_err *err)
{
    const char **list;
    NEW(b, list, b->whole.bits);
    for (uint64_t i = 0; i < b->whole.bits; i++)
        TSR_TRY(name_of(b, &b->items[i], kv, &list[i], err));
    b->whole.bit_names = list;
    return TSR_OK;
}

/* Only a packed linear has lost something; a mix has no figures of its own.  A checked plan has what it has. */
static bool compensates(const struct tsr_plan_problem *p, uint64_t candidate)
{
    const struct tsr_plan_candidate *c = &p->candidates.v[candidate];
    return p->k_of || (c->q.self && !c->mixed);
}

tsr_status tsr_plan_build_items(struct tsr_plan_built *b, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    static const uint32_t          none[1] = { 0 };
    uint32_t                       kv[TSR_PLAN_KV_TYPES], types = tsr_plan_problem_kv_types(p, kv);
    uint32_t                       n_k = p->o.n_k ? p->o.n_k : 1, first = 0;
    const uint32_t                *k = p->o.n_k ? p->o.k : none;
    uint64_t                       n = p->candidates.n, q = 0;
    NEW(b, b->items, n * types * n_k * (b->places ? 2 : 1));
    while (first < n_k && k[first] > p->most_k)
        first++;
    for (int place = 0; place <= b->places; place++)
        for (uint32_t i = first; i < n_k; i++)
            for (uint32_t t = 0; t < types; t++)
                for (uint64_t c = 0; c < n; c++) {
                    bool can = compensates(p, c);
                    if (k[i] <= p->most_k && (can || i == first)) /* what cannot is there once */
                        b->items[q++] = (struct tsr_plan_item){ .candidate = (uint32_t)c,
                                                                .kv = kv[t],
                                                                .k = can ? k[i] : 0,
                                                                .on_cpu = place > 0 };
                }
    if ((types > 1 || n_k > 1) && q > TSR_PLAN_ITEMS)
        return tsr_fail(
            err, TSR_E_INPUT,
            "a layer has %llu choices, of %llu candidates, %u types of the KV cache and %u k of "
            "compensation; at most %u can be planned: list fewer of them",
            (unsigned long long)q, (unsigned long long)n, types, n_k, TSR_PLAN_ITEMS);
    b->whole.bits = q;
    return names(b, types > 1, err);
}
