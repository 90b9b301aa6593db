/* Reads a scheme from YAML: our keys by our table, the rest by the table of the plugin that the
 * rules so far have chosen. */
#include "quant/scheme_internal.h"

#include "base/mem.h"
#include "quant/remarks.h"
#include "tessera/quantizer.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RULES 1000
#define OPTIONS   4

const struct tsr_choice tsr_unsupported_choices[2] = {
    { "error", "stop", UNSUPPORTED_STOP },
    { "keep", "keep the original weights of that linear", UNSUPPORTED_KEEP },
};

static const struct tsr_option scheme_options[OPTIONS] = {
    TSR_SCHEME_OPTION_LIST(struct tsr_quant_scheme_keys, , TSR_OPT_REQUIRED,
                           "The quantizer plugin."),
};
static const struct tsr_option rule_options[] = {
    TSR_OPTION_STRING(struct rule, use, "", "Another plugin for these linears."),
    TSR_OPTION_STRING(struct rule, layers, "", "Layers, such as 0-3,7."),
    TSR_OPTION_STRING(struct rule, experts, "", "Experts of a layer, such as 0-3,7."),
    TSR_OPTION_STRING(struct rule, tensors, "", "A pattern for canonical names."),
    TSR_OPTION_BOOL(struct rule, keep, 0, "Leave these linears as they are."),
    TSR_OPTION_INT(struct rule, model_layers, 0, 0, 1000000, "layers",
                   "Layers of the model that the rule was written for; 0: any."),
};
#define N_OPTIONS(t) (sizeof(t) / sizeof *(t))

static bool in_table(const struct tsr_option *t, uint64_t n, const char *key)
{
    for (uint64_t i = 0; i < n; i++)
        if (strcmp(t[i].name, key) == 0)
            return true;
    return false;
}

/* Maps that are put together here borrow their keys and values from the document. */
struct merged {
    struct tsr_config_node   node;
    struct tsr_config_node **keys, **items;
    uint64_t                 cap;
};

static void merged_free(struct merged *m)
{
    free(m->keys);
    free(m->items);
}

static tsr_status merged_put(struct merged *m, struct tsr_config_node *key,
                             struct tsr_config_node *item, struct tsr_err *err)
{
    for (uint64_t i = 0; i < m->node.n; i++)
        if (strcmp(m->keys[i]->text, key->text) == 0) {
            m->keys[i] = key;
            m->items[i] = item;
            return TSR_OK;
        }
    if (m->node.n == m->cap) {
        uint64_t                 cap = m->cap ? 2 * m->cap : 16;
        struct tsr_config_node **k = tsr_renew(m->keys, cap, sizeof(struct tsr_config_node *));
        if (k)
            m->keys = k;
        struct tsr_config_node **v =
            k ? tsr_renew(m->items, cap, sizeof(struct tsr_config_node *)) : NULL;
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof(struct tsr_config_node *),
                                  "a quantization scheme");
        m->items = v;
        m->cap = cap;
    }
    m->keys[m->node.n] = key;
    m->items[m->node.n++] = item;
    return TSR_OK;
}

/* Adds the keys of `from` that are not in our table. */
static tsr_status merge(struct merged *m, const struct tsr_config_node *from,
                        const struct tsr_option *ours, uint64_t n_ours, struct tsr_err *err)
{
    for (uint64_t i = 0; i < from->n; i++) {
        const char *key = from->keys[i]->text;
        if (!in_table(ours, n_ours, key))
            TSR_TRY(merged_put(m, from->keys[i], from->items[i], err));
    }
    return TSR_OK;
}

static tsr_status merge_rules(const struct tsr_quant_scheme *s, const bool *flags, struct merged *m,
                              const char **use, struct tsr_err *err)
{
    *use = s->keys.use;
    m->node.mark = s->map->mark;
    TSR_TRY(merge(m, s->map, scheme_options, OPTIONS, err));
    for (uint64_t i = 0; flags && i < s->n_rules; i++) {
        const struct rule *r = &s->rules[i];
        if (!flags[i])
            continue;
        if (r->use[0] && strcmp(r->use, *use) != 0) {
            *use = r->use;
            m->node.n = 0;
        }
        m->node.mark = r->node->mark;
        TSR_TRY(merge(m, r->node, rule_options, N_OPTIONS(rule_options), err));
    }
    m->node.kind = TSR_CONFIG_NODE_MAP;
    m->node.keys = m->keys;
    m->node.items = m->items;
    return TSR_OK;
}

