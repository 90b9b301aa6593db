/* Equality, order, membership and sorting, as Python has them. */
#include "template/internal.h"

#include <math.h>
#include <string.h>

static bool number(const struct tpl_value *v, long double *f)
{
    int64_t i;
    if (v->kind == TPL_FLOAT)
        *f = (long double)v->f;
    else if (tpl_is_int(v, &i))
        *f =
            (long double)i; /* has the 64 bits of an integer on x86; elsewhere large ones may tie */
    else
        return false;
    return true;
}

static tsr_status equal_lists(struct tpl_ctx *c, const struct tpl_list *a, const struct tpl_list *b,
                              bool *yes)
{
    *yes = a->n == b->n;
    for (uint64_t i = 0; i < a->n && *yes; i++)
        TSR_TRY(tpl_equal(c, &a->v[i], &b->v[i], yes));
    return TSR_OK;
}

static tsr_status equal_dicts(struct tpl_ctx *c, const struct tpl_dict *a, const struct tpl_dict *b,
                              bool *yes)
{
    *yes = a->n == b->n;
    for (uint64_t i = 0; i < a->n && *yes; i++) {
        struct tpl_value *other;
        TSR_TRY(tpl_dict_find(c, b, &a->v[i].key, &other));
        if (other)
            TSR_TRY(tpl_equal(c, &a->v[i].value, other, yes));
        else
            *yes = false;
    }
    return TSR_OK;
}

static tsr_status equal(struct tpl_ctx *c, const struct tpl_value *a, const struct tpl_value *b,
                        bool *yes)
{
    long double x, y;
    if (number(a, &x) && number(b, &y)) {
        *yes = x == y;
        return TSR_OK;
    }
    *yes = false;
    if (a->kind != b->kind)
        return TSR_OK;
    switch (a->kind) {
    case TPL_STRING:
        TSR_TRY(tpl_charge(c, a->s->n == b->s->n ? a->s->n : 0));
        *yes = tpl_same(a->s, b->s);
        return TSR_OK;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
        return equal_lists(c, a->list, b->list, yes);
    case TPL_DICT:
        return equal_dicts(c, a->dict, b->dict, yes);
    case TPL_UNDEFINED:
    case TPL_NONE:
        *yes = true;
        return TSR_OK;
    default:
        *yes = a->list == b->list; /* the same object */
        return TSR_OK;
    }
}

tsr_status tpl_equal(struct tpl_ctx *c, const struct tpl_value *a, const struct tpl_value *b,
                     bool *yes)
{
    TSR_TRY(tpl_charge(c, 0));
    TSR_TRY(tpl_enter(c));
    tsr_status st = equal(c, a, b, yes);
    c->depth--;
    return st;
}

/* ---- order -------------------------------------------------------------- */

static tsr_status order_of(struct tpl_ctx *c, const struct tpl_value *a, const struct tpl_value *b,
                           const char *op, int *order);

static tsr_status order_lists(struct tpl_ctx *c, const struct tpl_list *a, const struct tpl_list *b,
                              const char *op, int *order)
{
    uint64_t n = a->n < b->n ? a->n : b->n;
    for (uint64_t i = 0; i < n; i++) {
        bool same;
        TSR_TRY(tpl_equal(c, &a->v[i], &b->v[i], &same));
        if (!same)
            return order_of(c, &a->v[i], &b->v[i], op, order);
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return TSR_OK;
}

static int order_texts(const struct tpl_text *a, const struct tpl_text *b)
{
    int d = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    return d ? (d > 0) - (d < 0) : (a->n > b->n) - (a->n < b->n);
}

/* *order is 2 where nothing holds, as with NaN. */
static tsr_status order_of(struct tpl_ctx *c, const struct tpl_value *a, const struct tpl_value *b,
                           const char *op, int *order)
{
    long double x, y;
    if (number(a, &x) && number(b, &y)) {
        *order = x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
        return TSR_OK;
    }
    if (a->kind == TPL_UNDEFINED || b->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, a->kind == TPL_UNDEFINED ? a : b);
    if (a->kind == TPL_STRING && b->kind == TPL_STRING) {
        *order = order_texts(a->s, b->s);
        return tpl_charge(c, a->s->n);
    }
    if (a->kind != b->kind || (a->kind != TPL_LIST && a->kind != TPL_TUPLE))
        return tpl_fail(c, "'%s' does not compare a %s and a %s", op, tpl_type_name(a),
                        tpl_type_name(b));
    TSR_TRY(tpl_enter(c));
    tsr_status st = order_lists(c, a->list, b->list, op, order);
    c->depth--;
    return st;
}

/* ---- membership --------------------------------------------------------- */

static tsr_status hashable(struct tpl_ctx *c, const struct tpl_value *v)
{
    if (v->kind == TPL_LIST || v->kind == TPL_DICT || v->kind == TPL_SLICE)
        return tpl_fail(c, "a %s is not a key", tpl_type_name(v));
    if (v->kind != TPL_TUPLE)
        return TSR_OK;
    TSR_TRY(tpl_enter(c));
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < v->list->n && st == TSR_OK; i++)
        st = hashable(c, &v->list->v[i]);
    c->depth--;
    return st;
}

