/* What the files of the parser need: tokens and nodes. */
#include "template/parse.h"

#include <stdio.h>
#include <string.h>

static void place(const struct tpl_parser *p)
{
    p->c->line = p->t->line;
    p->c->column = p->t->column;
}

bool tpl_at_op(const struct tpl_parser *p, const char *op)
{
    return p->t->type == TPL_T_OP && strcmp(p->t->op, op) == 0;
}

bool tpl_at_name(const struct tpl_parser *p, const char *name)
{
    return p->t->type == TPL_T_NAME && tpl_text_is(p->t->text, name);
}

bool tpl_skip_op(struct tpl_parser *p, const char *op)
{
    bool yes = tpl_at_op(p, op);
    p->t += yes;
    return yes;
}

bool tpl_skip_name(struct tpl_parser *p, const char *name)
{
    bool yes = tpl_at_name(p, name);
    p->t += yes;
    return yes;
}

void tpl_say_unexpected(struct tpl_parser *p, const char *wanted)
{
    const struct tpl_token *t = p->t;
    const char             *s = t->type == TPL_T_PRINT_END   ? "}}"
                                : t->type == TPL_T_BLOCK_END ? "%}"
                                : t->type == TPL_T_OP        ? t->op
                                                             : NULL;
    place(p);
    if (t->type == TPL_T_NAME)
        tpl_say(p->c, "'%.*s' is not %s", (int)(t->text->n < 60 ? t->text->n : 60), t->text->s,
                wanted);
    else if (s)
        tpl_say(p->c, "'%s' is not %s", s, wanted);
    else
        tpl_say(p->c, "%s is not %s",
                t->type == TPL_T_END ? "the end of the template" : "what is here", wanted);
}

tsr_status tpl_expect_op(struct tpl_parser *p, const char *op)
{
    char wanted[16];
    if (tpl_skip_op(p, op))
        return TSR_OK;
    (void)snprintf(wanted, sizeof wanted, "the '%s'", op);
    return tpl_unexpected(p, wanted);
}

tsr_status tpl_expect_name(struct tpl_parser *p, const struct tpl_text **name)
{
    if (p->t->type != TPL_T_NAME)
        return tpl_unexpected(p, "a name");
    *name = p->t++->text;
    return TSR_OK;
}

tsr_status tpl_node(struct tpl_parser *p, enum tpl_type type, struct tpl_node **out)
{
    struct tpl_node *n = tpl_new(p->c, 1, sizeof *n);
    if (!n)
        return tpl_failed(p->c);
    n->type = type;
    n->line = p->t->line;
    n->column = p->t->column;
    *out = n;
    return TSR_OK;
}

struct tpl_node **tpl_after(struct tpl_node **at)
{
    return &(*at)->next;
}
