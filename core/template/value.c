/* Values of a template: making them, and their contents. */
#include "template/internal.h"

#include <math.h>
#include <string.h>

const char *tpl_type_name(const struct tpl_value *v)
{
    switch (v->kind) {
    case TPL_NONE:
        return "NoneType";
    case TPL_BOOL:
        return "bool";
    case TPL_INT:
        return "int";
    case TPL_FLOAT:
        return "float";
    case TPL_STRING:
        return "str";
    case TPL_LIST:
        return "list";
    case TPL_TUPLE:
        return "tuple";
    case TPL_RANGE:
        return "range";
    case TPL_VIEW:
        return v->list->view;
    case TPL_GENERATOR:
        return "generator";
    case TPL_DICT:
        return "dict";
    case TPL_NAMESPACE:
        return "namespace";
    case TPL_LOOP:
        return "loop";
    case TPL_FUNCTION:
    case TPL_METHOD:
        return "function";
    case TPL_MACRO:
        return "macro";
    case TPL_SLICE:
        return "slice";
    case TPL_MISSING:
    case TPL_UNDEFINED:
        break;
    }
    return "undefined";
}

bool tpl_truth(const struct tpl_value *v)
{
    switch (v->kind) {
    case TPL_MISSING:
    case TPL_UNDEFINED:
    case TPL_NONE:
        return false;
    case TPL_BOOL:
        return v->b;
    case TPL_INT:
        return v->i != 0;
    case TPL_FLOAT:
        return v->f != 0 || isnan(v->f);
    case TPL_STRING:
        return v->s->n != 0;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_VIEW:
        return v->list->n != 0;
    case TPL_DICT:
        return v->dict->n != 0;
    case TPL_LOOP:
        return v->loop->items->n != 0;
    case TPL_GENERATOR:
    case TPL_NAMESPACE:
    case TPL_FUNCTION:
    case TPL_METHOD:
    case TPL_MACRO:
    case TPL_SLICE:
        break;
    }
    return true;
}

bool tpl_is_int(const struct tpl_value *v, int64_t *i)
{
    if (v->kind == TPL_INT)
        *i = v->i;
    else if (v->kind == TPL_BOOL)
        *i = v->b;
    else
        return false;
    return true;
}

bool tpl_is_number(const struct tpl_value *v, double *f)
{
    int64_t i;
    if (v->kind == TPL_FLOAT)
        *f = v->f;
    else if (tpl_is_int(v, &i))
        *f = (double)i;
    else
        return false;
    return true;
}

struct tpl_value tpl_bool(bool b)
{
    return (struct tpl_value){ .kind = TPL_BOOL, .b = b };
}

struct tpl_value tpl_int(int64_t i)
{
    return (struct tpl_value){ .kind = TPL_INT, .i = i };
}

struct tpl_value tpl_float(double f)
{
    return (struct tpl_value){ .kind = TPL_FLOAT, .f = f };
}

struct tpl_value tpl_none(void)
{
    return (struct tpl_value){ .kind = TPL_NONE };
}

struct tpl_value tpl_undefined(enum tpl_kind of, const struct tpl_text *name)
{
    return (struct tpl_value){ .kind = TPL_UNDEFINED, .of = of, .s = name };
}

tsr_status tpl_fail_undefined(struct tpl_ctx *c, const struct tpl_value *v)
{
    int         n = v->s ? (int)(v->s->n < 100 ? v->s->n : 100) : 0;
    const char *s = v->s ? v->s->s : "";
    if (v->of == TPL_MISSING)
        return v->s ? tpl_fail(c, "'%.*s' is undefined", n, s)
                    : tpl_fail(c, "an undefined value is used");
    struct tpl_value of = { .kind = v->of, .list = &(struct tpl_list){ .view = "view" } };
    return v->s ? tpl_fail(c, "a %s has no attribute or item '%.*s'", tpl_type_name(&of), n, s)
                : tpl_fail(c, "a %s has no such item", tpl_type_name(&of));
}

