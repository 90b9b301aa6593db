/* Statements and text: tokens to a tree. */
#include "template/parse.h"

#include <stdio.h>
#include <string.h>

static tsr_status parse_until(struct tpl_parser *p, const char *const *ends,
                              struct tpl_node **items);

static tsr_status end_block(struct tpl_parser *p)
{
    if (p->t->type != TPL_T_BLOCK_END)
        return tpl_unexpected(p, "the '%}' that ends the tag");
    p->t++;
    return TSR_OK;
}

/* The end of the opening tag, the items, and the closing tag up to its name. */
static tsr_status block(struct tpl_parser *p, const char *end, struct tpl_node **items)
{
    const char *ends[] = { end, NULL };
    TSR_TRY(end_block(p));
    TSR_TRY(parse_until(p, ends, items));
    p->t++;
    return TSR_OK;
}

/* ---- targets ------------------------------------------------------------ */

static tsr_status one_target(struct tpl_parser *p, bool member, struct tpl_node **out)
{
    if (tpl_at_name(p, "true") || tpl_at_name(p, "false") || tpl_at_name(p, "none") ||
        tpl_at_name(p, "True") || tpl_at_name(p, "False") || tpl_at_name(p, "None"))
        return tpl_unexpected(p, "a variable");
    TSR_TRY(tpl_node(p, TPL_NAME, out));
    TSR_TRY(tpl_expect_name(p, &(*out)->name));
    if (!member || !tpl_skip_op(p, "."))
        return TSR_OK;
    (*out)->type = TPL_MEMBER;
    TSR_TRY(tpl_node(p, TPL_CONST, &(*out)->a));
    return tpl_expect_name(p, &(*out)->a->name);
}

static tsr_status target(struct tpl_parser *p, bool member, struct tpl_node **out)
{
    struct tpl_node *n, **at;
    bool             comma = false;
    if (tpl_skip_op(p, "(")) {
        TSR_TRY(tpl_enter(p->c));
        tsr_status st = target(p, member, out);
        p->c->depth--;
        TSR_TRY(st);
        return tpl_expect_op(p, ")");
    }
    TSR_TRY(tpl_node(p, TPL_TUPLE_OF, &n));
    at = &n->items;
    do {
        if (n->items && p->t->type != TPL_T_NAME && !tpl_at_op(p, "("))
            break;
        if (tpl_at_op(p, "(")) {
            TSR_TRY(tpl_enter(p->c));
            tsr_status st = target(p, member, at);
            p->c->depth--;
            TSR_TRY(st);
        } else {
            TSR_TRY(one_target(p, member, at));
        }
        at = tpl_after(at);
        comma = comma || tpl_at_op(p, ",");
    } while (tpl_skip_op(p, ","));
    *out = comma ? n : n->items;
    return TSR_OK;
}

/* ---- statements --------------------------------------------------------- */

static tsr_status parse_for(struct tpl_parser *p, struct tpl_node *n)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    TSR_TRY(target(p, false, &n->a));
    if (!tpl_skip_name(p, "in"))
        return tpl_unexpected(p, "'in'");
    TSR_TRY(tpl_parse_tuple(p, false, false, &n->b));
    if (tpl_skip_name(p, "if"))
        TSR_TRY(tpl_parse_expression(p, &n->c));
    if (tpl_at_name(p, "recursive"))
        return tpl_unexpected(p, "supported");
    TSR_TRY(end_block(p));
    p->loops++;
    tsr_status st = parse_until(p, ends, &n->items);
    p->loops--;
    TSR_TRY(st);
    if (tpl_skip_name(p, "else"))
        return block(p, "endfor", &n->otherwise);
    p->t++;
    return TSR_OK;
}

