/* Texts with places for values: the operator % and the method format. */
#include "template/internal.h"

#include <stdio.h>
#include <string.h>

/* ---- % ------------------------------------------------------------------ */

struct percent {
    struct tpl_ctx         *c;
    struct tpl_build        b;
    const struct tpl_text  *t;
    uint64_t                at;
    const struct tpl_value *args;
    uint64_t                used;
};

struct spec {
    bool    left, plus, space, alternate, zero;
    int64_t width, precision; /* -1: none */
    char    type;
};

static tsr_status ends_early(struct percent *p)
{
    return tpl_fail(p->c, "the text before '%%' ends inside of a place for a value");
}

static tsr_status next_arg(struct percent *p, const struct tpl_value **v)
{
    const struct tpl_value *a = p->args;
    *v = a->kind == TPL_TUPLE ? &a->list->v[p->used] : a;
    if (p->used >= (a->kind == TPL_TUPLE ? a->list->n : 1))
        return tpl_fail(p->c, "'%%' has not enough values");
    p->used++;
    return TSR_OK;
}

/* A number, or * for the next value. */
static tsr_status number(struct percent *p, int64_t *n)
{
    const struct tpl_text *t = p->t;
    if (p->at < t->n && t->s[p->at] == '*') {
        const struct tpl_value *v;
        p->at++;
        TSR_TRY(next_arg(p, &v));
        return tpl_want_int(p->c, v, "a width", 0, n);
    }
    for (*n = 0; p->at < t->n && t->s[p->at] >= '0' && t->s[p->at] <= '9'; p->at++)
        if (*n < 100000)
            *n = *n * 10 + (t->s[p->at] - '0');
    return TSR_OK;
}

static tsr_status read_spec(struct percent *p, struct spec *s)
{
    const struct tpl_text *t = p->t;
    *s = (struct spec){ .precision = -1 };
    for (; p->at < t->n && t->s[p->at] && strchr("-+ #0", t->s[p->at]); p->at++) {
        s->left = s->left || t->s[p->at] == '-';
        s->plus = s->plus || t->s[p->at] == '+';
        s->space = s->space || t->s[p->at] == ' ';
        s->alternate = s->alternate || t->s[p->at] == '#';
        s->zero = s->zero || t->s[p->at] == '0';
    }
    TSR_TRY(number(p, &s->width));
    if (s->width < 0) {
        s->left = true;
        s->width = s->width == INT64_MIN ? INT64_MAX : -s->width;
    }
    if (p->at < t->n && t->s[p->at] == '.') {
        p->at++;
        TSR_TRY(number(p, &s->precision));
        s->precision = s->precision < 0 ? 0 : s->precision;
    }
    if (p->at >= t->n)
        return ends_early(p);
    s->type = t->s[p->at++];
    return TSR_OK;
}

static tsr_status add_text_spec(struct percent *p, const struct spec *s, const struct tpl_text *t)
{
    static const struct tpl_text space = { .s = " ", .n = 1 };
    struct tpl_value             part, padded;
    uint64_t n = s->precision < 0 ? t->n : tpl_offset(t->s, t->n, (uint64_t)s->precision);
    TSR_TRY(tpl_sub(p->c, t, 0, n, &part));
    TSR_TRY(tpl_pad(p->c, part.s, s->width, s->left ? -1 : 1, &space, &padded));
    return tpl_add_text(p->c, &p->b, padded.s);
}

