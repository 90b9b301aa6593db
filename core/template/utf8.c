/* Characters of UTF-8 texts, and what Python says of them. */
#include "template/internal.h"

#include <utf8proc.h>

uint32_t tpl_char(const char *s, uint64_t n, unsigned *len)
{
    const unsigned char *u = (const unsigned char *)s;
    unsigned             want = u[0] < 0x80 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    if (want == 1 || want > n) {
        *len = 1;
        return u[0];
    }
    uint32_t ch = u[0] & (0x7fu >> want);
    for (unsigned i = 1; i < want; i++)
        ch = ch << 6 | (u[i] & 0x3fu);
    *len = want;
    return ch;
}

unsigned tpl_put_char(char out[4], uint32_t ch)
{
    return (unsigned)utf8proc_encode_char((utf8proc_int32_t)ch, (utf8proc_uint8_t *)out);
}

bool tpl_valid(const char *s, uint64_t n)
{
    for (uint64_t i = 0; i < n;) {
        utf8proc_int32_t ch;
        utf8proc_ssize_t k =
            utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(n - i), &ch);
        if (k < 1)
            return false;
        i += (uint64_t)k;
    }
    return true;
}

static bool is_start(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

uint64_t tpl_count(const char *s, uint64_t n)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        count += is_start(s[i]);
    return count;
}

uint64_t tpl_offset(const char *s, uint64_t n, uint64_t i)
{
    uint64_t at = 0;
    for (; at < n; at++)
        if (is_start(s[at]) && i-- == 0)
            break;
    return at;
}

bool tpl_is_space(uint32_t ch)
{
    return (ch >= 9 && ch <= 13) || (ch >= 28 && ch <= 32) || ch == 0x85 || ch == 0xa0 ||
           ch == 0x1680 || (ch >= 0x2000 && ch <= 0x200a) || ch == 0x2028 || ch == 0x2029 ||
           ch == 0x202f || ch == 0x205f || ch == 0x3000;
}

bool tpl_is_line_end(uint32_t ch)
{
    return (ch >= 10 && ch <= 13) || (ch >= 28 && ch <= 30) || ch == 0x85 || ch == 0x2028 ||
           ch == 0x2029;
}

bool tpl_is_printable(uint32_t ch)
{
    if (ch < 0x7f)
        return ch >= 32;
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)ch);
    return k != UTF8PROC_CATEGORY_CC && k != UTF8PROC_CATEGORY_CF && k != UTF8PROC_CATEGORY_CS &&
           k != UTF8PROC_CATEGORY_CO && k != UTF8PROC_CATEGORY_CN && k != UTF8PROC_CATEGORY_ZL &&
           k != UTF8PROC_CATEGORY_ZP && k != UTF8PROC_CATEGORY_ZS;
}
