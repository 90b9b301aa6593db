/* Tokens inside of the tags of a template: names, texts, numbers, operators. */
#include "template/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- places ------------------------------------------------------------- */

/* Moves on; the position for messages is that of the next byte. */
void tpl_lex_move(struct tpl_lexer *l, uint64_t to)
{
    for (; l->at < to; l->at++)
        if (l->s[l->at] == '\n') {
            l->line++;
            l->line_at = l->at + 1;
        }
    l->c->line = l->line;
    l->c->column = (uint32_t)(l->at - l->line_at) + 1;
}

struct tpl_token *tpl_lex_token(struct tpl_lexer *l, enum tpl_token_type type)
{
    if (l->n_v == l->cap) {
        uint64_t          cap = l->cap ? l->cap * 2 : 64;
        struct tpl_token *v = tpl_grow(l->c, l->v, l->n_v, cap, sizeof *v);
        if (!v)
            return NULL;
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n_v] = (struct tpl_token){ .type = type, .line = l->c->line, .column = l->c->column };
    return &l->v[l->n_v++];
}

bool tpl_lex_at(const struct tpl_lexer *l, uint64_t i, const char *s)
{
    uint64_t n = strlen(s);
    return i <= l->n && n <= l->n - i && memcmp(l->s + i, s, n) == 0;
}

uint64_t tpl_lex_after_space(const struct tpl_lexer *l, uint64_t i)
{
    unsigned len;
    while (i < l->n && tpl_is_space(tpl_char(l->s + i, l->n - i, &len)))
        i += len;
    return i;
}

static unsigned hex(const char *s, uint64_t n, uint32_t *out)
{
    uint32_t v = 0;
    for (uint64_t i = 0; i < n; i++) {
        char        ch = s[i];
        const char *digit =
            ch ? strchr("0123456789abcdef", ch >= 'A' && ch <= 'F' ? ch + 32 : ch) : NULL;
        if (!digit)
            return 0;
        v = v << 4 | (uint32_t)(digit - "0123456789abcdef");
    }
    *out = v;
    return 1;
}

/* The escape after a backslash at s: bytes that it has. */
static tsr_status unescape(struct tpl_lexer *l, const char *s, uint64_t n, struct tpl_build *b,
                           uint64_t *used)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char       *simple = *s ? strchr(from, *s) : NULL;
    char              out[4];
    uint32_t          ch = 0;
    uint64_t          digits = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    *used = 1;
    if (*s == '\n')
        return TSR_OK;
    if (simple)
        return tpl_add_own(l->c, b, &to[simple - from], 1);
    if (*s >= '0' && *s <= '7') {
        for (*used = 0; *used < 3 && *used < n && s[*used] >= '0' && s[*used] <= '7'; ++*used)
            ch = ch << 3 | (uint32_t)(s[*used] - '0');
        return tpl_add_own(l->c, b, out, tpl_put_char(out, ch));
    }
    if (digits) {
        if (n < 1 + digits || !hex(s + 1, digits, &ch) || ch > 0x10ffff ||
            (ch >= 0xd800 && ch < 0xe000))
            return tpl_fail(l->c, "a text has an escape \\%c that is not a character", *s);
        *used = 1 + digits;
        return tpl_add_own(l->c, b, out, tpl_put_char(out, ch));
    }
    if (*s == 'N')
        return tpl_fail(l->c, "a text has an escape \\N, which is not supported");
    *used = 0;
    return tpl_add_own(l->c, b, "\\", 1);
}

tsr_status tpl_lex_string(struct tpl_lexer *l)
{
    char             quote = l->s[l->at];
    uint64_t         i = l->at + 1;
    struct tpl_build b = { 0 };
    struct tpl_value v;
    while (i < l->n && l->s[i] != quote) {
        uint64_t from = i, used;
        while (i < l->n && l->s[i] != quote && l->s[i] != '\\')
            i++;
        TSR_TRY(tpl_add_own(l->c, &b, l->s + from, i - from));
        if (i < l->n && l->s[i] == '\\') {
            if (++i == l->n)
                break;
            TSR_TRY(unescape(l, l->s + i, l->n - i, &b, &used));
            i += used;
        }
    }
    if (i >= l->n)
        return tpl_fail(l->c, "a text has no end");
    TSR_TRY(tpl_finish(l->c, &b, &v));
    struct tpl_token *t = tpl_lex_token(l, TPL_T_STRING);
    if (!t)
        return tpl_failed(l->c);
    t->text = v.s;
    tpl_lex_move(l, i + 1);
    return TSR_OK;
}

