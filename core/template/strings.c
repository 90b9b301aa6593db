/* Methods of texts: spaces, search, replacement, splitting. */
#include "template/internal.h"

#include <string.h>

/* ---- strip -------------------------------------------------------------- */

static bool stripped(const struct tpl_text *chars, const char *s, unsigned len)
{
    if (!chars)
        return tpl_is_space(tpl_char(s, len, &len));
    for (uint64_t i = 0; i < chars->n;) {
        unsigned k;
        (void)tpl_char(chars->s + i, chars->n - i, &k);
        if (k == len && memcmp(chars->s + i, s, len) == 0)
            return true;
        i += k;
    }
    return false;
}

tsr_status tpl_strip(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_text *chars,
                     bool left, bool right, struct tpl_value *out)
{
    uint64_t from = 0, end = t->n;
    unsigned len;
    while (left && from < end) {
        (void)tpl_char(t->s + from, end - from, &len);
        if (!stripped(chars, t->s + from, len))
            break;
        from += len;
    }
    while (right && end > from) {
        uint64_t i = end - 1;
        while (i > from && ((unsigned char)t->s[i] & 0xc0) == 0x80)
            i--;
        if (!stripped(chars, t->s + i, (unsigned)(end - i)))
            break;
        end = i;
    }
    TSR_TRY(tpl_charge(c, (t->n - (end - from)) * (chars ? 1 + chars->n : 1)));
    return tpl_sub(c, t, from, end - from, out);
}

static tsr_status strip_with(struct tpl_ctx *c, const struct tpl_value *self,
                             const struct tpl_value *a, bool left, bool right,
                             struct tpl_value *out)
{
    const struct tpl_text *chars = NULL;
    if (a[0].kind != TPL_MISSING && a[0].kind != TPL_NONE)
        TSR_TRY(tpl_want_text(c, &a[0], "what to strip", &chars));
    return tpl_strip(c, self->s, chars, left, right, out);
}

TPL_RUN(strip)
{
    return strip_with(c, self, a, true, true, out);
}
TPL_RUN(lstrip)
{
    return strip_with(c, self, a, true, false, out);
}
TPL_RUN(rstrip)
{
    return strip_with(c, self, a, false, true, out);
}

/* ---- search ------------------------------------------------------------- */

/* The bytes from character start to character end of a text; false: start is behind its end. */
static tsr_status window(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_value *start,
                         const struct tpl_value *stop, uint64_t *from, uint64_t *end, bool *there)
{
    int64_t n = (int64_t)tpl_count(t->s, t->n), i = 0, k = n;
    if (start->kind != TPL_NONE)
        TSR_TRY(tpl_want_int(c, start, "where to start", 0, &i));
    if (stop->kind != TPL_NONE)
        TSR_TRY(tpl_want_int(c, stop, "where to stop", n, &k));
    k = k > n ? n : k < 0 ? (k + n > 0 ? k + n : 0) : k;
    i = i < 0 ? (i + n > 0 ? i + n : 0) : i;
    *there = i <= k;
    *from = tpl_offset(t->s, t->n, (uint64_t)i);
    *end = *there ? tpl_offset(t->s, t->n, (uint64_t)k) : *from;
    return tpl_charge(c, t->n);
}

static bool has(const struct tpl_text *t, uint64_t from, uint64_t end, const struct tpl_text *part,
                bool at_end)
{
    if (part->n > end - from)
        return false;
    return memcmp(t->s + (at_end ? end - part->n : from), part->s, part->n) == 0;
}

static tsr_status affix(struct tpl_ctx *c, const struct tpl_value *self, const struct tpl_value *a,
                        bool at_end, struct tpl_value *out)
{
    uint64_t from, end;
    bool     there, yes = false;
    TSR_TRY(window(c, self->s, &a[1], &a[2], &from, &end, &there));
    if (a[0].kind != TPL_TUPLE) {
        const struct tpl_text *part;
        TSR_TRY(tpl_want_text(c, &a[0], at_end ? "the end" : "the start", &part));
        *out = tpl_bool(there && has(self->s, from, end, part, at_end));
        return TSR_OK;
    }
    for (uint64_t i = 0; i < a[0].list->n && !yes; i++) {
        const struct tpl_text *part;
        TSR_TRY(tpl_want_text(c, &a[0].list->v[i], at_end ? "an end" : "a start", &part));
        yes = there && has(self->s, from, end, part, at_end);
    }
    *out = tpl_bool(yes);
    return TSR_OK;
}