static tsr_status add_number(struct percent *p, const struct spec *s, const struct tpl_value *v)
{
    char    form[24] = "%", text[600];
    int64_t i = 0;
    double  f = 0;
    bool    real = strchr("fFeEgG", s->type) != NULL;
    if (!tpl_is_number(v, &f))
        return v->kind == TPL_UNDEFINED
                   ? tpl_fail_undefined(p->c, v)
                   : tpl_fail(p->c, "%%%c takes a number, not a %s", s->type, tpl_type_name(v));
    if (!real && v->kind == TPL_FLOAT && (s->type != 'd' || f != f || f < -9e18 || f > 9e18))
        return tpl_fail(p->c, "%%%c takes an int, not this float", s->type);
    if (s->width > 200 || s->precision > 100)
        return tpl_fail(p->c, "a number is given more than 200 places");
    (void)snprintf(form + 1, sizeof form - 1, "%s%s%s%s%s*.*%s%c", s->left ? "-" : "",
                   s->plus ? "+" : "", s->space ? " " : "", s->alternate ? "#" : "",
                   s->zero && s->precision < 0 ? "0"
                   : s->zero && real           ? "0"
                                               : "",
                   real ? "" : "ll", s->type);
    if (!tpl_is_int(v, &i) && !real)
        i = (int64_t)f;
    if (!real && i < 0 && s->type != 'd')
        return tpl_fail(p->c, "%%%c takes no negative number here", s->type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = real
                ? snprintf(text, sizeof text, form, (int)s->width, (int)s->precision, f)
                : snprintf(text, sizeof text, form, (int)s->width, (int)s->precision, (long long)i);
#pragma GCC diagnostic pop
    return tpl_add_own(p->c, &p->b, text, (uint64_t)n);
}

static tsr_status keyed(struct percent *p, const struct tpl_value **v)
{
    const char *end = memchr(p->t->s + p->at, ')', p->t->n - p->at);
    if (!end)
        return ends_early(p);
    if (p->args->kind != TPL_DICT)
        return tpl_fail(p->c, "'%%' needs a dict for a place with a name");
    struct tpl_text key = { .s = p->t->s + p->at, .n = (uint64_t)(end - p->t->s) - p->at };
    *v = tpl_dict_word(p->args->dict, &key);
    p->at += key.n + 1;
    return *v ? TSR_OK
              : tpl_fail(p->c, "'%%' has no value '%.*s'", (int)(key.n < 60 ? key.n : 60), key.s);
}

static tsr_status place(struct percent *p)
{
    const struct tpl_value *v = NULL;
    const struct tpl_text  *t = NULL;
    struct tpl_build        b = { 0 };
    struct tpl_value        text;
    struct spec             s;
    if (p->at < p->t->n && p->t->s[p->at] == '(') {
        p->at++;
        TSR_TRY(keyed(p, &v));
    }
    TSR_TRY(read_spec(p, &s));
    if (s.type == '%')
        return tpl_add_own(p->c, &p->b, "%", 1);
    if (!s.type || !strchr("srdiufFeEgGxXo", s.type))
        return tpl_fail(p->c, "'%%' has a place of a kind that is not supported");
    if (!v)
        TSR_TRY(next_arg(p, &v));
    if (s.type == 's') {
        TSR_TRY(tpl_string(p->c, v, &t));
        return add_text_spec(p, &s, t);
    }
    if (s.type == 'r') {
        TSR_TRY(tpl_repr(p->c, &b, v));
        TSR_TRY(tpl_finish(p->c, &b, &text));
        return add_text_spec(p, &s, text.s);
    }
    if (s.type == 'i' || s.type == 'u')
        s.type = 'd';
    return add_number(p, &s, v);
}

tsr_status tpl_percent(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_value *args,
                       struct tpl_value *out)
{
    struct percent p = { .c = c, .t = t, .args = args };
    while (p.at < t->n) {
        const char *s = memchr(t->s + p.at, '%', t->n - p.at);
        uint64_t    end = s ? (uint64_t)(s - t->s) : t->n;
        TSR_TRY(tpl_add(c, &p.b, t, p.at, end - p.at));
        p.at = end;
        if (!s)
            break;
        p.at++;
        TSR_TRY(place(&p));
    }
    bool mapping = args->kind == TPL_DICT || args->kind == TPL_LIST;
    if (!mapping && p.used < (args->kind == TPL_TUPLE ? args->list->n : 1))
        return tpl_fail(c, "'%%' has more values than places");
    return tpl_finish(c, &p.b, out);
}

/* ---- format ------------------------------------------------------------- */

static const struct tpl_value *named(const struct tpl_args *args, const struct tpl_text *key)
{
    for (uint64_t i = 0; i < args->n_k; i++)
        if (tpl_same(args->k[i].name, key))
            return &args->k[i].value;
    return NULL;
}

/* The value of {}, {0} or {name}. */
static tsr_status field(struct tpl_ctx *c, const struct tpl_args *args, const struct tpl_text *key,
                        uint64_t *next, const struct tpl_value **v)
{
    uint64_t i = key->n == 0 ? (*next)++ : 0, k = 0;
    for (; k < key->n && key->s[k] >= '0' && key->s[k] <= '9' && i < 100000; k++)
        i = i * 10 + (uint64_t)(key->s[k] - '0');
    *v = k < key->n ? named(args, key) : i < args->n ? &args->v[i] : NULL;
    if (memchr(key->s, ':', key->n) || memchr(key->s, '!', key->n) || memchr(key->s, '.', key->n) ||
        memchr(key->s, '[', key->n))
        return tpl_fail(c, "'format' supports no more in braces than a name or a number");
    return *v ? TSR_OK
              : tpl_fail(c, "'format' has no value for {%.*s}", (int)(key->n < 60 ? key->n : 60),
                         key->s);
}

tsr_status tpl_format(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_args *args,
                      struct tpl_value *out)
{
    struct tpl_build b = { 0 };
    uint64_t         next = 0;
    for (uint64_t i = 0; i < t->n;) {
        const struct tpl_value *v;
        char                    ch = t->s[i];
        if (ch != '{' && ch != '}') {
            TSR_TRY(tpl_add(c, &b, t, i++, 1));
            continue;
        }
        if (i + 1 < t->n && t->s[i + 1] == ch) {
            TSR_TRY(tpl_add(c, &b, t, i, 1));
            i += 2;
            continue;
        }
        const char *end = ch == '{' ? memchr(t->s + i, '}', t->n - i) : NULL;
        if (!end)
            return tpl_fail(c, "'format' meets a single '%c'", ch);
        struct tpl_text key = { .s = t->s + i + 1, .n = (uint64_t)(end - t->s) - i - 1 };
        TSR_TRY(field(c, args, &key, &next, &v));
        TSR_TRY(tpl_str(c, &b, v));
        i += key.n + 2;
    }
    return tpl_finish(c, &b, out);
}
