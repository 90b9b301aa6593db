/* Sets of a pattern, [a-z&&[^aeiou]] and the like: nested ones and && become alternatives and lookaheads. */
#include "tokenizer/syntax.h"

#include <string.h>

struct set {
    struct tsr_tokenizer_text flat; /* inside of a PCRE2 class          */
    struct tsr_tokenizer_text alts; /* "|expr" for what does not fit in */
    struct tsr_tokenizer_text ands; /* "(?=expr)" of operands before && */
};

static tsr_status add_text(struct tok_syntax *x, struct tsr_tokenizer_text *t, const char *s)
{
    return tsr_tokenizer_text_append(t, s, strlen(s), x->err);
}

/* The current operand as an expression. */
static tsr_status operand(struct tok_syntax *x, struct set *s, struct tsr_tokenizer_text *out)
{
    if (!s->flat.n && !s->alts.n)
        return tok_syntax_refuse(x, "an empty set");
    if (!s->alts.n) {
        TSR_TRY(add_text(x, out, "["));
        TSR_TRY(tsr_tokenizer_text_append(out, s->flat.v, s->flat.n, x->err));
        return add_text(x, out, "]");
    }
    TSR_TRY(add_text(x, out, "(?:"));
    uint64_t skip = 1; /* the first bar */
    if (s->flat.n) {
        TSR_TRY(add_text(x, out, "["));
        TSR_TRY(tsr_tokenizer_text_append(out, s->flat.v, s->flat.n, x->err));
        TSR_TRY(add_text(x, out, "]"));
        skip = 0;
    }
    TSR_TRY(tsr_tokenizer_text_append(out, s->alts.v + skip, s->alts.n - skip, x->err));
    return add_text(x, out, ")");
}

static tsr_status posix(struct tok_syntax *x, struct set *s, bool *got)
{
    static const char *const name[][2] = {
        { "alpha", "\\p{Alphabetic}" },
        { "digit", "\\p{Nd}" },
        { "space", TOK_SPACE },
        { "upper", "\\p{Uppercase}" },
        { "lower", "\\p{Lowercase}" },
        { "cntrl", "\\p{Cc}" },
        { "alnum", "\\p{Alphabetic}\\p{Nd}" },
        { "xdigit", TOK_HEX },
        { "word", TOK_ALPHA },
        { "punct", "\\p{P}\\p{S}" },
        { "blank", "\\p{Zs}\\x{9}" },
    };
    *got = false;
    const char *from = x->s + x->i + 2;
    const char *end = memmem(from, x->n - x->i - 2, ":]", 2);
    if (!end || end - from > 8)
        return TSR_OK;
    *got = true;
    for (unsigned k = 0; k < sizeof name / sizeof *name; k++) {
        if (strlen(name[k][0]) == (size_t)(end - from) &&
            memcmp(name[k][0], from, (size_t)(end - from)) == 0) {
            x->i = (uint64_t)(end - x->s) + 2;
            return add_text(x, &s->flat, name[k][1]);
        }
    }
    return tok_syntax_refuse(x, "a POSIX bracket of that name");
}

/* A shorthand or tok_syntax_property inside a set, from after the backslash. */
static tsr_status set_escape(struct tok_syntax *x, struct set *s)
{
    switch (x->s[x->i++]) {
    case 's':
        return add_text(x, &s->flat, TOK_SPACE);
    case 'S':
        return add_text(x, &s->flat, TOK_NOSPACE);
    case 'w':
        return add_text(x, &s->flat, TOK_ALPHA);
    case 'W':
        return add_text(x, &s->alts, "|[^" TOK_ALPHA "]");
    case 'd':
        return add_text(x, &s->flat, "\\p{Nd}");
    case 'D':
        return add_text(x, &s->flat, "\\P{Nd}");
    case 'h':
        return add_text(x, &s->flat, TOK_HEX);
    case 'H':
        return add_text(x, &s->alts, "|[^" TOK_HEX "]");
    case 'p':
        return tok_syntax_property(x, false, &s->flat);
    case 'P':
        return tok_syntax_property(x, true, &s->flat);
    case 'b':
        return add_text(x, &s->flat, "\\x{8}");
    default:
        x->i--;
        return tok_syntax_refuse(x, "this escape inside a set");
    }
}

static tsr_status set_parse(struct tok_syntax *x, struct tsr_tokenizer_text *flat,
                            struct tsr_tokenizer_text *expr);

