/* Methods of texts: upper and lower case, and questions about characters. */
#include "template/case_table.h"
#include "template/internal.h"

#include <string.h>
#include <utf8proc.h>

/* ---- properties --------------------------------------------------------- */

static utf8proc_category_t category(uint32_t ch)
{
    return utf8proc_category((utf8proc_int32_t)ch);
}
static bool is_lower(uint32_t ch)
{
    return category(ch) == UTF8PROC_CATEGORY_LL || ch == 0xaa || ch == 0xba;
}
static bool is_upper(uint32_t ch)
{
    return category(ch) == UTF8PROC_CATEGORY_LU;
}
static bool is_cased(uint32_t ch)
{
    return is_lower(ch) || is_upper(ch) || category(ch) == UTF8PROC_CATEGORY_LT;
}
static bool is_alpha(uint32_t ch)
{
    utf8proc_category_t k = category(ch);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
static bool is_digit(uint32_t ch)
{
    return category(ch) == UTF8PROC_CATEGORY_ND || ch == 0xb2 || ch == 0xb3 || ch == 0xb9 ||
           (ch >= 0x2070 && ch <= 0x2089 && category(ch) == UTF8PROC_CATEGORY_NO);
}
static bool is_decimal(uint32_t ch)
{
    return category(ch) == UTF8PROC_CATEGORY_ND;
}
static bool is_numeric(uint32_t ch)
{
    utf8proc_category_t k = category(ch);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}
static bool is_alnum(uint32_t ch)
{
    return is_alpha(ch) || is_numeric(ch);
}
static bool is_ascii(uint32_t ch)
{
    return ch < 0x80;
}

/* ---- changing case ------------------------------------------------------ */

/* Between two cased characters, others that do not count. */
static bool is_ignorable(uint32_t ch)
{
    utf8proc_category_t k = category(ch);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || ch == '\'' || ch == '.' ||
           ch == ':' || ch == 0xb7 || ch == 0x2018 || ch == 0x2019;
}

/* A capital sigma at the end of a word, after a letter that is not before `from`, has its own small letter. */
static bool ends_word(const struct tpl_text *t, uint64_t from, uint64_t at)
{
    unsigned len;
    uint64_t i = at;
    bool     after = false;
    while (i > from && !after) {
        do
            i--;
        while (i > 0 && ((unsigned char)t->s[i] & 0xc0) == 0x80);
        uint32_t ch = tpl_char(t->s + i, t->n - i, &len);
        after = is_cased(ch);
        if (!after && !is_ignorable(ch))
            return false;
    }
    if (!after)
        return false;
    for (i = at + 2; i < t->n; i += len) {
        uint32_t ch = tpl_char(t->s + i, t->n - i, &len);
        if (!is_ignorable(ch))
            return !is_cased(ch);
    }
    return true;
}

static tsr_status add_case(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_text *t,
                           uint64_t from, uint64_t at, uint32_t ch, enum tpl_case how)
{
    const struct tpl_case_row *row = how == TPL_LOWER ? NULL : tpl_case_find(ch);
    const char                *s = !row ? "" : how == TPL_UPPER ? row->upper : row->title;
    if (row) {
        for (unsigned len; *s; s += len)
            TSR_TRY(tpl_add_char(c, b, tpl_char(s, strlen(s), &len), t, at));
        return TSR_OK;
    }
    if (how != TPL_LOWER)
        ch = (uint32_t)(how == TPL_UPPER ? utf8proc_toupper((utf8proc_int32_t)ch)
                                         : utf8proc_totitle((utf8proc_int32_t)ch));
    else if (ch == 0x130) { /* i with a dot above */
        TSR_TRY(tpl_add_char(c, b, 'i', t, at));
        ch = 0x307;
    } else
        ch = ch == 0x3a3 && ends_word(t, from, at)
                 ? 0x3c2
                 : (uint32_t)utf8proc_tolower((utf8proc_int32_t)ch);
    return tpl_add_char(c, b, ch, t, at);
}

/* How the next character changes; begins: the word, as the filter title has words. */
static enum tpl_case case_of(enum tpl_case how, uint32_t ch, uint64_t at, bool after_cased,
                             bool begins)
{
    switch (how) {
    case TPL_CAPITALIZE:
        return at == 0 ? TPL_TITLE : TPL_LOWER;
    case TPL_TITLE:
        return after_cased ? TPL_LOWER : TPL_TITLE;
    case TPL_FILTER_TITLE:
        return begins ? TPL_UPPER : TPL_LOWER;
    case TPL_SWAPCASE:
        return is_upper(ch) ? TPL_LOWER : TPL_UPPER;
    default:
        return how;
    }
}

tsr_status tpl_change_case(struct tpl_ctx *c, const struct tpl_text *t, enum tpl_case how,
                           struct tpl_value *out)
{
    struct tpl_build b = { 0 };
    bool             cased = false, begins = true;
    uint64_t         from = 0; /* of the word, for its last letter */
    for (uint64_t i = 0; i < t->n;) {
        unsigned len;
        uint32_t ch = tpl_char(t->s + i, t->n - i, &len);
        if (begins && how == TPL_FILTER_TITLE)
            from = i + len;
        TSR_TRY(add_case(c, &b, t, from, i, ch, case_of(how, ch, i, cased, begins)));
        cased = is_cased(ch);
        begins = tpl_is_space(ch) || (ch < 0x80 && ch && strchr("-({[<", (char)ch));
        i += len;
    }
    return tpl_finish(c, &b, out);
}

bool tpl_is_case(const struct tpl_text *t, bool upper)
{
    bool any = false;
    for (uint64_t i = 0; i < t->n;) {
        unsigned len;
        uint32_t ch = tpl_char(t->s + i, t->n - i, &len);
        if (category(ch) == UTF8PROC_CATEGORY_LT || (upper ? is_lower(ch) : is_upper(ch)))
            return false;
        any = any || is_cased(ch);
        i += len;
    }
    return any;
}

/* ---- the methods -------------------------------------------------------- */

TPL_RUN(upper)
{
    return tpl_change_case(c, self->s, TPL_UPPER, out);
}
TPL_RUN(lower)
{
    return tpl_change_case(c, self->s, TPL_LOWER, out);
}
TPL_RUN(capitalize)
{
    return tpl_change_case(c, self->s, TPL_CAPITALIZE, out);
}
TPL_RUN(title)
{
    return tpl_change_case(c, self->s, TPL_TITLE, out);
}
TPL_RUN(swapcase)
{
    return tpl_change_case(c, self->s, TPL_SWAPCASE, out);
}

static tsr_status all_are(const struct tpl_text *t, bool (*is)(uint32_t ch), bool empty,
                          struct tpl_value *out)
{
    bool yes = t->n > 0 || empty;
    for (uint64_t i = 0; i < t->n && yes;) {
        unsigned len;
        yes = is(tpl_char(t->s + i, t->n - i, &len));
        i += len;
    }
    *out = tpl_bool(yes);
    return TSR_OK;
}

#define QUESTION(name, is, empty)                                                                  \
    TPL_RUN(name)                                                                                  \
    {                                                                                              \
        TSR_TRY(tpl_charge(c, self->s->n));                                                        \
        return all_are(self->s, is, empty, out);                                                   \
    }
QUESTION(isalpha_of, is_alpha, false)
QUESTION(isalnum_of, is_alnum, false)
QUESTION(isdigit_of, is_digit, false)
QUESTION(isdecimal_of, is_decimal, false)
QUESTION(isnumeric_of, is_numeric, false)
QUESTION(isspace_of, tpl_is_space, false)
QUESTION(isascii_of, is_ascii, true)
QUESTION(isprintable_of, tpl_is_printable, true)

TPL_RUN(isupper_of)
{
    *out = tpl_bool(tpl_is_case(self->s, true));
    return tpl_charge(c, self->s->n);
}
TPL_RUN(islower_of)
{
    *out = tpl_bool(tpl_is_case(self->s, false));
    return tpl_charge(c, self->s->n);
}

const struct tpl_function *tpl_string_question(const char *s, uint64_t n)
{
    static const struct tpl_function all[] = {
        { "upper", "", 0, upper },
        { "lower", "", 0, lower },
        { "capitalize", "", 0, capitalize },
        { "title", "", 0, title },
        { "swapcase", "", 0, swapcase },
        { "isalpha", "", 0, isalpha_of },
        { "isalnum", "", 0, isalnum_of },
        { "isdigit", "", 0, isdigit_of },
        { "isdecimal", "", 0, isdecimal_of },
        { "isnumeric", "", 0, isnumeric_of },
        { "isspace", "", 0, isspace_of },
        { "isascii", "", 0, isascii_of },
        { "isprintable", "", 0, isprintable_of },
        { "isupper", "", 0, isupper_of },
        { "islower", "", 0, islower_of },
    };
    return tpl_find(all, sizeof all / sizeof *all, s, n);
}
