#include "config/doc.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* An open list or map. */
struct frame {
    struct tsr_config_node *node, *key;
    const char             *anchor;
};

struct anchor {
    const char             *name;
    struct tsr_config_node *node;
    struct anchor          *next;
};

struct parser {
    struct tsr_config_doc          *doc;
    const struct tsr_config_source *source;
    struct tsr_diag                *d;
    uint32_t                        column0; /* of line 1: start of an argument's value */
    struct frame                    stack[TSR_YAML_DEPTH];
    unsigned                        depth;
    struct anchor                  *anchors;
    struct tsr_config_node         *root;
    bool                            done, failed, nomem;
};

/* libyaml counts lines and columns from 0. */
static struct tsr_config_mark mark_at(const struct parser *p, const yaml_mark_t *a,
                                      const yaml_mark_t *b)
{
    struct tsr_config_mark m = { p->source, (uint32_t)a->line + 1,
                                 (uint32_t)a->column + 1 + (a->line == 0 ? p->column0 : 0), 1 };
    if (b && b->line == a->line && b->column > a->column)
        m.length = (uint32_t)(b->column - a->column);
    return m;
}

static void stop(struct parser *p, const struct tsr_config_mark *m, const char *hint,
                 const char *what)
{
    tsr_config_diag_error(p->d, m, hint, "%s", what);
    p->failed = true;
}

static bool remember(struct parser *p, const char *name, struct tsr_config_node *n)
{
    struct anchor *a = tsr_config_doc_alloc(p->doc, sizeof *a);
    if (!a)
        return false;
    a->name = name;
    a->node = n;
    a->next = p->anchors;
    p->anchors = a;
    return true;
}

unsigned tsr_config_node_height(const struct tsr_config_node *n, unsigned bound)
{
    unsigned most = 0;
    for (uint64_t i = 0; bound > 0 && i < n->n; i++) {
        unsigned h = tsr_config_node_height(n->items[i], bound - 1);
        most = h > most ? h : most;
    }
    return n->kind == TSR_CONFIG_NODE_LIST || n->kind == TSR_CONFIG_NODE_MAP ? most + 1 : 0;
}

static void key_complete(struct parser *p, struct tsr_config_node *n)
{
    if (n->kind != TSR_CONFIG_NODE_SCALAR && n->kind != TSR_CONFIG_NODE_NULL) {
        stop(p, &n->mark, NULL, "a key must be a plain word, not a list or mapping");
        return;
    }
    if (strcmp(n->text, "<<") == 0 && !n->quoted)
        tsr_config_diag_error(p->d, &n->mark, "write the keys out", "merge keys are not supported");
    else if (!*n->text)
        tsr_config_diag_error(p->d, &n->mark, NULL, "an empty key");
    if (strlen(n->text) > TSR_YAML_KEY) {
        stop(p, &n->mark, NULL, "a key of more than 1000 bytes");
        return;
    }
    p->stack[p->depth - 1].key = n;
}

/* A value, a key, an item or the whole document is there. */
static void complete(struct parser *p, struct tsr_config_node *n)
{
    if (p->depth == 0) {
        p->root = n;
        p->done = true;
        return;
    }
    struct frame *f = &p->stack[p->depth - 1];
    if (f->node->kind == TSR_CONFIG_NODE_MAP && !f->key) {
        key_complete(p, n);
        return;
    }
    /* straight append: a search for the key would make a large map quadratic */
    struct tsr_config_node list = { .kind = TSR_CONFIG_NODE_LIST,
                                    .n = f->node->n,
                                    .items = f->node->items };
    struct tsr_config_node keys = { .kind = TSR_CONFIG_NODE_LIST,
                                    .n = f->node->n,
                                    .items = f->node->keys };
    bool                   ok = tsr_config_doc_put(p->doc, &list, NULL, n) &&
              (!f->key || tsr_config_doc_put(p->doc, &keys, NULL, f->key));
    if (!ok) {
        p->nomem = true;
        return;
    }
    f->node->items = list.items;
    f->node->keys = keys.items;
    f->node->n++;
    f->key = NULL;
}

static int by_text(const void *a, const void *b)
{
    const struct tsr_config_node *x = *(struct tsr_config_node *const *)a,
                                 *y = *(struct tsr_config_node *const *)b;
    int c = strcmp(x->text, y->text);
    if (c != 0)
        return c;
    if (x->mark.line != y->mark.line)
        return x->mark.line < y->mark.line ? -1 : 1;
    return x->mark.column < y->mark.column ? -1 : x->mark.column > y->mark.column;
}

