/* Filters on lists and dictionaries. */
#include "template/internal.h"

#include <string.h>

/* ---- members by a path -------------------------------------------------- */

static tsr_status step(struct tpl_ctx *c, const struct tpl_text *t, uint64_t from, uint64_t end,
                       const struct tpl_value *def, struct tpl_value *v)
{
    struct tpl_value key, next;
    int64_t          i = 0;
    bool             number = end > from && end - from < 18;
    for (uint64_t k = from; k < end && number; k++) {
        number = t->s[k] >= '0' && t->s[k] <= '9';
        i = i * 10 + (t->s[k] - '0');
    }
    if (number)
        key = tpl_int(i);
    else
        TSR_TRY(tpl_sub(c, t, from, end - from, &key));
    TSR_TRY(tpl_item(c, v, &key, &next));
    *v = next.kind == TPL_UNDEFINED && def && def->kind != TPL_NONE && def->kind != TPL_MISSING
             ? *def
             : next;
    return TSR_OK;
}

tsr_status tpl_path(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_value *path,
                    const struct tpl_value *def, struct tpl_value *out)
{
    *out = *v;
    if (path->kind == TPL_MISSING || path->kind == TPL_NONE)
        return TSR_OK;
    if (path->kind != TPL_STRING) {
        struct tpl_value whole = *out;
        return tpl_item(c, &whole, path, out);
    }
    const struct tpl_text *t = path->s;
    for (uint64_t from = 0, end; from <= t->n; from = end + 1) {
        const char *dot = memchr(t->s + from, '.', t->n - from);
        end = dot ? (uint64_t)(dot - t->s) : t->n;
        TSR_TRY(step(c, t, from, end, def, out));
    }
    return TSR_OK;
}

/* ---- sizes and ends ----------------------------------------------------- */

TPL_RUN(length)
{
    if (tpl_is_list(self))
        *out = tpl_int((int64_t)self->list->n);
    else if (self->kind == TPL_STRING) {
        *out = tpl_int((int64_t)tpl_count(self->s->s, self->s->n));
        return tpl_charge(c, self->s->n);
    } else if (self->kind == TPL_DICT)
        *out = tpl_int((int64_t)self->dict->n);
    else if (self->kind == TPL_LOOP)
        *out = tpl_int((int64_t)self->loop->items->n);
    else if (self->kind == TPL_UNDEFINED)
        *out = tpl_int(0);
    else
        return tpl_fail(c, "a %s has no length", tpl_type_name(self));
    return TSR_OK;
}

TPL_RUN(first)
{
    const struct tpl_list *l;
    TSR_TRY(tpl_items(c, self, &l));
    *out = l->n ? l->v[0] : tpl_undefined(TPL_LIST, NULL);
    return TSR_OK;
}

TPL_RUN(last)
{
    const struct tpl_list *l;
    if (self->kind == TPL_GENERATOR)
        return tpl_fail(c, "a generator has no last item; make it a list with the filter 'list'");
    TSR_TRY(tpl_items(c, self, &l));
    *out = l->n ? l->v[l->n - 1] : tpl_undefined(TPL_LIST, NULL);
    return TSR_OK;
}

/* ---- copies ------------------------------------------------------------- */

static tsr_status copy(struct tpl_ctx *c, const struct tpl_list *l, enum tpl_kind kind,
                       bool backwards, struct tpl_value *out)
{
    TSR_TRY(tpl_list(c, kind, l->n, out));
    for (uint64_t i = 0; i < l->n; i++)
        TSR_TRY(tpl_push(c, out->list, &l->v[backwards ? l->n - 1 - i : i]));
    return TSR_OK;
}

TPL_RUN(list)
{
    const struct tpl_list *l;
    TSR_TRY(tpl_items(c, self, &l));
    return copy(c, l, TPL_LIST, false, out);
}

