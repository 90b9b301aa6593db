/* tok_syntax.c - patterns of tokenizer.json are Oniguruma's (Ruby syntax); PCRE2 gets them
 * translated, so that \s, \w, \h, \v, nested sets, &&, options and repeated quantifiers mean
 * what they mean there.  What has no twin is refused by name. */
#include "model/tok.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>
#include <string.h>

#define SPACE                                                                                      \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}"                      \
    "\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define NOSPACE                                                                                    \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}"                   \
    "\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}"                 \
    "\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}"
#define ALPHA "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Oniguruma's \w has the six numbers of Latin-1 besides; inside a set it has not. */
#define WORD     ALPHA "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
#define HEX      "0-9a-fA-F"
#define MAX_NEST 64

struct group {
    uint64_t at;     /* in out */
    unsigned closes; /* isolated options opened inside it */
};

struct syntax {
    const char      *s, *name;
    uint64_t         n, i;
    struct tsr_text *out;
    uint64_t         atom; /* start of the last atom in out, or none */
    bool             quantified;
    struct group     group[MAX_NEST + 1];
    unsigned         depth, classes;
    struct tsr_err  *err;
};
#define NO_ATOM UINT64_MAX

static tsr_status put(struct syntax *x, const char *text)
{
    return tsr_text_append(x->out, text, strlen(text), x->err);
}

static tsr_status refuse(struct syntax *x, const char *what)
{
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: the regex feature %s at byte %llu of a pattern is not supported", x->name,
                    what, (unsigned long long)x->i);
}

static tsr_status put_code(struct tsr_text *out, uint32_t c, struct tsr_err *err)
{
    char b[16];
    int  n = c < 0x80 && ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
                 ? snprintf(b, sizeof b, "%c", (char)c)
                 : snprintf(b, sizeof b, "\\x{%X}", c);
    return tsr_text_append(out, b, (uint64_t)n, err);
}

/* Hex digits from x->i; false if there is none or the number is no code point. */
static bool hex(struct syntax *x, unsigned max, uint32_t *c)
{
    unsigned k = 0;
    *c = 0;
    for (; k < max && x->i < x->n; k++, x->i++) {
        char     d = x->s[x->i];
        uint32_t v;
        if (d >= '0' && d <= '9')
            v = (uint32_t)(d - '0');
        else if ((d | 32) >= 'a' && (d | 32) <= 'f')
            v = (uint32_t)((d | 32) - 'a' + 10);
        else
            break;
        *c = *c << 4 | v;
    }
    return k > 0 && *c <= 0x10ffff && (*c < 0xd800 || *c > 0xdfff);
}

static bool compiles(const char *pattern)
{
    int         code;
    PCRE2_SIZE  at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    pcre2_code_free(re);
    return re != NULL;
}

/* \p{name} from behind the p.  Scripts mean the script and not its extensions. */
static tsr_status property(struct syntax *x, bool negated, struct tsr_text *out)
{
    static const char *const category[][2] = {
        { "Letter", "L" },
        { "Mark", "M" },
        { "Number", "N" },
        { "Punctuation", "P" },
        { "Symbol", "S" },
        { "Separator", "Z" },
        { "Other", "C" },
        { "Uppercase_Letter", "Lu" },
        { "Lowercase_Letter", "Ll" },
        { "Titlecase_Letter", "Lt" },
        { "Modifier_Letter", "Lm" },
        { "Other_Letter", "Lo" },
        { "Nonspacing_Mark", "Mn" },
        { "Spacing_Mark", "Mc" },
        { "Enclosing_Mark", "Me" },
        { "Decimal_Number", "Nd" },
        { "Letter_Number", "Nl" },
        { "Other_Number", "No" },
        { "Space_Separator", "Zs" },
        { "Digit", "Nd" },
        { "Punct", "P" },
        { "Alpha", "Alphabetic" },
        { "Upper", "Uppercase" },
        { "Lower", "Lowercase" },
        { "Control", "Cc" },
        { "Format", "Cf" },
        { "Space", "White_Space" },
    };
    char name[48], probe[80];
    if (x->i >= x->n || x->s[x->i] != '{')
        return refuse(x, "\\p without braces");
    x->i++;
    if (x->i < x->n && x->s[x->i] == '^') {
        negated = !negated;
        x->i++;
    }
    unsigned k = 0;
    while (x->i < x->n && x->s[x->i] != '}' && k + 1 < sizeof name)
        name[k++] = x->s[x->i++];
    name[k] = '\0';
    if (x->i >= x->n || x->s[x->i] != '}')
        return refuse(x, "\\p with a long name");
    x->i++;
    const char *use = name;
    for (unsigned c = 0; c < sizeof category / sizeof *category; c++)
        if (strcasecmp(name, category[c][0]) == 0)
            use = category[c][1];
    (void)snprintf(probe, sizeof probe, "\\%c{sc:%s}", negated ? 'P' : 'p', use);
    if (strlen(use) <= 2 || strpbrk(use, "^{:=&") || !compiles(probe))
        (void)snprintf(probe, sizeof probe, "\\%c{%s}", negated ? 'P' : 'p', use);
    if (strpbrk(use, "^{:=&") || !compiles(probe))
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: the character property \"%s\" of a regex is not known", x->name, name);
    return tsr_text_append(out, probe, strlen(probe), x->err);
}

