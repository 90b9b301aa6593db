/* Filters that compare the items of a list. */
#include "template/internal.h"

#include <string.h>

/* The key of an item: a member of it, in small letters unless case counts. */
static tsr_status key_of(struct tpl_ctx *c, const struct tpl_value *item,
                         const struct tpl_value *path, bool with_case, struct tpl_value *key)
{
    TSR_TRY(tpl_path(c, item, path, NULL, key));
    if (with_case || key->kind != TPL_STRING)
        return TSR_OK;
    const struct tpl_text *t = key->s;
    return tpl_change_case(c, t, TPL_LOWER, key);
}

/* The same with several paths, separated by commas: a list. */
static tsr_status keys_of(struct tpl_ctx *c, const struct tpl_value *item,
                          const struct tpl_value *paths, bool with_case, struct tpl_value *out)
{
    struct tpl_value key;
    TSR_TRY(tpl_list(c, TPL_LIST, 1, out));
    if (paths->kind != TPL_STRING) {
        TSR_TRY(key_of(c, item, paths, with_case, &key));
        return tpl_push(c, out->list, &key);
    }
    const struct tpl_text *t = paths->s;
    for (uint64_t from = 0, end; from <= t->n; from = end + 1) {
        struct tpl_value path;
        const char      *comma = memchr(t->s + from, ',', t->n - from);
        end = comma ? (uint64_t)(comma - t->s) : t->n;
        TSR_TRY(tpl_sub(c, t, from, end - from, &path));
        TSR_TRY(key_of(c, item, &path, with_case, &key));
        TSR_TRY(tpl_push(c, out->list, &key));
    }
    return TSR_OK;
}

static tsr_status in_order(struct tpl_ctx *c, const struct tpl_list *l,
                           const struct tpl_value *keys, bool reverse, struct tpl_value *out)
{
    uint64_t *order;
    TSR_TRY(tpl_sort(c, keys, l->n, reverse, &order));
    TSR_TRY(tpl_list(c, TPL_LIST, l->n, out));
    for (uint64_t i = 0; i < l->n; i++)
        TSR_TRY(tpl_push(c, out->list, &l->v[order[i]]));
    return TSR_OK;
}

TPL_RUN(sort)
{
    const struct tpl_list *l;
    TSR_TRY(tpl_items(c, self, &l));
    struct tpl_value *keys = tpl_new(c, l->n + 1, sizeof *keys);
    if (!keys)
        return tpl_failed(c);
    for (uint64_t i = 0; i < l->n; i++)
        TSR_TRY(keys_of(c, &l->v[i], &a[2], tpl_truth(&a[1]), &keys[i]));
    return in_order(c, l, keys, tpl_truth(&a[0]), out);
}

TPL_RUN(dictsort)
{
    struct tpl_value path = tpl_int(0), pairs, pair;
    if (self->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, self);
    if (self->kind != TPL_DICT)
        return tpl_fail(c, "dictsort takes a dict, not a %s", tpl_type_name(self));
    if (a[1].kind == TPL_STRING && tpl_text_is(a[1].s, "value"))
        path = tpl_int(1);
    else if (a[1].kind != TPL_MISSING && !(a[1].kind == TPL_STRING && tpl_text_is(a[1].s, "key")))
        return tpl_fail(c, "dictsort sorts by 'key' or 'value'");
    const struct tpl_dict *d = self->dict;
    struct tpl_value      *keys = tpl_new(c, d->n + 1, sizeof *keys);
    if (!keys)
        return tpl_failed(c);
    TSR_TRY(tpl_list(c, TPL_LIST, d->n, &pairs));
    for (uint64_t i = 0; i < d->n; i++) {
        TSR_TRY(tpl_pair(c, &d->v[i].key, &d->v[i].value, &pair));
        TSR_TRY(tpl_push(c, pairs.list, &pair));
        TSR_TRY(key_of(c, &pair, &path, tpl_truth(&a[0]), &keys[i]));
    }
    return in_order(c, pairs.list, keys, tpl_truth(&a[2]), out);
}

TPL_RUN(unique)
{
    const struct tpl_list *l;
    struct tpl_value       seen, key;
    TSR_TRY(tpl_items(c, self, &l));
    TSR_TRY(tpl_list(c, TPL_GENERATOR, 0, out));
    TSR_TRY(tpl_dict(c, TPL_DICT, 0, &seen));
    for (uint64_t i = 0; i < l->n; i++) {
        struct tpl_value *there;
        TSR_TRY(key_of(c, &l->v[i], &a[1], tpl_truth(&a[0]), &key));
        TSR_TRY(tpl_dict_find(c, seen.dict, &key, &there));
        if (there)
            continue;
        TSR_TRY(tpl_dict_add(c, seen.dict, &key, &key));
        TSR_TRY(tpl_push(c, out->list, &l->v[i]));
    }
    return TSR_OK;
}

static tsr_status extreme(struct tpl_ctx *c, const struct tpl_value *self,
                          const struct tpl_value *a, bool most, struct tpl_value *out)
{
    const struct tpl_list *l;
    struct tpl_value       best, key;
    TSR_TRY(tpl_items(c, self, &l));
    *out = tpl_undefined(TPL_LIST, NULL);
    for (uint64_t i = 0; i < l->n; i++) {
        bool better = i == 0;
        TSR_TRY(key_of(c, &l->v[i], &a[1], tpl_truth(&a[0]), &key));
        if (i)
            TSR_TRY(tpl_compare(c, most ? TPL_GT : TPL_LT, &key, &best, &better));
        if (!better)
            continue;
        best = key;
        *out = l->v[i];
    }
    return TSR_OK;
}

TPL_RUN(least)
{
    return extreme(c, self, a, false, out);
}
TPL_RUN(greatest)
{
    return extreme(c, self, a, true, out);
}

TPL_RUN(sum)
{
    const struct tpl_list *l;
    struct tpl_value       item, before;
    TSR_TRY(tpl_items(c, self, &l));
    *out = a[1].kind == TPL_MISSING ? tpl_int(0) : a[1];
    if (out->kind == TPL_STRING)
        return tpl_fail(c, "sum takes no str to start with; use 'join'");
    for (uint64_t i = 0; i < l->n; i++) {
        TSR_TRY(tpl_path(c, &l->v[i], &a[0], NULL, &item));
        before = *out;
        TSR_TRY(tpl_binary(c, TPL_ADD, &before, &item, out));
    }
    return TSR_OK;
}

const struct tpl_function *tpl_filter_sorted(const char *s, uint64_t n)
{
    static const struct tpl_function all[] = {
        { "sort", "reverse case_sensitive attribute", 0, sort },
        { "dictsort", "case_sensitive by reverse", 0, dictsort },
        { "unique", "case_sensitive attribute", 0, unique },
        { "min", "case_sensitive attribute", 0, least },
        { "max", "case_sensitive attribute", 0, greatest },
        { "sum", "attribute start", 0, sum },
    };
    return tpl_find(all, sizeof all / sizeof *all, s, n);
}
