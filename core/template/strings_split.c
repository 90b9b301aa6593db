/* Methods of texts: splitting, joining, padding. */
#include "template/internal.h"

#include <string.h>

static tsr_status push(struct tpl_ctx *c, struct tpl_list *l, const struct tpl_text *t,
                       uint64_t from, uint64_t end)
{
    struct tpl_value part;
    TSR_TRY(tpl_sub(c, t, from, end - from, &part));
    return tpl_push(c, l, &part);
}

static bool space_at(const struct tpl_text *t, uint64_t i, unsigned *len)
{
    return tpl_is_space(tpl_char(t->s + i, t->n - i, len));
}

static uint64_t before(const struct tpl_text *t, uint64_t end)
{
    do
        end--;
    while (end > 0 && ((unsigned char)t->s[end] & 0xc0) == 0x80);
    return end;
}

/* ---- split -------------------------------------------------------------- */

static tsr_status split_spaces(struct tpl_ctx *c, const struct tpl_text *t, int64_t most,
                               struct tpl_list *l)
{
    unsigned len;
    for (uint64_t i = 0;;) {
        while (i < t->n && space_at(t, i, &len))
            i += len;
        if (i == t->n)
            return TSR_OK;
        uint64_t from = i;
        if (most-- == 0)
            return push(c, l, t, from, t->n);
        while (i < t->n && !space_at(t, i, &len))
            i += len;
        TSR_TRY(push(c, l, t, from, i));
    }
}

static tsr_status split_text(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_text *by,
                             int64_t most, struct tpl_list *l)
{
    uint64_t    from = 0;
    const char *s;
    while (most-- != 0 && (s = memmem(t->s + from, t->n - from, by->s, by->n))) {
        TSR_TRY(push(c, l, t, from, (uint64_t)(s - t->s)));
        from = (uint64_t)(s - t->s) + by->n;
    }
    return push(c, l, t, from, t->n);
}

/* From the end; the parts are put in order afterwards. */
static tsr_status rsplit_spaces(struct tpl_ctx *c, const struct tpl_text *t, int64_t most,
                                struct tpl_list *l)
{
    unsigned len;
    for (uint64_t i = t->n;;) {
        while (i > 0 && space_at(t, before(t, i), &len))
            i = before(t, i);
        if (i == 0)
            return TSR_OK;
        uint64_t end = i;
        if (most-- == 0)
            return push(c, l, t, 0, end);
        while (i > 0 && !space_at(t, before(t, i), &len))
            i = before(t, i);
        TSR_TRY(push(c, l, t, i, end));
    }
}

static tsr_status rsplit_text(struct tpl_ctx *c, const struct tpl_text *t,
                              const struct tpl_text *by, int64_t most, struct tpl_list *l)
{
    uint64_t end = t->n;
    TSR_TRY(tpl_charge(c, by->n < 16 ? t->n : t->n * (by->n / 16)));
    for (uint64_t i = t->n; most != 0 && i >= by->n;) {
        uint64_t at = i - by->n;
        if (memcmp(t->s + at, by->s, by->n) != 0) {
            i--;
            continue;
        }
        TSR_TRY(push(c, l, t, at + by->n, end));
        i = end = at;
        most--;
    }
    return push(c, l, t, 0, end);
}

