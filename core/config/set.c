#include "config/doc.h"

#include <string.h>

#define MAX_PARTS 16u

struct part {
    const char *name; /* in the assignment */
    size_t      len;
    uint64_t    index; /* from 1; 0: none */
    uint32_t    column;
};

struct override {
    struct tsr_config_doc    *doc;
    struct tsr_config_source *source;
    struct tsr_diag          *d;
    struct part               parts[MAX_PARTS];
    uint64_t                  n;
    bool                      nomem;
};

static void complain(struct override *o, const struct part *p, const char *hint, const char *what)
{
    struct tsr_config_mark m = { o->source, 1, p ? p->column : 1,
                                 p && p->len ? (uint32_t)p->len : 1 };
    tsr_config_diag_error(o->d, &m, hint, "%s", what);
}

/* Letters, digits, '_', '-' and non-ASCII characters. */
static size_t name_length(const char *s)
{
    size_t n = 0;
    while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') ||
           (s[n] >= '0' && s[n] <= '9') || s[n] == '_' || s[n] == '-' ||
           (unsigned char)s[n] >= 0x80)
        n++;
    return n;
}

/* "quantize[2].rules[1].bits" up to '='. */
static const char *split(struct override *o, const char *text)
{
    const char *s = text;
    for (;;) {
        struct part p = { s, 0, 0, (uint32_t)(s - text) + 1 };
        if (o->n == MAX_PARTS) {
            complain(o, &p, NULL, "more than 16 parts in the name of the key");
            return NULL;
        }
        p.len = name_length(s);
        if (p.len == 0) {
            complain(o, &p, "write KEY=VALUE or STEP.KEY=VALUE", "the name of a key is missing");
            return NULL;
        }
        s += p.len;
        if (*s == '[') {
            for (s++; *s >= '0' && *s <= '9' && p.index < 1000000; s++)
                p.index = p.index * 10 + (uint64_t)(*s - '0');
            if (*s != ']' || p.index == 0) {
                complain(o, &p, "count from 1, as in quantize[2].bits=3",
                         "the number in brackets is wrong");
                return NULL;
            }
            s++;
        }
        o->parts[o->n++] = p;
        if (*s == '=')
            return s + 1;
        if (*s != '.') {
            complain(o, &p, "write KEY=VALUE or STEP.KEY=VALUE",
                     *s ? "a key is made of letters, digits, '_' and '-'"
                        : "'=' and a value are missing");
            return NULL;
        }
        s++;
    }
}

static bool named(const struct tsr_config_node *n, const struct part *p)
{
    return strlen(n->text) == p->len && memcmp(n->text, p->name, p->len) == 0;
}

static struct tsr_config_node *get(const struct tsr_config_node *map, const struct part *p)
{
    for (uint64_t i = 0; map->kind == TSR_CONFIG_NODE_MAP && i < map->n; i++)
        if (named(map->keys[i], p))
            return map->items[i];
    return NULL;
}

static struct tsr_config_node *make(struct override *o, enum tsr_node_kind kind,
                                    const struct part *p)
{
    struct tsr_config_mark  m = { o->source, 1, p->column, (uint32_t)p->len };
    struct tsr_config_node *n = tsr_config_doc_node(o->doc, kind, &m);
    if (n && kind == TSR_CONFIG_NODE_SCALAR)
        n->text = tsr_config_doc_strndup(o->doc, p->name, p->len);
    if (!n || !n->text)
        o->nomem = true;
    return o->nomem ? NULL : n;
}

/* The name of a step: `- name` or `- name: {...}`. */
static const struct tsr_config_node *step_name(const struct tsr_config_node *item)
{
    if (item->kind == TSR_CONFIG_NODE_SCALAR)
        return item;
    return item->kind == TSR_CONFIG_NODE_MAP && item->n == 1 ? item->keys[0] : NULL;
}

/* How many steps have this name; *at is the wanted one's place in the list. */
static uint64_t count_steps(const struct tsr_config_node *list, const struct part *p, uint64_t *at)
{
    uint64_t n = 0;
    for (uint64_t i = 0; list && list->kind == TSR_CONFIG_NODE_LIST && i < list->n; i++) {
        const struct tsr_config_node *name = step_name(list->items[i]);
        if (name && named(name, p) && (++n == p->index || (p->index == 0 && n == 1)))
            *at = i;
    }
    return n;
}

/* The storage of a place's value, so that it can be replaced. */
static struct tsr_config_node **step_value(struct override *o, struct tsr_config_node **item)
{
    if ((*item)->kind == TSR_CONFIG_NODE_MAP)
        return &(*item)->items[0];
    struct tsr_config_node *map = make(o, TSR_CONFIG_NODE_MAP, &o->parts[0]);
    struct tsr_config_node *value = make(o, TSR_CONFIG_NODE_MAP, &o->parts[0]);
    if (o->nomem || !tsr_config_doc_put(o->doc, map, *item, value)) {
        o->nomem = true;
        return NULL;
    }
    *item = map;
    return &map->items[0];
}

