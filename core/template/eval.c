/* Expressions: a tree to a value. */
#include "template/internal.h"

/* ---- variables ---------------------------------------------------------- */

static struct tpl_var *find_var(const struct tpl_scope *s, const struct tpl_text *name)
{
    for (struct tpl_var *v = s->vars; v; v = v->next)
        if (v->name == name)
            return v;
    return NULL;
}

tsr_status tpl_set_var(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_text *name,
                       const struct tpl_value *v)
{
    struct tpl_var *var = find_var(s, name);
    if (!var) {
        var = tpl_new(c, 1, sizeof *var);
        if (!var)
            return tpl_failed(c);
        var->name = name;
        var->next = s->vars;
        s->vars = var;
    }
    var->value = *v;
    return TSR_OK;
}

static tsr_status variable(struct tpl_ctx *c, const struct tpl_scope *s,
                           const struct tpl_text *name, struct tpl_value *out)
{
    for (; s; s = s->up) {
        const struct tpl_var *v = find_var(s, name);
        if (v) {
            *out = v->value;
            return TSR_OK;
        }
    }
    const struct tpl_function *f = tpl_global(name->s, name->n);
    *out = f ? (struct tpl_value){ .kind = TPL_FUNCTION, .function = f }
             : tpl_undefined(TPL_MISSING, name);
    return tpl_charge(c, 0);
}

/* ---- calls -------------------------------------------------------------- */

static tsr_status add_keyword(struct tpl_ctx *c, struct tpl_args *args, const struct tpl_text *name,
                              const struct tpl_value *v)
{
    for (uint64_t i = 0; i < args->n_k; i++)
        if (tpl_same(args->k[i].name, name))
            return tpl_fail(c, "the argument '%.*s' is given twice",
                            (int)(name->n < 60 ? name->n : 60), name->s);
    args->k[args->n_k++] = (struct tpl_keyword){ name, *v };
    return TSR_OK;
}

static tsr_status spread(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                         struct tpl_value *star2, const struct tpl_list **star)
{
    struct tpl_value       v;
    static struct tpl_dict none;
    *star2 = (struct tpl_value){ .kind = TPL_DICT, .dict = &none };
    if (n->star) {
        TSR_TRY(tpl_eval(c, s, n->star, &v));
        TSR_TRY(tpl_items(c, &v, star));
    }
    if (!n->star2)
        return TSR_OK;
    TSR_TRY(tpl_eval(c, s, n->star2, star2));
    return star2->kind == TPL_DICT
               ? TSR_OK
               : tpl_fail(c, "'**' takes a dict, not a %s", tpl_type_name(star2));
}

tsr_status tpl_eval_args(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                         struct tpl_args *args)
{
    static const struct tpl_list none = { 0 };
    const struct tpl_list       *star = &none;
    struct tpl_value             star2, v;
    const struct tpl_node       *a;
    uint64_t                     n_v = 0, n_k = 0;
    *args = (struct tpl_args){ 0 };
    for (a = n->args; a; a = a->next)
        n_v++;
    for (a = n->keywords; a; a = a->next)
        n_k++;
    if (n->star || n->star2)
        TSR_TRY(spread(c, s, n, &star2, &star));
    else
        star2.dict = NULL;
    n_v += star->n;
    n_k += star2.dict ? star2.dict->n : 0;
    if (n_v && !(args->v = tpl_new(c, n_v, sizeof *args->v)))
        return tpl_failed(c);
    if (n_k && !(args->k = tpl_new(c, n_k, sizeof *args->k)))
        return tpl_failed(c);
    for (a = n->args; a; a = a->next)
        TSR_TRY(tpl_eval(c, s, a, &args->v[args->n++]));
    for (uint64_t i = 0; i < star->n; i++)
        args->v[args->n++] = star->v[i];
    for (a = n->keywords; a; a = a->next) {
        TSR_TRY(tpl_eval(c, s, a->a, &v));
        TSR_TRY(add_keyword(c, args, a->name, &v));
    }
    for (uint64_t i = 0; star2.dict && i < star2.dict->n; i++) {
        const struct tpl_pair *p = &star2.dict->v[i];
        if (p->key.kind != TPL_STRING)
            return tpl_fail(c, "'**' has a name that is not a str");
        TSR_TRY(add_keyword(c, args, p->key.s, &p->value));
    }
    return TSR_OK;
}

tsr_status tpl_call_value(struct tpl_ctx *c, const struct tpl_value *f, const struct tpl_args *args,
                          struct tpl_value *out)
{
    switch (f->kind) {
    case TPL_FUNCTION:
        return tpl_run(c, f->function, f, args, out);
    case TPL_METHOD:
        return tpl_run(c, f->bound->function, &f->bound->self, args, out);
    case TPL_MACRO:
        return f->macro->run(c, f->macro, args, out);
    case TPL_UNDEFINED:
        return tpl_fail_undefined(c, f);
    default:
        return tpl_fail(c, "a %s cannot be called", tpl_type_name(f));
    }
}

static void at(struct tpl_ctx *c, const struct tpl_node *n)
{
    c->line = n->line;
    c->column = n->column;
}

static tsr_status call(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                       struct tpl_value *out)
{
    struct tpl_value f;
    struct tpl_args  args;
    TSR_TRY(tpl_eval(c, s, n->a, &f));
    TSR_TRY(tpl_eval_args(c, s, n, &args));
    at(c, n->a);
    return tpl_call_value(c, &f, &args, out);
}

/* A filter or a test. */
static tsr_status apply(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                        struct tpl_value *out)
{
    struct tpl_value v;
    struct tpl_args  args;
    TSR_TRY(tpl_eval(c, s, n->a, &v));
    TSR_TRY(tpl_eval_args(c, s, n, &args));
    at(c, n);
    return tpl_run(c, n->function, &v, &args, out);
}