/* An escape that stands for one character, from behind the backslash; *got is false for others. */
static tsr_status escape_char(struct syntax *x, uint32_t *c, bool *got)
{
    static const char from[] = "nrtfvae", to[] = "\n\r\t\f\v\a\x1b";
    unsigned          len;
    *got = true;
    *c = tok_char(x->s + x->i, x->n - x->i, &len);
    const char *simple = *c && *c < 0x80 ? strchr(from, (int)*c) : NULL;
    if (simple) {
        *c = (unsigned char)to[simple - from];
        x->i++;
    } else if (*c == 'x' || *c == 'u') {
        bool wide = *c == 'x' && x->i + 1 < x->n && x->s[x->i + 1] == '{';
        bool byte = *c == 'x' && !wide;
        x->i += wide ? 2 : 1;
        if (!hex(x, wide ? 8 : byte ? 2 : 4, c) || (byte && *c >= 0x80))
            return refuse(x, "\\x or \\u without a character's number");
        if (wide && (x->i >= x->n || x->s[x->i++] != '}'))
            return refuse(x, "\\x{ without }");
    } else if (*c == '0') {
        uint32_t v = 0;
        for (unsigned k = 0; k < 3 && x->i < x->n && x->s[x->i] >= '0' && x->s[x->i] <= '7'; k++)
            v = v << 3 | (uint32_t)(x->s[x->i++] - '0');
        *c = v;
        if (v >= 0x80)
            return refuse(x, "an octal byte");
    } else if (*c >= 0x80 ||
               !((*c >= '0' && *c <= '9') || ((*c | 32) >= 'a' && (*c | 32) <= 'z'))) {
        x->i += len;
    } else {
        *got = false;
    }
    return TSR_OK;
}

/* ---- sets -------------------------------------------------------------- */

struct set {
    struct tsr_text flat; /* inside of a PCRE2 class          */
    struct tsr_text alts; /* "|expr" for what does not fit in */
    struct tsr_text ands; /* "(?=expr)" of operands before && */
};

static tsr_status add_text(struct syntax *x, struct tsr_text *t, const char *s)
{
    return tsr_text_append(t, s, strlen(s), x->err);
}

/* The current operand as an expression. */
static tsr_status operand(struct syntax *x, struct set *s, struct tsr_text *out)
{
    if (!s->flat.n && !s->alts.n)
        return refuse(x, "an empty set");
    if (!s->alts.n) {
        TSR_TRY(add_text(x, out, "["));
        TSR_TRY(tsr_text_append(out, s->flat.v, s->flat.n, x->err));
        return add_text(x, out, "]");
    }
    TSR_TRY(add_text(x, out, "(?:"));
    uint64_t skip = 1; /* the first bar */
    if (s->flat.n) {
        TSR_TRY(add_text(x, out, "["));
        TSR_TRY(tsr_text_append(out, s->flat.v, s->flat.n, x->err));
        TSR_TRY(add_text(x, out, "]"));
        skip = 0;
    }
    TSR_TRY(tsr_text_append(out, s->alts.v + skip, s->alts.n - skip, x->err));
    return add_text(x, out, ")");
}