static tsr_status parse_if(struct tpl_parser *p, struct tpl_node *n)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    for (;;) {
        TSR_TRY(tpl_parse_tuple(p, false, false, &n->a));
        TSR_TRY(end_block(p));
        TSR_TRY(parse_until(p, ends, &n->items));
        if (tpl_skip_name(p, "else"))
            return block(p, "endif", &n->otherwise);
        if (tpl_skip_name(p, "endif"))
            return TSR_OK;
        TSR_TRY(tpl_node(p, TPL_IF, &n->otherwise));
        n = n->otherwise;
        n->elif = true;
        p->t++;
    }
}

static tsr_status block_filter(struct tpl_parser *p, struct tpl_node *n)
{
    struct tpl_node *text;
    TSR_TRY(tpl_node(p, TPL_BLOCK_TEXT, &text));
    return tpl_parse_filter(p, text, true, &n->b);
}

static tsr_status parse_set(struct tpl_parser *p, struct tpl_node *n)
{
    TSR_TRY(target(p, true, &n->a));
    if (tpl_skip_op(p, "="))
        return tpl_parse_tuple(p, true, false, &n->b);
    n->type = TPL_SET_BLOCK;
    if (tpl_skip_op(p, "|"))
        TSR_TRY(block_filter(p, n));
    return block(p, "endset", &n->items);
}

static tsr_status signature(struct tpl_parser *p, struct tpl_node *n)
{
    struct tpl_node **at = &n->args;
    bool              defaults = false;
    TSR_TRY(tpl_expect_op(p, "("));
    while (!tpl_at_op(p, ")")) {
        if (n->args)
            TSR_TRY(tpl_expect_op(p, ","));
        TSR_TRY(one_target(p, false, at));
        if (tpl_skip_op(p, "=")) {
            TSR_TRY(tpl_parse_expression(p, &(*at)->a));
            defaults = true;
        } else if (defaults) {
            return tpl_unexpected(p, "a default, as arguments before have one");
        }
        at = tpl_after(at);
    }
    return tpl_expect_op(p, ")");
}

/* Which of the three special names the tokens [from, to) have. */
static void specials(const struct tpl_token *from, const struct tpl_token *to, struct tpl_node *n)
{
    for (; from < to; from++) {
        if (from->type != TPL_T_NAME)
            continue;
        n->varargs = n->varargs || tpl_text_is(from->text, "varargs");
        n->kwargs = n->kwargs || tpl_text_is(from->text, "kwargs");
        n->caller = n->caller || tpl_text_is(from->text, "caller");
    }
}

/* The body of a macro or a call: loops around it are not its own. */
static tsr_status function_body(struct tpl_parser *p, const char *end, struct tpl_node *n)
{
    const struct tpl_token *from = p->t;
    unsigned                loops = p->loops;
    p->loops = 0;
    tsr_status st = block(p, end, &n->items);
    p->loops = loops;
    specials(from, p->t, n);
    return st;
}

static tsr_status parse_macro(struct tpl_parser *p, struct tpl_node *n)
{
    TSR_TRY(tpl_expect_name(p, &n->name));
    TSR_TRY(signature(p, n));
    return function_body(p, "endmacro", n);
}

static tsr_status parse_call(struct tpl_parser *p, struct tpl_node *n)
{
    if (tpl_at_op(p, "("))
        TSR_TRY(signature(p, n));
    TSR_TRY(tpl_parse_expression(p, &n->a));
    if (n->a->type != TPL_CALL)
        return tpl_unexpected(p, "after a call of a macro");
    return function_body(p, "endcall", n);
}

static tsr_status parse_filter(struct tpl_parser *p, struct tpl_node *n)
{
    TSR_TRY(block_filter(p, n));
    return block(p, "endfilter", &n->items);
}

static tsr_status parse_with(struct tpl_parser *p, struct tpl_node *n)
{
    struct tpl_node **at = &n->args;
    while (p->t->type != TPL_T_BLOCK_END) {
        if (n->args)
            TSR_TRY(tpl_expect_op(p, ","));
        TSR_TRY(tpl_node(p, TPL_SET, at));
        TSR_TRY(target(p, false, &(*at)->a));
        TSR_TRY(tpl_expect_op(p, "="));
        TSR_TRY(tpl_parse_expression(p, &(*at)->b));
        at = tpl_after(at);
    }
    return block(p, "endwith", &n->items);
}

