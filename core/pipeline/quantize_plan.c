#include "pipeline/quantize_plan.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Those of a list that may be missing, behind the others. */
static void append(struct tsr_pipeline_plan_rules *p, struct tsr_config_node *const *items,
                   uint64_t n)
{
    if (n)
        memcpy(p->items + p->list.n, items, n * sizeof(struct tsr_config_node *));
    p->list.n += n;
}

/* The plan's entries, then its rules for the ends, then those given. */
static tsr_status join(struct tsr_pipeline_plan_rules *p, const struct tsr_config_node *rules,
                       struct tsr_err *err)
{
    uint64_t n = rules && rules->kind == TSR_CONFIG_NODE_LIST ? rules->n : 0;
    uint64_t ends = p->file.ends ? p->file.ends->n : 0;
    p->items = tsr_new(p->file.n_entries + ends + n, sizeof(struct tsr_config_node *));
    if (!p->items)
        return tsr_fail_nomem(err, n * sizeof(struct tsr_config_node *), "the rules of a plan");
    p->list = (struct tsr_config_node){ .kind = TSR_CONFIG_NODE_LIST,
                                        .mark = tsr_config_doc_root(p->file.doc)->mark,
                                        .items = p->items };
    append(p, p->file.entries, p->file.n_entries);
    append(p, ends ? p->file.ends->items : NULL, ends);
    append(p, n ? rules->items : NULL, n);
    return TSR_OK;
}

tsr_status tsr_pipeline_plan_rules_load(struct tsr_pipeline_plan_rules *p, const char *path,
                                        const struct tsr_config_node *rules, struct tsr_diag *d,
                                        struct tsr_err *err)
{
    uint64_t before = tsr_config_diag_errors(d);
    *p = (struct tsr_pipeline_plan_rules){ 0 };
    TSR_TRY(tsr_plan_file_load(&p->file, path, d, err));
    return tsr_config_diag_errors(d) != before ? TSR_OK : join(p, rules, err);
}

void tsr_pipeline_plan_rules_use(const struct tsr_pipeline_plan_rules *p,
                                 struct tsr_config_node               *map)
{
    static const struct tsr_config_node key = { .kind = TSR_CONFIG_NODE_SCALAR, .text = "use" };
    const struct tsr_config_node       *use = tsr_config_node_get(map, "use");
    for (uint64_t i = 0; i < p->list.n && !use; i++) {
        use = tsr_config_node_get(p->list.items[i], "use");
        if (!use)
            continue;
        map->keys[map->n] = (struct tsr_config_node *)(uintptr_t)&key;
        map->items[map->n++] = (struct tsr_config_node *)(uintptr_t)use;
    }
}

/* The hash that reading no weights gives: of config.json and the tensors' headers. */
static tsr_status headers_of(const char *model, char hash[48], struct tsr_err *err)
{
    struct tsr_model *headers;
    TSR_TRY(tsr_model_load(&headers, model, true, err));
    (void)snprintf(hash, 48, "%s", headers->hash);
    tsr_model_destroy(headers);
    return TSR_OK;
}

/* Those of the model, or of the one that it was packed from. */
static tsr_status check_headers(const struct tsr_pipeline_plan_rules *p, const struct tsr_model *m,
                                const char *original, struct tsr_err *err)
{
    char own[48], other[48] = "";
    TSR_TRY(headers_of(m->path, own, err));
    if (strcmp(p->file.headers, own) != 0 && original)
        TSR_TRY(headers_of(original, other, err));
    if (strcmp(p->file.headers, own) != 0 && strcmp(p->file.headers, other) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan is for a model with the headers %s, those of %s are %s; plan "
                        "for this model",
                        tsr_config_doc_path(p->file.doc), p->file.headers, m->path, own);
    return TSR_OK;
}

tsr_status tsr_pipeline_plan_rules_fit(const struct tsr_pipeline_plan_rules *p,
                                       const struct tsr_model *m, const char *original,
                                       struct tsr_err *err)
{
    const char *path = tsr_config_doc_path(p->file.doc);
    if (p->file.layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan is for %llu layers, %s has %llu; plan for this model", path,
                        (unsigned long long)p->file.layers, m->path,
                        (unsigned long long)m->hp.layers);
    if (*p->file.model && strcmp(p->file.model, m->hash) != 0 &&
        !(original && strcmp(p->file.model, m->source) == 0))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan is for the model %s, %s is %s; plan for this model", path,
                        p->file.model, m->path, m->hash);
    return *p->file.headers ? check_headers(p, m, original, err) : TSR_OK;
}

void tsr_pipeline_plan_rules_free(struct tsr_pipeline_plan_rules *p)
{
    free(p->items);
    tsr_plan_file_free(&p->file);
    *p = (struct tsr_pipeline_plan_rules){ 0 };
}
