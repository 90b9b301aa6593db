/* A schema as nodes.  What a keyword asks for and cannot be kept is refused, with its place. */
#include "grammar.h"

#include <stdlib.h>
#include <string.h>

struct compiler {
    struct grammar_schema *s;
    char                  *bytes; /* the next free one */
    struct tsr_err        *err;
    char                   path[256]; /* "/properties/a" */
    bool                   any;       /* some value may be any */
};

static tsr_status compile(struct compiler *c, const struct json *v, uint32_t depth, uint32_t *node);

uint64_t grammar_schema_bytes(uint64_t length)
{
    /* a value has at least a byte, a node at most three words more than values, and a word's bytes are at most
     * those of its source */
    uint64_t nodes = length + 2;
    return nodes * sizeof(struct grammar_node) + 4 * nodes * sizeof(struct grammar_word) + length +
           64;
}

#define REFUSE(c, ...) tsr_fail((c)->err, TSR_E_CONFIG, "schema: " __VA_ARGS__)

static const char *place(const struct compiler *c)
{
    return *c->path ? c->path : "/";
}

/* The path inside a part; returns its former length, to which leave() cuts it. */
static size_t enter(struct compiler *c, const char *part, const char *name, uint32_t n)
{
    size_t was = strlen(c->path);
    (void)snprintf(c->path + was, sizeof c->path - was, "/%s%s%.*s", part, n ? "/" : "", (int)n,
                   name);
    return was;
}

static void leave(struct compiler *c, size_t was)
{
    c->path[was] = '\0';
}

static int by_bytes(const void *a, const void *b)
{
    const struct grammar_word *x = a, *y = b;
    uint32_t                   n = x->n < y->n ? x->n : y->n;
    int                        d = memcmp(x->s, y->s, n);
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

static struct grammar_word *add_word(struct compiler *c, const char *s, uint32_t n)
{
    struct grammar_word *w = &c->s->word[c->s->n_words++];
    *w = (struct grammar_word){ .s = s, .n = n };
    return w;
}

/* ---- keywords ----------------------------------------------------------------- */

static tsr_status check_keywords(struct compiler *c, const struct json *v)
{
    static const char *const known[] = {
        "type",     "enum",     "const",     "properties", "required",    "items",
        "minItems", "maxItems", "minLength", "maxLength",  "$schema",     "$id",
        "$comment", "title",    "default",   "examples",   "description", "additionalProperties"
    };
    for (const struct json *m = v->child; m; m = m->next) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found =
                found || (strlen(known[i]) == m->n_key && memcmp(known[i], m->key, m->n_key) == 0);
        if (!found)
            return REFUSE(c, "%s: the keyword '%.*s' is not supported", place(c),
                          (int)(m->n_key < 60 ? m->n_key : 60), m->key);
        for (const struct json *other = m->next; other; other = other->next)
            if (other->n_key == m->n_key && memcmp(other->key, m->key, m->n_key) == 0)
                return REFUSE(c, "%s: the keyword '%.*s' is given twice", place(c), (int)m->n_key,
                              m->key);
    }
    return TSR_OK;
}

static tsr_status read_count(struct compiler *c, const struct json *v, const char *key,
                             uint32_t *count)
{
    const struct json *m = json_member(v, key);
    uint64_t           n = 0;
    if (!m)
        return TSR_OK;
    bool ok = m->type == JSON_IS_NUMBER;
    for (uint32_t i = 0; ok && i < m->n; i++) {
        ok = m->s[i] >= '0' && m->s[i] <= '9' && n < GRAMMAR_NO_LIMIT / 10;
        n = n * 10 + (uint64_t)(m->s[i] - '0');
    }
    if (!ok)
        return REFUSE(c, "%s: '%s' is no whole number from 0 to %u", place(c), key,
                      GRAMMAR_NO_LIMIT / 10);
    *count = (uint32_t)n;
    return TSR_OK;
}

static uint32_t type_of(const struct json *v)
{
    static const char *const names[] = { "string", "number",  "integer", "object",
                                         "array",  "boolean", "null" };
    for (uint32_t i = 0; i < 7; i++)
        if (v->type == JSON_IS_STRING && strlen(names[i]) == v->n &&
            memcmp(names[i], v->s, v->n) == 0)
            return 1u << i;
    return 0;
}

static tsr_status read_types(struct compiler *c, const struct json *v, uint32_t *types)
{
    const struct json *m = json_member(v, "type");
    *types = GRAMMAR_ALL;
    if (!m)
        return TSR_OK;
    *types = 0;
    for (const struct json *one = m->type == JSON_IS_ARRAY ? m->child : m; one;
         one = m->type == JSON_IS_ARRAY ? one->next : NULL) {
        uint32_t bit = type_of(one);
        if (!bit)
            return REFUSE(c,
                          "%s: 'type' is not one of string, number, integer, object, array, "
                          "boolean and null, or a list of them",
                          place(c));
        *types |= bit;
    }
    return *types ? TSR_OK : REFUSE(c, "%s: 'type' is an empty list", place(c));
}

