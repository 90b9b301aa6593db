/* Types of the cache of a plan's layers. */
#include "plan/search/search.h"

#include "base/mem.h"
#include "plugin/choices.h"

#include <string.h>

#define RUN_TEXT 64 /* "1234-5678=int8," */

uint32_t tsr_plan_outcome_kv(const struct tsr_plan_outcome *o, const struct tsr_plan_shape *s)
{
    uint32_t best = o->kv[0];
    uint64_t most = 0;
    for (uint64_t l = 0; l < o->layers; l++) {
        uint64_t n = 0;
        for (uint64_t k = 0; k < o->layers; k++)
            n += o->kv[k] == o->kv[l] && !s->layer[s->layer_class[k]].recurrent;
        if (n > most) {
            most = n;
            best = o->kv[l];
        }
    }
    return best;
}

void tsr_plan_outcome_settle_kv(struct tsr_plan_outcome *o, const struct tsr_plan_shape *s)
{
    uint32_t kv = tsr_plan_outcome_kv(o, s);
    for (uint64_t l = 0; l < o->layers; l++)
        if (s->layer[s->layer_class[l]].recurrent)
            o->kv[l] = kv;
}

char *tsr_plan_outcome_kv_layers(const struct tsr_plan_outcome *o, const struct tsr_plan_shape *s)
{
    uint32_t base = tsr_plan_outcome_kv(o, s);
    char    *text = tsr_new(o->layers + 1, RUN_TEXT);
    size_t   at = 0;
    for (uint64_t l = 0, n; text && l < o->layers; l += n) {
        for (n = 1; l + n < o->layers && o->kv[l + n] == o->kv[l]; n++)
            ;
        if (o->kv[l] == base)
            continue;
        at += (size_t)snprintf(text + at, RUN_TEXT, "%s%llu", at ? "," : "", (unsigned long long)l);
        if (n > 1)
            at += (size_t)snprintf(text + at, RUN_TEXT, "-%llu", (unsigned long long)(l + n - 1));
        at += (size_t)snprintf(text + at, RUN_TEXT, "=%s", tsr_plugin_kv_name(o->kv[l]));
    }
    return text;
}