static void check_duplicates(struct parser *p, const struct tsr_config_node *map)
{
    if (map->n < 2)
        return;
    struct tsr_config_node **sorted = tsr_new(map->n, sizeof *sorted);
    if (!sorted) {
        p->nomem = true;
        return;
    }
    memcpy(sorted, map->keys, map->n * sizeof *sorted);
    qsort(sorted, map->n, sizeof *sorted, by_text);
    for (uint64_t i = 1; i < map->n; i++)
        if (strcmp(sorted[i]->text, sorted[i - 1]->text) == 0)
            tsr_config_diag_error(p->d, &sorted[i]->mark, "remove one",
                                  "key '%.60s' is already on line %u", sorted[i]->text,
                                  sorted[i - 1]->mark.line);
    free(sorted);
}

static struct tsr_config_node *new_node(struct parser *p, enum tsr_node_kind kind,
                                        const struct tsr_config_mark *m)
{
    if (++p->doc->nodes > TSR_YAML_NODES) {
        stop(p, m, NULL, "more than 100,000 values");
        return NULL;
    }
    struct tsr_config_node *n = tsr_config_doc_node(p->doc, kind, m);
    p->nomem = p->nomem || !n;
    return n;
}

static const char *keep(struct parser *p, const yaml_char_t *s)
{
    if (!s)
        return NULL;
    const char *k = tsr_config_doc_strndup(p->doc, (const char *)s, strlen((const char *)s));
    p->nomem = p->nomem || !k;
    return k;
}

static void refuse_tag(struct parser *p, const struct tsr_config_mark *m, const yaml_char_t *tag)
{
    static const char core[] = "tag:yaml.org,2002:"; /* what libyaml makes of "!!" */
    const char       *text = (const char *)tag;
    bool              short_form = tag && strncmp(text, core, sizeof core - 1) == 0;
    if (tag)
        tsr_config_diag_error(p->d, m, "remove the tag", "tags such as '%s%.60s' are not supported",
                              short_form ? "!!" : "", short_form ? text + sizeof core - 1 : text);
}