/* One item of a set: nested set, shorthand, character or range. */
static tsr_status set_item(struct tok_syntax *x, struct set *s)
{
    char     c = x->s[x->i];
    bool     got = true;
    uint32_t lo, hi;
    unsigned len;
    if (c == '[') {
        if (x->i + 1 < x->n && x->s[x->i + 1] == ':') {
            TSR_TRY(posix(x, s, &got));
            if (got)
                return TSR_OK;
        }
        struct tsr_tokenizer_text flat = { 0 }, expr = { 0 };
        tsr_status                st = set_parse(x, &flat, &expr);
        if (st == TSR_OK && flat.n)
            st = tsr_tokenizer_text_append(&s->flat, flat.v, flat.n, x->err);
        if (st == TSR_OK && expr.n) {
            st = add_text(x, &s->alts, "|");
            if (st == TSR_OK)
                st = tsr_tokenizer_text_append(&s->alts, expr.v, expr.n, x->err);
        }
        tsr_tokenizer_text_free(&flat);
        tsr_tokenizer_text_free(&expr);
        return st;
    }
    if (c == '\\') {
        if (++x->i >= x->n)
            return tok_syntax_refuse(x, "a backslash at the end");
        TSR_TRY(tok_syntax_escape_char(x, &lo, &got));
        if (!got)
            return set_escape(x, s);
    } else {
        lo = tok_char(x->s + x->i, x->n - x->i, &len);
        x->i += len;
    }
    TSR_TRY(tok_syntax_put_code(&s->flat, lo, x->err));
    if (x->i + 1 >= x->n || x->s[x->i] != '-' || x->s[x->i + 1] == ']' || x->s[x->i + 1] == '[')
        return TSR_OK;
    uint64_t back = x->i++;
    if (x->s[x->i] == '\\') {
        if (++x->i >= x->n)
            return tok_syntax_refuse(x, "a backslash at the end");
        TSR_TRY(tok_syntax_escape_char(x, &hi, &got));
        if (!got) { /* [a-\d]: the bar is a character */
            x->i = back + 1;
            return tok_syntax_put_code(&s->flat, '-', x->err);
        }
    } else {
        hi = tok_char(x->s + x->i, x->n - x->i, &len);
        x->i += len;
    }
    if (hi < lo)
        return tok_syntax_refuse(x, "a range out of order");
    TSR_TRY(add_text(x, &s->flat, "-"));
    return tok_syntax_put_code(&s->flat, hi, x->err);
}

static tsr_status set_body(struct tok_syntax *x, struct set *s, bool negated,
                           struct tsr_tokenizer_text *flat, struct tsr_tokenizer_text *expr)
{
    bool first = true;
    for (;; first = false) {
        if (x->i >= x->n)
            return tok_syntax_refuse(x, "[ without ]");
        if (x->s[x->i] == ']' && !first)
            break;
        if (x->s[x->i] == '&' && x->i + 1 < x->n && x->s[x->i + 1] == '&') {
            x->i += 2;
            TSR_TRY(add_text(x, &s->ands, "(?="));
            TSR_TRY(operand(x, s, &s->ands));
            TSR_TRY(add_text(x, &s->ands, ")"));
            s->flat.n = s->alts.n = 0;
            continue;
        }
        TSR_TRY(set_item(x, s));
    }
    x->i++;
    if (!s->ands.n && !s->alts.n) {
        if (!s->flat.n)
            return tok_syntax_refuse(x, "an empty set");
        if (!negated)
            return tsr_tokenizer_text_append(flat, s->flat.v, s->flat.n, x->err);
        TSR_TRY(add_text(x, expr, "[^"));
        TSR_TRY(tsr_tokenizer_text_append(expr, s->flat.v, s->flat.n, x->err));
        return add_text(x, expr, "]");
    }
    TSR_TRY(add_text(x, expr, negated ? "(?:(?!" : "(?:"));
    TSR_TRY(tsr_tokenizer_text_append(expr, s->ands.v, s->ands.n, x->err));
    TSR_TRY(operand(x, s, expr));
    return add_text(x, expr, negated ? ")(?s:.))" : ")");
}

/* A set from its '['.  A plain list goes to flat, everything else to expr. */
static tsr_status set_parse(struct tok_syntax *x, struct tsr_tokenizer_text *flat,
                            struct tsr_tokenizer_text *expr)
{
    if (++x->classes > 16)
        return tok_syntax_refuse(x, "sets nested deeper than 16");
    x->i++;
    bool negated = x->i < x->n && x->s[x->i] == '^';
    x->i += negated;
    struct set s = { 0 };
    tsr_status st = set_body(x, &s, negated, flat, expr);
    tsr_tokenizer_text_free(&s.flat);
    tsr_tokenizer_text_free(&s.alts);
    tsr_tokenizer_text_free(&s.ands);
    x->classes--;
    return st;
}

tsr_status tok_syntax_set(struct tok_syntax *x)
{
    struct tsr_tokenizer_text flat = { 0 }, expr = { 0 };
    tsr_status                st = set_parse(x, &flat, &expr);
    if (st == TSR_OK && expr.n)
        st = tsr_tokenizer_text_append(x->out, expr.v, expr.n, x->err);
    if (st == TSR_OK && flat.n) {
        st = tok_syntax_put(x, "[");
        if (st == TSR_OK)
            st = tsr_tokenizer_text_append(x->out, flat.v, flat.n, x->err);
        if (st == TSR_OK)
            st = tok_syntax_put(x, "]");
    }
    tsr_tokenizer_text_free(&flat);
    tsr_tokenizer_text_free(&expr);
    return st;
}