bool tpl_is_list(const struct tpl_value *v)
{
    return v->kind == TPL_LIST || v->kind == TPL_TUPLE || v->kind == TPL_RANGE ||
           v->kind == TPL_VIEW;
}

/* ---- lists and dictionaries --------------------------------------------- */

tsr_status tpl_list(struct tpl_ctx *c, enum tpl_kind kind, uint64_t cap, struct tpl_value *out)
{
    struct tpl_list *l = tpl_new(c, 1, sizeof *l);
    *out = tpl_none();
    if (l && cap) {
        l->v = tpl_new(c, cap, sizeof *l->v);
        l->cap = cap;
    }
    if (!l || (cap && !l->v))
        return tpl_failed(c);
    *out = (struct tpl_value){ .kind = kind, .list = l };
    return TSR_OK;
}

tsr_status tpl_push(struct tpl_ctx *c, struct tpl_list *l, const struct tpl_value *v)
{
    if (l->n == l->cap) {
        uint64_t          cap = l->cap ? l->cap * 2 : 8;
        struct tpl_value *items = tpl_grow(c, l->v, l->n, cap, sizeof *items);
        if (!items)
            return tpl_failed(c);
        l->v = items;
        l->cap = cap;
    }
    l->v[l->n++] = *v;
    return tpl_charge(c, 0);
}

tsr_status tpl_pair(struct tpl_ctx *c, const struct tpl_value *a, const struct tpl_value *b,
                    struct tpl_value *out)
{
    TSR_TRY(tpl_list(c, TPL_TUPLE, 2, out));
    TSR_TRY(tpl_push(c, out->list, a));
    return tpl_push(c, out->list, b);
}

tsr_status tpl_dict(struct tpl_ctx *c, enum tpl_kind kind, uint64_t cap, struct tpl_value *out)
{
    struct tpl_dict *d = tpl_new(c, 1, sizeof *d);
    *out = tpl_none();
    if (d && cap) {
        d->v = tpl_new(c, cap, sizeof *d->v);
        d->cap = cap;
    }
    if (!d || (cap && !d->v))
        return tpl_failed(c);
    *out = (struct tpl_value){ .kind = kind, .dict = d };
    return TSR_OK;
}

tsr_status tpl_dict_add(struct tpl_ctx *c, struct tpl_dict *d, const struct tpl_value *key,
                        const struct tpl_value *value)
{
    if (d->n == d->cap) {
        uint64_t         cap = d->cap ? d->cap * 2 : 8;
        struct tpl_pair *v = tpl_grow(c, d->v, d->n, cap, sizeof *v);
        if (!v)
            return tpl_failed(c);
        d->v = v;
        d->cap = cap;
    }
    d->v[d->n++] = (struct tpl_pair){ *key, *value };
    return tpl_charge(c, 0);
}

/* ---- iteration ---------------------------------------------------------- */

static tsr_status items_of_text(struct tpl_ctx *c, const struct tpl_text *t,
                                const struct tpl_list **out)
{
    struct tpl_value l, one;
    TSR_TRY(tpl_list(c, TPL_LIST, 0, &l));
    for (uint64_t i = 0; i < t->n;) {
        unsigned len;
        (void)tpl_char(t->s + i, t->n - i, &len);
        TSR_TRY(tpl_sub(c, t, i, len, &one));
        TSR_TRY(tpl_push(c, l.list, &one));
        i += len;
    }
    *out = l.list;
    return TSR_OK;
}

static tsr_status keys_of(struct tpl_ctx *c, const struct tpl_dict *d, const struct tpl_list **out)
{
    struct tpl_value l;
    TSR_TRY(tpl_list(c, TPL_LIST, d->n, &l));
    for (uint64_t i = 0; i < d->n; i++)
        TSR_TRY(tpl_push(c, l.list, &d->v[i].key));
    *out = l.list;
    return TSR_OK;
}

