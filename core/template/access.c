/* Members of values: a.b, a[b], a[b:c:d], as Jinja's sandbox gives them. */
#include "template/internal.h"

#include <string.h>

/* ---- attributes --------------------------------------------------------- */

static bool loop_member(const struct tpl_loop *l, const struct tpl_text *name,
                        struct tpl_value *out)
{
    const struct tpl_list *items = l->items;
    int64_t                at = (int64_t)l->at, n = (int64_t)items->n;
    if (tpl_text_is(name, "index"))
        *out = tpl_int(at + 1);
    else if (tpl_text_is(name, "index0"))
        *out = tpl_int(at);
    else if (tpl_text_is(name, "revindex"))
        *out = tpl_int(n - at);
    else if (tpl_text_is(name, "revindex0"))
        *out = tpl_int(n - at - 1);
    else if (tpl_text_is(name, "first"))
        *out = tpl_bool(at == 0);
    else if (tpl_text_is(name, "last"))
        *out = tpl_bool(at == n - 1);
    else if (tpl_text_is(name, "length"))
        *out = tpl_int(n);
    else if (tpl_text_is(name, "depth"))
        *out = tpl_int((int64_t)l->depth0 + 1);
    else if (tpl_text_is(name, "depth0"))
        *out = tpl_int((int64_t)l->depth0);
    else if (tpl_text_is(name, "previtem"))
        *out = at > 0 ? items->v[at - 1] : tpl_undefined(TPL_LOOP, name);
    else if (tpl_text_is(name, "nextitem"))
        *out = at + 1 < n ? items->v[at + 1] : tpl_undefined(TPL_LOOP, name);
    else
        return false;
    return true;
}

/* What Python's getattr() finds. */
static tsr_status own_member(struct tpl_ctx *c, const struct tpl_value *v,
                             const struct tpl_text *name, struct tpl_value *out, bool *found)
{
    *found = true;
    if (v->kind == TPL_LOOP && loop_member(v->loop, name, out))
        return TSR_OK;
    if (v->kind == TPL_NAMESPACE) {
        struct tpl_value *member = tpl_dict_word(v->dict, name);
        *found = member != NULL;
        if (member)
            *out = *member;
        return tpl_charge(c, v->dict->n);
    }
    if (v->kind == TPL_MACRO && tpl_text_is(name, "name") && v->macro->node->name) {
        *out = (struct tpl_value){ .kind = TPL_STRING, .s = v->macro->node->name };
        return TSR_OK;
    }
    const struct tpl_function *f = tpl_method(v, name);
    *found = f != NULL;
    if (!f)
        return TSR_OK;
    struct tpl_bound *m = tpl_new(c, 1, sizeof *m);
    if (!m)
        return tpl_failed(c);
    *m = (struct tpl_bound){ .self = *v, .function = f };
    *out = (struct tpl_value){ .kind = TPL_METHOD, .bound = m };
    return TSR_OK;
}

/* Python's attributes that change a value, or that Jinja hides, are there and have no value. */
static bool is_hidden(const struct tpl_value *v, const struct tpl_text *name)
{
    static const char *const of_dict[] = { "clear",      "pop",    "popitem",
                                           "setdefault", "update", "fromkeys" };
    static const char *const of_list[] = { "append", "clear",  "extend",  "insert",
                                           "pop",    "remove", "reverse", "sort" };
    bool                     hidden = name->n > 2 && memcmp(name->s, "__", 2) == 0;
    for (size_t i = 0; v->kind == TPL_DICT && i < sizeof of_dict / sizeof *of_dict; i++)
        hidden = hidden || tpl_text_is(name, of_dict[i]);
    for (size_t i = 0; v->kind == TPL_LIST && i < sizeof of_list / sizeof *of_list; i++)
        hidden = hidden || tpl_text_is(name, of_list[i]);
    return hidden;
}

tsr_status tpl_attribute(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_text *name,
                         struct tpl_value *out)
{
    bool found;
    if (v->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, v);
    TSR_TRY(own_member(c, v, name, out, &found));
    if (found)
        return TSR_OK;
    *out = tpl_undefined(v->kind, name);
    if (v->kind != TPL_DICT || is_hidden(v, name))
        return TSR_OK;
    struct tpl_value *member = tpl_dict_word(v->dict, name);
    if (member)
        *out = *member;
    return tpl_charge(c, v->dict->n);
}

/* ---- slices ------------------------------------------------------------- */

struct bounds {
    int64_t  start, stop, step;
    uint64_t n; /* items that are taken */
};

static tsr_status bound(struct tpl_ctx *c, const struct tpl_value *v, int64_t n, int64_t step,
                        int64_t def, int64_t *out)
{
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    *out = def;
    if (v->kind == TPL_NONE)
        return TSR_OK;
    TSR_TRY(tpl_want_int(c, v, "a bound of a slice", 0, out));
    if (*out < 0)
        *out = *out < -n ? low : *out + n;
    *out = *out > high ? high : *out < low ? low : *out;
    return TSR_OK;
}

