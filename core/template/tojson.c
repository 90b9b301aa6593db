/* The filter tojson: json.dumps() of Python, without escapes for characters outside of ASCII. */
#include "template/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct dump {
    struct tpl_ctx        *c;
    struct tpl_build       b;
    const struct tpl_text *indent; /* NULL: on one line */
    const struct tpl_text *item, *key;
    bool                   ascii, sort;
    uint64_t               level;
};

static tsr_status value(struct dump *d, const struct tpl_value *v);

static tsr_status escape(struct dump *d, uint32_t ch)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char              s[16];
    const char       *simple = ch < 0x80 && ch ? strchr(from, (char)ch) : NULL;
    if (simple)
        (void)snprintf(s, sizeof s, "\\%c", to[simple - from]);
    else if (ch < 0x10000)
        (void)snprintf(s, sizeof s, "\\u%04x", ch);
    else
        (void)snprintf(s, sizeof s, "\\u%04x\\u%04x", 0xd800 + ((ch - 0x10000) >> 10),
                       0xdc00 + ((ch - 0x10000) & 0x3ff));
    return tpl_add_word(d->c, &d->b, s);
}

static tsr_status text(struct dump *d, const struct tpl_text *t)
{
    uint64_t from = 0;
    TSR_TRY(tpl_add_own(d->c, &d->b, "\"", 1));
    for (uint64_t i = 0; i < t->n;) {
        unsigned len;
        uint32_t ch = tpl_char(t->s + i, t->n - i, &len);
        if (ch < 32 || ch == '"' || ch == '\\' || (d->ascii && ch > 126)) {
            TSR_TRY(tpl_add(d->c, &d->b, t, from, i - from));
            if (ch == 127)
                TSR_TRY(tpl_add_own(d->c, &d->b, "\x7f", 1));
            else
                TSR_TRY(escape(d, ch));
            from = i + len;
        }
        i += len;
    }
    TSR_TRY(tpl_add(d->c, &d->b, t, from, t->n - from));
    return tpl_add_own(d->c, &d->b, "\"", 1);
}

static tsr_status line(struct dump *d)
{
    if (!d->indent)
        return TSR_OK;
    TSR_TRY(tpl_add_own(d->c, &d->b, "\n", 1));
    for (uint64_t i = 0; i < d->level; i++)
        TSR_TRY(tpl_add_text(d->c, &d->b, d->indent));
    return TSR_OK;
}

static tsr_status array(struct dump *d, const struct tpl_list *l)
{
    if (l->n == 0)
        return tpl_add_word(d->c, &d->b, "[]");
    TSR_TRY(tpl_add_word(d->c, &d->b, "["));
    d->level++;
    for (uint64_t i = 0; i < l->n; i++) {
        if (i)
            TSR_TRY(tpl_add_text(d->c, &d->b, d->item));
        TSR_TRY(line(d));
        TSR_TRY(value(d, &l->v[i]));
    }
    d->level--;
    TSR_TRY(line(d));
    return tpl_add_word(d->c, &d->b, "]");
}

/* Numbers, booleans and none as text, or NULL. */
static const char *plain(const struct tpl_value *v, char s[40])
{
    if (v->kind == TPL_NONE)
        return "null";
    if (v->kind == TPL_BOOL)
        return v->b ? "true" : "false";
    if (v->kind == TPL_INT) {
        (void)snprintf(s, 40, "%lld", (long long)v->i);
        return s;
    }
    if (v->kind != TPL_FLOAT)
        return NULL;
    if (isnan(v->f))
        return "NaN";
    if (isinf(v->f))
        return v->f < 0 ? "-Infinity" : "Infinity";
    tpl_float_text(v->f, s);
    return s;
}

static tsr_status key(struct dump *d, const struct tpl_value *k)
{
    char        s[40];
    const char *p = plain(k, s);
    if (k->kind == TPL_STRING)
        return text(d, k->s);
    struct tpl_text t = { .s = p, .n = p ? strlen(p) : 0 };
    return p ? text(d, &t) : tpl_fail(d->c, "a %s is no key of JSON", tpl_type_name(k));
}

