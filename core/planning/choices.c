/* What a plan step leaves open: settings, types of the KV cache, channels of error compensation. */
#include "planning/planning.h"

#include "pipeline/job.h"
#include "pipeline/step.h"
#include "plugin/kv_codec.h"

#include <stdlib.h>
#include <string.h>

static void read_kv_type(struct tsr_planning *pl, struct tsr_registry *r, const char *name,
                         size_t n, const struct tsr_config_node *at, struct tsr_diag *d)
{
    struct tsr_plan_problem_options *o = &pl->options;
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    uint32_t                         kv;
    if (tsr_plugin_kv_resolve(r, name, n, &kv, &e.err) != TSR_OK) {
        tsr_config_diag_failure(d, &at->mark, &e.err);
        return;
    }
    for (uint32_t i = 0; i < o->n_kv; i++)
        if (o->kv[i] == kv) {
            tsr_config_diag_error(d, &at->mark, "keep one of them", "'%s' comes twice in 'kv'",
                                  tsr_plugin_kv_name(kv));
            return;
        }
    if (o->n_kv == TSR_PLAN_KV_TYPES)
        tsr_config_diag_error(d, &at->mark, NULL, "'kv' has more than %u types", TSR_PLAN_KV_TYPES);
    else if (!tsr_plan_quality_prior_has(kv) && !*o->indicators)
        tsr_config_diag_error(d, &at->mark,
                              "give indicators of measure: kl, or fix it in the workload",
                              "what a KV cache of %s loses is not known by the prior",
                              tsr_plugin_kv_name(kv));
    else
        o->kv[o->n_kv++] = kv;
}

/* [f16, int8], or "f16,int8" of a command line. */
static void read_kv(struct tsr_planning *pl, struct tsr_registry *r,
                    const struct tsr_config_node *list, struct tsr_diag *d)
{
    if (list->kind == TSR_CONFIG_NODE_SCALAR) {
        for (const char *s = list->text;; s++) {
            size_t n = strcspn(s, ",");
            read_kv_type(pl, r, s, n, list, d);
            s += n;
            if (!*s)
                return;
        }
    }
    if (list->kind != TSR_CONFIG_NODE_LIST || !list->n)
        tsr_config_diag_error(d, &list->mark, "write kv: [f16, int8]", "'kv' is %s",
                              list->kind == TSR_CONFIG_NODE_LIST ? "an empty list" : "not a list");
    for (uint64_t i = 0; list->kind == TSR_CONFIG_NODE_LIST && i < list->n; i++) {
        const struct tsr_config_node *item = list->items[i];
        const char                   *text = item->kind == TSR_CONFIG_NODE_SCALAR ? item->text : "";
        read_kv_type(pl, r, text, strlen(text), item, d);
    }
}

void tsr_planning_open_settings(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                                const struct tsr_planning_plan_keys *k, struct tsr_diag *d)
{
    struct tsr_plan_problem_options *o = &pl->options;
    const struct tsr_config_node    *map = job->state->head.workload;
    if (map && map->kind != TSR_CONFIG_NODE_MAP)
        map = NULL;
    const struct tsr_config_node *kv = map ? tsr_config_node_get(map, "kv") : NULL;
    bool                          listed = k->kv && k->kv->kind != TSR_CONFIG_NODE_NULL;
    bool                          copies = pl->cluster && tsr_planning_copies(pl, k);
    bool                          open =
        o->objective != TSR_OBJECTIVE_PAPER && o->accounting != TSR_PLAN_ACCOUNT_PAPER && !copies;
    o->free_concurrency = open && !(map && tsr_config_node_get(map, "concurrency"));
    o->free_chunk = open && !(map && tsr_config_node_get(map, "chunk"));
    o->free_kv = open && !kv && !listed && tsr_plugin_kv_is_there(job->registry, TSR_I8);
    o->knee = o->objective != TSR_OBJECTIVE_PAPER && !copies;
    if (listed && kv)
        tsr_config_diag_error(d, &k->kv->mark, "keep one of them",
                              "'kv' is in the workload, too, which fixes it");
    else if (listed && copies)
        tsr_config_diag_error(d, &k->kv->mark, "write workload: {kv: int8}",
                              "'kv' is chosen for one copy of the model; %llu nodes are planned "
                              "in copies, of which the workload says the cache",
                              (unsigned long long)pl->cluster->n_nodes);
    else if (listed)
        read_kv(pl, job->registry, k->kv, d);
}

static void read_channel(struct tsr_planning *pl, const char *text,
                         const struct tsr_config_node *at, struct tsr_diag *d)
{
    struct tsr_plan_problem_options *o = &pl->options;
    char                            *end;
    unsigned long                    k = strtoul(text, &end, 10);
    bool                             twice = false;
    for (uint32_t i = 0; i < o->n_k; i++)
        twice = twice || o->k[i] == k;
    if (*text < '0' || *text > '9' || *end || k > TSR_PLAN_CHANNELS)
        tsr_config_diag_error(d, &at->mark, "write compensate: [0, 8, 16, 32]",
                              "'%.40s' is not a number of channels from 0 to %u", text,
                              TSR_PLAN_CHANNELS);
    else if (twice)
        tsr_config_diag_error(d, &at->mark, "keep one of them", "%lu comes twice in 'compensate'",
                              k);
    else if (o->n_k == TSR_PLAN_K)
        tsr_config_diag_error(d, &at->mark, NULL, "'compensate' has more than %u numbers",
                              TSR_PLAN_K);
    else
        o->k[o->n_k++] = (uint32_t)k;
}

void tsr_planning_channels(struct tsr_planning *pl, const struct tsr_config_node *list,
                           struct tsr_diag *d)
{
    if (!list || list->kind == TSR_CONFIG_NODE_NULL)
        return;
    for (const char *s = list->kind == TSR_CONFIG_NODE_SCALAR ? list->text : ""; *s;) {
        size_t n = strcspn(s, ",");
        char   one[16];
        (void)snprintf(one, sizeof one, "%.*s", (int)(n < 15 ? n : 15), s);
        read_channel(pl, one, list, d);
        s += n + (s[n] == ',');
    }
    if (list->kind != TSR_CONFIG_NODE_SCALAR && (list->kind != TSR_CONFIG_NODE_LIST || !list->n))
        tsr_config_diag_error(d, &list->mark, "write compensate: [0, 8, 16, 32]",
                              "'compensate' is %s",
                              list->kind == TSR_CONFIG_NODE_LIST ? "an empty list" : "not a list");
    for (uint64_t i = 0; list->kind == TSR_CONFIG_NODE_LIST && i < list->n; i++) {
        const struct tsr_config_node *item = list->items[i];
        read_channel(pl, item->kind == TSR_CONFIG_NODE_SCALAR ? item->text : "", item, d);
    }
    bool some = false;
    for (uint32_t i = 0; i < pl->options.n_k; i++)
        some = some || pl->options.k[i];
    if (some && pl->cluster && !tsr_plan_compensate_known(pl->cluster))
        tsr_config_diag_error(d, &list->mark, "give a profile its host: {peak: ...}",
                              "no profile of %s says how fast its device reads the host's memory, "
                              "so that the time of 'compensate' is not known",
                              pl->cluster->name);
}