/* ---- literals ----------------------------------------------------------------- */

static bool is_integer(const struct json *v)
{
    return memchr(v->s, '.', v->n) == NULL && memchr(v->s, 'e', v->n) == NULL &&
           memchr(v->s, 'E', v->n) == NULL;
}

static bool has_type(const struct json *v, uint32_t types)
{
    static const uint32_t bits[] = {
        [JSON_IS_NULL] = GRAMMAR_NULL,     [JSON_IS_FALSE] = GRAMMAR_BOOLEAN,
        [JSON_IS_TRUE] = GRAMMAR_BOOLEAN,  [JSON_IS_NUMBER] = GRAMMAR_NUMBER,
        [JSON_IS_STRING] = GRAMMAR_STRING, [JSON_IS_ARRAY] = GRAMMAR_ARRAY,
        [JSON_IS_OBJECT] = GRAMMAR_OBJECT
    };
    return (types & bits[v->type]) != 0 ||
           (v->type == JSON_IS_NUMBER && (types & GRAMMAR_INTEGER) && is_integer(v));
}

static void add_literal(struct compiler *c, const struct json *v)
{
    char *end = json_print(v, c->bytes);
    (void)add_word(c, c->bytes, (uint32_t)(end - c->bytes));
    c->bytes = end;
}

static tsr_status read_literals(struct compiler *c, const struct json *v, struct grammar_node *n)
{
    static const char *const beside[] = { "properties", "required",
                                          "items",      "minItems",
                                          "maxItems",   "minLength",
                                          "maxLength",  "additionalProperties" };
    const struct json       *list = json_member(v, "enum"), *one = json_member(v, "const");
    if (list && one)
        return REFUSE(c, "%s: give 'enum' or 'const', not both", place(c));
    if (list && list->type != JSON_IS_ARRAY)
        return REFUSE(c, "%s: 'enum' is not a list", place(c));
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (json_member(v, beside[i]))
            return REFUSE(c, "%s: '%s' beside 'enum' or 'const' is not supported", place(c),
                          beside[i]);
    n->literal = c->s->n_words;
    for (const struct json *e = list ? list->child : one; e; e = list ? e->next : NULL)
        if (has_type(e, n->types))
            add_literal(c, e);
    n->n_literals = c->s->n_words - n->literal;
    n->types = 0;
    return n->n_literals ? TSR_OK : REFUSE(c, "%s: no value is left that is allowed", place(c));
}

/* true, false and null are literals too. */
static void add_words_of_types(struct compiler *c, struct grammar_node *n)
{
    n->literal = c->s->n_words;
    if (n->types & GRAMMAR_BOOLEAN) {
        (void)add_word(c, "true", 4);
        (void)add_word(c, "false", 5);
    }
    if (n->types & GRAMMAR_NULL)
        (void)add_word(c, "null", 4);
    n->n_literals = c->s->n_words - n->literal;
    n->types &= ~(GRAMMAR_BOOLEAN | GRAMMAR_NULL);
}

/* ---- arrays and objects ---------------------------------------------------------- */

static tsr_status read_array(struct compiler *c, const struct json *v, uint32_t depth,
                             struct grammar_node *n)
{
    const struct json *items = json_member(v, "items");
    n->items = GRAMMAR_ANY;
    n->max_items = GRAMMAR_NO_LIMIT;
    TRY(read_count(c, v, "minItems", &n->min_items));
    TRY(read_count(c, v, "maxItems", &n->max_items));
    if (n->min_items > n->max_items)
        return REFUSE(c, "%s: 'minItems' is more than 'maxItems'", place(c));
    if (!items) {
        c->any = c->any || (n->types & GRAMMAR_ARRAY);
        return TSR_OK;
    }
    size_t     was = enter(c, "items", "", 0);
    tsr_status st = compile(c, items, depth + 1, &n->items);
    leave(c, was);
    return st;
}

static tsr_status read_required(struct compiler *c, const struct json *v, struct grammar_node *n)
{
    const struct json *list = json_member(v, "required");
    if (list && list->type != JSON_IS_ARRAY)
        return REFUSE(c, "%s: 'required' is not a list", place(c));
    for (const struct json *name = list ? list->child : NULL; name; name = name->next) {
        const struct json *all = json_member(v, "properties"), *m = all ? all->child : NULL;
        uint32_t           bit = 0;
        while (m && !(name->type == JSON_IS_STRING && m->n_key == name->n &&
                      memcmp(m->key, name->s, name->n) == 0)) {
            m = m->next;
            bit++;
        }
        if (!m)
            return REFUSE(c, "%s: 'required' has an entry that 'properties' lacks", place(c));
        n->required |= UINT64_C(1) << bit;
    }
    return TSR_OK;
}

