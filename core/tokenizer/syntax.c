/* syntax.c - patterns of tokenizer.json are Oniguruma's (Ruby syntax); PCRE2 gets them translated,
 * so that \s, \w, \h, \v, nested sets, &&, options and repeated quantifiers keep their meaning.
 * Constructs without an equivalent are rejected by name. */
#include "tokenizer/syntax.h"

#include <string.h>

#define NO_ATOM UINT64_MAX

static tsr_status escape(struct tok_syntax *x)
{
    uint32_t c;
    bool     got;
    if (++x->i >= x->n)
        return tok_syntax_refuse(x, "a backslash at the end");
    TSR_TRY(tok_syntax_escape_char(x, &c, &got));
    if (got)
        return tok_syntax_put_code(x->out, c, x->err);
    char e = x->s[x->i++];
    switch (e) {
    case 's':
        return tok_syntax_put(x, "[" TOK_SPACE "]");
    case 'S':
        return tok_syntax_put(x, "[^" TOK_SPACE "]");
    case 'w':
        return tok_syntax_put(x, "[" TOK_WORD "]");
    case 'W':
        return tok_syntax_put(x, "[^" TOK_WORD "]");
    case 'd':
        return tok_syntax_put(x, "\\p{Nd}");
    case 'D':
        return tok_syntax_put(x, "\\P{Nd}");
    case 'h':
        return tok_syntax_put(x, "[" TOK_HEX "]");
    case 'H':
        return tok_syntax_put(x, "[^" TOK_HEX "]");
    case 'p':
        return tok_syntax_property(x, false, x->out);
    case 'P':
        return tok_syntax_property(x, true, x->out);
    case 'b':
        return tok_syntax_put(x, "(?:(?<=[" TOK_WORD "])(?![" TOK_WORD "])|(?<![" TOK_WORD
                                 "])(?=[" TOK_WORD "]))");
    case 'B':
        return tok_syntax_put(x, "(?:(?<=[" TOK_WORD "])(?=[" TOK_WORD "])|(?<![" TOK_WORD
                                 "])(?![" TOK_WORD "]))");
    case 'A':
    case 'z':
    case 'Z':
    case 'G':
    case 'R':
    case 'X':
        return tsr_tokenizer_text_append(x->out, x->s + x->i - 2, 2, x->err);
    default:
        if (e >= '1' && e <= '9' && (x->i >= x->n || x->s[x->i] < '0' || x->s[x->i] > '9'))
            return tsr_tokenizer_text_append(x->out, x->s + x->i - 2, 2, x->err);
        x->i -= 2;
        return tok_syntax_refuse(x, "this escape");
    }
}

