#include "config/doc.h"
#include "config/value.h"

#include <string.h>

#define MAX_NAMES 256u

static bool find(const struct tsr_config_optset *sets, uint64_t n_sets, const char *key,
                 uint64_t *set, struct tsr_option *o)
{
    for (uint64_t s = 0; s < n_sets; s++)
        for (uint64_t i = 0; i < sets[s].n; i++) {
            *o = tsr_config_option_at(&sets[s], i);
            if (strcmp(o->name, key) == 0) {
                *set = s;
                return true;
            }
        }
    return false;
}

static void unknown(const struct tsr_config_optset *sets, uint64_t n_sets, const char *const *also,
                    const struct tsr_config_node *key, const char *what, struct tsr_diag *d)
{
    const char *names[MAX_NAMES];
    uint64_t    n = 0;
    for (uint64_t s = 0; s < n_sets; s++)
        for (uint64_t i = 0; i < sets[s].n && n < MAX_NAMES; i++)
            names[n++] = tsr_config_option_at(&sets[s], i).name;
    for (; also && *also && n < MAX_NAMES; also++)
        names[n++] = *also;
    const char *near = tsr_config_nearest(key->text, names, n);
    char        hint[TSR_VALUE_TEXT] = "";
    if (near) {
        (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near);
    } else if (n > 0 && n <= 12) {
        size_t at = (size_t)snprintf(hint, sizeof hint, "known: ");
        for (uint64_t i = 0; i < n && at < sizeof hint; i++)
            at += (size_t)snprintf(hint + at, sizeof hint - at, "%s%s", i ? ", " : "", names[i]);
    }
    tsr_config_diag_error(d, &key->mark, hint, "unknown key '%.60s' in %s", key->text, what);
}

/* The texts of a list of single values with commas between them, in memory of its doc; NULL: it is no such list, or,
 * with *nomem, there is no memory. */
static const char *joined(const struct tsr_config_node *list, bool *nomem)
{
    uint64_t bytes = 1;
    *nomem = false;
    if (list->kind != TSR_CONFIG_NODE_LIST || list->n == 0)
        return NULL;
    for (uint64_t i = 0; i < list->n; i++) {
        const struct tsr_config_node *v = list->items[i];
        if (v->kind != TSR_CONFIG_NODE_SCALAR || strchr(v->text, ','))
            return NULL;
        bytes += strlen(v->text) + 1;
    }
    char *text = tsr_config_doc_alloc(list->mark.source->doc, bytes), *to = text;
    *nomem = !text;
    for (uint64_t i = 0; text && i < list->n; i++)
        to +=
            snprintf(to, bytes - (uint64_t)(to - text), "%s%s", i ? "," : "", list->items[i]->text);
    return text;
}

static void fill_one(const struct tsr_config_optset *set, const struct tsr_option *o,
                     const struct tsr_config_node *key, const struct tsr_config_node *value,
                     const char *what, struct tsr_diag *d)
{
    char msg[TSR_VALUE_TEXT], hint[TSR_VALUE_TEXT];
    if (o->replaced_by)
        tsr_config_diag_warning(d, &key->mark, NULL, "'%s' in %s is deprecated; use '%s'", o->name,
                                what, o->replaced_by);
    if (o->type == TSR_OPT_NODE) {
        memcpy((char *)set->into + o->offset, &value, sizeof value);
        return;
    }
    if (value->kind == TSR_CONFIG_NODE_SCALAR) {
        enum tsr_value_form form = value->quoted ? TSR_CONFIG_FORM_QUOTED : TSR_CONFIG_FORM_PLAIN;
        if (!tsr_config_value_parse(o, value->text, form, set->into, msg, hint))
            tsr_config_diag_error(d, &value->mark, hint, "'%s' %s", o->name, msg);
        return;
    }
    if (o->flags & TSR_OPT_LIST) {
        bool        nomem;
        const char *text = joined(value, &nomem);
        if (nomem)
            tsr_config_diag_nomem(d);
        else if (text &&
                 !tsr_config_value_parse(o, text, TSR_CONFIG_FORM_QUOTED, set->into, msg, hint))
            tsr_config_diag_error(d, &value->mark, hint, "'%s' %s", o->name, msg);
        if (nomem || text)
            return;
    }
    tsr_config_value_wanted(o, msg, sizeof msg);
    if (value->kind == TSR_CONFIG_NODE_NULL)
        tsr_config_diag_error(d, &key->mark, NULL, "'%s' has no value; it must be %s", o->name,
                              msg);
    else
        tsr_config_diag_error(d, &value->mark, NULL, "'%s' must be %s, not a %s", o->name, msg,
                              value->kind == TSR_CONFIG_NODE_LIST ? "list" : "mapping");
}

static bool listed(const char *const *also, const char *key)
{
    for (; also && *also; also++)
        if (strcmp(*also, key) == 0)
            return true;
    return false;
}

