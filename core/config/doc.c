#include "config/doc.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 16384u

struct block {
    struct block *next;
    uint64_t      cap;
    _Alignas(16) unsigned char data[];
};

void *tsr_config_doc_alloc(struct tsr_config_doc *doc, uint64_t bytes)
{
    bytes = (bytes + 15) & ~UINT64_C(15);
    if (!doc->blocks || doc->blocks->cap - doc->used < bytes) {
        uint64_t      cap = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        struct block *b = tsr_new(1, sizeof *b + cap);
        if (!b)
            return NULL;
        b->cap = cap;
        b->next = doc->blocks;
        doc->blocks = b;
        doc->used = 0;
    }
    void *p = doc->blocks->data + doc->used;
    doc->used += bytes;
    return p;
}

char *tsr_config_doc_strndup(struct tsr_config_doc *doc, const char *s, uint64_t n)
{
    char *p = tsr_config_doc_alloc(doc, n + 1);
    if (p)
        memcpy(p, s, n);
    return p;
}

struct tsr_config_source *tsr_config_doc_source(struct tsr_config_doc *doc, const char *name,
                                                const char *text, uint64_t len, bool argument)
{
    struct tsr_config_source *s = tsr_config_doc_alloc(doc, sizeof *s);
    if (!s)
        return NULL;
    s->name = tsr_config_doc_strndup(doc, name, strlen(name));
    s->text = tsr_config_doc_strndup(doc, text, len);
    if (!s->name || !s->text)
        return NULL;
    s->doc = doc;
    s->len = len;
    s->argument = argument;
    s->next = doc->sources;
    doc->sources = s;
    return s;
}

struct tsr_config_node *tsr_config_doc_node(struct tsr_config_doc *doc, enum tsr_node_kind kind,
                                            const struct tsr_config_mark *mark)
{
    struct tsr_config_node *n = tsr_config_doc_alloc(doc, sizeof *n);
    if (!n)
        return NULL;
    n->kind = kind;
    n->mark = *mark;
    n->text = "";
    return n;
}

/* Arrays grow by doubling inside the arena: room is there up to the next power of two. */
static struct tsr_config_node **grow(struct tsr_config_doc *doc, struct tsr_config_node **v,
                                     uint64_t n)
{
    if (n != 0 && (n < 4 || (n & (n - 1)) != 0))
        return v;
    struct tsr_config_node **w = tsr_config_doc_alloc(doc, (n ? 2 * n : 4) * sizeof *w);
    if (w && n)
        memcpy(w, v, n * sizeof *w);
    return w;
}

bool tsr_config_doc_put(struct tsr_config_doc *doc, struct tsr_config_node *into,
                        struct tsr_config_node *key, struct tsr_config_node *value)
{
    for (uint64_t i = 0; key && i < into->n; i++)
        if (strcmp(into->keys[i]->text, key->text) == 0) {
            into->items[i] = value;
            into->keys[i] = key;
            return true;
        }
    struct tsr_config_node **items = grow(doc, into->items, into->n);
    struct tsr_config_node **keys = key ? grow(doc, into->keys, into->n) : NULL;
    if (!items || (key && !keys))
        return false;
    items[into->n] = value;
    if (key)
        keys[into->n] = key;
    into->items = items;
    into->keys = keys;
    into->n++;
    return true;
}

void tsr_config_doc_destroy(struct tsr_config_doc *doc)
{
    if (!doc)
        return;
    tsr_config_doc_destroy(doc->also);
    for (struct block *b = doc->blocks; b;) {
        struct block *next = b->next;
        free(b);
        b = next;
    }
    free(doc);
}

const struct tsr_config_node *tsr_config_doc_root(const struct tsr_config_doc *doc)
{
    return doc->root;
}

const char *tsr_config_doc_path(const struct tsr_config_doc *doc)
{
    return doc->path;
}

const struct tsr_config_node *tsr_config_node_get(const struct tsr_config_node *map,
                                                  const char                   *key)
{
    if (!map || map->kind != TSR_CONFIG_NODE_MAP)
        return NULL;
    for (uint64_t i = 0; i < map->n; i++)
        if (strcmp(map->keys[i]->text, key) == 0)
            return map->items[i];
    return NULL;
}

static struct tsr_config_node *copy(struct tsr_config_doc *doc, const struct tsr_config_node *n,
                                    unsigned depth)
{
    if (depth == TSR_TREE_DEPTH || ++doc->nodes > TSR_YAML_NODES)
        return NULL;
    struct tsr_config_node *c = tsr_config_doc_node(doc, n->kind, &n->mark);
    if (!c)
        return NULL;
    c->quoted = n->quoted;
    c->text = tsr_config_doc_strndup(doc, n->text, strlen(n->text));
    if (!c->text)
        return NULL;
    for (uint64_t i = 0; i < n->n; i++) {
        struct tsr_config_node *key = NULL, *value = copy(doc, n->items[i], depth + 1);
        if (n->keys && !(key = copy(doc, n->keys[i], depth + 1)))
            return NULL;
        /* keys are unique already: no search */
        struct tsr_config_node **items = grow(doc, c->items, c->n);
        struct tsr_config_node **keys = key ? grow(doc, c->keys, c->n) : NULL;
        if (!value || !items || (key && !keys))
            return NULL;
        items[c->n] = value;
        if (key)
            keys[c->n] = key;
        c->items = items;
        c->keys = keys;
        c->n++;
    }
    return c;
}

struct tsr_config_node *tsr_config_doc_copy(struct tsr_config_doc        *doc,
                                            const struct tsr_config_node *n)
{
    return copy(doc, n, 0);
}
