/* The operands of expressions: literals, names, members, calls, filters, tests. */
#include "template/parse.h"

#include <string.h>

tsr_status tpl_parse_binary(struct tpl_parser *p, enum tpl_type type, enum tpl_op op,
                            struct tpl_node *a, struct tpl_node *b, struct tpl_node **out)
{
    struct tpl_node *n;
    TSR_TRY(tpl_node(p, type, &n));
    n->op = op;
    n->line = a->line;
    n->column = a->column;
    n->a = a;
    n->b = b;
    *out = n;
    return TSR_OK;
}

static tsr_status literal(struct tpl_parser *p, struct tpl_value v, struct tpl_node **out)
{
    TSR_TRY(tpl_node(p, TPL_CONST, out));
    (*out)->value = v;
    p->t++;
    return TSR_OK;
}

/* ---- primaries ---------------------------------------------------------- */

static tsr_status strings(struct tpl_parser *p, struct tpl_node **out)
{
    struct tpl_build b = { 0 };
    TSR_TRY(tpl_node(p, TPL_CONST, out));
    for (; p->t->type == TPL_T_STRING; p->t++)
        TSR_TRY(tpl_add_text(p->c, &b, p->t->text));
    return tpl_finish(p->c, &b, &(*out)->value);
}

static tsr_status name(struct tpl_parser *p, struct tpl_node **out)
{
    if (tpl_at_name(p, "true") || tpl_at_name(p, "True"))
        return literal(p, tpl_bool(true), out);
    if (tpl_at_name(p, "false") || tpl_at_name(p, "False"))
        return literal(p, tpl_bool(false), out);
    if (tpl_at_name(p, "none") || tpl_at_name(p, "None"))
        return literal(p, tpl_none(), out);
    TSR_TRY(tpl_node(p, TPL_NAME, out));
    return tpl_expect_name(p, &(*out)->name);
}

/* Items up to close; with colons for a dictionary. */
static tsr_status items(struct tpl_parser *p, enum tpl_type type, const char *close,
                        struct tpl_node **out)
{
    struct tpl_node **at;
    TSR_TRY(tpl_node(p, type, out));
    at = &(*out)->items;
    p->t++;
    while (!tpl_at_op(p, close)) {
        if ((*out)->items)
            TSR_TRY(tpl_expect_op(p, ","));
        if (tpl_at_op(p, close))
            break;
        TSR_TRY(p->expression(p, at));
        at = tpl_after(at);
        if (type != TPL_DICT_OF)
            continue;
        TSR_TRY(tpl_expect_op(p, ":"));
        TSR_TRY(p->expression(p, at));
        at = tpl_after(at);
    }
    return tpl_expect_op(p, close);
}

tsr_status tpl_parse_primary(struct tpl_parser *p, struct tpl_node **out)
{
    switch (p->t->type) {
    case TPL_T_NAME:
        return name(p, out);
    case TPL_T_STRING:
        return strings(p, out);
    case TPL_T_INT:
        return literal(p, tpl_int(p->t->i), out);
    case TPL_T_FLOAT:
        return literal(p, tpl_float(p->t->f), out);
    default:
        break;
    }
    if (tpl_at_op(p, "["))
        return items(p, TPL_LIST_OF, "]", out);
    if (tpl_at_op(p, "{"))
        return items(p, TPL_DICT_OF, "}", out);
    if (!tpl_skip_op(p, "("))
        return tpl_unexpected(p, "an expression");
    TSR_TRY(p->tuple(p, true, true, out));
    return tpl_expect_op(p, ")");
}

/* ---- after primaries ---------------------------------------------------- */

static tsr_status one_arg(struct tpl_parser *p, struct tpl_node *n, struct tpl_node ***args,
                          struct tpl_node ***keywords)
{
    if (tpl_at_op(p, "*") && !n->star && !n->star2) {
        p->t++;
        return p->expression(p, &n->star);
    }
    if (tpl_at_op(p, "**") && !n->star2) {
        p->t++;
        return p->expression(p, &n->star2);
    }
    if (p->t->type == TPL_T_NAME && p->t[1].type == TPL_T_OP && strcmp(p->t[1].op, "=") == 0 &&
        !n->star2) {
        const struct tpl_text *key = p->t->text;
        struct tpl_node       *k;
        TSR_TRY(tpl_node(p, TPL_CONST, &k));
        k->name = key;
        p->t += 2;
        TSR_TRY(p->expression(p, &k->a));
        **keywords = k;
        *keywords = &k->next;
        return TSR_OK;
    }
    if (n->star || n->star2 || n->keywords)
        return tpl_unexpected(p, "a named argument, as those before are");
    TSR_TRY(p->expression(p, *args));
    *args = tpl_after(*args);
    return TSR_OK;
}

static tsr_status call_args(struct tpl_parser *p, struct tpl_node *n)
{
    struct tpl_node **args = &n->args, **keywords = &n->keywords;
    bool              comma = false;
    TSR_TRY(tpl_expect_op(p, "("));
    while (!tpl_at_op(p, ")")) {
        if (comma) {
            TSR_TRY(tpl_expect_op(p, ","));
            if (tpl_at_op(p, ")"))
                break;
        }
        TSR_TRY(one_arg(p, n, &args, &keywords));
        comma = true;
    }
    return tpl_expect_op(p, ")");
}