/* ---- literals ----------------------------------------------------------- */

static tsr_status list(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                       struct tpl_value *out)
{
    struct tpl_value v;
    TSR_TRY(tpl_list(c, n->type == TPL_LIST_OF ? TPL_LIST : TPL_TUPLE, 0, out));
    for (const struct tpl_node *i = n->items; i; i = i->next) {
        TSR_TRY(tpl_eval(c, s, i, &v));
        TSR_TRY(tpl_push(c, out->list, &v));
    }
    return TSR_OK;
}

static tsr_status dict(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                       struct tpl_value *out)
{
    struct tpl_value key, v;
    TSR_TRY(tpl_dict(c, TPL_DICT, 0, out));
    for (const struct tpl_node *i = n->items; i; i = i->next->next) {
        TSR_TRY(tpl_eval(c, s, i, &key));
        TSR_TRY(tpl_eval(c, s, i->next, &v));
        at(c, i);
        TSR_TRY(tpl_dict_put(c, out->dict, &key, &v));
    }
    return TSR_OK;
}

static tsr_status slice(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                        struct tpl_value *out)
{
    struct tpl_slice *v = tpl_new(c, 1, sizeof *v);
    if (!v)
        return tpl_failed(c);
    v->start = v->stop = v->step = tpl_none();
    if (n->a)
        TSR_TRY(tpl_eval(c, s, n->a, &v->start));
    if (n->b)
        TSR_TRY(tpl_eval(c, s, n->b, &v->stop));
    if (n->c)
        TSR_TRY(tpl_eval(c, s, n->c, &v->step));
    *out = (struct tpl_value){ .kind = TPL_SLICE, .slice = v };
    return TSR_OK;
}

/* ---- operators ---------------------------------------------------------- */

static tsr_status compare(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                          struct tpl_value *out)
{
    struct tpl_value a, b;
    bool             yes = true;
    TSR_TRY(tpl_eval(c, s, n->a, &a));
    for (const struct tpl_node *i = n->items; i && yes; i = i->next) {
        TSR_TRY(tpl_eval(c, s, i->a, &b));
        at(c, n);
        TSR_TRY(tpl_compare(c, i->op, &a, &b, &yes));
        a = b;
    }
    *out = tpl_bool(yes);
    return TSR_OK;
}

static tsr_status concat(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                         struct tpl_value *out)
{
    struct tpl_build b = { 0 };
    struct tpl_value v;
    for (const struct tpl_node *i = n->items; i; i = i->next) {
        TSR_TRY(tpl_eval(c, s, i, &v));
        at(c, i);
        TSR_TRY(tpl_str(c, &b, &v));
    }
    return tpl_finish(c, &b, out);
}

static tsr_status two(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                      struct tpl_value *a, struct tpl_value *b)
{
    TSR_TRY(tpl_eval(c, s, n->a, a));
    TSR_TRY(tpl_eval(c, s, n->b, b));
    at(c, n);
    return TSR_OK;
}

static tsr_status logic(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                        struct tpl_value *out)
{
    TSR_TRY(tpl_eval(c, s, n->type == TPL_CONDITION ? n->b : n->a, out));
    bool yes = tpl_truth(out);
    if (n->type == TPL_NOT)
        *out = tpl_bool(!yes);
    else if (n->type == TPL_CONDITION && !yes && !n->c)
        *out = tpl_undefined(TPL_MISSING, NULL);
    else if (n->type == TPL_CONDITION)
        return tpl_eval(c, s, yes ? n->a : n->c, out);
    else if (yes == (n->type == TPL_AND))
        return tpl_eval(c, s, n->b, out);
    return TSR_OK;
}

static tsr_status eval(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                       struct tpl_value *out)
{
    struct tpl_value a, b;
    switch (n->type) {
    case TPL_CONST:
        *out = n->value;
        return TSR_OK;
    case TPL_BLOCK_TEXT:
        *out = c->block;
        return TSR_OK;
    case TPL_NAME:
        return variable(c, s, n->name, out);
    case TPL_LIST_OF:
    case TPL_TUPLE_OF:
        return list(c, s, n, out);
    case TPL_DICT_OF:
        return dict(c, s, n, out);
    case TPL_ATTRIBUTE:
        TSR_TRY(tpl_eval(c, s, n->a, &a));
        at(c, n);
        return tpl_attribute(c, &a, n->name, out);
    case TPL_ITEM:
        TSR_TRY(two(c, s, n, &a, &b));
        return tpl_item(c, &a, &b, out);
    case TPL_SLICE_OF:
        return slice(c, s, n, out);
    case TPL_CALL:
        return call(c, s, n, out);
    case TPL_FILTER:
    case TPL_TEST:
        return apply(c, s, n, out);
    case TPL_COMPARE:
        return compare(c, s, n, out);
    case TPL_CONCAT:
        return concat(c, s, n, out);
    case TPL_BINARY:
        TSR_TRY(two(c, s, n, &a, &b));
        return tpl_binary(c, n->op, &a, &b, out);
    case TPL_NEGATE:
    case TPL_PLUS:
        TSR_TRY(tpl_eval(c, s, n->a, &a));
        at(c, n);
        return tpl_sign(c, n->type == TPL_NEGATE, &a, out);
    default:
        return logic(c, s, n, out);
    }
}

tsr_status tpl_eval(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                    struct tpl_value *out)
{
    TSR_TRY(tpl_charge(c, 0));
    at(c, n);
    TSR_TRY(tpl_enter(c));
    tsr_status st = eval(c, s, n, out);
    c->depth--;
    return st;
}