static tsr_status posix(struct syntax *x, struct set *s, bool *got)
{
    static const char *const name[][2] = {
        { "alpha", "\\p{Alphabetic}" },
        { "digit", "\\p{Nd}" },
        { "space", SPACE },
        { "upper", "\\p{Uppercase}" },
        { "lower", "\\p{Lowercase}" },
        { "cntrl", "\\p{Cc}" },
        { "alnum", "\\p{Alphabetic}\\p{Nd}" },
        { "xdigit", HEX },
        { "word", ALPHA },
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
    return refuse(x, "a POSIX bracket of that name");
}

/* A shorthand or property inside a set, from behind the backslash. */
static tsr_status set_escape(struct syntax *x, struct set *s)
{
    switch (x->s[x->i++]) {
    case 's':
        return add_text(x, &s->flat, SPACE);
    case 'S':
        return add_text(x, &s->flat, NOSPACE);
    case 'w':
        return add_text(x, &s->flat, ALPHA);
    case 'W':
        return add_text(x, &s->alts, "|[^" ALPHA "]");
    case 'd':
        return add_text(x, &s->flat, "\\p{Nd}");
    case 'D':
        return add_text(x, &s->flat, "\\P{Nd}");
    case 'h':
        return add_text(x, &s->flat, HEX);
    case 'H':
        return add_text(x, &s->alts, "|[^" HEX "]");
    case 'p':
        return property(x, false, &s->flat);
    case 'P':
        return property(x, true, &s->flat);
    case 'b':
        return add_text(x, &s->flat, "\\x{8}");
    default:
        x->i--;
        return refuse(x, "this escape inside a set");
    }
}

static tsr_status set_parse(struct syntax *x, struct tsr_text *flat, struct tsr_text *expr);

/* One item of a set: nested set, shorthand, character or range. */
static tsr_status set_item(struct syntax *x, struct set *s)
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
        struct tsr_text flat = { 0 }, expr = { 0 };
        tsr_status      st = set_parse(x, &flat, &expr);
        if (st == TSR_OK && flat.n)
            st = tsr_text_append(&s->flat, flat.v, flat.n, x->err);
        if (st == TSR_OK && expr.n) {
            st = add_text(x, &s->alts, "|");
            if (st == TSR_OK)
                st = tsr_text_append(&s->alts, expr.v, expr.n, x->err);
        }
        tsr_text_free(&flat);
        tsr_text_free(&expr);
        return st;
    }
    if (c == '\\') {
        if (++x->i >= x->n)
            return refuse(x, "a backslash at the end");
        TSR_TRY(escape_char(x, &lo, &got));
        if (!got)
            return set_escape(x, s);
    } else {
        lo = tok_char(x->s + x->i, x->n - x->i, &len);
        x->i += len;
    }
    TSR_TRY(put_code(&s->flat, lo, x->err));
    if (x->i + 1 >= x->n || x->s[x->i] != '-' || x->s[x->i + 1] == ']' || x->s[x->i + 1] == '[')
        return TSR_OK;
    uint64_t back = x->i++;
    if (x->s[x->i] == '\\') {
        if (++x->i >= x->n)
            return refuse(x, "a backslash at the end");
        TSR_TRY(escape_char(x, &hi, &got));
        if (!got) { /* [a-\d]: the bar is a character */
            x->i = back + 1;
            return put_code(&s->flat, '-', x->err);
        }
    } else {
        hi = tok_char(x->s + x->i, x->n - x->i, &len);
        x->i += len;
    }
    if (hi < lo)
        return refuse(x, "a range out of order");
    TSR_TRY(add_text(x, &s->flat, "-"));
    return put_code(&s->flat, hi, x->err);
}