static void reverse(struct tpl_list *l)
{
    for (uint64_t i = 0; i < l->n / 2; i++) {
        struct tpl_value v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

static tsr_status split_by(struct tpl_ctx *c, const struct tpl_value *self,
                           const struct tpl_value *a, bool from_end, struct tpl_value *out)
{
    const struct tpl_text *by = NULL;
    int64_t                most;
    if (a[0].kind != TPL_MISSING && a[0].kind != TPL_NONE)
        TSR_TRY(tpl_want_text(c, &a[0], "the separator", &by));
    TSR_TRY(tpl_want_int(c, &a[1], "the number of splits", -1, &most));
    if (by && by->n == 0)
        return tpl_fail(c, "the separator is empty");
    TSR_TRY(tpl_charge(c, self->s->n));
    TSR_TRY(tpl_list(c, TPL_LIST, 0, out));
    if (!from_end)
        return by ? split_text(c, self->s, by, most, out->list)
                  : split_spaces(c, self->s, most, out->list);
    TSR_TRY(by ? rsplit_text(c, self->s, by, most, out->list)
               : rsplit_spaces(c, self->s, most, out->list));
    reverse(out->list);
    return TSR_OK;
}

TPL_RUN(split)
{
    return split_by(c, self, a, false, out);
}
TPL_RUN(rsplit)
{
    return split_by(c, self, a, true, out);
}

tsr_status tpl_split_lines(struct tpl_ctx *c, const struct tpl_text *t, bool keep,
                           struct tpl_value *out)
{
    uint64_t from = 0;
    TSR_TRY(tpl_list(c, TPL_LIST, 0, out));
    for (uint64_t i = 0; i < t->n;) {
        unsigned len;
        uint64_t end = i;
        bool     stop = tpl_is_line_end(tpl_char(t->s + i, t->n - i, &len));
        if (t->s[i] == '\r' && i + 1 < t->n && t->s[i + 1] == '\n')
            len = 2;
        i += len;
        if (!stop)
            continue;
        TSR_TRY(push(c, out->list, t, from, keep ? i : end));
        from = i;
    }
    return from < t->n ? push(c, out->list, t, from, t->n) : TSR_OK;
}

TPL_RUN(splitlines)
{
    TSR_TRY(tpl_charge(c, self->s->n));
    return tpl_split_lines(c, self->s, tpl_truth(&a[0]), out);
}

/* ---- join --------------------------------------------------------------- */

tsr_status tpl_join(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_list *l,
                    bool convert, struct tpl_value *out)
{
    struct tpl_build b = { 0 };
    for (uint64_t i = 0; i < l->n; i++) {
        const struct tpl_text *part;
        if (!convert)
            TSR_TRY(tpl_want_text(c, &l->v[i], "an item to join", &part));
        if (i)
            TSR_TRY(tpl_add_text(c, &b, t));
        TSR_TRY(tpl_str(c, &b, &l->v[i]));
    }
    return tpl_finish(c, &b, out);
}

TPL_RUN(join)
{
    const struct tpl_list *l;
    TSR_TRY(tpl_items(c, &a[0], &l));
    return tpl_join(c, self->s, l, false, out);
}

/* ---- padding ------------------------------------------------------------ */

static tsr_status pad(struct tpl_ctx *c, const struct tpl_value *self, const struct tpl_value *a,
                      int where, struct tpl_value *out)
{
    static const struct tpl_text space = { .s = " ", .n = 1 };
    const struct tpl_text       *fill = &space;
    int64_t                      width;
    TSR_TRY(tpl_want_int(c, &a[0], "the width", 0, &width));
    if (a[1].kind != TPL_MISSING)
        TSR_TRY(tpl_want_text(c, &a[1], "the fill character", &fill));
    if (tpl_count(fill->s, fill->n) != 1)
        return tpl_fail(c, "the fill character is not one character");
    return tpl_pad(c, self->s, width, where, fill, out);
}

TPL_RUN(ljust)
{
    return pad(c, self, a, -1, out);
}
TPL_RUN(rjust)
{
    return pad(c, self, a, 1, out);
}
TPL_RUN(center)
{
    return pad(c, self, a, 0, out);
}

TPL_RUN(zfill)
{
    static const struct tpl_text zero = { .s = "0", .n = 1 };
    const struct tpl_text       *t = self->s;
    struct tpl_build             b = { 0 };
    int64_t                      width;
    uint64_t                     sign = t->n && (t->s[0] == '-' || t->s[0] == '+');
    TSR_TRY(tpl_want_int(c, &a[0], "the width", 0, &width));
    TSR_TRY(tpl_add(c, &b, t, 0, sign));
    TSR_TRY(tpl_repeat(c, &b, &zero, width - (int64_t)tpl_count(t->s, t->n)));
    TSR_TRY(tpl_add(c, &b, t, sign, t->n - sign));
    return tpl_finish(c, &b, out);
}

TPL_RUN(format)
{
    return tpl_format(c, self->s, args, out);
}

const struct tpl_function *tpl_string_method(const char *s, uint64_t n)
{
    static const struct tpl_function all[] = {
        { "split", "sep maxsplit", 0, split },
        { "rsplit", "sep maxsplit", 0, rsplit },
        { "splitlines", "keepends", 0, splitlines },
        { "join", ".", 1, join },
        { "ljust", ". .", 1, ljust },
        { "rjust", ". .", 1, rjust },
        { "center", ". .", 1, center },
        { "zfill", ".", 1, zfill },
        { "format", NULL, 0, format },
    };
    const struct tpl_function *f = tpl_find(all, sizeof all / sizeof *all, s, n);
    f = f ? f : tpl_string_part(s, n);
    return f ? f : tpl_string_question(s, n);
}