static void on_scalar(struct parser *p, const yaml_event_t *e)
{
    struct tsr_config_mark m = mark_at(p, &e->start_mark, &e->end_mark);
    const char            *text = (const char *)e->data.scalar.value;
    bool                   quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    bool null = !quoted && (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
    struct tsr_config_node *n =
        new_node(p, null ? TSR_CONFIG_NODE_NULL : TSR_CONFIG_NODE_SCALAR, &m);
    const char *anchor = keep(p, e->data.scalar.anchor);
    refuse_tag(p, &m, e->data.scalar.tag);
    if (strlen(text) != e->data.scalar.length) {
        stop(p, &m, NULL, "a string with a NUL character in it");
        return;
    }
    if (!n || p->nomem)
        return;
    n->quoted = quoted;
    n->text = keep(p, e->data.scalar.value);
    if (p->nomem || (anchor && !remember(p, anchor, n))) {
        p->nomem = true;
        return;
    }
    complete(p, n);
}

static void on_start(struct parser *p, const yaml_event_t *e)
{
    bool                   map = e->type == YAML_MAPPING_START_EVENT;
    struct tsr_config_mark m = mark_at(p, &e->start_mark, NULL);
    const yaml_char_t     *tag = map ? e->data.mapping_start.tag : e->data.sequence_start.tag;
    if (p->depth == TSR_YAML_DEPTH) {
        stop(p, &m, NULL, "nested deeper than 32 levels");
        return;
    }
    struct tsr_config_node *n = new_node(p, map ? TSR_CONFIG_NODE_MAP : TSR_CONFIG_NODE_LIST, &m);
    refuse_tag(p, &m, tag);
    if (!n)
        return;
    p->stack[p->depth++] = (struct frame){
        .node = n,
        .anchor = keep(p, map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor),
    };
}

static void on_end(struct parser *p)
{
    if (p->depth == 0 || !p->stack[p->depth - 1].node)
        return; /* libyaml closes only what is open */
    struct frame f = p->stack[--p->depth];
    if (f.node->kind == TSR_CONFIG_NODE_MAP)
        check_duplicates(p, f.node);
    if (f.anchor && !remember(p, f.anchor, f.node))
        p->nomem = true;
    if (!p->nomem)
        complete(p, f.node);
}

static void on_alias(struct parser *p, const yaml_event_t *e)
{
    struct tsr_config_mark m = mark_at(p, &e->start_mark, &e->end_mark);
    const char            *name = (const char *)e->data.alias.anchor;
    struct anchor         *a = p->anchors;
    while (a && strcmp(a->name, name) != 0)
        a = a->next;
    for (unsigned i = 0; !a && i < p->depth; i++)
        if (p->stack[i].anchor && strcmp(p->stack[i].anchor, name) == 0) {
            stop(p, &m, NULL, "an alias inside of what it names");
            return;
        }
    if (!a) {
        tsr_config_diag_error(p->d, &m, NULL, "there is no anchor '&%.60s' before this alias",
                              name);
        p->failed = true;
    } else if (++p->doc->aliases > TSR_YAML_ALIASES) {
        stop(p, &m, NULL, "more than 1,000 aliases");
    } else if (p->depth + tsr_config_node_height(a->node, TSR_YAML_DEPTH) > TSR_YAML_DEPTH) {
        stop(p, &m, NULL, "nested deeper than 32 levels through this alias");
    } else {
        struct tsr_config_node *n = tsr_config_doc_copy(p->doc, a->node);
        if (n)
            complete(p, n);
        else if (p->doc->nodes > TSR_YAML_NODES)
            stop(p, &m, NULL, "more than 100,000 values through aliases");
        else
            p->nomem = true;
    }
}

static uint32_t characters(const char *s, uint64_t n)
{
    uint32_t c = 0;
    for (uint64_t i = 0; i < n; i++)
        c += ((unsigned char)s[i] & 0xc0) != 0x80;
    return c;
}

static void syntax_error(struct parser *p, const yaml_parser_t *y)
{
    const char *problem = y->problem ? y->problem : "unreadable";
    if (y->error == YAML_MEMORY_ERROR) {
        p->nomem = true;
        return;
    }
    struct tsr_config_mark m = mark_at(p, &y->problem_mark, NULL);
    const char            *s = p->source->text, *start = s;
    uint32_t               line = 1;
    for (; *s && line < m.line; s++)
        if (*s == '\n' || (*s == '\r' && s[1] != '\n')) {
            line++;
            start = s + 1;
        }
    if (line < m.line) { /* libyaml ends every stream with a line break, the text does not */
        m.line = line;
        m.column = characters(start, (uint64_t)(s - start)) + 1;
    }
    for (uint32_t col = 1; *s && col < m.column; col++)
        do
            s++;
        while (((unsigned char)*s & 0xc0) == 0x80);
    p->failed = true;
    if (*s == '\t' && strstr(problem, "cannot start any token"))
        tsr_config_diag_error(p->d, &m, "indent with spaces", "a tab where YAML needs spaces");
    else if (y->context && y->context_mark.line != y->problem_mark.line)
        tsr_config_diag_error(p->d, &m, NULL, "not valid YAML: %s, %s from line %zu on", problem,
                              y->context, y->context_mark.line + 1);
    else if (y->context)
        tsr_config_diag_error(p->d, &m, NULL, "not valid YAML: %s, %s", problem, y->context);
    else
        tsr_config_diag_error(p->d, &m, NULL, "not valid YAML: %s", problem);
}

static void on_event(struct parser *p, const yaml_event_t *e)
{
    struct tsr_config_mark m = mark_at(p, &e->start_mark, NULL);
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (p->done)
            stop(p, &m, "one file is one document", "a second document begins here");
        break;
    case YAML_SCALAR_EVENT:
        on_scalar(p, e);
        break;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        on_start(p, e);
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        on_end(p);
        break;
    case YAML_ALIAS_EVENT:
        on_alias(p, e);
        break;
    default:
        break;
    }
}

tsr_status tsr_config_yaml_parse(struct tsr_config_doc *doc, const struct tsr_config_source *source,
                                 uint64_t from, struct tsr_config_node **root, struct tsr_diag *d,
                                 struct tsr_err *err)
{
    struct parser p = {
        .doc = doc, .source = source, .d = d, .column0 = characters(source->text, from)
    };
    yaml_parser_t y;
    *root = NULL;
    if (!yaml_parser_initialize(&y))
        return tsr_fail_nomem(err, sizeof y, source->name);
    yaml_parser_set_encoding(&y, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&y, (const unsigned char *)source->text + from,
                                 source->len - from);
    for (bool end = false; !end && !p.failed && !p.nomem;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&y, &e)) {
            syntax_error(&p, &y);
            break;
        }
        on_event(&p, &e);
        end = e.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&y);
    if (p.nomem)
        return tsr_fail_nomem(err, source->len, source->name);
    *root = p.failed ? NULL : p.root;
    return TSR_OK;
}