TPL_RUN(startswith)
{
    return affix(c, self, a, false, out);
}
TPL_RUN(endswith)
{
    return affix(c, self, a, true, out);
}

/* The byte at which part begins in [from, end), the first or the last; UINT64_MAX: nowhere. */
static uint64_t search(const struct tpl_text *t, uint64_t from, uint64_t end,
                       const struct tpl_text *part, bool last)
{
    if (part->n > end - from)
        return UINT64_MAX;
    if (part->n == 0)
        return last ? end : from;
    if (!last) {
        const char *s = memmem(t->s + from, end - from, part->s, part->n);
        return s ? (uint64_t)(s - t->s) : UINT64_MAX;
    }
    for (uint64_t i = end - part->n + 1; i-- > from;)
        if (memcmp(t->s + i, part->s, part->n) == 0)
            return i;
    return UINT64_MAX;
}

static tsr_status find_in(struct tpl_ctx *c, const struct tpl_value *self,
                          const struct tpl_value *a, bool last, bool must, struct tpl_value *out)
{
    const struct tpl_text *part;
    uint64_t               from, end, at = UINT64_MAX;
    bool                   there;
    TSR_TRY(tpl_want_text(c, &a[0], "what to find", &part));
    TSR_TRY(window(c, self->s, &a[1], &a[2], &from, &end, &there));
    if (last && part->n >= 16)
        TSR_TRY(tpl_charge(c, self->s->n * (part->n / 16)));
    if (there)
        at = search(self->s, from, end, part, last);
    if (at == UINT64_MAX && must)
        return tpl_fail(c, "the text to find is not there");
    *out = tpl_int(at == UINT64_MAX ? -1 : (int64_t)tpl_count(self->s->s, at));
    return TSR_OK;
}

TPL_RUN(find)
{
    return find_in(c, self, a, false, false, out);
}
TPL_RUN(rfind)
{
    return find_in(c, self, a, true, false, out);
}
TPL_RUN(index_of)
{
    return find_in(c, self, a, false, true, out);
}
TPL_RUN(rindex_of)
{
    return find_in(c, self, a, true, true, out);
}

TPL_RUN(count)
{
    const struct tpl_text *part;
    uint64_t               from, end, at;
    int64_t                n = 0;
    bool                   there;
    TSR_TRY(tpl_want_text(c, &a[0], "what to count", &part));
    TSR_TRY(window(c, self->s, &a[1], &a[2], &from, &end, &there));
    if (there && part->n == 0)
        n = (int64_t)tpl_count(self->s->s + from, end - from) + 1;
    while (there && part->n && (at = search(self->s, from, end, part, false)) != UINT64_MAX) {
        n++;
        from = at + part->n;
    }
    *out = tpl_int(n);
    return TSR_OK;
}

/* ---- replacement -------------------------------------------------------- */

/* An empty text is in front of every character and at the end. */
static tsr_status interleave(struct tpl_ctx *c, const struct tpl_text *t,
                             const struct tpl_text *new, int64_t most, struct tpl_build *b)
{
    for (uint64_t i = 0; i <= t->n;) {
        unsigned len = 1;
        if (most-- == 0)
            return tpl_add(c, b, t, i, t->n - i);
        TSR_TRY(tpl_add_text(c, b, new));
        if (i < t->n)
            (void)tpl_char(t->s + i, t->n - i, &len);
        if (i < t->n)
            TSR_TRY(tpl_add(c, b, t, i, len));
        i += len;
    }
    return TSR_OK;
}