static tsr_status group_open(struct tok_syntax *x)
{
    static const char *const plain[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>" };
    if (x->depth >= TOK_MAX_NEST)
        return tok_syntax_refuse(x, "groups nested deeper than 64");
    uint64_t left = x->n - x->i;
    if (left < 2 || x->s[x->i + 1] != '?') {
        x->group[++x->depth] = (struct tok_syntax_group){ x->out->n, 0 };
        x->i++;
        return tok_syntax_put(x, "(");
    }
    for (unsigned k = 0; k < sizeof plain / sizeof *plain; k++) {
        size_t len = strlen(plain[k]);
        if (left >= len && memcmp(x->s + x->i, plain[k], len) == 0) {
            x->group[++x->depth] = (struct tok_syntax_group){ x->out->n, 0 };
            x->i += len;
            return tok_syntax_put(x, plain[k]);
        }
    }
    /* options: Ruby's m is PCRE2's s; "(?i)" reaches to the end of its group, bars included */
    char     flags[16] = "(?";
    unsigned k = 2;
    uint64_t j = x->i + 2;
    for (; j < x->n && k + 2 < sizeof flags && strchr("im-", x->s[j]) && x->s[j]; j++)
        flags[k++] = x->s[j] == 'm' ? 's' : x->s[j];
    if (j >= x->n || k == 2 || (x->s[j] != ':' && x->s[j] != ')'))
        return tok_syntax_refuse(x, "this kind of group");
    flags[k++] = ':';
    flags[k] = '\0';
    if (x->s[j] == ':')
        x->group[++x->depth] = (struct tok_syntax_group){ x->out->n, 0 };
    else
        x->group[x->depth].closes++;
    x->i = j + 1;
    return tok_syntax_put(x, flags);
}

/* {n}, {n,}, {n,m}, {,m}: their text for PCRE2, or false for a brace that is a character. */
static bool interval(struct tok_syntax *x, char text[32])
{
    uint64_t j = x->i + 1;
    unsigned v[2] = { 0, 0 }, digits[2] = { 0, 0 };
    bool     comma = false;
    for (; j < x->n && x->s[j] != '}'; j++) {
        if (x->s[j] == ',' && !comma) {
            comma = true;
        } else if (x->s[j] >= '0' && x->s[j] <= '9' && digits[comma] < 6) {
            v[comma] = v[comma] * 10 + (unsigned)(x->s[j] - '0');
            digits[comma]++;
        } else {
            return false;
        }
    }
    if (j >= x->n || !(digits[0] || digits[1]))
        return false;
    x->i = j + 1;
    if (!comma)
        (void)snprintf(text, 32, "{%u}", v[0]);
    else if (!digits[1])
        (void)snprintf(text, 32, "{%u,}", v[0]);
    else
        (void)snprintf(text, 32, "{%u,%u}", v[0], v[1]);
    return true;
}

/* Puts "(?:" ")" around the last atom. */
static tsr_status wrap(struct tok_syntax *x)
{
    TSR_TRY(tok_syntax_put(x, ")(?:")); /* room for both; then the tail moves after them */
    uint64_t n = x->out->n - 4 - x->atom;
    memmove(x->out->v + x->atom + 3, x->out->v + x->atom, n);
    memcpy(x->out->v + x->atom, "(?:", 3);
    x->out->v[x->atom + 3 + n] = ')';
    return TSR_OK;
}

static tsr_status quantifier(struct tok_syntax *x, bool *literal)
{
    char text[32] = { x->s[x->i], '\0' };
    bool brace = text[0] == '{';
    *literal = false;
    if (brace && !interval(x, text)) {
        *literal = true;
        return TSR_OK;
    }
    if (!brace)
        x->i++;
    if (x->atom == NO_ATOM)
        return tok_syntax_refuse(x, "a quantifier without a target");
    if (x->quantified)
        TSR_TRY(wrap(x));
    TSR_TRY(tok_syntax_put(x, text));
    x->quantified = true;
    char next = x->i < x->n ? x->s[x->i] : '\0';
    if (next == '?' && brace && !strchr(text, ',')) /* {n}? is an optional {n} */
        return TSR_OK;
    if (next == '?' || (next == '+' && !brace)) { /* {n,m}+ repeats, it is not possessive */
        x->i++;
        return tok_syntax_put(x, next == '?' ? "?" : "+");
    }
    return TSR_OK;
}

static tsr_status step(struct tok_syntax *x)
{
    char     c = x->s[x->i];
    uint64_t start = x->out->n;
    bool     flag;
    unsigned len;
    if (c == '*' || c == '+' || c == '?' || c == '{') {
        TSR_TRY(quantifier(x, &flag));
        if (!flag)
            return TSR_OK;
    }
    if (c == '(') {
        TSR_TRY(group_open(x));
        x->atom = NO_ATOM;
    } else if (c == ')') {
        if (!x->depth)
            return tok_syntax_refuse(x, "an unmatched parenthesis");
        struct tok_syntax_group g = x->group[x->depth--];
        for (unsigned k = 0; k < g.closes; k++)
            TSR_TRY(tok_syntax_put(x, ")"));
        TSR_TRY(tok_syntax_put(x, ")"));
        x->i++;
        x->atom = g.at;
    } else if (c == '|' || c == '^' || c == '$') {
        TSR_TRY(tsr_tokenizer_text_append(x->out, &c, 1, x->err));
        x->i++;
        x->atom = c == '|' ? NO_ATOM : start;
    } else {
        x->atom = start;
        if (c == '\\') {
            TSR_TRY(escape(x));
        } else if (c == '[') {
            TSR_TRY(tok_syntax_set(x));
        } else if (c == '.') {
            TSR_TRY(tok_syntax_put(x, "."));
            x->i++;
        } else {
            uint32_t u = tok_char(x->s + x->i, x->n - x->i, &len);
            TSR_TRY(tok_syntax_put_code(x->out, u, x->err));
            x->i += len;
        }
    }
    x->quantified = false;
    return TSR_OK;
}

tsr_status tok_syntax(struct tsr_tokenizer_text *out, const char *name, const char *pattern,
                      uint64_t n, struct tsr_err *err)
{
    struct tok_syntax x = {
        .s = pattern, .n = n, .name = name, .out = out, .atom = NO_ATOM, .err = err
    };
    while (x.i < x.n)
        TSR_TRY(step(&x));
    if (x.depth)
        return tok_syntax_refuse(&x, "an unclosed parenthesis");
    for (unsigned k = 0; k < x.group[0].closes; k++)
        TSR_TRY(tok_syntax_put(&x, ")"));
    return TSR_OK;
}
