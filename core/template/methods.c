/* Methods of dictionaries, lists and loops; those of texts are in strings*.c. */
#include "template/internal.h"

/* ---- dictionaries ------------------------------------------------------- */

static tsr_status view(struct tpl_ctx *c, const struct tpl_dict *d, const char *name,
                       struct tpl_value *out)
{
    TSR_TRY(tpl_list(c, TPL_VIEW, d->n, out));
    out->list->view = name;
    for (uint64_t i = 0; i < d->n; i++) {
        struct tpl_value pair;
        if (name[5] == 'i')
            TSR_TRY(tpl_pair(c, &d->v[i].key, &d->v[i].value, &pair));
        else
            pair = name[5] == 'k' ? d->v[i].key : d->v[i].value;
        TSR_TRY(tpl_push(c, out->list, &pair));
    }
    return TSR_OK;
}

TPL_RUN(items)
{
    return view(c, self->dict, "dict_items", out);
}
TPL_RUN(keys)
{
    return view(c, self->dict, "dict_keys", out);
}
TPL_RUN(values)
{
    return view(c, self->dict, "dict_values", out);
}

TPL_RUN(get)
{
    struct tpl_value *v;
    TSR_TRY(tpl_dict_find(c, self->dict, &a[0], &v));
    *out = v ? *v : a[1].kind == TPL_MISSING ? tpl_none() : a[1];
    return TSR_OK;
}

TPL_RUN(copy)
{
    *out = *self; /* nothing changes it */
    return TSR_OK;
}

/* ---- lists -------------------------------------------------------------- */

TPL_RUN(index_of)
{
    bool same = false;
    for (uint64_t i = 0; i < self->list->n; i++) {
        TSR_TRY(tpl_equal(c, &self->list->v[i], &a[0], &same));
        *out = tpl_int((int64_t)i);
        if (same)
            return TSR_OK;
    }
    return tpl_fail(c, "the value is not in the list");
}

TPL_RUN(count)
{
    int64_t n = 0;
    for (uint64_t i = 0; i < self->list->n; i++) {
        bool same;
        TSR_TRY(tpl_equal(c, &self->list->v[i], &a[0], &same));
        n += same;
    }
    *out = tpl_int(n);
    return TSR_OK;
}

/* ---- loops -------------------------------------------------------------- */

TPL_RUN(cycle)
{
    if (args->n == 0 || args->n_k)
        return tpl_fail(c, "'cycle' needs the values to choose from");
    *out = args->v[self->loop->at % args->n];
    return TSR_OK;
}

TPL_RUN(changed)
{
    struct tpl_value now;
    bool             same;
    TSR_TRY(tpl_list(c, TPL_TUPLE, args->n, &now));
    for (uint64_t i = 0; i < args->n; i++)
        TSR_TRY(tpl_push(c, now.list, &args->v[i]));
    TSR_TRY(tpl_equal(c, &now, &self->loop->changed, &same));
    self->loop->changed = now;
    *out = tpl_bool(!same);
    return TSR_OK;
}

const struct tpl_function *tpl_method(const struct tpl_value *v, const struct tpl_text *name)
{
    static const struct tpl_function of_dict[] = {
        { "items", "", 0, items }, { "keys", "", 0, keys }, { "values", "", 0, values },
        { "get", ". .", 1, get },  { "copy", "", 0, copy },
    };
    static const struct tpl_function of_list[] = {
        { "index", ".", 1, index_of },
        { "count", ".", 1, count },
        { "copy", "", 0, copy },
    };
    static const struct tpl_function of_loop[] = {
        { "cycle", NULL, 0, cycle },
        { "changed", NULL, 0, changed },
    };
    switch (v->kind) {
    case TPL_STRING:
        return tpl_string_method(name->s, name->n);
    case TPL_DICT:
        return tpl_find(of_dict, sizeof of_dict / sizeof *of_dict, name->s, name->n);
    case TPL_LIST:
        return tpl_find(of_list, 3, name->s, name->n);
    case TPL_TUPLE:
    case TPL_RANGE:
        return tpl_find(of_list, 2, name->s, name->n);
    case TPL_LOOP:
        return tpl_find(of_loop, sizeof of_loop / sizeof *of_loop, name->s, name->n);
    default:
        return NULL;
    }
}