/* The place named by a part below a node; made when absent. */
static struct tsr_config_node **descend(struct override *o, struct tsr_config_node **at,
                                        const struct part *p)
{
    struct tsr_config_node *n = *at;
    if (n->kind == TSR_CONFIG_NODE_NULL) {
        n = make(o, TSR_CONFIG_NODE_MAP, p);
        if (!n)
            return NULL;
        *at = n;
    }
    if (n->kind != TSR_CONFIG_NODE_MAP) {
        complain(o, p, NULL,
                 n->kind == TSR_CONFIG_NODE_LIST ? "this is a key below a list; pick an item, "
                                                   "as in rules[1].bits=3"
                                                 : "this is a key below a single value");
        return NULL;
    }
    if (!get(n, p)) {
        struct tsr_config_node *key = make(o, TSR_CONFIG_NODE_SCALAR, p),
                               *value = make(o, TSR_CONFIG_NODE_NULL, p);
        if (o->nomem || !tsr_config_doc_put(o->doc, n, key, value)) {
            o->nomem = true;
            return NULL;
        }
    }
    uint64_t i = 0;
    while (!named(n->keys[i], p))
        i++;
    if (!p->index)
        return &n->items[i];
    struct tsr_config_node *list = n->items[i];
    bool                    is_list = list && list->kind == TSR_CONFIG_NODE_LIST;
    uint64_t                n_items = is_list ? list->n : 0;
    if (p->index > n_items) {
        char what[120];
        (void)snprintf(what, sizeof what,
                       is_list ? "the list has only %llu items" : "this is not a list",
                       (unsigned long long)n_items);
        complain(o, p, NULL, what);
        return NULL;
    }
    return &list->items[p->index - 1];
}

/* Head key or step: the first part, see rulings on --set. */
static struct tsr_config_node **first(struct override *o)
{
    const struct part            *p = &o->parts[0];
    const struct tsr_config_node *root = o->doc->root,
                                 *list = tsr_config_node_get(root, "pipeline");
    uint64_t at = 0, n = count_steps(list, p, &at);
    char     what[200];
    bool     head = get(root, p) && (n == 0 || o->n == 1);
    if (n == 0 || head || !list)
        return descend(o, &o->doc->root, p);
    if (p->index == 0 && n > 1) {
        (void)snprintf(what, sizeof what, "there are %llu steps '%.*s'", (unsigned long long)n,
                       (int)(p->len < 60 ? p->len : 60), p->name);
        complain(o, p, "pick one by number, as in quantize[2].bits=3", what);
        return NULL;
    }
    if (p->index > n) {
        (void)snprintf(what, sizeof what, "there is no step '%.*s' number %llu, only %llu",
                       (int)(p->len < 60 ? p->len : 60), p->name, (unsigned long long)p->index,
                       (unsigned long long)n);
        complain(o, p, NULL, what);
        return NULL;
    }
    return step_value(o, &list->items[at]);
}

/* The value from `from` on: YAML, or a literal string. */
static tsr_status take_value(struct override *o, const char *from, bool as_text,
                             struct tsr_config_node **value, struct tsr_err *err)
{
    const struct part *last = &o->parts[o->n - 1];
    if (!as_text)
        TSR_TRY(tsr_config_yaml_parse(o->doc, o->source, (uint64_t)(from - o->source->text), value,
                                      o->d, err));
    else if ((*value = make(o, TSR_CONFIG_NODE_SCALAR, last))) {
        (*value)->text = tsr_config_doc_strndup(o->doc, from, strlen(from));
        (*value)->quoted = true;
        o->nomem = !(*value)->text;
    }
    if (!*value)
        *value = make(o, TSR_CONFIG_NODE_NULL, last);
    return TSR_OK;
}

static tsr_status set(struct tsr_config_doc *doc, const char *origin, const char *assignment,
                      bool as_text, struct tsr_diag *d, struct tsr_err *err)
{
    uint64_t len = strlen(assignment);
    if (len > TSR_YAML_BYTES)
        return tsr_fail(err, TSR_E_INPUT, "%.60s: longer than 1 MiB", origin);
    struct override o = { .doc = doc, .d = d };
    o.source = tsr_config_doc_source(doc, origin, assignment, len, true);
    if (!o.source)
        return tsr_fail_nomem(err, len, "--set");
    uint64_t before = tsr_config_diag_errors(d);
    if (!as_text && !tsr_config_yaml_check_text(o.source, d))
        return tsr_config_diag_status(d, err);
    const char             *text = split(&o, o.source->text);
    struct tsr_config_node *value = NULL;
    if (text)
        TSR_TRY(take_value(&o, text, as_text, &value, err));
    if (!text || tsr_config_diag_errors(d) != before)
        return tsr_config_diag_status(d, err);
    struct tsr_config_node **at = first(&o);
    for (uint64_t i = 1; at && i < o.n; i++)
        at = descend(&o, at, &o.parts[i]);
    if (o.nomem || (!at && tsr_config_diag_errors(d) == before))
        return tsr_fail_nomem(err, len, "--set");
    if (!at)
        return tsr_config_diag_status(d, err);
    struct tsr_config_node *old = *at;
    *at = value;
    if (tsr_config_node_height(tsr_config_doc_root(doc), TSR_TREE_DEPTH) > TSR_YAML_DEPTH) {
        *at = old;
        complain(&o, &o.parts[o.n - 1], NULL, "nested deeper than 32 levels with this value");
        return tsr_config_diag_status(d, err);
    }
    return TSR_OK;
}

tsr_status tsr_config_doc_set_as(struct tsr_config_doc *doc, const char *origin,
                                 const char *assignment, struct tsr_diag *d, struct tsr_err *err)
{
    return set(doc, origin, assignment, false, d, err);
}

tsr_status tsr_config_doc_set_text(struct tsr_config_doc *doc, const char *origin,
                                   const char *assignment, struct tsr_diag *d, struct tsr_err *err)
{
    return set(doc, origin, assignment, true, d, err);
}

tsr_status tsr_config_doc_set(struct tsr_config_doc *doc, const char *assignment,
                              struct tsr_diag *d, struct tsr_err *err)
{
    char origin[256];
    (void)snprintf(origin, sizeof origin, "--set %.240s", assignment);
    return tsr_config_doc_set_as(doc, origin, assignment, d, err);
}
