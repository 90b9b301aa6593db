/* unicode.c - the four normalization forms.  utf8proc knows the characters; marks are
 * ordered here by counting, since its own ordering takes quadratic time on long runs. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct points {
    int32_t *v;
    uint64_t n, cap;
};

static tsr_status room(struct points *p, uint64_t more, struct tsr_err *err)
{
    if (more <= p->cap - p->n)
        return TSR_OK;
    uint64_t cap = (p->cap + more) * 2;
    int32_t *v = tsr_renew(p->v, cap, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, cap * sizeof *v, "a normalized text");
    p->v = v;
    p->cap = cap;
    return TSR_OK;
}

static unsigned combining(int32_t c)
{
    return (unsigned)utf8proc_get_property(c)->combining_class & 0xffu;
}

static tsr_status decompose(struct points *p, const struct tsr_tokenizer_text *t, bool compat,
                            struct tsr_err *err)
{
    utf8proc_option_t options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE;
    if (compat)
        options |= UTF8PROC_COMPAT;
    for (uint64_t i = 0; i < t->n;) {
        unsigned len;
        int32_t  c = (int32_t)tok_char(t->v + i, t->n - i, &len);
        int      boundary = 0;
        i += len;
        TSR_TRY(room(p, 32, err)); /* the longest decomposition has 18 */
        utf8proc_ssize_t k = utf8proc_decompose_char(c, p->v + p->n, 32, options, &boundary);
        if (k < 0 || k > 32)
            return tsr_fail(err, TSR_E_BUG, "U+%04X has no decomposition", (unsigned)c);
        p->n += (uint64_t)k;
    }
    return TSR_OK;
}

/* Stable order by combining class within each run of non-starters. */
static tsr_status order(struct points *p, struct tsr_err *err)
{
    struct points tmp = { 0 };
    tsr_status    st = TSR_OK;
    for (uint64_t i = 0; i < p->n && st == TSR_OK;) {
        uint64_t end = i;
        bool     sorted = true;
        while (end < p->n && combining(p->v[end]) != 0) {
            sorted = sorted && (end == i || combining(p->v[end - 1]) <= combining(p->v[end]));
            end++;
        }
        if (!sorted) {
            uint64_t at[257] = { 0 };
            tmp.n = 0;
            st = room(&tmp, end - i, err);
            if (st != TSR_OK)
                break;
            for (uint64_t k = i; k < end; k++)
                at[combining(p->v[k]) + 1]++;
            for (unsigned k = 1; k < 257; k++)
                at[k] += at[k - 1];
            for (uint64_t k = i; k < end; k++)
                tmp.v[at[combining(p->v[k])]++] = p->v[k];
            memcpy(p->v + i, tmp.v, (end - i) * sizeof *p->v);
        }
        i = end > i ? end : i + 1;
    }
    free(tmp.v);
    return st;
}

tsr_status tok_unicode(struct tok_string *s, enum tok_kind form, struct tsr_err *err)
{
    bool ascii = true;
    for (uint64_t i = 0; i < s->t.n && ascii; i++)
        ascii = (unsigned char)s->t.v[i] < 0x80;
    if (ascii)
        return TSR_OK;
    struct points             p = { 0 };
    struct tsr_tokenizer_text out = { 0 };
    tsr_status                st = decompose(&p, &s->t, form == TOK_NFKC || form == TOK_NFKD, err);
    if (st == TSR_OK)
        st = order(&p, err);
    if (st == TSR_OK && (form == TOK_NFC || form == TOK_NFKC)) {
        utf8proc_ssize_t n = utf8proc_normalize_utf32(p.v, (utf8proc_ssize_t)p.n,
                                                      UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (n < 0)
            st = tsr_fail(err, TSR_E_BUG, "a text cannot be composed");
        else
            p.n = (uint64_t)n;
    }
    for (uint64_t i = 0; i < p.n && st == TSR_OK; i++)
        st = tok_append_char(&out, (uint32_t)p.v[i], err);
    free(p.v);
    if (st != TSR_OK) {
        tsr_tokenizer_text_free(&out);
        return st;
    }
    tsr_tokenizer_text_free(&s->t);
    s->t = out;
    if (s->zero && out.n) {
        unsigned len;
        (void)tok_char(out.v, out.n, &len);
        s->zero = len;
    }
    return TSR_OK;
}
