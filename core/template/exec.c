/* Statements: a tree to text. */
#include "template/internal.h"

/* How a body ended. */
enum { RUNS, BREAKS, CONTINUES };

static tsr_status body(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n, int *how);

static tsr_status inner_scope(struct tpl_ctx *c, struct tpl_scope *up, struct tpl_scope **s)
{
    *s = tpl_new(c, 1, sizeof **s);
    if (!*s)
        return tpl_failed(c);
    (*s)->up = up;
    return TSR_OK;
}

/* Runs the items with an output of their own. */
static tsr_status captured(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *items,
                           int *how, struct tpl_value *out)
{
    struct tpl_build  b = { 0 };
    struct tpl_build *before = c->out;
    c->out = &b;
    tsr_status st = body(c, s, items, how);
    c->out = before;
    TSR_TRY(st);
    return tpl_finish(c, &b, out);
}

/* ---- assignment --------------------------------------------------------- */

static struct tpl_value *variable_of(struct tpl_scope *s, const struct tpl_text *name)
{
    for (; s; s = s->up)
        for (struct tpl_var *v = s->vars; v; v = v->next)
            if (v->name == name)
                return &v->value;
    return NULL;
}

static tsr_status assign(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *target,
                         const struct tpl_value *v)
{
    const struct tpl_list *l;
    uint64_t               i = 0;
    c->line = target->line;
    c->column = target->column;
    if (target->type == TPL_NAME)
        return tpl_set_var(c, s, target->name, v);
    if (target->type == TPL_MEMBER) {
        struct tpl_value *ns = variable_of(s, target->name);
        struct tpl_value  key = { .kind = TPL_STRING, .s = target->a->name };
        if (!ns || ns->kind != TPL_NAMESPACE)
            return tpl_fail(c, "'%.*s' is not a namespace, the only thing that takes attributes",
                            (int)(target->name->n < 60 ? target->name->n : 60), target->name->s);
        return tpl_dict_put(c, ns->dict, &key, v);
    }
    TSR_TRY(tpl_items(c, v, &l));
    for (const struct tpl_node *t = target->items; t; t = t->next, i++) {
        if (i >= l->n)
            return tpl_fail(c, "%llu values are too few to assign", (unsigned long long)l->n);
        TSR_TRY(assign(c, s, t, &l->v[i]));
    }
    return i == l->n ? TSR_OK
                     : tpl_fail(c, "%llu values are too many to assign", (unsigned long long)l->n);
}

static tsr_status set_block(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                            int *how)
{
    struct tpl_scope *own;
    struct tpl_value  v;
    TSR_TRY(inner_scope(c, s, &own));
    TSR_TRY(captured(c, own, n->items, how, &v));
    if (*how != RUNS)
        return TSR_OK;
    if (n->b) {
        c->block = v;
        TSR_TRY(tpl_eval(c, s, n->b, &v));
    }
    if (n->type == TPL_FILTER_BLOCK)
        return tpl_str(c, c->out, &v);
    return assign(c, s, n->a, &v);
}

/* ---- loops -------------------------------------------------------------- */

static tsr_status chosen(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                         const struct tpl_list *all, const struct tpl_list **l)
{
    struct tpl_value some, yes;
    TSR_TRY(tpl_list(c, TPL_LIST, 0, &some));
    for (uint64_t i = 0; i < all->n; i++) {
        struct tpl_scope *own;
        TSR_TRY(inner_scope(c, s, &own));
        TSR_TRY(assign(c, own, n->a, &all->v[i]));
        TSR_TRY(tpl_eval(c, own, n->c, &yes));
        if (tpl_truth(&yes))
            TSR_TRY(tpl_push(c, some.list, &all->v[i]));
    }
    *l = some.list;
    return TSR_OK;
}

