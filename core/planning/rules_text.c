/* What the rules of a plan file say of one linear, as a candidate's text. */
#include "planning/rules.h"

#include "base/mem.h"
#include "quant/scheme.h"

#include <stdlib.h>
#include <string.h>

#define PAIRS 32
#define TEXT  TSR_PLANNING_TEXT

/* The rules of one layer so far. */
struct layer {
    const char *use;
    const char *key[PAIRS], *value[PAIRS];
    uint64_t    n;
    bool        keep;
};

static void put(struct layer *l, const char *key, const char *value)
{
    for (uint64_t i = 0; i < l->n; i++)
        if (strcmp(l->key[i], key) == 0) {
            l->value[i] = value;
            return;
        }
    if (l->n < PAIRS) {
        l->key[l->n] = key;
        l->value[l->n++] = value;
    }
}

/* Later rules win, option by option; another plugin starts from its own defaults. */
static void take(struct layer *l, const struct tsr_config_node *e, struct tsr_diag *d)
{
    const struct tsr_config_node *use = tsr_config_node_get(e, "use");
    if (use && use->kind == TSR_CONFIG_NODE_SCALAR && strcmp(use->text, l->use) != 0) {
        l->use = use->text;
        l->n = 0;
    }
    l->keep = false;
    for (uint64_t i = 0; i < e->n; i++) {
        const char                   *key = e->keys[i]->text;
        const struct tsr_config_node *v = e->items[i];
        if (strcmp(key, "use") == 0 || strcmp(key, "layers") == 0 || strcmp(key, "experts") == 0 ||
            strcmp(key, "tensors") == 0)
            continue;
        if (v->kind != TSR_CONFIG_NODE_SCALAR || strchr(v->text, ',') || strlen(v->text) > 60 ||
            strlen(key) > 60)
            tsr_config_diag_error(d, &v->mark, NULL, "'%.60s' is not one short value", key);
        else if (strcmp(key, "keep") == 0)
            l->keep = strcmp(v->text, "true") == 0;
        else
            put(l, key, v->text);
    }
}

static bool text_of(const struct layer *l, char text[TEXT])
{
    if (l->keep) {
        (void)snprintf(text, TEXT, "original");
        return true;
    }
    int at = snprintf(text, TEXT, "%.60s", l->use), n = 0;
    /* the width first, as the step's own candidates have it: the same text is the same candidate */
    for (int width = 1; width >= 0; width--)
        for (uint64_t i = 0; i < l->n && at < TEXT; i++)
            if ((strcmp(l->key[i], "bits") == 0) == (width == 1))
                at += snprintf(text + at, (size_t)(TEXT - at), "%c%s=%s", n++ ? ',' : ':',
                               l->key[i], l->value[i]);
    return at < TEXT;
}

bool tsr_planning_rules_names(const struct tsr_config_node *e, const bool *in, uint64_t layer,
                              int linear, int64_t expert)
{
    const struct tsr_config_node *t = tsr_config_node_get(e, "tensors");
    char                          name[TSR_PLAN_LINEAR_TEXT];
    if (in && (expert == TSR_PLANNING_NO_EXPERT || !in[expert]))
        return false;
    if (!t || t->kind != TSR_CONFIG_NODE_SCALAR)
        return true;
    if (expert == TSR_PLANNING_NO_EXPERT)
        (void)tsr_plan_linear(layer, linear, name);
    else
        (void)snprintf(name, sizeof name, "model.layers.%llu.mlp.experts.%lld.%s",
                       (unsigned long long)layer, (long long)expert,
                       tsr_model_linear_name((enum tsr_linear_id)linear));
    return tsr_quant_name_matches(t->text, name);
}

tsr_status tsr_planning_rules_cover(const struct tsr_plan_file *f, uint64_t layer,
                                    struct tsr_planning_covering *c, struct tsr_err *err)
{
    c->n = 0;
    for (uint64_t i = 0; i < f->n_entries; i++) {
        bool yes;
        TSR_TRY(tsr_plan_file_covers(f, f->entries[i], layer, &yes, err));
        if (yes)
            c->at[c->n++] = i;
    }
    return TSR_OK;
}

tsr_status tsr_planning_rules_text(const struct tsr_planning_reading  *r,
                                   const struct tsr_planning_covering *c, uint64_t layer,
                                   int linear, int64_t expert, char text[TSR_PLANNING_TEXT],
                                   const struct tsr_config_node **last, struct tsr_err *err)
{
    const struct tsr_config_node *node = r->node;
    struct layer                  one = { .use = r->use };
    for (uint64_t i = 0; node && node->kind == TSR_CONFIG_NODE_MAP && i < node->n; i++)
        if (!tsr_planning_own(node->keys[i]->text) &&
            node->items[i]->kind == TSR_CONFIG_NODE_SCALAR)
            put(&one, node->keys[i]->text, node->items[i]->text);
    for (uint64_t k = 0; k < c->n; k++) {
        uint64_t                      i = c->at[k];
        const struct tsr_config_node *e = r->f->entries[i];
        if (!tsr_planning_rules_names(e, r->experts ? r->experts[i] : NULL, layer, linear, expert))
            continue;
        *last = e;
        if (r->used)
            r->used[i] = true;
        take(&one, e, r->d);
    }
    if (!text_of(&one, text))
        return tsr_fail(err, TSR_E_INPUT, "layer %llu: the options of its scheme are too long",
                        (unsigned long long)layer);
    return TSR_OK;
}
