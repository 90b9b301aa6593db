/* text.c - growing lists, UTF-8, and the classes of characters. */
#include "tokenizer/internal.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void tsr_tokenizer_ids_free(struct tsr_tokenizer_ids *ids)
{
    free(ids->v);
    memset(ids, 0, sizeof *ids);
}

void tsr_tokenizer_text_free(struct tsr_tokenizer_text *t)
{
    free(t->v);
    memset(t, 0, sizeof *t);
}

tsr_status tsr_tokenizer_ids_push(struct tsr_tokenizer_ids *ids, uint32_t id, struct tsr_err *err)
{
    if (ids->n == ids->cap) {
        uint64_t  cap = ids->cap ? ids->cap * 2 : 64;
        uint32_t *v = tsr_renew(ids->v, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, "token ids");
        ids->v = v;
        ids->cap = cap;
    }
    ids->v[ids->n++] = id;
    return TSR_OK;
}

tsr_status tsr_tokenizer_text_append(struct tsr_tokenizer_text *t, const char *s, uint64_t n,
                                     struct tsr_err *err)
{
    if (n >= t->cap - t->n || !t->cap) {
        uint64_t need, cap;
        if (!tsr_add(t->n, n, &need) || !tsr_mul(need + 32, 2, &cap))
            return tsr_fail_nomem(err, n, "text");
        char *v = tsr_renew(t->v, cap, 1);
        if (!v)
            return tsr_fail_nomem(err, cap, "text");
        t->v = v;
        t->cap = cap;
    }
    if (n)
        memcpy(t->v + t->n, s, n);
    t->n += n;
    t->v[t->n] = '\0';
    return TSR_OK;
}

unsigned tok_sequence(const char *s, uint64_t n, bool *valid, bool *open)
{
    unsigned char b = (unsigned char)s[0];
    *valid = *open = false;
    if (b < 0x80) {
        *valid = true;
        return 1;
    }
    if (b < 0xc2 || b > 0xf4)
        return 1;
    unsigned      need = b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
    unsigned char lo = 0x80, hi = 0xbf; /* range of the second byte */
    if (b == 0xe0)
        lo = 0xa0;
    else if (b == 0xed)
        hi = 0x9f;
    else if (b == 0xf0)
        lo = 0x90;
    else if (b == 0xf4)
        hi = 0x8f;
    for (unsigned i = 1; i < need; i++) {
        if (i >= n) {
            *open = true;
            return i;
        }
        unsigned char c = (unsigned char)s[i];
        if (c < lo || c > hi)
            return i;
        lo = 0x80;
        hi = 0xbf;
    }
    *valid = true;
    return need;
}

tsr_status tsr_tokenizer_text_load(const char *path, uint64_t cap, char **text, uint64_t *len,
                                   struct tsr_err *err)
{
    TSR_TRY(tsr_file_slurp(path, cap, text, len, err));
    for (uint64_t i = 0; i < *len;) {
        bool     valid, open;
        unsigned n = tok_sequence(*text + i, *len - i, &valid, &open);
        if (!valid && !open) {
            free(*text);
            *text = NULL;
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: byte %llu is not UTF-8; give a text, in UTF-8 (iconv -t UTF-8 "
                            "converts another encoding)",
                            path, (unsigned long long)i);
        }
        i += n;
    }
    return TSR_OK;
}

uint32_t tok_char(const char *s, uint64_t n, unsigned *len)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80 || n < 2) {
        *len = 1;
        return u[0];
    }
    if (u[0] < 0xe0 || n < 3) {
        *len = 2;
        return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
    }
    if (u[0] < 0xf0 || n < 4) {
        *len = 3;
        return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
    }
    *len = 4;
    return (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
}

unsigned tok_put_char(char out[4], uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

tsr_status tok_append_char(struct tsr_tokenizer_text *t, uint32_t c, struct tsr_err *err)
{
    char     b[4];
    unsigned n = tok_put_char(b, c);
    return tsr_tokenizer_text_append(t, b, n, err);
}

bool tok_valid(const char *s, uint64_t n)
{
    bool valid, open;
    for (uint64_t i = 0; i < n;) {
        i += tok_sequence(s + i, n - i, &valid, &open);
        if (!valid)
            return false;
    }
    return true;
}

tsr_status tok_append_lossy(struct tsr_tokenizer_text *t, const char *s, uint64_t n,
                            struct tsr_err *err)
{
    uint64_t from = 0, i = 0;
    while (i < n) {
        bool     valid, open;
        unsigned len = tok_sequence(s + i, n - i, &valid, &open);
        if (!valid) {
            TSR_TRY(tsr_tokenizer_text_append(t, s + from, i - from, err));
            TSR_TRY(tsr_tokenizer_text_append(t, "\xef\xbf\xbd", 3, err));
            from = i + len;
        }
        i += len;
    }
    return tsr_tokenizer_text_append(t, s + from, n - from, err);
}

bool tok_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

bool tok_is_mark(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool tok_is_numeric(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool tok_is_punct(uint32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    switch (category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return true;
    default:
        return false;
    }
}

bool tok_is_word(uint32_t c)
{
    switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default: /* Join_Control, and the circled letters that are Other_Alphabetic */
        return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
               (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
               (c >= 0x1f170 && c <= 0x1f189);
    }
}

uint32_t tok_byte_char(unsigned char b)
{
    if ((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad))
        return b;
    if (b <= 0x20)
        return 0x100u + b;
    if (b == 0xad)
        return 0x143;
    return 0x121u + (b - 0x7fu); /* 0x7f..0xa0 */
}

int tok_char_byte(uint32_t c)
{
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad))
        return (int)c;
    if (c >= 0x100 && c <= 0x120)
        return (int)(c - 0x100);
    if (c >= 0x121 && c <= 0x142)
        return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}
