/* Filters that give texts and numbers. */
#include "template/internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts -------------------------------------------------------------- */

static tsr_status changed(struct tpl_ctx *c, const struct tpl_value *self, enum tpl_case how,
                          struct tpl_value *out)
{
    const struct tpl_text *t;
    TSR_TRY(tpl_string(c, self, &t));
    return tpl_change_case(c, t, how, out);
}

TPL_RUN(upper)
{
    return changed(c, self, TPL_UPPER, out);
}
TPL_RUN(lower)
{
    return changed(c, self, TPL_LOWER, out);
}
TPL_RUN(capitalize)
{
    return changed(c, self, TPL_CAPITALIZE, out);
}
TPL_RUN(title)
{
    return changed(c, self, TPL_FILTER_TITLE, out);
}

TPL_RUN(string)
{
    const struct tpl_text *t;
    TSR_TRY(tpl_string(c, self, &t));
    *out = (struct tpl_value){ .kind = TPL_STRING, .s = t };
    return TSR_OK;
}

TPL_RUN(trim)
{
    const struct tpl_text *t, *chars = NULL;
    TSR_TRY(tpl_string(c, self, &t));
    if (a[0].kind != TPL_MISSING && a[0].kind != TPL_NONE)
        TSR_TRY(tpl_want_text(c, &a[0], "what to trim", &chars));
    return tpl_strip(c, t, chars, true, true, out);
}

TPL_RUN(replace)
{
    const struct tpl_text *t, *old, *new;
    int64_t                most = -1;
    TSR_TRY(tpl_string(c, self, &t));
    TSR_TRY(tpl_string(c, &a[0], &old));
    TSR_TRY(tpl_string(c, &a[1], &new));
    if (a[2].kind != TPL_NONE)
        TSR_TRY(tpl_want_int(c, &a[2], "the number of replacements", -1, &most));
    return tpl_replace(c, t, old, new, most, out);
}

TPL_RUN(center)
{
    static const struct tpl_text space = { .s = " ", .n = 1 };
    const struct tpl_text       *t;
    int64_t                      width;
    TSR_TRY(tpl_string(c, self, &t));
    TSR_TRY(tpl_want_int(c, &a[0], "the width", 80, &width));
    return tpl_pad(c, t, width, 0, &space, out);
}

TPL_RUN(escape)
{
    const struct tpl_text *t;
    struct tpl_build       b = { 0 };
    TSR_TRY(tpl_string(c, self, &t));
    for (uint64_t i = 0; i < t->n; i++) {
        const char *s = t->s[i] == '&'    ? "&amp;"
                        : t->s[i] == '<'  ? "&lt;"
                        : t->s[i] == '>'  ? "&gt;"
                        : t->s[i] == '\'' ? "&#39;"
                        : t->s[i] == '"'  ? "&#34;"
                                          : NULL;
        TSR_TRY(s ? tpl_add_word(c, &b, s) : tpl_add(c, &b, t, i, 1));
    }
    return tpl_finish(c, &b, out);
}

TPL_RUN(format)
{
    struct tpl_value       values;
    const struct tpl_text *t;
    TSR_TRY(tpl_string(c, self, &t));
    if (args->n && args->n_k)
        return tpl_fail(c, "'format' takes either values or names with values");
    if (args->n_k) {
        TSR_TRY(tpl_dict(c, TPL_DICT, args->n_k, &values));
        for (uint64_t i = 0; i < args->n_k; i++) {
            struct tpl_value key = { .kind = TPL_STRING, .s = args->k[i].name };
            TSR_TRY(tpl_dict_put(c, values.dict, &key, &args->k[i].value));
        }
        return tpl_percent(c, t, &values, out);
    }
    TSR_TRY(tpl_list(c, TPL_TUPLE, args->n, &values));
    for (uint64_t i = 0; i < args->n; i++)
        TSR_TRY(tpl_push(c, values.list, &args->v[i]));
    return tpl_percent(c, t, &values, out);
}

/* ---- indent ------------------------------------------------------------- */