TPL_RUN(reverse)
{
    const struct tpl_list *l;
    TSR_TRY(tpl_items(c, self, &l));
    if (self->kind == TPL_STRING) {
        struct tpl_build b = { 0 };
        for (uint64_t i = l->n; i-- > 0;)
            TSR_TRY(tpl_add_text(c, &b, l->v[i].s));
        return tpl_finish(c, &b, out);
    }
    return copy(c, l, self->kind == TPL_GENERATOR ? TPL_LIST : TPL_GENERATOR, true, out);
}

TPL_RUN(items)
{
    if (self->kind == TPL_UNDEFINED)
        return tpl_list(c, TPL_GENERATOR, 0, out);
    if (self->kind != TPL_DICT)
        return tpl_fail(c, "a %s has no items", tpl_type_name(self));
    TSR_TRY(tpl_list(c, TPL_GENERATOR, self->dict->n, out));
    for (uint64_t i = 0; i < self->dict->n; i++) {
        struct tpl_value pair;
        TSR_TRY(tpl_pair(c, &self->dict->v[i].key, &self->dict->v[i].value, &pair));
        TSR_TRY(tpl_push(c, out->list, &pair));
    }
    return TSR_OK;
}

TPL_RUN(join)
{
    static const struct tpl_text none = { .s = "" };
    const struct tpl_text       *by = &none;
    const struct tpl_list       *l;
    struct tpl_value             parts, part;
    if (a[0].kind != TPL_MISSING)
        TSR_TRY(tpl_string(c, &a[0], &by));
    TSR_TRY(tpl_items(c, self, &l));
    if (a[1].kind == TPL_MISSING || a[1].kind == TPL_NONE)
        return tpl_join(c, by, l, true, out);
    TSR_TRY(tpl_list(c, TPL_LIST, l->n, &parts));
    for (uint64_t i = 0; i < l->n; i++) {
        TSR_TRY(tpl_path(c, &l->v[i], &a[1], NULL, &part));
        TSR_TRY(tpl_push(c, parts.list, &part));
    }
    return tpl_join(c, by, parts.list, true, out);
}

TPL_RUN(default_to)
{
    bool boolean = tpl_truth(&a[1]);
    *out = *self;
    if (self->kind != TPL_UNDEFINED && !(boolean && !tpl_truth(self)))
        return TSR_OK;
    if (a[0].kind == TPL_MISSING)
        return tpl_own(c, "", 0, out);
    *out = a[0];
    return TSR_OK;
}

/* ---- groups ------------------------------------------------------------- */

TPL_RUN(batch)
{
    const struct tpl_list *l;
    struct tpl_value       part = { 0 };
    int64_t                size;
    TSR_TRY(tpl_want_int(c, &a[0], "the size of a batch", 1, &size));
    if (size < 1)
        return tpl_fail(c, "the size of a batch is not positive");
    TSR_TRY(tpl_items(c, self, &l));
    TSR_TRY(tpl_list(c, TPL_GENERATOR, 0, out));
    for (uint64_t i = 0; i < l->n; i++) {
        if (i % (uint64_t)size == 0) {
            TSR_TRY(tpl_list(c, TPL_LIST, 0, &part));
            TSR_TRY(tpl_push(c, out->list, &part));
        }
        TSR_TRY(tpl_push(c, part.list, &l->v[i]));
    }
    bool fill = a[1].kind != TPL_MISSING && a[1].kind != TPL_NONE;
    while (fill && part.list && part.list->n < (uint64_t)size)
        TSR_TRY(tpl_push(c, part.list, &a[1]));
    return TSR_OK;
}

const struct tpl_function *tpl_filter_list(const char *s, uint64_t n)
{
    static const struct tpl_function all[] = {
        { "length", "", 0, length },
        { "count", "", 0, length },
        { "first", "", 0, first },
        { "last", "", 0, last },
        { "list", "", 0, list },
        { "reverse", "", 0, reverse },
        { "items", "", 0, items },
        { "join", "d attribute", 0, join },
        { "default", "default_value boolean", 0, default_to },
        { "d", "default_value boolean", 0, default_to },
        { "batch", "linecount fill_with", 1, batch },
    };
    return tpl_find(all, sizeof all / sizeof *all, s, n);
}