void tsr_config_options_fill(const struct tsr_config_optset *sets, uint64_t n_sets,
                             const char *const *also, const struct tsr_config_node *map,
                             const char *what, struct tsr_diag *d)
{
    for (uint64_t s = 0; s < n_sets; s++)
        tsr_config_options_defaults(&sets[s]);
    if (map && map->kind != TSR_CONFIG_NODE_MAP && map->kind != TSR_CONFIG_NODE_NULL) {
        tsr_config_diag_error(d, &map->mark, NULL, "%s takes a mapping of options, not a %s", what,
                              map->kind == TSR_CONFIG_NODE_LIST ? "list" : "single value");
        return;
    }
    for (uint64_t i = 0; map && i < map->n; i++) {
        const struct tsr_config_node *key = map->keys[i];
        struct tsr_option             o, other;
        uint64_t                      s, t;
        if (!find(sets, n_sets, key->text, &s, &o)) {
            if (!listed(also, key->text))
                unknown(sets, n_sets, also, key, what, d);
            continue;
        }
        if (listed(also, key->text) ||
            (s + 1 < n_sets && find(sets + s + 1, n_sets - s - 1, key->text, &t, &other))) {
            tsr_config_diag_error(d, &key->mark, NULL,
                                  "key '%s' in %s means two things: the plugin's "
                                  "option and one of Tessera's own",
                                  o.name, what);
            continue;
        }
        fill_one(&sets[s], &o, key, map->items[i], what, d);
    }
    for (uint64_t s = 0; s < n_sets; s++)
        for (uint64_t i = 0; i < sets[s].n; i++) {
            struct tsr_option o = tsr_config_option_at(&sets[s], i);
            if ((o.flags & TSR_OPT_REQUIRED) && !tsr_config_node_get(map, o.name))
                tsr_config_diag_error(d, map ? &map->mark : NULL, o.help, "%s needs '%s'", what,
                                      o.name);
        }
}

/* The default as YAML text; false for trees and required options. */
static bool default_text(const struct tsr_option *o, char *buf, size_t cap, bool *quoted)
{
    *quoted = false;
    if (o->flags & TSR_OPT_REQUIRED)
        return false;
    switch (o->type) {
    case TSR_OPT_BOOL:
        (void)snprintf(buf, cap, "%s", o->def.i ? "true" : "false");
        return true;
    case TSR_OPT_INT:
        (void)snprintf(buf, cap, "%lld", (long long)o->def.i);
        return true;
    case TSR_OPT_REAL:
        (void)snprintf(buf, cap, "%.17g", o->def.r);
        return true;
    case TSR_OPT_ENUM:
        for (uint64_t i = 0; i < o->n_choices; i++)
            if (o->choices[i].value == o->def.i) {
                (void)snprintf(buf, cap, "%s", o->choices[i].name);
                return true;
            }
        return false;
    case TSR_OPT_STRING:
        (void)snprintf(buf, cap, "%s", o->def.s ? o->def.s : "");
        *quoted = true;
        return true;
    default:
        return false;
    }
}

tsr_status tsr_config_doc_complete(struct tsr_config_doc *doc, const struct tsr_config_node *map,
                                   const struct tsr_config_optset *sets, uint64_t n_sets,
                                   struct tsr_err *err)
{
    struct tsr_config_node *into = (struct tsr_config_node *)(uintptr_t)map; /* the doc's own */
    if (!map || (map->kind != TSR_CONFIG_NODE_MAP && map->kind != TSR_CONFIG_NODE_NULL))
        return TSR_OK;
    if (!doc->defaults)
        doc->defaults = tsr_config_doc_source(doc, "default", "", 0, true);
    if (!doc->defaults)
        return tsr_fail_nomem(err, 64, "option defaults");
    struct tsr_config_mark m = { doc->defaults, 1, 1, 1 };
    for (uint64_t s = 0; s < n_sets; s++)
        for (uint64_t i = 0; i < sets[s].n; i++) {
            struct tsr_option o = tsr_config_option_at(&sets[s], i);
            char              text[1024];
            bool              quoted;
            if (tsr_config_node_get(map, o.name) || !default_text(&o, text, sizeof text, &quoted) ||
                o.replaced_by || (o.flags & TSR_OPT_UNSAID))
                continue;
            into->kind = TSR_CONFIG_NODE_MAP;
            struct tsr_config_node *k = tsr_config_doc_node(doc, TSR_CONFIG_NODE_SCALAR, &m);
            struct tsr_config_node *v = tsr_config_doc_node(doc, TSR_CONFIG_NODE_SCALAR, &m);
            if (k)
                k->text = tsr_config_doc_strndup(doc, o.name, strlen(o.name));
            if (v)
                v->text = tsr_config_doc_strndup(doc, text, strlen(text));
            if (!k || !v || !k->text || !v->text || !tsr_config_doc_put(doc, into, k, v))
                return tsr_fail_nomem(err, 64, "option defaults");
            v->quoted = quoted;
        }
    return TSR_OK;
}
