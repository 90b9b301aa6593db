/* Calls of built-in functions: which argument is which. */
#include "template/internal.h"

#include <string.h>

/* The place of a name in names, and how many there are. */
static uint64_t place_of(const char *names, const struct tpl_text *name, uint64_t *all)
{
    uint64_t at = UINT64_MAX, i = 0;
    for (const char *s = names; *s; i++) {
        size_t n = strcspn(s, " ");
        if (name && name->n == n && memcmp(name->s, s, n) == 0)
            at = i;
        s += n;
        s += *s == ' ';
    }
    *all = i;
    return at;
}

static tsr_status place(struct tpl_ctx *c, const struct tpl_function *f,
                        const struct tpl_args *args, struct tpl_value *a)
{
    uint64_t all;
    (void)place_of(f->names, NULL, &all);
    if (args->n > all)
        return tpl_fail(c, "'%s' takes %llu arguments, not %llu", f->name, (unsigned long long)all,
                        (unsigned long long)args->n);
    for (uint64_t i = 0; i < args->n; i++)
        a[i] = args->v[i];
    for (uint64_t i = 0; i < args->n_k; i++) {
        const struct tpl_text *name = args->k[i].name;
        uint64_t at = tpl_text_is(name, ".") ? UINT64_MAX : place_of(f->names, name, &all);
        if (at == UINT64_MAX)
            return tpl_fail(c, "'%s' takes no argument '%.*s'", f->name,
                            (int)(name->n < 60 ? name->n : 60), name->s);
        if (a[at].kind != TPL_MISSING)
            return tpl_fail(c, "'%s' gets its argument '%.*s' twice", f->name, (int)name->n,
                            name->s);
        a[at] = args->k[i].value;
    }
    for (uint64_t i = 0; i < f->least; i++)
        if (a[i].kind == TPL_MISSING)
            return tpl_fail(c, "'%s' needs %llu arguments", f->name, (unsigned long long)f->least);
    return TSR_OK;
}

tsr_status tpl_run(struct tpl_ctx *c, const struct tpl_function *f, const struct tpl_value *self,
                   const struct tpl_args *args, struct tpl_value *out)
{
    struct tpl_value a[TPL_MAX_ARGS] = { 0 };
    TSR_TRY(tpl_charge(c, 0));
    if (f->names)
        TSR_TRY(place(c, f, args, a));
    return f->run(c, self, args, a, out);
}

const struct tpl_function *tpl_find(const struct tpl_function *table, uint64_t n, const char *s,
                                    uint64_t len)
{
    for (uint64_t i = 0; i < n; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, s, len) == 0)
            return &table[i];
    return NULL;
}

tsr_status tpl_want_text(struct tpl_ctx *c, const struct tpl_value *v, const char *what,
                         const struct tpl_text **t)
{
    if (v->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, v);
    if (v->kind != TPL_STRING)
        return tpl_fail(c, "%s is a %s, not a str", what, tpl_type_name(v));
    *t = v->s;
    return TSR_OK;
}

tsr_status tpl_want_int(struct tpl_ctx *c, const struct tpl_value *v, const char *what, int64_t def,
                        int64_t *i)
{
    if (v->kind == TPL_MISSING) {
        *i = def;
        return TSR_OK;
    }
    if (v->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, v);
    return tpl_is_int(v, i) ? TSR_OK
                            : tpl_fail(c, "%s is a %s, not an int", what, tpl_type_name(v));
}