static tsr_status indentation(struct tpl_ctx *c, const struct tpl_value *v,
                              const struct tpl_text **t)
{
    struct tpl_build b = { 0 };
    struct tpl_value s;
    int64_t          n;
    if (v->kind == TPL_STRING) {
        *t = v->s;
        return TSR_OK;
    }
    TSR_TRY(tpl_want_int(c, v, "the width of indent", 4, &n));
    while (n-- > 0)
        TSR_TRY(tpl_add_own(c, &b, " ", 1));
    TSR_TRY(tpl_finish(c, &b, &s));
    *t = s.s;
    return TSR_OK;
}

TPL_RUN(indent)
{
    const struct tpl_text *t, *space;
    struct tpl_build       b = { 0 }, with = { 0 };
    struct tpl_value       lines, whole;
    bool                   blank = tpl_truth(&a[2]);
    TSR_TRY(tpl_want_text(c, self, "what to indent", &t));
    TSR_TRY(indentation(c, &a[0], &space));
    TSR_TRY(tpl_add_text(c, &with, t));
    TSR_TRY(tpl_add_own(c, &with, "\n", 1));
    TSR_TRY(tpl_finish(c, &with, &whole));
    TSR_TRY(tpl_split_lines(c, whole.s, false, &lines));
    for (uint64_t i = 0; i < lines.list->n; i++) {
        const struct tpl_text *line = lines.list->v[i].s;
        if (i)
            TSR_TRY(tpl_add_own(c, &b, "\n", 1));
        if (i ? blank || line->n : tpl_truth(&a[1]))
            TSR_TRY(tpl_add_text(c, &b, space));
        TSR_TRY(tpl_add_text(c, &b, line));
    }
    return tpl_finish(c, &b, out);
}

/* ---- numbers ------------------------------------------------------------ */

/* The text of a number without spaces around and single "_" between digits; false: it is not one. */
static bool number_text(const struct tpl_text *t, char *s, size_t cap)
{
    size_t   n = 0;
    uint64_t from = 0, end = t->n;
    unsigned len;
    while (from < end && tpl_is_space(tpl_char(t->s + from, end - from, &len)))
        from += len;
    while (end > from && tpl_is_space((unsigned char)t->s[end - 1]) &&
           (unsigned char)t->s[end - 1] < 0x80)
        end--;
    for (uint64_t i = from; i < end; i++) {
        bool between = i > from && i + 1 < end && t->s[i - 1] != '_' && t->s[i + 1] != '_';
        if (t->s[i] == '_' && between)
            continue;
        if (n + 1 >= cap || t->s[i] == '_' || (unsigned char)t->s[i] <= ' ')
            return false;
        s[n++] = t->s[i];
    }
    s[n] = '\0';
    return n > 0;
}

static bool float_of(const struct tpl_text *t, double *f)
{
    char s[400], *end;
    if (!number_text(t, s, sizeof s) || strpbrk(s, "xXpP("))
        return false;
    *f = strtod(s, &end);
    return *end == '\0';
}

/* *over: it is a number, with more than 64 bits. */
static bool int_of(const struct tpl_text *t, int base, int64_t *i, bool *over)
{
    char s[400], *end, *digits = s;
    *over = false;
    if (!number_text(t, s, sizeof s))
        return false;
    digits += *s == '-' || *s == '+';
    if (base != 16 && base != 0 && strpbrk(digits, "xX") == digits + 1)
        return false;
    if (*digits == '-' || *digits == '+')
        return false;
    if ((base == 2 || base == 8 || base == 0) && digits[0] == '0' &&
        ((digits[1] | 32) == (base == 8 ? 'o' : 'b'))) {
        digits[0] = *s == '-' ? '-' : '+';
        memmove(digits + 1, digits + 2, strlen(digits + 1));
        memmove(s, digits, digits == s ? 0 : strlen(digits) + 1);
        base = base == 8 ? 8 : 2;
    }
    errno = 0;
    *i = strtoll(s, &end, base);
    *over = errno == ERANGE;
    return *end == '\0' && end != s;
}

static tsr_status float_as_int(struct tpl_ctx *c, double f, struct tpl_value *out)
{
    if (!(f > -9.3e18 && f < 9.3e18) || (f >= 0x1p63 || f < -0x1p63))
        return tpl_fail(c, "the number has more than the 64 bits of an integer here");
    *out = tpl_int((int64_t)f);
    return TSR_OK;
}