static tsr_status set_body(struct syntax *x, struct set *s, bool negated, struct tsr_text *flat,
                           struct tsr_text *expr)
{
    bool first = true;
    for (;; first = false) {
        if (x->i >= x->n)
            return refuse(x, "[ without ]");
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
            return refuse(x, "an empty set");
        if (!negated)
            return tsr_text_append(flat, s->flat.v, s->flat.n, x->err);
        TSR_TRY(add_text(x, expr, "[^"));
        TSR_TRY(tsr_text_append(expr, s->flat.v, s->flat.n, x->err));
        return add_text(x, expr, "]");
    }
    TSR_TRY(add_text(x, expr, negated ? "(?:(?!" : "(?:"));
    TSR_TRY(tsr_text_append(expr, s->ands.v, s->ands.n, x->err));
    TSR_TRY(operand(x, s, expr));
    return add_text(x, expr, negated ? ")(?s:.))" : ")");
}

/* A set from its '['.  What is a plain list goes to flat, all else to expr. */
static tsr_status set_parse(struct syntax *x, struct tsr_text *flat, struct tsr_text *expr)
{
    if (++x->classes > 16)
        return refuse(x, "sets nested deeper than 16");
    x->i++;
    bool negated = x->i < x->n && x->s[x->i] == '^';
    x->i += negated;
    struct set s = { 0 };
    tsr_status st = set_body(x, &s, negated, flat, expr);
    tsr_text_free(&s.flat);
    tsr_text_free(&s.alts);
    tsr_text_free(&s.ands);
    x->classes--;
    return st;
}

static tsr_status set_outside(struct syntax *x)
{
    struct tsr_text flat = { 0 }, expr = { 0 };
    tsr_status      st = set_parse(x, &flat, &expr);
    if (st == TSR_OK && expr.n)
        st = tsr_text_append(x->out, expr.v, expr.n, x->err);
    if (st == TSR_OK && flat.n) {
        st = put(x, "[");
        if (st == TSR_OK)
            st = tsr_text_append(x->out, flat.v, flat.n, x->err);
        if (st == TSR_OK)
            st = put(x, "]");
    }
    tsr_text_free(&flat);
    tsr_text_free(&expr);
    return st;
}

/* ---- outside of sets --------------------------------------------------- */

static tsr_status escape(struct syntax *x)
{
    uint32_t c;
    bool     got;
    if (++x->i >= x->n)
        return refuse(x, "a backslash at the end");
    TSR_TRY(escape_char(x, &c, &got));
    if (got)
        return put_code(x->out, c, x->err);
    char e = x->s[x->i++];
    switch (e) {
    case 's':
        return put(x, "[" SPACE "]");
    case 'S':
        return put(x, "[^" SPACE "]");
    case 'w':
        return put(x, "[" WORD "]");
    case 'W':
        return put(x, "[^" WORD "]");
    case 'd':
        return put(x, "\\p{Nd}");
    case 'D':
        return put(x, "\\P{Nd}");
    case 'h':
        return put(x, "[" HEX "]");
    case 'H':
        return put(x, "[^" HEX "]");
    case 'p':
        return property(x, false, x->out);
    case 'P':
        return property(x, true, x->out);
    case 'b':
        return put(x, "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))");
    case 'B':
        return put(x, "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))");
    case 'A':
    case 'z':
    case 'Z':
    case 'G':
    case 'R':
    case 'X':
        return tsr_text_append(x->out, x->s + x->i - 2, 2, x->err);
    default:
        if (e >= '1' && e <= '9' && (x->i >= x->n || x->s[x->i] < '0' || x->s[x->i] > '9'))
            return tsr_text_append(x->out, x->s + x->i - 2, 2, x->err);
        x->i -= 2;
        return refuse(x, "this escape");
    }
}

