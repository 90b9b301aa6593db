/* charsmap.c - SentencePiece's precompiled map of characters: a double-array trie (Darts)
 * from byte strings to offsets in a block of NUL-terminated replacements. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct tok_charsmap {
    uint32_t *unit;
    uint64_t  n_unit;
    char     *text;
    uint64_t  n_text;
};

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes n digits into out (3/4 of them); false for a wrong digit or length. */
static bool base64(const char *s, uint64_t n, unsigned char *out, uint64_t *bytes)
{
    while (n > 0 && s[n - 1] == '=')
        n--;
    uint32_t bits = 0;
    unsigned have = 0;
    *bytes = 0;
    for (uint64_t i = 0; i < n; i++) {
        int d = base64_digit(s[i]);
        if (d < 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[(*bytes)++] = (unsigned char)(bits >> have);
        }
    }
    return n % 4 != 1;
}

static tsr_status unpack(struct tok_charsmap *m, const char *name, const unsigned char *b,
                         uint64_t n, struct tsr_err *err)
{
    uint32_t size = 0;
    for (unsigned i = 0; i < 4 && n >= 4; i++)
        size |= (uint32_t)b[i] << 8 * i;
    if (n < 8 || size % 4 || size == 0 || size > n - 4)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"precompiled_charsmap\" is cut short", name);
    m->n_unit = size / 4;
    m->n_text = n - 4 - size;
    m->unit = tsr_new(m->n_unit, sizeof *m->unit);
    m->text = tsr_new(m->n_text + 1, 1);
    if (!m->unit || !m->text)
        return tsr_fail_nomem(err, n, "a map of characters");
    for (uint64_t i = 0; i < size; i++)
        m->unit[i / 4] |= (uint32_t)b[4 + i] << 8 * (i % 4);
    if (m->n_text)
        memcpy(m->text, b + 4 + size, m->n_text);
    if (!tok_valid(m->text, m->n_text))
        return tsr_fail(err, TSR_E_INPUT, "%s: the text of \"precompiled_charsmap\" is not UTF-8",
                        name);
    return TSR_OK;
}

tsr_status tok_charsmap_load(struct tok_charsmap **out, const char *name, const json_t *j,
                             struct tsr_err *err)
{
    const char *s = NULL;
    TSR_TRY(tsr_json_str(j, name, "precompiled_charsmap", true, &s, err));
    uint64_t       n = strlen(s), bytes;
    unsigned char *b = tsr_new(n + 1, 1);
    *out = tsr_new(1, sizeof **out); /* freed with its part, also when this fails */
    tsr_status st = TSR_OK;
    if (!b || !*out)
        st = tsr_fail_nomem(err, n, "a map of characters");
    else if (!base64(s, n, b, &bytes))
        st = tsr_fail(err, TSR_E_INPUT, "%s: \"precompiled_charsmap\" is not base64", name);
    else
        st = unpack(*out, name, b, bytes, err);
    free(b);
    return st;
}

void tok_charsmap_free(struct tok_charsmap *m)
{
    if (!m)
        return;
    free(m->unit);
    free(m->text);
    free(m);
}

static uint64_t offset(uint32_t unit)
{
    return (uint64_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The replacement of the shortest key that begins s: the reference takes the first hit. */
static bool look_up(const struct tok_charsmap *m, const char *s, uint64_t n, const char **to,
                    uint64_t *len)
{
    uint64_t node = offset(m->unit[0]);
    for (uint64_t i = 0; i < n && s[i]; i++) {
        node ^= (unsigned char)s[i];
        if (node >= m->n_unit)
            return false;
        uint32_t unit = m->unit[node];
        if ((unit & (1u << 31 | 0xff)) != (unsigned char)s[i])
            return false;
        node ^= offset(unit);
        if (node >= m->n_unit)
            return false;
        if (unit >> 8 & 1) {
            uint64_t at = m->unit[node] & 0x7fffffffu;
            if (at > m->n_text)
                return false;
            *to = m->text + at;
            *len = strnlen(*to, m->n_text - at);
            return tok_valid(*to, *len);
        }
    }
    return false;
}

static tsr_status one(const struct tok_charsmap *m, struct tsr_tokenizer_text *out, const char *s,
                      uint64_t n, struct tsr_err *err)
{
    const char *to;
    uint64_t    len;
    if (n < 6 && look_up(m, s, n, &to, &len))
        return tsr_tokenizer_text_append(out, to, len, err);
    for (uint64_t i = 0; i < n;) {
        unsigned c;
        (void)tok_char(s + i, n - i, &c);
        if (look_up(m, s + i, c, &to, &len))
            TSR_TRY(tsr_tokenizer_text_append(out, to, len, err));
        else
            TSR_TRY(tsr_tokenizer_text_append(out, s + i, c, err));
        i += c;
    }
    return TSR_OK;
}

tsr_status tok_charsmap_run(const struct tok_charsmap *m, struct tok_string *s, struct tsr_err *err)
{
    struct tsr_tokenizer_text out = { 0 };
    tsr_status                st = TSR_OK;
    uint64_t                  from = 0, zero = 0;
    utf8proc_int32_t          state = 0;
    uint32_t                  before = 0;
    for (uint64_t i = 0; i <= s->t.n && st == TSR_OK;) {
        unsigned len = 1;
        uint32_t c = i < s->t.n ? tok_char(s->t.v + i, s->t.n - i, &len) : 0;
        bool     brk =
            i == s->t.n || (i > 0 && utf8proc_grapheme_break_stateful((utf8proc_int32_t)before,
                                                                      (utf8proc_int32_t)c, &state));
        if (brk && i > from) {
            st = one(m, &out, s->t.v + from, i - from, err);
            if (from < s->zero)
                zero = out.n;
            from = i;
        }
        before = c;
        i += len;
    }
    return tok_become(s, &out, zero, st);
}
