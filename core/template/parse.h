/* template/parse.h - tokens of a template, and what the files of the lexer and of the parser share. */
#ifndef TSR_TEMPLATE_PARSE_H
#define TSR_TEMPLATE_PARSE_H

#include "template/internal.h"

/* ---- lex_token.c, lex.c ---- */
enum tpl_token_type {
    TPL_T_DATA,
    TPL_T_PRINT_BEGIN,
    TPL_T_PRINT_END,
    TPL_T_BLOCK_BEGIN,
    TPL_T_BLOCK_END,
    TPL_T_NAME,
    TPL_T_STRING,
    TPL_T_INT,
    TPL_T_FLOAT,
    TPL_T_OP,
    TPL_T_END
};
struct tpl_token {
    enum tpl_token_type    type;
    uint32_t               line, column;
    char                   op[3]; /* "", "+", "==" */
    const struct tpl_text *text;  /* data, name, string */
    int64_t                i;
    double                 f;
};
struct tpl_lexer {
    struct tpl_ctx   *c;
    const char       *s;
    uint64_t          n, at;
    uint64_t          line_at; /* where the current line begins */
    uint32_t          line;
    struct tpl_token *v;
    uint64_t          n_v, cap;
    bool              line_start; /* the last tag ended with a newline, or there was none */
    char              open[TPL_MAX_DEPTH];
    unsigned          n_open;
};
/* Moves to a byte, whose position is that of the next token and of messages. */
void              tpl_lex_move(struct tpl_lexer *l, uint64_t to);
struct tpl_token *tpl_lex_token(struct tpl_lexer *l, enum tpl_token_type type);
bool              tpl_lex_at(const struct tpl_lexer *l, uint64_t i, const char *s);
uint64_t          tpl_lex_after_space(const struct tpl_lexer *l, uint64_t i);
bool              tpl_lex_is_name(char ch);
tsr_status        tpl_lex_string(struct tpl_lexer *l);
tsr_status        tpl_lex_number(struct tpl_lexer *l);
tsr_status        tpl_lex_name(struct tpl_lexer *l);
tsr_status        tpl_lex_op(struct tpl_lexer *l);
tsr_status        tpl_lex(struct tpl_ctx *c, const char *s, uint64_t n, struct tpl_token **tokens);

/* ---- parse*.c ---- */
struct tpl_parser {
    struct tpl_ctx   *c;
    struct tpl_token *t; /* the current one */
    unsigned          loops;
    tsr_status (*expression)(struct tpl_parser *p, struct tpl_node **out);
    tsr_status (*tuple)(struct tpl_parser *p, bool condition, bool in_parentheses,
                        struct tpl_node **out);
};
bool       tpl_at_op(const struct tpl_parser *p, const char *op);
bool       tpl_at_name(const struct tpl_parser *p, const char *name);
bool       tpl_skip_op(struct tpl_parser *p, const char *op);
bool       tpl_skip_name(struct tpl_parser *p, const char *name);
tsr_status tpl_expect_op(struct tpl_parser *p, const char *op);
tsr_status tpl_expect_name(struct tpl_parser *p, const struct tpl_text **name);
/* "'x' is not WANTED", of the current token. */
void tpl_say_unexpected(struct tpl_parser *p, const char *wanted);
#define tpl_unexpected(p, wanted) (tpl_say_unexpected(p, wanted), TSR_E_INPUT)
/* Where the node after *at goes, in a list. */
struct tpl_node **tpl_after(struct tpl_node **at);
tsr_status        tpl_node(struct tpl_parser *p, enum tpl_type type, struct tpl_node **out);
tsr_status        tpl_parse_binary(struct tpl_parser *p, enum tpl_type type, enum tpl_op op,
                                   struct tpl_node *a, struct tpl_node *b, struct tpl_node **out);
tsr_status        tpl_parse_postfix(struct tpl_parser *p, struct tpl_node **n);
/* Filters, tests and calls after a primary. */
tsr_status tpl_parse_filters(struct tpl_parser *p, struct tpl_node **n);
tsr_status tpl_parse_primary(struct tpl_parser *p, struct tpl_node **out);
tsr_status tpl_parse_expression(struct tpl_parser *p, struct tpl_node **out);
/* Expressions separated by commas: a tuple, or the only one.  condition: `a if b` is allowed in them. */
tsr_status tpl_parse_tuple(struct tpl_parser *p, bool condition, bool in_parentheses,
                           struct tpl_node **out);
tsr_status tpl_parse_filter(struct tpl_parser *p, struct tpl_node *node, bool first,
                            struct tpl_node **out);
tsr_status tpl_parse_body(struct tpl_parser *p, struct tpl_node **out);

#endif
