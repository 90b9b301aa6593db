/* Texts that remember which of their bytes came from the input. */
#include "template/internal.h"

#include <string.h>

static tsr_status room(struct tpl_ctx *c, struct tpl_build *b, uint64_t more)
{
    if (more > TPL_MAX_OUTPUT || b->n > TPL_MAX_OUTPUT - more)
        return tpl_fail(c, "the template makes a text of more than %llu MiB",
                        (unsigned long long)(TPL_MAX_OUTPUT >> 20));
    if (b->s && more <= b->cap - b->n)
        return TSR_OK;
    uint64_t cap = (b->n + more) * 2 + 32;
    char    *s = tpl_grow(c, b->s, b->n, cap, 1);
    if (!s)
        return tpl_failed(c);
    b->s = s;
    if (b->mask) {
        unsigned char *mask = tpl_grow(c, b->mask, b->n, cap, 1);
        if (!mask)
            return tpl_failed(c);
        b->mask = mask;
    }
    b->cap = cap;
    return TSR_OK;
}

tsr_status tpl_add(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_text *t, uint64_t at,
                   uint64_t n)
{
    if (n == 0)
        return TSR_OK;
    TSR_TRY(tpl_charge(c, n));
    TSR_TRY(room(c, b, n));
    if (t->from != TPL_OWN && !b->mask) {
        b->mask = tpl_new(c, b->cap, 1);
        if (!b->mask)
            return tpl_failed(c);
    }
    memcpy(b->s + b->n, t->s + at, n);
    if (b->mask) {
        if (t->from == TPL_MIXED)
            memcpy(b->mask + b->n, t->mask + at, n);
        else
            memset(b->mask + b->n, t->from == TPL_INPUT, n);
    }
    b->n += n;
    return TSR_OK;
}

tsr_status tpl_add_text(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_text *t)
{
    return tpl_add(c, b, t, 0, t->n);
}

tsr_status tpl_add_own(struct tpl_ctx *c, struct tpl_build *b, const char *s, uint64_t n)
{
    struct tpl_text t = { .s = s, .n = n };
    return tpl_add(c, b, &t, 0, n);
}

tsr_status tpl_add_word(struct tpl_ctx *c, struct tpl_build *b, const char *s)
{
    return tpl_add_own(c, b, s, strlen(s));
}

tsr_status tpl_add_char(struct tpl_ctx *c, struct tpl_build *b, uint32_t ch,
                        const struct tpl_text *t, uint64_t at)
{
    char            s[4];
    struct tpl_text one = { .s = s, .n = tpl_put_char(s, ch), .from = t->from };
    if (t->from == TPL_MIXED)
        one.from = t->mask[at] ? TPL_INPUT : TPL_OWN;
    return tpl_add(c, b, &one, 0, one.n);
}

tsr_status tpl_finish(struct tpl_ctx *c, const struct tpl_build *b, struct tpl_value *out)
{
    struct tpl_text *t = tpl_new(c, 1, sizeof *t);
    if (!t)
        return tpl_failed(c);
    *t = (struct tpl_text){ .s = b->n ? b->s : "", .n = b->n };
    if (b->mask && b->n) {
        t->from = memchr(b->mask, 0, b->n) ? TPL_MIXED : TPL_INPUT;
        t->mask = b->mask;
    }
    *out = (struct tpl_value){ .kind = TPL_STRING, .s = t };
    return TSR_OK;
}

tsr_status tpl_sub(struct tpl_ctx *c, const struct tpl_text *t, uint64_t at, uint64_t n,
                   struct tpl_value *out)
{
    struct tpl_text *part = tpl_new(c, 1, sizeof *part);
    if (!part)
        return tpl_failed(c);
    *part = (struct tpl_text){
        .s = t->s + at, .n = n, .from = t->from, .mask = t->mask ? t->mask + at : NULL
    };
    *out = (struct tpl_value){ .kind = TPL_STRING, .s = part };
    return TSR_OK;
}

tsr_status tpl_own(struct tpl_ctx *c, const char *s, uint64_t n, struct tpl_value *out)
{
    struct tpl_build b = { 0 };
    TSR_TRY(tpl_add_own(c, &b, s, n));
    return tpl_finish(c, &b, out);
}

bool tpl_text_is(const struct tpl_text *t, const char *s)
{
    return t->n == strlen(s) && memcmp(t->s, s, t->n) == 0;
}

bool tpl_same(const struct tpl_text *a, const struct tpl_text *b)
{
    return a->n == b->n && memcmp(a->s, b->s, a->n) == 0;
}

/* ---- padding ------------------------------------------------------------ */

tsr_status tpl_repeat(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_text *fill,
                      int64_t n)
{
    while (n-- > 0)
        TSR_TRY(tpl_add_text(c, b, fill));
    return TSR_OK;
}

/* where: -1 the text is left, 0 in the middle, 1 right */
tsr_status tpl_pad(struct tpl_ctx *c, const struct tpl_text *t, int64_t width, int where,
                   const struct tpl_text *fill, struct tpl_value *out)
{
    struct tpl_build b = { 0 };
    int64_t          n = (int64_t)tpl_count(t->s, t->n), more = width > n ? width - n : 0;
    int64_t          left = where < 0 ? 0 : where > 0 ? more : more / 2 + (more & width & 1);
    TSR_TRY(tpl_repeat(c, &b, fill, left));
    TSR_TRY(tpl_add_text(c, &b, t));
    TSR_TRY(tpl_repeat(c, &b, fill, more - left));
    return tpl_finish(c, &b, out);
}