tsr_status tpl_replace(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_text *old,
                       const struct tpl_text *new, int64_t most, struct tpl_value *out)
{
    struct tpl_build b = { 0 };
    uint64_t         from = 0, at;
    TSR_TRY(tpl_charge(c, t->n));
    if (old->n == 0)
        TSR_TRY(interleave(c, t, new, most, &b));
    else {
        while (most-- != 0 && (at = search(t, from, t->n, old, false)) != UINT64_MAX) {
            TSR_TRY(tpl_add(c, &b, t, from, at - from));
            TSR_TRY(tpl_add_text(c, &b, new));
            from = at + old->n;
        }
        TSR_TRY(tpl_add(c, &b, t, from, t->n - from));
    }
    return tpl_finish(c, &b, out);
}

TPL_RUN(replace)
{
    const struct tpl_text *old, *new;
    int64_t                most;
    TSR_TRY(tpl_want_text(c, &a[0], "what to replace", &old));
    TSR_TRY(tpl_want_text(c, &a[1], "the replacement", &new));
    TSR_TRY(tpl_want_int(c, &a[2], "the number of replacements", -1, &most));
    return tpl_replace(c, self->s, old, new, most, out);
}

static tsr_status without(struct tpl_ctx *c, const struct tpl_value *self,
                          const struct tpl_value *a, bool at_end, struct tpl_value *out)
{
    const struct tpl_text *part, *t = self->s;
    TSR_TRY(tpl_want_text(c, &a[0], at_end ? "the end" : "the start", &part));
    uint64_t n = has(t, 0, t->n, part, at_end) ? part->n : 0;
    return tpl_sub(c, t, at_end ? 0 : n, t->n - n, out);
}

TPL_RUN(removeprefix)
{
    return without(c, self, a, false, out);
}
TPL_RUN(removesuffix)
{
    return without(c, self, a, true, out);
}

static tsr_status partition_at(struct tpl_ctx *c, const struct tpl_value *self,
                               const struct tpl_value *a, bool last, struct tpl_value *out)
{
    const struct tpl_text *part, *t = self->s;
    struct tpl_value       v[3];
    TSR_TRY(tpl_want_text(c, &a[0], "the separator", &part));
    if (part->n == 0)
        return tpl_fail(c, "the separator is empty");
    TSR_TRY(tpl_charge(c, last && part->n >= 16 ? t->n * (part->n / 16) : t->n));
    uint64_t at = search(t, 0, t->n, part, last), n = part->n;
    if (at == UINT64_MAX) {
        at = last ? 0 : t->n;
        n = 0;
    }
    TSR_TRY(tpl_sub(c, t, 0, at, &v[0]));
    TSR_TRY(tpl_sub(c, t, at, n, &v[1]));
    TSR_TRY(tpl_sub(c, t, at + n, t->n - at - n, &v[2]));
    TSR_TRY(tpl_list(c, TPL_TUPLE, 3, out));
    for (int i = 0; i < 3; i++)
        TSR_TRY(tpl_push(c, out->list, &v[i]));
    return TSR_OK;
}

TPL_RUN(partition)
{
    return partition_at(c, self, a, false, out);
}
TPL_RUN(rpartition)
{
    return partition_at(c, self, a, true, out);
}

const struct tpl_function *tpl_string_part(const char *s, uint64_t n)
{
    static const struct tpl_function all[] = {
        { "strip", ".", 0, strip },
        { "lstrip", ".", 0, lstrip },
        { "rstrip", ".", 0, rstrip },
        { "startswith", ". . .", 1, startswith },
        { "endswith", ". . .", 1, endswith },
        { "find", ". . .", 1, find },
        { "rfind", ". . .", 1, rfind },
        { "index", ". . .", 1, index_of },
        { "rindex", ". . .", 1, rindex_of },
        { "count", ". . .", 1, count },
        { "replace", ". . .", 2, replace },
        { "removeprefix", ".", 1, removeprefix },
        { "removesuffix", ".", 1, removesuffix },
        { "partition", ".", 1, partition },
        { "rpartition", ".", 1, rpartition },
    };
    return tpl_find(all, sizeof all / sizeof *all, s, n);
}
