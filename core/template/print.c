/* Values as text: what Python's str() and repr() give. */
#include "template/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that read back as f. */
void tpl_float_text(double f, char out[40])
{
    char digits[32];
    if (isnan(f) || isinf(f)) {
        (void)snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int n = 0;
    do
        (void)snprintf(digits, sizeof digits, "%.*e", n, f);
    while (n++ < 16 && strtod(digits, NULL) != f);
    char *e = strchr(digits, 'e');
    int   exponent = (int)strtol(e + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        int n_digits =
            digits[digits[0] == '-' ? 2 : 1] == '.' ? (int)(e - strchr(digits, '.')) - 1 : 0;
        int decimals = n_digits - exponent;
        (void)snprintf(out, 40, "%.*f", decimals > 1 ? decimals : 1, f);
    } else {
        *e = '\0';
        (void)snprintf(out, 40, "%.24se%c%02d", digits, exponent < 0 ? '-' : '+',
                       abs(exponent) % 1000);
    }
}

/* ---- repr of texts ------------------------------------------------------ */

static tsr_status escaped(struct tpl_ctx *c, struct tpl_build *b, uint32_t ch, char quote)
{
    char s[16];
    if (ch == (unsigned char)quote || ch == '\\')
        (void)snprintf(s, sizeof s, "\\%c", (char)ch);
    else if (ch == '\n' || ch == '\r' || ch == '\t')
        (void)snprintf(s, sizeof s, "\\%c", ch == '\n' ? 'n' : ch == '\r' ? 'r' : 't');
    else
        (void)snprintf(s, sizeof s,
                       ch < 0x100     ? "\\x%02x"
                       : ch < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                       ch);
    return tpl_add_word(c, b, s);
}

static tsr_status repr_text(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_text *t)
{
    bool     single = memchr(t->s, '\'', t->n) && !memchr(t->s, '"', t->n);
    char     quote = single ? '"' : '\'';
    uint64_t from = 0;
    TSR_TRY(tpl_add_own(c, b, &quote, 1));
    for (uint64_t i = 0; i < t->n;) {
        unsigned len;
        uint32_t ch = tpl_char(t->s + i, t->n - i, &len);
        if (ch == (unsigned char)quote || ch == '\\' || !tpl_is_printable(ch)) {
            TSR_TRY(tpl_add(c, b, t, from, i - from));
            TSR_TRY(escaped(c, b, ch, quote));
            from = i + len;
        }
        i += len;
    }
    TSR_TRY(tpl_add(c, b, t, from, t->n - from));
    return tpl_add_own(c, b, &quote, 1);
}

/* ---- repr of all -------------------------------------------------------- */

static tsr_status repr_items(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_list *l,
                             const char *open, const char *close)
{
    TSR_TRY(tpl_add_word(c, b, open));
    for (uint64_t i = 0; i < l->n; i++) {
        TSR_TRY(tpl_add_word(c, b, i ? ", " : ""));
        TSR_TRY(tpl_repr(c, b, &l->v[i]));
    }
    return tpl_add_word(c, b, close);
}

static tsr_status repr_dict(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_dict *d)
{
    TSR_TRY(tpl_add_word(c, b, "{"));
    for (uint64_t i = 0; i < d->n; i++) {
        TSR_TRY(tpl_add_word(c, b, i ? ", " : ""));
        TSR_TRY(tpl_repr(c, b, &d->v[i].key));
        TSR_TRY(tpl_add_word(c, b, ": "));
        TSR_TRY(tpl_repr(c, b, &d->v[i].value));
    }
    return tpl_add_word(c, b, "}");
}

static tsr_status repr_list(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_value *v)
{
    const struct tpl_list *l = v->list;
    char                   s[100];
    switch (v->kind) {
    case TPL_TUPLE:
        return repr_items(c, b, l, "(", l->n == 1 ? ",)" : ")");
    case TPL_RANGE:
        (void)snprintf(s, sizeof s, l->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                       (long long)l->start, (long long)l->stop, (long long)l->step);
        return tpl_add_word(c, b, s);
    case TPL_VIEW:
        TSR_TRY(tpl_add_word(c, b, l->view));
        return repr_items(c, b, l, "([", "])");
    default:
        return repr_items(c, b, l, "[", "]");
    }
}

static tsr_status repr(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_value *v)
{
    char s[40];
    if (tpl_is_list(v))
        return repr_list(c, b, v);
    switch (v->kind) {
    case TPL_UNDEFINED:
        return tpl_add_word(c, b, "Undefined");
    case TPL_NONE:
        return tpl_add_word(c, b, "None");
    case TPL_BOOL:
        return tpl_add_word(c, b, v->b ? "True" : "False");
    case TPL_INT:
        (void)snprintf(s, sizeof s, "%lld", (long long)v->i);
        return tpl_add_word(c, b, s);
    case TPL_FLOAT:
        tpl_float_text(v->f, s);
        return tpl_add_word(c, b, s);
    case TPL_STRING:
        return repr_text(c, b, v->s);
    case TPL_DICT:
        return repr_dict(c, b, v->dict);
    case TPL_NAMESPACE:
        TSR_TRY(tpl_add_word(c, b, "<Namespace "));
        TSR_TRY(repr_dict(c, b, v->dict));
        return tpl_add_word(c, b, ">");
    case TPL_MACRO:
        TSR_TRY(tpl_add_word(c, b, "<Macro "));
        if (v->macro->node->name)
            TSR_TRY(repr_text(c, b, v->macro->node->name));
        else
            TSR_TRY(tpl_add_word(c, b, "anonymous"));
        return tpl_add_word(c, b, ">");
    default:
        return tpl_fail(c, "a %s has no text%s", tpl_type_name(v),
                        v->kind == TPL_GENERATOR ? "; make it a list with the filter 'list'" : "");
    }
}

tsr_status tpl_repr(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_value *v)
{
    TSR_TRY(tpl_enter(c));
    tsr_status st = repr(c, b, v);
    c->depth--;
    return st;
}

tsr_status tpl_str(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_value *v)
{
    if (v->kind == TPL_STRING)
        return tpl_add_text(c, b, v->s);
    if (c->strict && v->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, v);
    return v->kind == TPL_UNDEFINED || v->kind == TPL_MISSING ? TSR_OK : tpl_repr(c, b, v);
}

tsr_status tpl_string(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_text **t)
{
    struct tpl_build b = { 0 };
    struct tpl_value out;
    if (v->kind == TPL_STRING) {
        *t = v->s;
        return TSR_OK;
    }
    TSR_TRY(tpl_str(c, &b, v));
    TSR_TRY(tpl_finish(c, &b, &out));
    *t = out.s;
    return TSR_OK;
}