static bool is_digit(const struct tpl_lexer *l, uint64_t i)
{
    return i < l->n && l->s[i] >= '0' && l->s[i] <= '9';
}

/* Digits that may be separated by single "_". */
static uint64_t digits(const struct tpl_lexer *l, uint64_t i)
{
    while (is_digit(l, i) || (i < l->n && l->s[i] == '_' && is_digit(l, i + 1)))
        i++;
    return i;
}

tsr_status tpl_lex_number(struct tpl_lexer *l)
{
    char     text[400];
    uint64_t i = digits(l, l->at), n = 0;
    bool     real = false, whole = l->at > 0 && l->s[l->at - 1] == '.';
    int      base = 10;
    if (!whole && i < l->n && l->s[i] == '.' && is_digit(l, i + 1)) {
        real = true;
        i = digits(l, i + 1);
    }
    if (!whole && i < l->n && (l->s[i] | 32) == 'e') {
        uint64_t e = i + 1 + (i + 1 < l->n && (l->s[i + 1] == '+' || l->s[i + 1] == '-'));
        if (is_digit(l, e)) {
            real = true;
            i = digits(l, e);
        }
    }
    if (!real && l->s[l->at] == '0' && i > l->at + 1) /* 00 is a number, 01 is not */
        for (i = l->at + 1; i < l->n && l->s[i] == '0';)
            i++;
    if (!real && i == l->at + 1 && l->s[l->at] == '0' && i < l->n && strchr("xXoObB", l->s[i]) &&
        l->s[i])
        return tpl_fail(l->c, "numbers are decimal here");
    if (i - l->at >= sizeof text)
        return tpl_fail(l->c, "a number has too many digits");
    for (uint64_t k = l->at; k < i; k++)
        if (l->s[k] != '_')
            text[n++] = l->s[k];
    text[n] = '\0';
    struct tpl_token *t = tpl_lex_token(l, real ? TPL_T_FLOAT : TPL_T_INT);
    if (!t)
        return tpl_failed(l->c);
    errno = 0;
    if (real)
        t->f = strtod(text, NULL);
    else
        t->i = strtoll(text, NULL, base);
    if (!real && errno)
        return tpl_fail(l->c, "a number has more than 64 bits");
    tpl_lex_move(l, i);
    return TSR_OK;
}

bool tpl_lex_is_name(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_' || (unsigned char)ch >= 0x80;
}

tsr_status tpl_lex_name(struct tpl_lexer *l)
{
    uint64_t         i = l->at;
    struct tpl_value v;
    while (i < l->n && tpl_lex_is_name(l->s[i]))
        i++;
    TSR_TRY(tpl_own(l->c, l->s + l->at, i - l->at, &v));
    const struct tpl_text *text = tpl_intern(l->c, v.s);
    if (!text)
        return tpl_failed(l->c);
    struct tpl_token *t = tpl_lex_token(l, TPL_T_NAME);
    if (!t)
        return tpl_failed(l->c);
    t->text = text;
    tpl_lex_move(l, i);
    return TSR_OK;
}

static tsr_status balance(struct tpl_lexer *l, char op)
{
    static const char open[] = "([{", close[] = ")]}";
    const char       *o = strchr(open, op), *k = strchr(close, op);
    if (o) {
        if (l->n_open == sizeof l->open)
            return tpl_fail(l->c, "more than %d open brackets", TPL_MAX_DEPTH);
        l->open[l->n_open++] = close[o - open];
    } else if (k) {
        if (l->n_open == 0 || l->open[l->n_open - 1] != op)
            return tpl_fail(l->c, "'%c' closes nothing", op);
        l->n_open--;
    }
    return TSR_OK;
}

tsr_status tpl_lex_op(struct tpl_lexer *l)
{
    static const char two[][3] = { "//", "**", "==", "!=", ">=", "<=" };
    uint64_t          n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (tpl_lex_at(l, l->at, two[i]))
            n = 2;
    char ch = l->s[l->at];
    if (n == 1 && (!ch || !strchr("+-/*%~[](){}><=.:|,;", ch)))
        return tpl_fail(l->c, "the character '%.*s' has no meaning here",
                        (unsigned char)ch < 0x80 ? 1 : 0, &l->s[l->at]);
    if (n == 1)
        TSR_TRY(balance(l, ch));
    struct tpl_token *t = tpl_lex_token(l, TPL_T_OP);
    if (!t)
        return tpl_failed(l->c);
    memcpy(t->op, l->s + l->at, n);
    tpl_lex_move(l, l->at + n);
    return TSR_OK;
}