static tsr_status fill(const struct tsr_quant_scheme *s, struct choice *c,
                       const struct tsr_config_node *map, const char *use, struct tsr_diag *d,
                       struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st =
        tsr_plugin_registry_find(s->registry, TSR_KIND_QUANTIZER, use, &c->found, &e.err);
    if (st == TSR_E_INPUT) {
        const struct tsr_config_node *at = tsr_config_node_get(s->map, "use");
        tsr_config_diag_failure(d, at && strcmp(use, s->keys.use) == 0 ? &at->mark : &map->mark,
                                &e.err);
        return TSR_OK;
    }
    if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    const struct tsr_component *k = c->found.component;
    c->options = tsr_new_aligned(1, k->options_size);
    if (!c->options)
        return tsr_fail_nomem(err, k->options_size, use);
    memset(c->options, 0, k->options_size);
    struct tsr_config_optset set = { k->options, k->n_options, k->option_stride, c->options };
    char                     what[160];
    (void)snprintf(what, sizeof what, "%s with quantizer '%s'", s->what, use);
    /* ours are not in the map any more; naming them makes the hint for a misspelt one right */
    static const char *const ours[] = { "use",          "rules",   "on_unsupported", "sequential",
                                        "layers",       "experts", "tensors",        "keep",
                                        "model_layers", NULL };
    tsr_config_options_fill(&set, 1, ours, map, what, d);
    return TSR_OK;
}

tsr_status scheme_choose(const struct tsr_quant_scheme *s, const bool *flags, struct choice *c,
                         struct tsr_diag *d, struct tsr_err *err)
{
    struct merged m = { 0 };
    const char   *use;
    tsr_status    st = merge_rules(s, flags, &m, &use, err);
    if (st == TSR_OK)
        st = fill(s, c, &m.node, use, d, err);
    merged_free(&m);
    return st;
}

/* Options that cannot work together are for the plugin to see: it is created once here. */
static tsr_status try_create(const struct tsr_quant_scheme *s, const struct choice *c,
                             const struct tsr_config_mark *at, struct tsr_diag *d,
                             struct tsr_err *err)
{
    struct tsr_quantizer q;
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    tsr_status           st =
        tsr_quant_remarks_open(NULL, &q, s->registry, &c->found,
                               tsr_plugin_registry_host(s->registry), c->options, &e.err);
    if (st == TSR_OK) {
        tsr_quantizer_close(&q);
        return TSR_OK;
    }
    if (st != TSR_E_CONFIG && st != TSR_E_UNSUPPORTED)
        return tsr_err_prefix(err, tsr_err_copy(err, st, &e.err), "quantizer '%s'",
                              c->found.component->name);
    tsr_config_diag_error(d, at, NULL, "quantizer '%s': %s", c->found.component->name, e.text);
    return TSR_OK;
}

static tsr_status check_choice(const struct tsr_quant_scheme *s, const bool *flags,
                               const struct tsr_config_mark *at, struct tsr_diag *d,
                               struct tsr_err *err)
{
    struct choice c = { 0 };
    uint64_t      before = tsr_config_diag_errors(d);
    tsr_status    st = scheme_choose(s, flags, &c, d, err);
    if (st == TSR_OK && tsr_config_diag_errors(d) == before)
        st = try_create(s, &c, at, d, err);
    free(c.options);
    return st;
}

static void read_rule(struct rule *r, const struct tsr_config_node *n, struct tsr_diag *d)
{
    r->node = n;
    r->use = r->layers = r->tensors = "";
    if (n->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(d, &n->mark, "a rule is {layers: 4-27, bits: 3}",
                              "a rule is not a map");
        return;
    }
    /* only our keys: the others depend on the plugin and are checked with it */
    struct tsr_config_node  ours = *n;
    struct tsr_config_node *keys[N_OPTIONS(rule_options)], *items[N_OPTIONS(rule_options)];
    ours.keys = keys;
    ours.items = items;
    ours.n = 0;
    for (uint64_t i = 0; i < n->n && ours.n < N_OPTIONS(rule_options); i++)
        if (in_table(rule_options, N_OPTIONS(rule_options), n->keys[i]->text)) {
            keys[ours.n] = n->keys[i];
            items[ours.n++] = n->items[i];
        }
    struct tsr_config_optset set = { rule_options, N_OPTIONS(rule_options), sizeof *rule_options,
                                     r };
    tsr_config_options_fill(&set, 1, NULL, &ours, "a rule", d);
    if (!r->layers[0] && !r->tensors[0])
        tsr_config_diag_error(d, &n->mark, "add layers: 0-3 or tensors: \"*.down_proj\"",
                              "a rule says neither which layers nor which tensors");
}