static tsr_status order_of(struct dump *d, const struct tpl_dict *o, uint64_t **order)
{
    struct tpl_value *keys = tpl_new(d->c, o->n, sizeof *keys);
    if (!keys)
        return tpl_failed(d->c);
    for (uint64_t i = 0; i < o->n; i++)
        keys[i] = o->v[i].key;
    return tpl_sort(d->c, keys, o->n, false, order);
}

static tsr_status object(struct dump *d, const struct tpl_dict *o)
{
    uint64_t *order = NULL;
    if (o->n == 0)
        return tpl_add_word(d->c, &d->b, "{}");
    if (d->sort)
        TSR_TRY(order_of(d, o, &order));
    TSR_TRY(tpl_add_word(d->c, &d->b, "{"));
    d->level++;
    for (uint64_t i = 0; i < o->n; i++) {
        const struct tpl_pair *p = &o->v[order ? order[i] : i];
        if (i)
            TSR_TRY(tpl_add_text(d->c, &d->b, d->item));
        TSR_TRY(line(d));
        TSR_TRY(key(d, &p->key));
        TSR_TRY(tpl_add_text(d->c, &d->b, d->key));
        TSR_TRY(value(d, &p->value));
    }
    d->level--;
    TSR_TRY(line(d));
    return tpl_add_word(d->c, &d->b, "}");
}

static tsr_status any(struct dump *d, const struct tpl_value *v)
{
    char        s[40];
    const char *p = plain(v, s);
    if (p)
        return tpl_add_word(d->c, &d->b, p);
    if (v->kind == TPL_STRING)
        return text(d, v->s);
    if (v->kind == TPL_LIST || v->kind == TPL_TUPLE)
        return array(d, v->list);
    if (v->kind == TPL_DICT)
        return object(d, v->dict);
    if (v->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(d->c, v);
    return tpl_fail(d->c, "a %s cannot be JSON", tpl_type_name(v));
}

static tsr_status value(struct dump *d, const struct tpl_value *v)
{
    TSR_TRY(tpl_enter(d->c));
    tsr_status st = any(d, v);
    d->c->depth--;
    return st;
}

static tsr_status read_indent(struct dump *d, const struct tpl_value *v)
{
    struct tpl_build b = { 0 };
    struct tpl_value s;
    int64_t          n;
    if (v->kind == TPL_MISSING || v->kind == TPL_NONE)
        return TSR_OK;
    if (v->kind == TPL_STRING) {
        d->indent = v->s;
        return TSR_OK;
    }
    if (!tpl_is_int(v, &n))
        return tpl_fail(d->c, "'indent' of tojson is a %s, neither a number nor a str",
                        tpl_type_name(v));
    for (int64_t i = 0; i < n; i++)
        TSR_TRY(tpl_add_own(d->c, &b, " ", 1));
    TSR_TRY(tpl_finish(d->c, &b, &s));
    d->indent = s.s;
    return TSR_OK;
}

static tsr_status read_separators(struct dump *d, const struct tpl_value *v)
{
    if (v->kind == TPL_MISSING || v->kind == TPL_NONE)
        return TSR_OK;
    if ((v->kind != TPL_LIST && v->kind != TPL_TUPLE) || v->list->n != 2)
        return tpl_fail(d->c, "'separators' of tojson are not two texts");
    TSR_TRY(tpl_want_text(d->c, &v->list->v[0], "a separator of tojson", &d->item));
    return tpl_want_text(d->c, &v->list->v[1], "a separator of tojson", &d->key);
}

tsr_status tpl_tojson(struct tpl_ctx *c, const struct tpl_value *self, const struct tpl_args *args,
                      const struct tpl_value *a, struct tpl_value *out)
{
    static const struct tpl_text comma = { .s = ",", .n = 1 }, space = { .s = ", ", .n = 2 },
                                 colon = { .s = ": ", .n = 2 };
    struct dump d = { .c = c, .ascii = tpl_truth(&a[0]), .sort = tpl_truth(&a[3]) };
    (void)args;
    TSR_TRY(read_indent(&d, &a[1]));
    d.item = d.indent ? &comma : &space;
    d.key = &colon;
    TSR_TRY(read_separators(&d, &a[2]));
    TSR_TRY(value(&d, self));
    return tpl_finish(c, &d.b, out);
}