static tsr_status read_properties(struct compiler *c, const struct json *all, uint32_t depth,
                                  struct grammar_node *n)
{
    struct grammar_word list[GRAMMAR_PROPERTIES];
    uint32_t            k = 0;
    for (const struct json *m = all->child; m; m = m->next, k++) {
        if (k == GRAMMAR_PROPERTIES)
            return REFUSE(c, "%s: an object of more than %u properties", place(c),
                          GRAMMAR_PROPERTIES);
        for (const struct json *other = m->next; other; other = other->next)
            if (other->n_key == m->n_key && memcmp(other->key, m->key, m->n_key) == 0)
                return REFUSE(c, "%s: the property '%.*s' is given twice", place(c),
                              (int)(m->n_key < 60 ? m->n_key : 60), m->key);
        char *end = json_print_string(m->key, m->n_key, c->bytes);
        list[k] = (struct grammar_word){ .s = c->bytes, .n = (uint32_t)(end - c->bytes), .bit = k };
        c->bytes = end;
        size_t was = enter(c, "properties", m->key, m->n_key < 60 ? m->n_key : 60);
        TRY(compile(c, m, depth + 1, &list[k].node));
        leave(c, was);
    }
    n->property = c->s->n_words; /* after the words of the parts */
    n->n_properties = k;
    for (uint32_t i = 0; i < k; i++)
        *add_word(c, list[i].s, list[i].n) = list[i];
    return TSR_OK;
}

static tsr_status read_object(struct compiler *c, const struct json *v, uint32_t depth,
                              struct grammar_node *n)
{
    const struct json *all = json_member(v, "properties");
    const struct json *others = json_member(v, "additionalProperties");
    if (others && others->type != JSON_IS_FALSE)
        return REFUSE(c, "%s: 'additionalProperties' can only be false", place(c));
    if (all && all->type != JSON_IS_OBJECT)
        return REFUSE(c, "%s: 'properties' is not an object", place(c));
    n->free = !all && !others;
    c->any = c->any || (n->free && (n->types & GRAMMAR_OBJECT));
    if (all)
        TRY(read_properties(c, all, depth, n));
    return read_required(c, v, n);
}

/* ---- the whole ------------------------------------------------------------------- */

static tsr_status fill(struct compiler *c, const struct json *v, uint32_t depth,
                       struct grammar_node *n)
{
    TRY(check_keywords(c, v));
    TRY(read_types(c, v, &n->types));
    if (json_member(v, "enum") || json_member(v, "const"))
        return read_literals(c, v, n);
    n->max_length = GRAMMAR_NO_LIMIT;
    TRY(read_count(c, v, "minLength", &n->min_length));
    TRY(read_count(c, v, "maxLength", &n->max_length));
    if (n->min_length > n->max_length)
        return REFUSE(c, "%s: 'minLength' is more than 'maxLength'", place(c));
    TRY(read_array(c, v, depth, n));
    TRY(read_object(c, v, depth, n));
    add_words_of_types(c, n);
    return TSR_OK;
}

static void sort_words(struct grammar_schema *s, const struct grammar_node *n)
{
    if (n->n_literals)
        qsort(s->word + n->literal, n->n_literals, sizeof *s->word, by_bytes);
    if (n->n_properties)
        qsort(s->word + n->property, n->n_properties, sizeof *s->word, by_bytes);
}

static tsr_status compile(struct compiler *c, const struct json *v, uint32_t depth, uint32_t *node)
{
    if (v->type == JSON_IS_TRUE) {
        c->any = true;
        *node = GRAMMAR_ANY;
        return TSR_OK;
    }
    if (v->type != JSON_IS_OBJECT)
        return REFUSE(c, "%s: a schema is an object or true", place(c));
    struct grammar_node n = { 0 };
    *node = c->s->n_nodes++;
    TRY(fill(c, v, depth, &n));
    c->s->node[*node] = n;
    sort_words(c->s, &n);
    c->s->frames = c->s->frames > depth + 1 ? c->s->frames : depth + 1;
    return TSR_OK;
}

tsr_status grammar_compile(struct grammar_schema *s, const struct json *root, void *room,
                           uint64_t length, struct tsr_err *err)
{
    struct compiler     c = { .s = s, .err = err };
    struct grammar_node any = { .types = GRAMMAR_ALL,
                                .max_length = GRAMMAR_NO_LIMIT,
                                .items = GRAMMAR_ANY,
                                .max_items = GRAMMAR_NO_LIMIT,
                                .free = true };
    uint32_t            first = GRAMMAR_ANY;
    s->node = room;
    s->word = (struct grammar_word *)(s->node + length + 2);
    s->bytes = (char *)(s->word + 4 * (length + 2));
    s->n_nodes = 1;
    s->n_words = s->frames = 0;
    c.bytes = s->bytes;
    add_words_of_types(&c, &any);
    sort_words(s, &any);
    s->node[GRAMMAR_ANY] = any;
    TRY(compile(&c, root, 0, &first));
    s->first = first;
    if (c.any)
        s->frames += GRAMMAR_FREE_DEPTH;
    return TSR_OK;
}