static tsr_status for_loop(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                           int *how)
{
    const struct tpl_list *l;
    struct tpl_value       v;
    struct tpl_scope      *own;
    TSR_TRY(tpl_eval(c, s, n->b, &v));
    TSR_TRY(tpl_items(c, &v, &l));
    if (n->c)
        TSR_TRY(chosen(c, s, n, l, &l));
    struct tpl_loop *loop = tpl_new(c, 1, sizeof *loop);
    if (!loop)
        return tpl_failed(c);
    *loop = (struct tpl_loop){ .items = l };
    bool finished =
        false; /* the body, once: as in Jinja, one that a jump always leaves is as none for 'else' */
    for (; loop->at < l->n && *how != BREAKS; loop->at++) {
        v = (struct tpl_value){ .kind = TPL_LOOP, .loop = loop };
        TSR_TRY(inner_scope(c, s, &own));
        if (c->loop_name)
            TSR_TRY(tpl_set_var(c, own, c->loop_name, &v));
        TSR_TRY(assign(c, own, n->a, &l->v[loop->at]));
        *how = RUNS;
        TSR_TRY(body(c, own, n->items, how));
        finished = finished || *how == RUNS;
    }
    *how = RUNS;
    if (finished || !n->otherwise)
        return TSR_OK;
    TSR_TRY(inner_scope(c, s, &own));
    return body(c, own, n->otherwise, how);
}

/* ---- macros ------------------------------------------------------------- */

struct binding {
    struct tpl_ctx        *c;
    struct tpl_scope      *own;
    const struct tpl_node *n;
    const struct tpl_args *args;
    bool                   used[64]; /* keywords */
};

static const struct tpl_value *take_keyword(struct binding *b, const struct tpl_text *name)
{
    for (uint64_t i = 0; i < b->args->n_k; i++)
        if (tpl_same(b->args->k[i].name, name)) {
            b->used[i] = true;
            return &b->args->k[i].value;
        }
    return NULL;
}

static tsr_status bind_named(struct binding *b, uint64_t *n_args)
{
    uint64_t i = 0;
    for (const struct tpl_node *a = b->n->args; a; a = a->next, i++) {
        const struct tpl_value *given = i < b->args->n ? &b->args->v[i] : take_keyword(b, a->name);
        struct tpl_value        v = tpl_undefined(TPL_MISSING, a->name);
        if (given)
            v = *given;
        else if (a->a)
            TSR_TRY(tpl_eval(b->c, b->own, a->a, &v));
        TSR_TRY(tpl_set_var(b->c, b->own, a->name, &v));
    }
    *n_args = i;
    return TSR_OK;
}

static tsr_status bind_word(struct binding *b, const char *name, const struct tpl_value *v)
{
    struct tpl_text        t = { .s = name };
    const struct tpl_text *own;
    while (name[t.n])
        t.n++;
    own = tpl_known_name(b->c, &t);
    return own ? tpl_set_var(b->c, b->own, own, v) : TSR_OK;
}

/* caller, kwargs and varargs, for macros that name them. */
static tsr_status bind_special(struct binding *b, uint64_t n_args)
{
    static const struct tpl_text caller = { .s = "caller", .n = 6 };
    struct tpl_ctx              *c = b->c;
    struct tpl_value             v;
    if (b->n->caller) {
        const struct tpl_value *given = take_keyword(b, &caller);
        v = given ? *given : tpl_undefined(TPL_MISSING, &caller);
        TSR_TRY(bind_word(b, "caller", &v));
    }
    TSR_TRY(tpl_dict(c, TPL_DICT, 0, &v));
    for (uint64_t i = 0; i < b->args->n_k; i++) {
        struct tpl_value key = { .kind = TPL_STRING, .s = b->args->k[i].name };
        if (b->used[i])
            continue;
        if (!b->n->kwargs)
            return tpl_fail(c, "the macro takes no argument '%.*s'",
                            (int)(key.s->n < 60 ? key.s->n : 60), key.s->s);
        TSR_TRY(tpl_dict_add(c, v.dict, &key, &b->args->k[i].value));
    }
    if (b->n->kwargs)
        TSR_TRY(bind_word(b, "kwargs", &v));
    TSR_TRY(tpl_list(c, TPL_TUPLE, 0, &v));
    for (uint64_t i = n_args; i < b->args->n; i++)
        TSR_TRY(tpl_push(c, v.list, &b->args->v[i]));
    if (b->n->varargs)
        return bind_word(b, "varargs", &v);
    return v.list->n == 0 ? TSR_OK
                          : tpl_fail(c, "the macro takes %llu arguments, not %llu",
                                     (unsigned long long)n_args, (unsigned long long)b->args->n);
}

