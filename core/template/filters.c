/* Filters that run a filter or a test on each item, and where each filter is found. */
#include "template/internal.h"

static const struct tpl_value *keyword(const struct tpl_args *args, const char *name)
{
    for (uint64_t i = 0; i < args->n_k; i++)
        if (tpl_text_is(args->k[i].name, name))
            return &args->k[i].value;
    return NULL;
}

/* ---- map ---------------------------------------------------------------- */

static tsr_status map_members(struct tpl_ctx *c, const struct tpl_list *l,
                              const struct tpl_args *args, struct tpl_value *out)
{
    const struct tpl_value *path = keyword(args, "attribute"), *def = keyword(args, "default");
    if (args->n_k > 1u + (def != NULL))
        return tpl_fail(c, "'map' takes 'attribute' and 'default', no other names");
    for (uint64_t i = 0; i < l->n; i++) {
        struct tpl_value v;
        TSR_TRY(tpl_path(c, &l->v[i], path, def, &v));
        TSR_TRY(tpl_push(c, out->list, &v));
    }
    return TSR_OK;
}

TPL_RUN(map)
{
    const struct tpl_list *l;
    TSR_TRY(tpl_list(c, TPL_GENERATOR, 0, out));
    if (!tpl_truth(self))
        return TSR_OK;
    TSR_TRY(tpl_items(c, self, &l));
    if (args->n == 0 && keyword(args, "attribute"))
        return map_members(c, l, args, out);
    if (args->n == 0 || args->v[0].kind != TPL_STRING)
        return tpl_fail(c, "'map' needs the name of a filter, or an attribute");
    const struct tpl_text     *name = args->v[0].s;
    const struct tpl_function *f = c->filter(name->s, name->n);
    struct tpl_args            rest = { args->v + 1, args->k, args->n - 1, args->n_k };
    if (!f)
        return tpl_fail(c, "'%.*s' is not a filter that is supported",
                        (int)(name->n < 60 ? name->n : 60), name->s);
    for (uint64_t i = 0; i < l->n; i++) {
        struct tpl_value v;
        TSR_TRY(tpl_run(c, f, &l->v[i], &rest, &v));
        TSR_TRY(tpl_push(c, out->list, &v));
    }
    return TSR_OK;
}

/* ---- select and reject -------------------------------------------------- */

static tsr_status choose(struct tpl_ctx *c, const struct tpl_value *self,
                         const struct tpl_args *args, bool member, bool keep, struct tpl_value *out)
{
    const struct tpl_list     *l;
    const struct tpl_function *f = NULL;
    uint64_t                   off = member ? 1 : 0;
    TSR_TRY(tpl_list(c, TPL_GENERATOR, 0, out));
    if (!tpl_truth(self))
        return TSR_OK;
    TSR_TRY(tpl_items(c, self, &l));
    if (args->n < off)
        return tpl_fail(c, "the name of the attribute is missing");
    if (args->n > off) {
        const struct tpl_text *name;
        TSR_TRY(tpl_want_text(c, &args->v[off], "the name of a test", &name));
        f = c->test(name->s, name->n);
        if (!f)
            return tpl_fail(c, "'%.*s' is not a test that is supported",
                            (int)(name->n < 60 ? name->n : 60), name->s);
    }
    struct tpl_args rest = { f ? args->v + off + 1 : NULL, args->k, f ? args->n - off - 1 : 0,
                             args->n_k };
    for (uint64_t i = 0; i < l->n; i++) {
        struct tpl_value v = l->v[i], yes;
        if (member)
            TSR_TRY(tpl_path(c, &l->v[i], &args->v[0], NULL, &v));
        yes = v;
        if (f)
            TSR_TRY(tpl_run(c, f, &v, &rest, &yes));
        if (tpl_truth(&yes) == keep)
            TSR_TRY(tpl_push(c, out->list, &l->v[i]));
    }
    return TSR_OK;
}

TPL_RUN(select_items)
{
    return choose(c, self, args, false, true, out);
}
TPL_RUN(reject)
{
    return choose(c, self, args, false, false, out);
}
TPL_RUN(selectattr)
{
    return choose(c, self, args, true, true, out);
}
TPL_RUN(rejectattr)
{
    return choose(c, self, args, true, false, out);
}

const struct tpl_function *tpl_filter(const char *s, uint64_t n)
{
    static const struct tpl_function all[] = {
        { "map", NULL, 0, map },
        { "select", NULL, 0, select_items },
        { "reject", NULL, 0, reject },
        { "selectattr", NULL, 0, selectattr },
        { "rejectattr", NULL, 0, rejectattr },
    };
    const struct tpl_function *f = tpl_find(all, sizeof all / sizeof *all, s, n);
    f = f ? f : tpl_filter_text(s, n);
    f = f ? f : tpl_filter_list(s, n);
    return f ? f : tpl_filter_sorted(s, n);
}
