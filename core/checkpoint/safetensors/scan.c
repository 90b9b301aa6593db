#include "checkpoint/safetensors/scan.h"

#include <string.h>

tsr_status tsr_checkpoint_scan_fail(const struct tsr_checkpoint_scan *s, const char *what)
{
    return tsr_fail(s->err, TSR_E_INPUT, "%s: header byte %llu: %s", s->file,
                    (unsigned long long)(s->p - s->begin), what);
}

void tsr_checkpoint_scan_space(struct tsr_checkpoint_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

bool tsr_checkpoint_scan_if(struct tsr_checkpoint_scan *s, char c)
{
    tsr_checkpoint_scan_space(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

tsr_status tsr_checkpoint_scan_char(struct tsr_checkpoint_scan *s, char c, const char *what)
{
    if (tsr_checkpoint_scan_if(s, c))
        return TSR_OK;
    return tsr_checkpoint_scan_fail(s, what);
}

/* Bytes of the UTF-8 character at p, 0 if it is not one. */
static unsigned utf8_length(const unsigned char *p, const unsigned char *end)
{
    unsigned n = p[0] < 0x80   ? 1
                 : p[0] < 0xc2 ? 0
                 : p[0] < 0xe0 ? 2
                 : p[0] < 0xf0 ? 3
                 : p[0] < 0xf5 ? 4
                               : 0;
    if (n == 0 || (uint64_t)(end - p) < n)
        return 0;
    for (unsigned i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* too long forms, surrogates, above U+10FFFF */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

static bool hex4(struct tsr_checkpoint_scan *s, uint32_t *v)
{
    if (s->end - s->p < 4)
        return false;
    *v = 0;
    for (int i = 0; i < 4; i++) {
        char     c = *s->p++;
        uint32_t d = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                            : 16;
        if (d == 16)
            return false;
        *v = *v << 4 | d;
    }
    return true;
}

static char *put_utf8(char *t, uint32_t c)
{
    if (c < 0x80) {
        *t++ = (char)c;
    } else if (c < 0x800) {
        *t++ = (char)(0xc0 | c >> 6);
        *t++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *t++ = (char)(0xe0 | c >> 12);
        *t++ = (char)(0x80 | (c >> 6 & 0x3f));
        *t++ = (char)(0x80 | (c & 0x3f));
    } else {
        *t++ = (char)(0xf0 | c >> 18);
        *t++ = (char)(0x80 | (c >> 12 & 0x3f));
        *t++ = (char)(0x80 | (c >> 6 & 0x3f));
        *t++ = (char)(0x80 | (c & 0x3f));
    }
    return t;
}

/* Behind a backslash.  What it decodes to is never longer than the escape. */
static tsr_status escape(struct tsr_checkpoint_scan *s, char **t)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end)
        return tsr_checkpoint_scan_fail(s, "the string does not end");
    char c = *s->p++;
    if (c != 'u') {
        const char *at = c ? strchr(from, c) : NULL;
        if (!at)
            return tsr_checkpoint_scan_fail(s, "unknown escape in a string");
        *(*t)++ = to[at - from];
        return TSR_OK;
    }
    uint32_t u, low;
    if (!hex4(s, &u))
        return tsr_checkpoint_scan_fail(s, "\\u needs four hexadecimal digits");
    if (u == 0)
        return tsr_checkpoint_scan_fail(s, "NUL in a string");
    if (u >= 0xd800 && u < 0xdc00) {
        if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
            return tsr_checkpoint_scan_fail(s, "half a surrogate pair in a string");
        s->p += 2;
        if (!hex4(s, &low) || low < 0xdc00 || low > 0xdfff)
            return tsr_checkpoint_scan_fail(s, "half a surrogate pair in a string");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    } else if (u >= 0xdc00 && u < 0xe000) {
        return tsr_checkpoint_scan_fail(s, "half a surrogate pair in a string");
    }
    *t = put_utf8(*t, u);
    return TSR_OK;
}

tsr_status tsr_checkpoint_scan_string(struct tsr_checkpoint_scan *s, const char **v, uint64_t *n)
{
    TSR_TRY(tsr_checkpoint_scan_char(s, '"', "a string was expected"));
    char *t = s->text;
    for (;;) {
        if (s->p == s->end)
            return tsr_checkpoint_scan_fail(s, "the string does not end");
        unsigned char c = (unsigned char)*s->p;
        if (c == '"')
            break;
        if (c < 0x20)
            return tsr_checkpoint_scan_fail(s, c ? "control character in a string"
                                                 : "NUL in a string");
        if (c == '\\') {
            s->p++;
            TSR_TRY(escape(s, &t));
            continue;
        }
        unsigned len = utf8_length((const unsigned char *)s->p, (const unsigned char *)s->end);
        if (len == 0)
            return tsr_checkpoint_scan_fail(s, "not valid UTF-8");
        memcpy(t, s->p, len);
        t += len;
        s->p += len;
    }
    s->p++;
    *t = '\0';
    *v = s->text;
    *n = (uint64_t)(t - s->text);
    s->text = t + 1; /* the quotes left room for the NUL */
    return TSR_OK;
}

tsr_status tsr_checkpoint_scan_u64(struct tsr_checkpoint_scan *s, uint64_t *v)
{
    tsr_checkpoint_scan_space(s);
    const char *start = s->p;
    uint64_t    x = 0;
    if (s->p == s->end || *s->p < '0' || *s->p > '9')
        return tsr_checkpoint_scan_fail(s, "a whole number of at least 0 was expected");
    for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++) {
        if (__builtin_mul_overflow(x, (uint64_t)10, &x) ||
            __builtin_add_overflow(x, (uint64_t)(*s->p - '0'), &x))
            return tsr_checkpoint_scan_fail(s, "the number is larger than 64 bits");
    }
    if (s->p - start > 1 && *start == '0')
        return tsr_checkpoint_scan_fail(s, "a number starts with 0");
    if (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E'))
        return tsr_checkpoint_scan_fail(s, "a whole number was expected");
    *v = x;
    return TSR_OK;
}