static tsr_status run_macro(struct tpl_ctx *c, const struct tpl_macro *m,
                            const struct tpl_args *args, struct tpl_value *out)
{
    struct binding b = { .c = c, .n = m->node, .args = args };
    uint64_t       n_args = 0;
    int            how = RUNS;
    if (args->n_k > sizeof b.used)
        return tpl_fail(c, "a macro gets more than %zu named arguments", sizeof b.used);
    TSR_TRY(inner_scope(c, m->scope, &b.own));
    TSR_TRY(bind_named(&b, &n_args));
    TSR_TRY(bind_special(&b, n_args));
    TSR_TRY(tpl_enter(c));
    tsr_status st = captured(c, b.own, m->node->items, &how, out);
    c->depth--;
    return st;
}

static tsr_status make_macro(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                             struct tpl_value *out)
{
    struct tpl_macro *m = tpl_new(c, 1, sizeof *m);
    if (!m)
        return tpl_failed(c);
    *m = (struct tpl_macro){ .node = n, .scope = s, .run = run_macro };
    *out = (struct tpl_value){ .kind = TPL_MACRO, .macro = m };
    return TSR_OK;
}

static tsr_status call_block(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n)
{
    static const struct tpl_text caller = { .s = "caller", .n = 6 };
    struct tpl_value             f, out;
    struct tpl_args              args;
    TSR_TRY(tpl_eval(c, s, n->a->a, &f));
    TSR_TRY(tpl_eval_args(c, s, n->a, &args));
    struct tpl_keyword *k = tpl_grow(c, args.k, args.n_k, args.n_k + 1, sizeof *k);
    if (!k)
        return tpl_failed(c);
    args.k = k;
    k[args.n_k].name = &caller;
    TSR_TRY(make_macro(c, s, n, &k[args.n_k++].value));
    c->line = n->line;
    c->column = n->column;
    TSR_TRY(tpl_call_value(c, &f, &args, &out));
    return tpl_str(c, c->out, &out);
}

/* ---- all ---------------------------------------------------------------- */

static tsr_status if_else(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                          int *how)
{
    struct tpl_value v;
    for (;;) {
        TSR_TRY(tpl_eval(c, s, n->a, &v));
        if (tpl_truth(&v))
            return body(c, s, n->items, how);
        if (!n->otherwise || n->otherwise->type != TPL_IF || !n->otherwise->elif)
            return body(c, s, n->otherwise, how);
        n = n->otherwise;
    }
}

static tsr_status with(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n, int *how)
{
    struct tpl_scope *own;
    struct tpl_value  v;
    TSR_TRY(inner_scope(c, s, &own));
    for (const struct tpl_node *a = n->args; a; a = a->next) {
        TSR_TRY(tpl_eval(c, s, a->b, &v));
        TSR_TRY(assign(c, own, a->a, &v));
    }
    return body(c, own, n->items, how);
}

static tsr_status one(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n, int *how)
{
    struct tpl_value v;
    switch (n->type) {
    case TPL_DATA:
        return tpl_add_text(c, c->out, n->name);
    case TPL_PRINT:
        TSR_TRY(tpl_eval(c, s, n->a, &v));
        c->line = n->line;
        c->column = n->column;
        return tpl_str(c, c->out, &v);
    case TPL_FOR:
        return for_loop(c, s, n, how);
    case TPL_IF:
        return if_else(c, s, n, how);
    case TPL_SET:
        TSR_TRY(tpl_eval(c, s, n->b, &v));
        return assign(c, s, n->a, &v);
    case TPL_SET_BLOCK:
    case TPL_FILTER_BLOCK:
        return set_block(c, s, n, how);
    case TPL_MACRO_OF:
        TSR_TRY(make_macro(c, s, n, &v));
        return tpl_set_var(c, s, n->name, &v);
    case TPL_CALL_BLOCK:
        return call_block(c, s, n);
    case TPL_WITH:
    case TPL_SCOPE:
        return with(c, s, n, how);
    case TPL_BREAK:
        *how = BREAKS;
        return TSR_OK;
    default:
        *how = CONTINUES;
        return TSR_OK;
    }
}

static tsr_status body(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n, int *how)
{
    tsr_status st = TSR_OK;
    TSR_TRY(tpl_enter(c));
    for (; n && st == TSR_OK && *how == RUNS; n = n->next) {
        c->line = n->line;
        c->column = n->column;
        st = tpl_charge(c, 0);
        if (st == TSR_OK)
            st = one(c, s, n, how);
    }
    c->depth--;
    return st;
}

tsr_status tpl_exec(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *items)
{
    int how = RUNS;
    return body(c, s, items, &how);
}
