/* Expressions: tokens to a tree, with the precedence of Jinja. */
#include "template/parse.h"

static tsr_status parse_unary(struct tpl_parser *p, bool with_filter, struct tpl_node **out);

static tsr_status unary(struct tpl_parser *p, bool with_filter, struct tpl_node **out)
{
    if (tpl_at_op(p, "-") || tpl_at_op(p, "+")) {
        struct tpl_node *n;
        TSR_TRY(tpl_node(p, tpl_at_op(p, "-") ? TPL_NEGATE : TPL_PLUS, &n));
        p->t++;
        TSR_TRY(parse_unary(p, false, &n->a));
        *out = n;
    } else {
        TSR_TRY(tpl_parse_primary(p, out));
    }
    TSR_TRY(tpl_parse_postfix(p, out));
    return with_filter ? tpl_parse_filters(p, out) : TSR_OK;
}

static tsr_status parse_unary(struct tpl_parser *p, bool with_filter, struct tpl_node **out)
{
    TSR_TRY(tpl_enter(p->c));
    tsr_status st = unary(p, with_filter, out);
    p->c->depth--;
    return st;
}

static tsr_status power(struct tpl_parser *p, struct tpl_node **out)
{
    struct tpl_node *b;
    TSR_TRY(parse_unary(p, true, out));
    while (tpl_skip_op(p, "**")) {
        TSR_TRY(parse_unary(p, true, &b));
        TSR_TRY(tpl_parse_binary(p, TPL_BINARY, TPL_POW, *out, b, out));
    }
    return TSR_OK;
}

static tsr_status product(struct tpl_parser *p, struct tpl_node **out)
{
    static const char *const ops[] = { "*", "/", "//", "%" };
    static const enum tpl_op as[] = { TPL_MUL, TPL_DIV, TPL_FLOORDIV, TPL_MOD };
    struct tpl_node         *b;
    TSR_TRY(power(p, out));
    for (size_t i = 0; i < 4; i++) {
        if (!tpl_skip_op(p, ops[i]))
            continue;
        TSR_TRY(power(p, &b));
        TSR_TRY(tpl_parse_binary(p, TPL_BINARY, as[i], *out, b, out));
        i = (size_t)-1; /* again from the first */
    }
    return TSR_OK;
}

static tsr_status concat(struct tpl_parser *p, struct tpl_node **out)
{
    struct tpl_node *n, *first, **at;
    TSR_TRY(product(p, &first));
    *out = first;
    if (!tpl_at_op(p, "~"))
        return TSR_OK;
    TSR_TRY(tpl_parse_binary(p, TPL_CONCAT, TPL_ADD, first, NULL, &n));
    n->items = first;
    at = &first->next;
    while (tpl_skip_op(p, "~")) {
        TSR_TRY(product(p, at));
        at = tpl_after(at);
    }
    *out = n;
    return TSR_OK;
}

static tsr_status sum(struct tpl_parser *p, struct tpl_node **out)
{
    struct tpl_node *b;
    TSR_TRY(concat(p, out));
    while (tpl_at_op(p, "+") || tpl_at_op(p, "-")) {
        enum tpl_op op = tpl_at_op(p, "+") ? TPL_ADD : TPL_SUB;
        p->t++;
        TSR_TRY(concat(p, &b));
        TSR_TRY(tpl_parse_binary(p, TPL_BINARY, op, *out, b, out));
    }
    return TSR_OK;
}

static bool comparison(struct tpl_parser *p, enum tpl_op *op)
{
    static const char *const ops[] = { "==", "!=", "<", "<=", ">", ">=" };
    for (unsigned i = 0; i < 6; i++)
        if (tpl_skip_op(p, ops[i])) {
            *op = (enum tpl_op)(TPL_EQ + i);
            return true;
        }
    if (tpl_skip_name(p, "in")) {
        *op = TPL_IN;
        return true;
    }
    if (tpl_at_name(p, "not") && p->t[1].type == TPL_T_NAME && tpl_text_is(p->t[1].text, "in")) {
        p->t += 2;
        *op = TPL_NOT_IN;
        return true;
    }
    return false;
}

