/* The characters and properties of a pattern, and what is put out for them. */
#include "tokenizer/syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string.h>
#include <strings.h>

tsr_status tok_syntax_put(struct tok_syntax *x, const char *text)
{
    return tsr_tokenizer_text_append(x->out, text, strlen(text), x->err);
}

tsr_status tok_syntax_refuse(struct tok_syntax *x, const char *what)
{
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: the regex feature %s at byte %llu of a pattern is not supported", x->name,
                    what, (unsigned long long)x->i);
}

tsr_status tok_syntax_put_code(struct tsr_tokenizer_text *out, uint32_t c, struct tsr_err *err)
{
    char b[16];
    int  n = c < 0x80 && ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
                 ? snprintf(b, sizeof b, "%c", (char)c)
                 : snprintf(b, sizeof b, "\\x{%X}", c);
    return tsr_tokenizer_text_append(out, b, (uint64_t)n, err);
}

/* Hex digits from x->i; false if there are none or the number is not a code point. */
static bool take_hex(struct tok_syntax *x, unsigned max, uint32_t *c)
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

tsr_status tok_syntax_property(struct tok_syntax *x, bool negated, struct tsr_tokenizer_text *out)
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
        return tok_syntax_refuse(x, "\\p without braces");
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
        return tok_syntax_refuse(x, "\\p with a long name");
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
                        "%s: the character tok_syntax_property \"%s\" of a regex is not known",
                        x->name, name);
    return tsr_tokenizer_text_append(out, probe, strlen(probe), x->err);
}

tsr_status tok_syntax_escape_char(struct tok_syntax *x, uint32_t *c, bool *got)
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
        if (!take_hex(x, wide ? 8 : byte ? 2 : 4, c) || (byte && *c >= 0x80))
            return tok_syntax_refuse(x, "\\x or \\u without a character's number");
        if (wide && (x->i >= x->n || x->s[x->i++] != '}'))
            return tok_syntax_refuse(x, "\\x{ without }");
    } else if (*c == '0') {
        uint32_t v = 0;
        for (unsigned k = 0; k < 3 && x->i < x->n && x->s[x->i] >= '0' && x->s[x->i] <= '7'; k++)
            v = v << 3 | (uint32_t)(x->s[x->i++] - '0');
        *c = v;
        if (v >= 0x80)
            return tok_syntax_refuse(x, "an octal byte");
    } else if (*c >= 0x80 ||
               !((*c >= '0' && *c <= '9') || ((*c | 32) >= 'a' && (*c | 32) <= 'z'))) {
        x->i += len;
    } else {
        *got = false;
    }
    return TSR_OK;
}
