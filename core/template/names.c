/* The names in a template: each has one text, so that names are compared by their addresses. */
#include "template/internal.h"

#include <xxhash.h>

static tsr_status grow_names(struct tpl_ctx *c)
{
    struct tsr_template    *t = c->names;
    uint64_t                cap = t->cap_names ? t->cap_names * 2 : 64;
    const struct tpl_text **v = tpl_new(c, cap, sizeof *v);
    if (!v)
        return tpl_failed(c);
    for (uint64_t i = 0; i < t->cap_names; i++) {
        if (!t->names[i])
            continue;
        uint64_t at = XXH3_64bits(t->names[i]->s, t->names[i]->n) % cap;
        while (v[at])
            at = (at + 1) % cap;
        v[at] = t->names[i];
    }
    t->names = v;
    t->cap_names = cap;
    return TSR_OK;
}

const struct tpl_text *tpl_intern(struct tpl_ctx *c, const struct tpl_text *name)
{
    struct tsr_template *t = c->names;
    if (t->n_names * 2 >= t->cap_names && grow_names(c) != TSR_OK)
        return NULL;
    uint64_t at = XXH3_64bits(name->s, name->n) % t->cap_names;
    while (t->names[at] && !tpl_same(t->names[at], name))
        at = (at + 1) % t->cap_names;
    if (!t->names[at]) {
        t->names[at] = name;
        t->n_names++;
    }
    return t->names[at];
}

const struct tpl_text *tpl_known_name(const struct tpl_ctx *c, const struct tpl_text *name)
{
    const struct tsr_template *t = c->of;
    if (!t->cap_names)
        return NULL;
    uint64_t at = XXH3_64bits(name->s, name->n) % t->cap_names;
    while (t->names[at] && !tpl_same(t->names[at], name))
        at = (at + 1) % t->cap_names;
    return t->names[at];
}