tsr_status tpl_items(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_list **l)
{
    static const struct tpl_list none = { 0 };
    *l = &none;
    if (tpl_is_list(v)) {
        *l = v->list;
        return TSR_OK;
    }
    switch (v->kind) {
    case TPL_GENERATOR:
        if (!v->list->used)
            *l = v->list;
        v->list->used = true;
        return TSR_OK;
    case TPL_UNDEFINED:
        return c->strict ? tpl_fail_undefined(c, v) : TSR_OK;
    case TPL_STRING:
        return items_of_text(c, v->s, l);
    case TPL_DICT:
        return keys_of(c, v->dict, l);
    default:
        return tpl_fail(c, "a %s is not a sequence to iterate over", tpl_type_name(v));
    }
}

/* ---- JSON --------------------------------------------------------------- */

/* The name of a role is part of what a template writes: one in letters, digits, "-" and "_" alone is trusted, since
 * templates make special tokens with it, such as "<|user|>". */
static bool is_role(const char *key, const char *s, uint64_t n)
{
    if (strcmp(key, "role") != 0 || n > 32)
        return false;
    for (uint64_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", s[i]) ||
            !s[i])
            return false;
    return true;
}

static tsr_status text_of(struct tpl_ctx *c, const char *s, uint64_t n, enum tpl_from from,
                          struct tpl_value *out)
{
    struct tpl_text *t = tpl_new(c, 1, sizeof *t);
    if (!t)
        return tpl_failed(c);
    *t = (struct tpl_text){ .s = s, .n = n, .from = from };
    *out = (struct tpl_value){ .kind = TPL_STRING, .s = t };
    return TSR_OK;
}

static tsr_status object_of(struct tpl_ctx *c, const json_t *j, enum tpl_from from,
                            struct tpl_value *out)
{
    const char *key;
    json_t     *v;
    TSR_TRY(tpl_dict(c, TPL_DICT, json_object_size(j), out));
    json_object_foreach ((json_t *)(uintptr_t)j, key, v) {
        struct tpl_value k, item;
        enum tpl_from    f = from;
        if (json_is_string(v) && is_role(key, json_string_value(v), json_string_length(v)))
            f = TPL_OWN;
        TSR_TRY(text_of(c, key, strlen(key), from, &k));
        TSR_TRY(tpl_from_json(c, v, f, &item));
        TSR_TRY(tpl_dict_add(c, out->dict, &k, &item));
    }
    return TSR_OK;
}

static tsr_status array_of(struct tpl_ctx *c, const json_t *j, enum tpl_from from,
                           struct tpl_value *out)
{
    TSR_TRY(tpl_list(c, TPL_LIST, json_array_size(j), out));
    for (size_t i = 0; i < json_array_size(j); i++) {
        struct tpl_value item;
        TSR_TRY(tpl_from_json(c, json_array_get(j, i), from, &item));
        TSR_TRY(tpl_push(c, out->list, &item));
    }
    return TSR_OK;
}

static tsr_status any_of(struct tpl_ctx *c, const json_t *j, enum tpl_from from,
                         struct tpl_value *out)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return object_of(c, j, from, out);
    case JSON_ARRAY:
        return array_of(c, j, from, out);
    case JSON_STRING:
        return text_of(c, json_string_value(j), json_string_length(j), from, out);
    case JSON_INTEGER:
        *out = tpl_int(json_integer_value(j));
        return TSR_OK;
    case JSON_REAL:
        *out = tpl_float(json_real_value(j));
        return TSR_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = tpl_bool(json_is_true(j));
        return TSR_OK;
    case JSON_NULL:
        break;
    }
    *out = tpl_none();
    return TSR_OK;
}

tsr_status tpl_from_json(struct tpl_ctx *c, const json_t *j, enum tpl_from from,
                         struct tpl_value *out)
{
    TSR_TRY(tpl_enter(c));
    tsr_status st = any_of(c, j, from, out);
    c->depth--;
    return st;
}
