/* Functions that every template has: range, dict, namespace, raise_exception, strftime_now. */
#include "template/internal.h"

#include <string.h>
#include <time.h>

TPL_RUN(range)
{
    int64_t start = 0, stop, step;
    TSR_TRY(tpl_want_int(c, &a[0], "a bound of range", 0, &stop));
    if (a[1].kind != TPL_MISSING) {
        start = stop;
        TSR_TRY(tpl_want_int(c, &a[1], "a bound of range", 0, &stop));
    }
    TSR_TRY(tpl_want_int(c, &a[2], "the step of range", 1, &step));
    if (step == 0)
        return tpl_fail(c, "the step of range is 0");
    TSR_TRY(tpl_list(c, TPL_RANGE, 0, out));
    out->list->start = start;
    out->list->stop = stop;
    out->list->step = step;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        struct tpl_value v = tpl_int(i);
        if (out->list->n == TPL_MAX_RANGE)
            return tpl_fail(c, "a range has more than %d numbers", TPL_MAX_RANGE);
        TSR_TRY(tpl_push(c, out->list, &v));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return TSR_OK;
}

static tsr_status add_pairs(struct tpl_ctx *c, const struct tpl_value *from, struct tpl_dict *d)
{
    const struct tpl_list *l, *pair;
    if (from->kind == TPL_DICT || from->kind == TPL_NAMESPACE) {
        for (uint64_t i = 0; i < from->dict->n; i++)
            TSR_TRY(tpl_dict_put(c, d, &from->dict->v[i].key, &from->dict->v[i].value));
        return TSR_OK;
    }
    TSR_TRY(tpl_items(c, from, &l));
    for (uint64_t i = 0; i < l->n; i++) {
        TSR_TRY(tpl_items(c, &l->v[i], &pair));
        if (pair->n != 2)
            return tpl_fail(c, "an item for a dict is not a pair");
        TSR_TRY(tpl_dict_put(c, d, &pair->v[0], &pair->v[1]));
    }
    return TSR_OK;
}

static tsr_status make(struct tpl_ctx *c, enum tpl_kind kind, const struct tpl_args *args,
                       struct tpl_value *out)
{
    TSR_TRY(tpl_dict(c, kind, args->n_k, out));
    if (args->n > 1)
        return tpl_fail(c, "a %s is made of one value and of names", tpl_type_name(out));
    if (args->n)
        TSR_TRY(add_pairs(c, &args->v[0], out->dict));
    for (uint64_t i = 0; i < args->n_k; i++) {
        struct tpl_value key = { .kind = TPL_STRING, .s = args->k[i].name };
        TSR_TRY(tpl_dict_put(c, out->dict, &key, &args->k[i].value));
    }
    return TSR_OK;
}

TPL_RUN(dict)
{
    return make(c, TPL_DICT, args, out);
}

TPL_RUN(namespace)
{
    return make(c, TPL_NAMESPACE, args, out);
}

TPL_RUN(raise_exception)
{
    const struct tpl_text *t;
    TSR_TRY(tpl_string(c, &a[0], &t));
    c->raised = t;
    return tpl_fail(c, "%.*s", (int)(t->n < 800 ? t->n : 800), t->s);
}

TPL_RUN(strftime_now)
{
    const struct tpl_text *t;
    char                   form[200], text[1000];
    struct tm              tm;
    time_t                 at = (time_t)c->date;
    TSR_TRY(tpl_want_text(c, &a[0], "the format of strftime_now", &t));
    if (t->n + 2 > sizeof form || memchr(t->s, '\0', t->n) || !gmtime_r(&at, &tm))
        return tpl_fail(c, "strftime_now has no such format");
    memcpy(form, t->s, t->n);
    memcpy(form + t->n, ".", 2); /* so that the text is never empty */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, form, &tm);
#pragma GCC diagnostic pop
    return n ? tpl_own(c, text, n - 1, out) : tpl_fail(c, "strftime_now has no such format");
}

const struct tpl_function *tpl_global(const char *s, uint64_t n)
{
    static const struct tpl_function all[] = {
        { "range", ". . .", 1, range },
        { "dict", NULL, 0, dict },
        { "namespace", NULL, 0, namespace },
        { "raise_exception", "message", 1, raise_exception },
        { "strftime_now", "format", 1, strftime_now },
    };
    return tpl_find(all, sizeof all / sizeof *all, s, n);
}
