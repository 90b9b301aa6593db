/* The source of a template as tokens, with the whitespace that tags take away: trim_blocks and lstrip_blocks are
 * on, and a newline at the very end goes, as in transformers. */
#include "template/parse.h"

#include <string.h>

/* ---- text between tags -------------------------------------------------- */

static uint64_t before_space(const struct tpl_lexer *l, uint64_t from, uint64_t end)
{
    while (end > from) {
        uint64_t i = end - 1;
        unsigned len;
        while (i > from && ((unsigned char)l->s[i] & 0xc0) == 0x80)
            i--;
        if (!tpl_is_space(tpl_char(l->s + i, l->n - i, &len)))
            break;
        end = i;
    }
    return end;
}

static tsr_status data(struct tpl_lexer *l, uint64_t from, uint64_t end)
{
    struct tpl_value v;
    if (from == end)
        return TSR_OK;
    TSR_TRY(tpl_own(l->c, l->s + from, end - from, &v));
    struct tpl_token *t = tpl_lex_token(l, TPL_T_DATA);
    if (!t)
        return tpl_failed(l->c);
    t->text = v.s;
    return TSR_OK;
}

/* Where the text [from, end) before a tag ends.  sign: '-', '+' or 0 of the tag. */
static uint64_t data_end(const struct tpl_lexer *l, uint64_t from, uint64_t end, char sign,
                         bool print)
{
    if (sign == '-')
        return before_space(l, from, end);
    if (sign == '+' || print)
        return end;
    uint64_t line = end;
    while (line > from && l->s[line - 1] != '\n')
        line--;
    if (line == from && !l->line_start)
        return end;
    return tpl_lex_after_space(l, line) >= end ? line : end;
}

/* The end of a tag at i, "%}" with its signs and what it takes along; 0: it is not there. */
static uint64_t tag_end(const struct tpl_lexer *l, uint64_t i, const char *close, bool print)
{
    if (l->s[i] == '-' && tpl_lex_at(l, i + 1, close))
        return tpl_lex_after_space(l, i + 3);
    if (l->s[i] == '+' && tpl_lex_at(l, i + 1, close) && !print)
        return i + 3;
    if (!tpl_lex_at(l, i, close))
        return 0;
    i += 2;
    return i < l->n && l->s[i] == '\n' && !print ? i + 1 : i;
}

static void end_tag(struct tpl_lexer *l, uint64_t to)
{
    l->line_start = l->s[to - 1] == '\n';
    tpl_lex_move(l, to);
}

/* Tokens up to the end of a tag. */
static tsr_status inside(struct tpl_lexer *l, bool print)
{
    for (;;) {
        tpl_lex_move(l, tpl_lex_after_space(l, l->at));
        if (l->at >= l->n)
            return tpl_fail(l->c, "a tag has no end");
        uint64_t end = l->n_open ? 0 : tag_end(l, l->at, print ? "}}" : "%}", print);
        if (end) {
            if (!tpl_lex_token(l, print ? TPL_T_PRINT_END : TPL_T_BLOCK_END))
                return tpl_failed(l->c);
            end_tag(l, end);
            return TSR_OK;
        }
        char ch = l->s[l->at];
        TSR_TRY(ch == '"' || ch == '\''  ? tpl_lex_string(l)
                : ch >= '0' && ch <= '9' ? tpl_lex_number(l)
                : tpl_lex_is_name(ch)    ? tpl_lex_name(l)
                                         : tpl_lex_op(l));
    }
}

/* ---- tags --------------------------------------------------------------- */

static tsr_status comment(struct tpl_lexer *l)
{
    char     sign = l->at + 2 < l->n ? l->s[l->at + 2] : '\0';
    uint64_t i = l->at + 2 + (sign == '-' || sign == '+');
    for (; i < l->n; i++) {
        uint64_t end = tag_end(l, i, "#}", false);
        if (end) {
            end_tag(l, end);
            return TSR_OK;
        }
    }
    return tpl_fail(l->c, "a comment has no end");
}

/* "{% raw %}" at i: where its text begins; 0: it is not there. */
static uint64_t raw_begin(const struct tpl_lexer *l, uint64_t i)
{
    i += 2;
    i += i < l->n && (l->s[i] == '-' || l->s[i] == '+');
    i = tpl_lex_after_space(l, i);
    if (!tpl_lex_at(l, i, "raw"))
        return 0;
    i = tpl_lex_after_space(l, i + 3);
    if (tpl_lex_at(l, i, "-%}"))
        return tpl_lex_after_space(l, i + 3);
    return tpl_lex_at(l, i, "%}") ? i + 2 : 0;
}

static tsr_status raw(struct tpl_lexer *l, uint64_t from)
{
    end_tag(l, from);
    for (uint64_t i = from; i < l->n; i++) {
        if (!tpl_lex_at(l, i, "{%"))
            continue;
        char     sign = i + 2 < l->n ? l->s[i + 2] : '\0';
        uint64_t k = tpl_lex_after_space(l, i + 2 + (sign == '-' || sign == '+'));
        if (!tpl_lex_at(l, k, "endraw"))
            continue;
        k = tpl_lex_after_space(l, k + 6);
        uint64_t end = k < l->n ? tag_end(l, k, "%}", false) : 0;
        if (!end)
            continue;
        TSR_TRY(data(l, from, data_end(l, from, i, sign, false)));
        end_tag(l, end);
        return TSR_OK;
    }
    return tpl_fail(l->c, "'raw' has no 'endraw'");
}

/* The text up to the next tag, and that tag. */
static tsr_status next(struct tpl_lexer *l)
{
    uint64_t from = l->at, i = from;
    while (i < l->n && !tpl_lex_at(l, i, "{{") && !tpl_lex_at(l, i, "{%") &&
           !tpl_lex_at(l, i, "{#"))
        i++;
    bool print = tpl_lex_at(l, i, "{{");
    char sign = i + 2 < l->n ? l->s[i + 2] : '\0';
    if (i >= l->n)
        TSR_TRY(data(l, from, l->n));
    else
        TSR_TRY(data(l, from, data_end(l, from, i, sign, print)));
    tpl_lex_move(l, i);
    if (i >= l->n)
        return TSR_OK;
    if (tpl_lex_at(l, i, "{#"))
        return comment(l);
    uint64_t text = print ? 0 : raw_begin(l, i);
    if (text)
        return raw(l, text);
    if (!tpl_lex_token(l, print ? TPL_T_PRINT_BEGIN : TPL_T_BLOCK_BEGIN))
        return tpl_failed(l->c);
    tpl_lex_move(l, i + 2 + (sign == '-' || sign == '+'));
    return inside(l, print);
}

tsr_status tpl_lex(struct tpl_ctx *c, const char *s, uint64_t n, struct tpl_token **tokens)
{
    struct tpl_lexer l = { .c = c, .s = s, .line = 1, .line_start = true };
    char            *text = tpl_new(c, n + 1, 1);
    if (!text)
        return tpl_failed(c);
    for (uint64_t i = 0; i < n; i++) { /* "\r\n" and "\r" are newlines */
        if (s[i] == '\r' && i + 1 < n && s[i + 1] == '\n')
            continue;
        text[l.n++] = s[i] == '\r' ? '\n' : s[i];
    }
    l.s = text;
    if (l.n && text[l.n - 1] == '\n')
        l.n--;
    tpl_lex_move(&l, 0);
    while (l.at < l.n)
        TSR_TRY(next(&l));
    if (!tpl_lex_token(&l, TPL_T_END))
        return tpl_failed(c);
    *tokens = l.v;
    return TSR_OK;
}
