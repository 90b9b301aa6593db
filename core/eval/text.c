#include "eval/text.h"

#include <stdbool.h>

/* The code point at p of valid UTF-8, and its length. */
static uint32_t code_point(const unsigned char *p, uint64_t left, unsigned *n)
{
    *n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    if (*n > left || *n == 1) {
        *n = 1;
        return *p;
    }
    uint32_t c = *p & (0x7fu >> *n);
    for (unsigned i = 1; i < *n; i++)
        c = c << 6 | (p[i] & 0x3fu);
    return c;
}

/* str.isspace() */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

uint64_t tsr_eval_count_words(const char *text, uint64_t bytes)
{
    uint64_t words = 1; /* the pieces around the runs of space, empty ones at the ends too */
    bool     in_space = false;
    for (uint64_t i = 0; i < bytes;) {
        unsigned n;
        bool     space = is_space(code_point((const unsigned char *)text + i, bytes - i, &n));
        words += space && !in_space;
        in_space = space;
        i += n;
    }
    return words;
}

uint64_t tsr_eval_stripped(const char *text, uint64_t n)
{
    while (n) {
        uint64_t at = n - 1;
        unsigned len;
        while (at && ((unsigned char)text[at] & 0xc0) == 0x80)
            at--;
        uint32_t c = code_point((const unsigned char *)text + at, n - at, &len);
        if (at + len != n || !is_space(c))
            break;
        n = at;
    }
    return n;
}

uint64_t tsr_eval_count_characters(const char *text, uint64_t n)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}