static tsr_status read_rules(struct tsr_quant_scheme *s, struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_config_node *list = s->keys.rules;
    if (!list || list->kind == TSR_CONFIG_NODE_NULL)
        return TSR_OK;
    if (list->kind != TSR_CONFIG_NODE_LIST || list->n > MAX_RULES) {
        tsr_config_diag_error(d, &list->mark, NULL, "rules is not a list of at most %d maps",
                              MAX_RULES);
        return TSR_OK;
    }
    s->rules = tsr_new(list->n, sizeof *s->rules);
    if (!s->rules)
        return tsr_fail_nomem(err, list->n * sizeof *s->rules, "the rules of a scheme");
    s->n_rules = list->n;
    for (uint64_t i = 0; i < list->n; i++)
        read_rule(&s->rules[i], list->items[i], d);
    return TSR_OK;
}

static tsr_status check_rules(const struct tsr_quant_scheme *s, struct tsr_diag *d,
                              struct tsr_err *err)
{
    bool *flags = tsr_new(s->n_rules, sizeof *flags);
    if (!flags)
        return tsr_fail_nomem(err, s->n_rules, "the rules of a scheme");
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < s->n_rules && st == TSR_OK; i++) {
        flags[i] = true;
        st = check_choice(s, flags, &s->rules[i].node->mark, d, err);
        flags[i] = false;
    }
    free(flags);
    return st;
}

static void fill_keys(struct tsr_quant_scheme *s, struct tsr_diag *d)
{
    /* from a map that holds only ours: the others are the plugin's */
    struct tsr_config_node  ours = *s->map;
    struct tsr_config_node *keys[OPTIONS], *items[OPTIONS];
    ours.keys = keys;
    ours.items = items;
    ours.n = 0;
    for (uint64_t i = 0; i < s->map->n && ours.n < OPTIONS; i++)
        if (in_table(scheme_options, OPTIONS, s->map->keys[i]->text)) {
            keys[ours.n] = s->map->keys[i];
            items[ours.n++] = s->map->items[i];
        }
    struct tsr_config_optset set = { scheme_options, OPTIONS, sizeof *scheme_options, &s->keys };
    tsr_config_options_fill(&set, 1, NULL, &ours, s->what, d);
}

static tsr_status read_scheme(struct tsr_quant_scheme *s, const struct tsr_quant_scheme_keys *given,
                              struct tsr_diag *d, struct tsr_err *err)
{
    uint64_t before = tsr_config_diag_errors(d);
    if (given)
        s->keys = *given;
    else
        fill_keys(s, d);
    TSR_TRY(read_rules(s, d, err));
    if (tsr_config_diag_errors(d) != before || !s->keys.use || !s->keys.use[0])
        return TSR_OK; /* the code that filled the keys has reported the missing `use` */
    const struct tsr_config_node *use = tsr_config_node_get(s->map, "use");
    TSR_TRY(check_choice(s, NULL, use ? &use->mark : &s->map->mark, d, err));
    /* a rule is checked on top of the base, so that an error of the base is reported once */
    return tsr_config_diag_errors(d) == before ? check_rules(s, d, err) : TSR_OK;
}

tsr_status tsr_quant_scheme_create(struct tsr_quant_scheme **out, struct tsr_registry *r,
                                   const struct tsr_config_node       *map,
                                   const struct tsr_quant_scheme_keys *keys, const char *what,
                                   struct tsr_diag *d, struct tsr_err *err)
{
    *out = NULL;
    if (map->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(d, &map->mark, "write {use: rtn, bits: 4}", "%s is not a map", what);
        return TSR_OK;
    }
    struct tsr_quant_scheme *s = tsr_new(1, sizeof *s);
    if (!s)
        return tsr_fail_nomem(err, sizeof *s, what);
    *s = (struct tsr_quant_scheme){ .registry = r, .map = map };
    (void)snprintf(s->what, sizeof s->what, "%s", what);
    uint64_t   before = tsr_config_diag_errors(d);
    tsr_status st = read_scheme(s, keys, d, err);
    if (st != TSR_OK || tsr_config_diag_errors(d) != before) {
        tsr_quant_scheme_destroy(s);
        return st;
    }
    *out = s;
    return TSR_OK;
}

void tsr_quant_scheme_destroy(struct tsr_quant_scheme *s)
{
    if (!s)
        return;
    free(s->rules);
    free(s);
}