TPL_RUN(to_int)
{
    int64_t i, base;
    double  f;
    bool    over;
    if (self->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, self);
    TSR_TRY(tpl_want_int(c, &a[1], "the base", 10, &base));
    if (base != 0 && (base < 2 || base > 36))
        return tpl_fail(c, "the base of a number is 2 to 36");
    *out = a[0].kind == TPL_MISSING ? tpl_int(0) : a[0];
    if (tpl_is_int(self, &i)) {
        *out = tpl_int(i);
        return TSR_OK;
    }
    if (self->kind == TPL_FLOAT && !isnan(self->f))
        return float_as_int(c, self->f, out);
    if (self->kind != TPL_STRING)
        return TSR_OK;
    if (int_of(self->s, (int)base, &i, &over)) {
        if (over)
            return tpl_fail(c, "the number has more than the 64 bits of an integer here");
        *out = tpl_int(i);
        return TSR_OK;
    }
    return float_of(self->s, &f) && isfinite(f) ? float_as_int(c, f, out) : TSR_OK;
}

TPL_RUN(to_float)
{
    double f;
    if (self->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, self);
    *out = a[0].kind == TPL_MISSING ? tpl_float(0) : a[0];
    if (tpl_is_number(self, &f) || (self->kind == TPL_STRING && float_of(self->s, &f)))
        *out = tpl_float(f);
    return TSR_OK;
}

TPL_RUN(absolute)
{
    int64_t i;
    if (tpl_is_int(self, &i))
        return tpl_sign(c, i < 0, self, out);
    if (self->kind == TPL_FLOAT) {
        *out = tpl_float(fabs(self->f));
        return TSR_OK;
    }
    return self->kind == TPL_UNDEFINED ? tpl_fail_undefined(c, self)
                                       : tpl_fail(c, "abs takes no %s", tpl_type_name(self));
}

TPL_RUN(round_to)
{
    const struct tpl_text *method = NULL;
    int64_t                precision, i;
    double                 f;
    char                   text[400];
    TSR_TRY(tpl_want_int(c, &a[0], "the precision of round", 0, &precision));
    if (a[1].kind != TPL_MISSING)
        TSR_TRY(tpl_want_text(c, &a[1], "the method of round", &method));
    if (precision < 0 || precision > 20)
        return tpl_fail(c, "round supports 0 to 20 decimals");
    if (!tpl_is_number(self, &f))
        return self->kind == TPL_UNDEFINED ? tpl_fail_undefined(c, self)
                                           : tpl_fail(c, "round takes no %s", tpl_type_name(self));
    if (!method || tpl_text_is(method, "common")) {
        (void)snprintf(text, sizeof text, "%.*f", (int)precision, f);
        *out = tpl_is_int(self, &i) ? tpl_int(i) : tpl_float(strtod(text, NULL));
        return TSR_OK;
    }
    bool up = tpl_text_is(method, "ceil");
    if (!up && !tpl_text_is(method, "floor"))
        return tpl_fail(c, "the method of round is common, ceil or floor");
    double by = pow(10, (double)precision);
    *out = tpl_float((up ? ceil(f * by) : floor(f * by)) / by + 0.0);
    return TSR_OK;
}

const struct tpl_function *tpl_filter_text(const char *s, uint64_t n)
{
    static const struct tpl_function all[] = {
        { "upper", "", 0, upper },
        { "lower", "", 0, lower },
        { "capitalize", "", 0, capitalize },
        { "title", "", 0, title },
        { "string", "", 0, string },
        { "safe", "", 0, string },
        { "trim", "chars", 0, trim },
        { "replace", "old new count", 2, replace },
        { "center", "width", 0, center },
        { "e", "", 0, escape },
        { "escape", "", 0, escape },
        { "forceescape", "", 0, escape },
        { "format", NULL, 0, format },
        { "indent", "width first blank", 0, indent },
        { "int", "default base", 0, to_int },
        { "float", "default", 0, to_float },
        { "abs", "", 0, absolute },
        { "round", "precision method", 0, round_to },
        { "tojson", "ensure_ascii indent separators sort_keys", 0, tpl_tojson },
    };
    return tpl_find(all, sizeof all / sizeof *all, s, n);
}