static tsr_status bounds(struct tpl_ctx *c, const struct tpl_slice *s, uint64_t length,
                         struct bounds *b)
{
    int64_t n = (int64_t)length;
    b->step = 1;
    if (s->step.kind != TPL_NONE)
        TSR_TRY(tpl_want_int(c, &s->step, "the step of a slice", 1, &b->step));
    if (b->step == 0)
        return tpl_fail(c, "the step of a slice is 0");
    if (b->step < -n - 1) /* as far as it matters */
        b->step = -n - 1;
    if (b->step > n + 1)
        b->step = n + 1;
    TSR_TRY(bound(c, &s->start, n, b->step, b->step < 0 ? n - 1 : 0, &b->start));
    TSR_TRY(bound(c, &s->stop, n, b->step, b->step < 0 ? -1 : n, &b->stop));
    int64_t span = b->step < 0 ? b->start - b->stop : b->stop - b->start;
    int64_t by = b->step < 0 ? -b->step : b->step;
    b->n = span > 0 ? (uint64_t)((span - 1) / by + 1) : 0;
    return TSR_OK;
}

static tsr_status slice_text(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_slice *s,
                             struct tpl_value *out)
{
    struct bounds    b;
    struct tpl_build text = { 0 };
    uint64_t         n = tpl_count(t->s, t->n);
    TSR_TRY(tpl_charge(c, t->n));
    TSR_TRY(bounds(c, s, n, &b));
    if (b.step == 1) {
        uint64_t from = tpl_offset(t->s, t->n, (uint64_t)b.start);
        uint64_t size = tpl_offset(t->s + from, t->n - from, b.n);
        return tpl_sub(c, t, from, size, out);
    }
    uint32_t *at = tpl_new(c, n + 1, sizeof *at); /* where each character begins */
    if (!at)
        return tpl_failed(c);
    for (uint64_t i = 0, k = 0; i < t->n; i++)
        if (((unsigned char)t->s[i] & 0xc0) != 0x80)
            at[k++] = (uint32_t)i;
    at[n] = (uint32_t)t->n;
    for (uint64_t i = 0; i < b.n; i++) {
        int64_t k = b.start + (int64_t)i * b.step;
        TSR_TRY(tpl_add(c, &text, t, at[k], at[k + 1] - at[k]));
    }
    return tpl_finish(c, &text, out);
}

static tsr_status slice_list(struct tpl_ctx *c, const struct tpl_value *v,
                             const struct tpl_slice *s, struct tpl_value *out)
{
    const struct tpl_list *l = v->list;
    struct bounds          b;
    TSR_TRY(bounds(c, s, l->n, &b));
    TSR_TRY(tpl_list(c, v->kind, b.n, out));
    for (uint64_t i = 0; i < b.n; i++)
        TSR_TRY(tpl_push(c, out->list, &l->v[b.start + (int64_t)i * b.step]));
    out->list->start = l->start + b.start * l->step;
    out->list->stop = l->start + b.stop * l->step;
    out->list->step = l->step * b.step;
    return TSR_OK;
}

/* ---- items -------------------------------------------------------------- */

static tsr_status text_at(struct tpl_ctx *c, const struct tpl_text *t, int64_t i, bool *found,
                          struct tpl_value *out)
{
    int64_t n = (int64_t)tpl_count(t->s, t->n);
    i = i < 0 ? i + n : i;
    *found = i >= 0 && i < n;
    TSR_TRY(tpl_charge(c, t->n));
    if (!*found)
        return TSR_OK;
    unsigned len;
    uint64_t from = tpl_offset(t->s, t->n, (uint64_t)i);
    (void)tpl_char(t->s + from, t->n - from, &len);
    return tpl_sub(c, t, from, len, out);
}

/* What Python's a[b] gives; *found is false where it fails. */
static tsr_status python_item(struct tpl_ctx *c, const struct tpl_value *v,
                              const struct tpl_value *key, struct tpl_value *out, bool *found)
{
    bool    list = v->kind == TPL_LIST || v->kind == TPL_TUPLE || v->kind == TPL_RANGE;
    int64_t i;
    *found = true;
    if (v->kind == TPL_DICT && key->kind != TPL_SLICE) {
        struct tpl_value *member = NULL;
        if (key->kind != TPL_LIST && key->kind != TPL_DICT)
            TSR_TRY(tpl_dict_find(c, v->dict, key, &member));
        *found = member != NULL;
        if (member)
            *out = *member;
        return TSR_OK;
    }
    if (key->kind == TPL_SLICE && v->kind == TPL_STRING)
        return slice_text(c, v->s, key->slice, out);
    if (key->kind == TPL_SLICE && list)
        return slice_list(c, v, key->slice, out);
    if (key->kind == TPL_SLICE)
        return tpl_fail(c, "a %s has no slices", tpl_type_name(v));
    *found = false;
    if (!tpl_is_int(key, &i))
        return TSR_OK;
    if (v->kind == TPL_STRING)
        return text_at(c, v->s, i, found, out);
    if (!list)
        return TSR_OK;
    i = i < 0 ? i + (int64_t)v->list->n : i;
    *found = i >= 0 && i < (int64_t)v->list->n;
    if (*found)
        *out = v->list->v[i];
    return TSR_OK;
}

tsr_status tpl_item(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_value *key,
                    struct tpl_value *out)
{
    bool found;
    if (v->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, v);
    TSR_TRY(python_item(c, v, key, out, &found));
    if (!found && key->kind == TPL_STRING)
        TSR_TRY(own_member(c, v, key->s, out, &found));
    if (!found)
        *out = tpl_undefined(v->kind, key->kind == TPL_STRING ? key->s : NULL);
    return TSR_OK;
}