static tsr_status group_open(struct syntax *x)
{
    static const char *const plain[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>" };
    if (x->depth >= MAX_NEST)
        return refuse(x, "groups nested deeper than 64");
    uint64_t left = x->n - x->i;
    if (left < 2 || x->s[x->i + 1] != '?') {
        x->group[++x->depth] = (struct group){ x->out->n, 0 };
        x->i++;
        return put(x, "(");
    }
    for (unsigned k = 0; k < sizeof plain / sizeof *plain; k++) {
        size_t len = strlen(plain[k]);
        if (left >= len && memcmp(x->s + x->i, plain[k], len) == 0) {
            x->group[++x->depth] = (struct group){ x->out->n, 0 };
            x->i += len;
            return put(x, plain[k]);
        }
    }
    /* options: Ruby's m is PCRE2's s; "(?i)" reaches to the end of its group, bars included */
    char     flags[16] = "(?";
    unsigned k = 2;
    uint64_t j = x->i + 2;
    for (; j < x->n && k + 2 < sizeof flags && strchr("im-", x->s[j]) && x->s[j]; j++)
        flags[k++] = x->s[j] == 'm' ? 's' : x->s[j];
    if (j >= x->n || k == 2 || (x->s[j] != ':' && x->s[j] != ')'))
        return refuse(x, "this kind of group");
    flags[k++] = ':';
    flags[k] = '\0';
    if (x->s[j] == ':')
        x->group[++x->depth] = (struct group){ x->out->n, 0 };
    else
        x->group[x->depth].closes++;
    x->i = j + 1;
    return put(x, flags);
}

/* {n}, {n,}, {n,m}, {,m}: their text for PCRE2, or false for a brace that is a character. */
static bool interval(struct syntax *x, char text[32])
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
static tsr_status wrap(struct syntax *x)
{
    TSR_TRY(put(x, ")(?:")); /* room for both; then the tail moves behind */
    uint64_t n = x->out->n - 4 - x->atom;
    memmove(x->out->v + x->atom + 3, x->out->v + x->atom, n);
    memcpy(x->out->v + x->atom, "(?:", 3);
    x->out->v[x->atom + 3 + n] = ')';
    return TSR_OK;
}

static tsr_status quantifier(struct syntax *x, bool *literal)
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
        return refuse(x, "a quantifier without a target");
    if (x->quantified)
        TSR_TRY(wrap(x));
    TSR_TRY(put(x, text));
    x->quantified = true;
    char next = x->i < x->n ? x->s[x->i] : '\0';
    if (next == '?' && brace && !strchr(text, ',')) /* {n}? is an optional {n} */
        return TSR_OK;
    if (next == '?' || (next == '+' && !brace)) { /* {n,m}+ repeats, it is not possessive */
        x->i++;
        return put(x, next == '?' ? "?" : "+");
    }
    return TSR_OK;
}

static tsr_status step(struct syntax *x)
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
            return refuse(x, "an unmatched parenthesis");
        struct group g = x->group[x->depth--];
        for (unsigned k = 0; k < g.closes; k++)
            TSR_TRY(put(x, ")"));
        TSR_TRY(put(x, ")"));
        x->i++;
        x->atom = g.at;
    } else if (c == '|' || c == '^' || c == '$') {
        TSR_TRY(tsr_text_append(x->out, &c, 1, x->err));
        x->i++;
        x->atom = c == '|' ? NO_ATOM : start;
    } else {
        x->atom = start;
        if (c == '\\') {
            TSR_TRY(escape(x));
        } else if (c == '[') {
            TSR_TRY(set_outside(x));
        } else if (c == '.') {
            TSR_TRY(put(x, "."));
            x->i++;
        } else {
            uint32_t u = tok_char(x->s + x->i, x->n - x->i, &len);
            TSR_TRY(put_code(x->out, u, x->err));
            x->i += len;
        }
    }
    x->quantified = false;
    return TSR_OK;
}

tsr_status tok_syntax(struct tsr_text *out, const char *name, const char *pattern, uint64_t n,
                      struct tsr_err *err)
{
    struct syntax x = {
        .s = pattern, .n = n, .name = name, .out = out, .atom = NO_ATOM, .err = err
    };
    while (x.i < x.n)
        TSR_TRY(step(&x));
    if (x.depth)
        return refuse(&x, "an unclosed parenthesis");
    for (unsigned k = 0; k < x.group[0].closes; k++)
        TSR_TRY(put(&x, ")"));
    return TSR_OK;
}
