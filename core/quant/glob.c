/* Name patterns in bounded time: the last '*' is the only place to go back to. */
#include "quant/scheme.h"

/* The character after a set that starts at p ('['), *hit whether c is in it; NULL if the set is not
 * closed, which makes '[' an ordinary character. */
static const char *match_set(const char *p, char c, bool *hit)
{
    bool invert = p[1] == '!' || p[1] == '^';
    p += invert ? 2 : 1;
    *hit = false;
    for (bool first = true; first || *p != ']'; first = false) {
        if (*p == '\0')
            return NULL;
        char lo = *p++, hi = lo;
        if (*p == '-' && p[1] != ']' && p[1] != '\0') {
            hi = p[1];
            p += 2;
        }
        *hit |= (unsigned char)lo <= (unsigned char)c && (unsigned char)c <= (unsigned char)hi;
    }
    *hit ^= invert;
    return p + 1;
}

bool tsr_quant_name_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *retry = NULL;
    while (*name || *pattern) {
        const char *next = NULL;
        bool        hit;
        if (*pattern == '*') {
            star = ++pattern;
            retry = name;
            continue;
        }
        if (*name && *pattern == '[' && (next = match_set(pattern, *name, &hit)) != NULL)
            next = hit ? next : NULL;
        else if (*name && (*pattern == '?' || *pattern == *name))
            next = pattern + 1;
        if (next) {
            pattern = next;
            name++;
        } else if (star && *retry) {
            pattern = star;
            name = ++retry;
        } else {
            return false;
        }
    }
    return true;
}