struct tpl_value *tpl_dict_word(const struct tpl_dict *d, const struct tpl_text *key)
{
    for (uint64_t i = 0; i < d->n; i++)
        if (d->v[i].key.kind == TPL_STRING && tpl_same(d->v[i].key.s, key))
            return &d->v[i].value;
    return NULL;
}

tsr_status tpl_dict_find(struct tpl_ctx *c, const struct tpl_dict *d, const struct tpl_value *key,
                         struct tpl_value **value)
{
    *value = NULL;
    TSR_TRY(tpl_charge(c, d->n));
    if (key->kind == TPL_STRING) {
        *value = tpl_dict_word(d, key->s);
        return TSR_OK;
    }
    TSR_TRY(hashable(c, key));
    for (uint64_t i = 0; d->v && i < d->n && !*value; i++) {
        bool same;
        TSR_TRY(tpl_equal(c, &d->v[i].key, key, &same));
        if (same)
            *value = &d->v[i].value;
    }
    return TSR_OK;
}

tsr_status tpl_dict_put(struct tpl_ctx *c, struct tpl_dict *d, const struct tpl_value *key,
                        const struct tpl_value *value)
{
    struct tpl_value *old;
    TSR_TRY(tpl_dict_find(c, d, key, &old));
    if (!old)
        return tpl_dict_add(c, d, key, value);
    *old = *value;
    return TSR_OK;
}

static tsr_status in_list(struct tpl_ctx *c, const struct tpl_list *l, const struct tpl_value *v,
                          bool *yes)
{
    for (uint64_t i = 0; i < l->n && !*yes; i++)
        TSR_TRY(tpl_equal(c, &l->v[i], v, yes));
    return TSR_OK;
}

static tsr_status contains(struct tpl_ctx *c, const struct tpl_value *in, const struct tpl_value *v,
                           bool *yes)
{
    struct tpl_value      *found;
    const struct tpl_list *l;
    *yes = false;
    switch (in->kind) {
    case TPL_STRING:
        if (v->kind == TPL_UNDEFINED)
            return tpl_fail_undefined(c, v);
        if (v->kind != TPL_STRING)
            return tpl_fail(c, "'in' finds no %s in a str", tpl_type_name(v));
        *yes = v->s->n == 0 || memmem(in->s->s, in->s->n, v->s->s, v->s->n) != NULL;
        return tpl_charge(c, in->s->n);
    case TPL_DICT:
        TSR_TRY(tpl_dict_find(c, in->dict, v, &found));
        *yes = found != NULL;
        return TSR_OK;
    default:
        TSR_TRY(tpl_items(c, in, &l));
        return in_list(c, l, v, yes);
    }
}

static bool holds(enum tpl_op op, int order)
{
    switch (op) {
    case TPL_LT:
        return order < 0;
    case TPL_LE:
        return order <= 0;
    case TPL_GT:
        return order > 0 && order != 2;
    default:
        return order >= 0 && order != 2;
    }
}

tsr_status tpl_compare(struct tpl_ctx *c, enum tpl_op op, const struct tpl_value *a,
                       const struct tpl_value *b, bool *yes)
{
    static const char *const signs[] = {
        [TPL_LT] = "<", [TPL_LE] = "<=", [TPL_GT] = ">", [TPL_GE] = ">="
    };
    int order = 0;
    if (op == TPL_EQ || op == TPL_NE)
        TSR_TRY(tpl_equal(c, a, b, yes));
    else if (op == TPL_IN || op == TPL_NOT_IN)
        TSR_TRY(contains(c, b, a, yes));
    else {
        TSR_TRY(order_of(c, a, b, signs[op], &order));
        *yes = holds(op, order);
        return TSR_OK;
    }
    if (op == TPL_NE || op == TPL_NOT_IN)
        *yes = !*yes;
    return TSR_OK;
}

/* ---- sorting ------------------------------------------------------------ */

static tsr_status merge(struct tpl_ctx *c, const struct tpl_value *keys, bool reverse,
                        const uint64_t *from, uint64_t *to, uint64_t a, uint64_t mid, uint64_t end)
{
    uint64_t b = mid;
    for (uint64_t i = a; i < end; i++) {
        int order = 0;
        if (a < mid && b < end)
            TSR_TRY(reverse ? order_of(c, &keys[from[a]], &keys[from[b]], "<", &order)
                            : order_of(c, &keys[from[b]], &keys[from[a]], "<", &order));
        bool second = a == mid || (b < end && order < 0);
        to[i] = second ? from[b++] : from[a++];
        TSR_TRY(tpl_charge(c, 0));
    }
    return TSR_OK;
}

tsr_status tpl_sort(struct tpl_ctx *c, const struct tpl_value *keys, uint64_t n, bool reverse,
                    uint64_t **order)
{
    uint64_t *from = tpl_new(c, n + 1, sizeof *from), *to = tpl_new(c, n + 1, sizeof *to);
    if (!from || !to)
        return tpl_failed(c);
    for (uint64_t i = 0; i < n; i++)
        from[i] = i;
    for (uint64_t width = 1; width < n; width *= 2) {
        for (uint64_t at = 0; at < n; at += 2 * width) {
            uint64_t mid = at + width < n ? at + width : n;
            uint64_t end = at + 2 * width < n ? at + 2 * width : n;
            TSR_TRY(merge(c, keys, reverse, from, to, at, mid, end));
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    *order = from;
    return TSR_OK;
}