/* What transformers adds: it marks the text of the assistant, and changes nothing here. */
static tsr_status parse_generation(struct tpl_parser *p, struct tpl_node *n)
{
    return function_body(p, "endgeneration", n);
}

static tsr_status parse_print(struct tpl_parser *p, struct tpl_node *n)
{
    struct tpl_node **at = &n->items;
    while (p->t->type != TPL_T_BLOCK_END) {
        if (n->items)
            TSR_TRY(tpl_expect_op(p, ","));
        TSR_TRY(tpl_node(p, TPL_PRINT, at));
        TSR_TRY(tpl_parse_expression(p, &(*at)->a));
        at = tpl_after(at);
    }
    return TSR_OK;
}

static tsr_status nothing(struct tpl_parser *p, struct tpl_node *n)
{
    (void)n;
    if (p->loops)
        return TSR_OK;
    p->t--;
    return tpl_unexpected(p, "inside of a loop");
}

static tsr_status statement(struct tpl_parser *p, struct tpl_node **out)
{
    static const struct {
        const char   *name;
        enum tpl_type type;
        tsr_status (*parse)(struct tpl_parser *p, struct tpl_node *n);
    } all[] = {
        { "for", TPL_FOR, parse_for },          { "if", TPL_IF, parse_if },
        { "set", TPL_SET, parse_set },          { "macro", TPL_MACRO_OF, parse_macro },
        { "call", TPL_CALL_BLOCK, parse_call }, { "filter", TPL_FILTER_BLOCK, parse_filter },
        { "with", TPL_WITH, parse_with },       { "generation", TPL_SCOPE, parse_generation },
        { "print", TPL_WITH, parse_print },     { "break", TPL_BREAK, nothing },
        { "continue", TPL_CONTINUE, nothing },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (tpl_at_name(p, all[i].name)) {
            TSR_TRY(tpl_node(p, all[i].type, out));
            p->t++;
            TSR_TRY(all[i].parse(p, *out));
            return end_block(p);
        }
    return tpl_unexpected(p, "a statement that is supported");
}

/* ---- bodies ------------------------------------------------------------- */

static bool at_end(const struct tpl_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (tpl_at_name(p, *ends))
            return true;
    return false;
}

/* Text and tags up to a tag that begins with one of the names, at which it stops; NULL: to the end. */
static tsr_status until(struct tpl_parser *p, const char *const *ends, struct tpl_node **at)
{
    for (; p->t->type != TPL_T_END; at = tpl_after(at)) {
        if (p->t->type == TPL_T_DATA) {
            TSR_TRY(tpl_node(p, TPL_DATA, at));
            (*at)->name = p->t++->text;
        } else if (p->t->type == TPL_T_PRINT_BEGIN) {
            p->t++;
            TSR_TRY(tpl_node(p, TPL_PRINT, at));
            TSR_TRY(tpl_parse_tuple(p, true, false, &(*at)->a));
            if (p->t->type != TPL_T_PRINT_END)
                return tpl_unexpected(p, "the '}}' that ends the expression");
            p->t++;
        } else {
            p->t++;
            if (at_end(p, ends))
                return TSR_OK;
            TSR_TRY(statement(p, at));
        }
    }
    if (!ends)
        return TSR_OK;
    char wanted[40];
    (void)snprintf(wanted, sizeof wanted, "'%s'", *ends);
    return tpl_unexpected(p, wanted);
}

static tsr_status parse_until(struct tpl_parser *p, const char *const *ends,
                              struct tpl_node **items)
{
    TSR_TRY(tpl_enter(p->c));
    tsr_status st = until(p, ends, items);
    p->c->depth--;
    return st;
}

tsr_status tpl_parse_body(struct tpl_parser *p, struct tpl_node **out)
{
    return parse_until(p, NULL, out);
}