static tsr_status compare(struct tpl_parser *p, struct tpl_node **out)
{
    struct tpl_node *n = NULL, *b, **at = NULL;
    enum tpl_op      op;
    TSR_TRY(sum(p, out));
    while (comparison(p, &op)) {
        if (!n) {
            TSR_TRY(tpl_parse_binary(p, TPL_COMPARE, TPL_ADD, *out, NULL, &n));
            at = &n->items;
            *out = n;
        }
        TSR_TRY(sum(p, &b));
        TSR_TRY(tpl_parse_binary(p, TPL_CONST, op, b, NULL, at)); /* holds the operand */
        at = tpl_after(at);
    }
    return TSR_OK;
}

static tsr_status negation(struct tpl_parser *p, struct tpl_node **out)
{
    struct tpl_node *n;
    if (!tpl_at_name(p, "not"))
        return compare(p, out);
    TSR_TRY(tpl_node(p, TPL_NOT, &n));
    p->t++;
    TSR_TRY(tpl_enter(p->c));
    tsr_status st = negation(p, &n->a);
    p->c->depth--;
    *out = n;
    return st;
}

static tsr_status conjunction(struct tpl_parser *p, struct tpl_node **out)
{
    struct tpl_node *b;
    TSR_TRY(negation(p, out));
    while (tpl_skip_name(p, "and")) {
        TSR_TRY(negation(p, &b));
        TSR_TRY(tpl_parse_binary(p, TPL_AND, TPL_ADD, *out, b, out));
    }
    return TSR_OK;
}

static tsr_status disjunction(struct tpl_parser *p, struct tpl_node **out)
{
    struct tpl_node *b;
    TSR_TRY(conjunction(p, out));
    while (tpl_skip_name(p, "or")) {
        TSR_TRY(conjunction(p, &b));
        TSR_TRY(tpl_parse_binary(p, TPL_OR, TPL_ADD, *out, b, out));
    }
    return TSR_OK;
}

static tsr_status condition(struct tpl_parser *p, struct tpl_node **out)
{
    TSR_TRY(disjunction(p, out));
    while (tpl_skip_name(p, "if")) {
        struct tpl_node *n;
        TSR_TRY(tpl_parse_binary(p, TPL_CONDITION, TPL_ADD, *out, NULL, &n));
        TSR_TRY(disjunction(p, &n->b));
        if (tpl_skip_name(p, "else"))
            TSR_TRY(tpl_parse_expression(p, &n->c));
        *out = n;
    }
    return TSR_OK;
}

tsr_status tpl_parse_expression(struct tpl_parser *p, struct tpl_node **out)
{
    TSR_TRY(tpl_enter(p->c));
    tsr_status st = condition(p, out);
    p->c->depth--;
    return st;
}

static bool at_tuple_end(const struct tpl_parser *p, bool of_loop)
{
    return p->t->type == TPL_T_PRINT_END || p->t->type == TPL_T_BLOCK_END || tpl_at_op(p, ")") ||
           (of_loop && tpl_at_name(p, "recursive"));
}

tsr_status tpl_parse_tuple(struct tpl_parser *p, bool with_condition, bool in_parentheses,
                           struct tpl_node **out)
{
    struct tpl_node *n, **at;
    bool             comma = false;
    TSR_TRY(tpl_node(p, TPL_TUPLE_OF, &n));
    at = &n->items;
    while (!at_tuple_end(p, !with_condition)) {
        TSR_TRY(with_condition ? tpl_parse_expression(p, at) : disjunction(p, at));
        at = tpl_after(at);
        if (!tpl_skip_op(p, ","))
            break;
        comma = true;
    }
    if (!n->items && !in_parentheses)
        return tpl_unexpected(p, "an expression");
    *out = comma || !n->items ? n : n->items;
    return TSR_OK;
}