static tsr_status call(struct tpl_parser *p, struct tpl_node *f, struct tpl_node **out)
{
    TSR_TRY(tpl_parse_binary(p, TPL_CALL, TPL_ADD, f, NULL, out));
    (*out)->line = p->t->line;
    (*out)->column = p->t->column;
    return call_args(p, *out);
}

static tsr_status maybe_expression(struct tpl_parser *p, struct tpl_node **out)
{
    if (tpl_at_op(p, ":") || tpl_at_op(p, "]") || tpl_at_op(p, ","))
        return TSR_OK;
    return p->expression(p, out);
}

static tsr_status subscript(struct tpl_parser *p, struct tpl_node **out)
{
    struct tpl_node *s, *first = NULL;
    TSR_TRY(tpl_node(p, TPL_SLICE_OF, &s));
    TSR_TRY(maybe_expression(p, &first));
    if (!tpl_skip_op(p, ":")) {
        if (!first)
            return tpl_unexpected(p, "an expression");
        *out = first;
        return TSR_OK;
    }
    s->a = first;
    TSR_TRY(maybe_expression(p, &s->b));
    if (tpl_skip_op(p, ":"))
        TSR_TRY(maybe_expression(p, &s->c));
    *out = s;
    return TSR_OK;
}

/* a.b, a.0, a[b], a[b, c] */
static tsr_status member(struct tpl_parser *p, struct tpl_node *a, struct tpl_node **out)
{
    struct tpl_node *n;
    bool             dot = tpl_at_op(p, ".");
    TSR_TRY(tpl_node(p, dot ? TPL_ATTRIBUTE : TPL_ITEM, &n));
    p->t++;
    n->a = a;
    *out = n;
    if (dot && p->t->type == TPL_T_INT) {
        n->type = TPL_ITEM;
        return literal(p, tpl_int(p->t->i), &n->b);
    }
    if (dot)
        return tpl_expect_name(p, &n->name);
    struct tpl_node *list, **at;
    TSR_TRY(tpl_node(p, TPL_TUPLE_OF, &list));
    at = &list->items;
    while (!tpl_at_op(p, "]")) {
        if (list->items)
            TSR_TRY(tpl_expect_op(p, ","));
        TSR_TRY(subscript(p, at));
        at = tpl_after(at);
    }
    n->b = list->items && !list->items->next ? list->items : list;
    return tpl_expect_op(p, "]");
}

tsr_status tpl_parse_postfix(struct tpl_parser *p, struct tpl_node **n)
{
    for (;;) {
        if (tpl_at_op(p, ".") || tpl_at_op(p, "["))
            TSR_TRY(member(p, *n, n));
        else if (tpl_at_op(p, "("))
            TSR_TRY(call(p, *n, n));
        else
            return TSR_OK;
    }
}

tsr_status tpl_parse_filter(struct tpl_parser *p, struct tpl_node *node, bool first,
                            struct tpl_node **out)
{
    *out = node;
    while (first || tpl_skip_op(p, "|")) {
        struct tpl_node *f;
        TSR_TRY(tpl_node(p, TPL_FILTER, &f));
        TSR_TRY(tpl_expect_name(p, &f->name));
        f->a = *out;
        f->function = p->c->filter(f->name->s, f->name->n);
        if (!f->function) {
            p->t--;
            return tpl_unexpected(p, "a filter that is supported");
        }
        if (tpl_at_op(p, "("))
            TSR_TRY(call_args(p, f));
        *out = f;
        first = false;
    }
    return TSR_OK;
}

static bool test_has_argument(const struct tpl_parser *p)
{
    if (p->t->type == TPL_T_NAME)
        return !tpl_at_name(p, "else") && !tpl_at_name(p, "or") && !tpl_at_name(p, "and");
    return p->t->type == TPL_T_STRING || p->t->type == TPL_T_INT || p->t->type == TPL_T_FLOAT ||
           tpl_at_op(p, "[") || tpl_at_op(p, "{");
}

static tsr_status test(struct tpl_parser *p, struct tpl_node *a, struct tpl_node **out)
{
    struct tpl_node *n;
    p->t++;
    bool negated = tpl_skip_name(p, "not");
    TSR_TRY(tpl_node(p, TPL_TEST, &n));
    TSR_TRY(tpl_expect_name(p, &n->name));
    n->a = a;
    n->function = p->c->test(n->name->s, n->name->n);
    if (!n->function) {
        p->t--;
        return tpl_unexpected(p, "a test that is supported");
    }
    if (tpl_at_op(p, "(")) {
        TSR_TRY(call_args(p, n));
    } else if (test_has_argument(p)) {
        if (tpl_at_name(p, "is"))
            return tpl_unexpected(p, "allowed after another test");
        TSR_TRY(tpl_parse_primary(p, &n->args));
        TSR_TRY(tpl_parse_postfix(p, &n->args));
    }
    *out = n;
    return negated ? tpl_parse_binary(p, TPL_NOT, TPL_ADD, n, NULL, out) : TSR_OK;
}

tsr_status tpl_parse_filters(struct tpl_parser *p, struct tpl_node **n)
{
    for (;;) {
        if (tpl_at_op(p, "|"))
            TSR_TRY(tpl_parse_filter(p, *n, false, n));
        else if (tpl_at_name(p, "is"))
            TSR_TRY(test(p, *n, n));
        else if (tpl_at_op(p, "("))
            TSR_TRY(call(p, *n, n));
        else
            return TSR_OK;
    }
}
