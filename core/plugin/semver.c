#include "plugin/semver.h"

#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-"
#define DIGITS  "0123456789"

/* Length of a number without leading zeros; 0 if there is none. */
static size_t number(const char *s)
{
    size_t n = strspn(s, DIGITS);
    return n > 1 && *s == '0' ? 0 : n;
}

/* Length of one identifier of a pre-release or of build data; 0 if there is none. */
static size_t identifier(const char *s, bool build)
{
    size_t n = strspn(s, LETTERS DIGITS);
    if (!build && strspn(s, DIGITS) == n)
        return number(s);
    return n;
}

/* Steps over identifiers with dots between them; NULL when one is wrong. */
static const char *identifiers(const char *s, bool build)
{
    for (;;) {
        size_t n = identifier(s, build);
        if (n == 0)
            return NULL;
        s += n;
        if (*s != '.')
            return s;
        s++;
    }
}

static bool valid(const char *s, int least)
{
    int numbers = 0;
    for (;; s++) {
        size_t n = number(s);
        if (n == 0)
            return false;
        s += n;
        if (++numbers == 3 || *s != '.')
            break;
    }
    if (numbers < least)
        return false;
    if (*s == '-' && !(s = identifiers(s + 1, false)))
        return false;
    if (*s == '+' && !(s = identifiers(s + 1, true)))
        return false;
    return *s == '\0';
}

bool tsr_plugin_semver_valid(const char *s)
{
    return valid(s, 3);
}

bool tsr_plugin_semver_valid_short(const char *s)
{
    return valid(s, 1);
}

/* Numbers of any length; an absent one (n == 0) is 0. */
static int compare_numbers(const char *a, size_t n, const char *b, size_t m)
{
    if (n == 0 || m == 0) /* nothing is as much as a 0 */
        return (n > 0 && *a != '0') - (m > 0 && *b != '0');
    if (n != m)
        return n < m ? -1 : 1;
    return memcmp(a, b, n);
}

static int compare_identifiers(const char *a, size_t n, const char *b, size_t m)
{
    bool a_number = strspn(a, DIGITS) >= n, b_number = strspn(b, DIGITS) >= m;
    if (a_number && b_number)
        return compare_numbers(a, n, b, m);
    if (a_number != b_number) /* numbers come first */
        return a_number ? -1 : 1;
    int order = memcmp(a, b, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

/* a and b after their '-'. */
static int compare_prerelease(const char *a, const char *b)
{
    for (;;) {
        size_t n = identifier(a, false), m = identifier(b, false);
        int    order = compare_identifiers(a, n, b, m);
        if (order)
            return order;
        a += n;
        b += m;
        if (*a != '.' || *b != '.') /* the longer list comes later */
            return (*a == '.') - (*b == '.');
        a++;
        b++;
    }
}

int tsr_plugin_semver_compare(const char *a, const char *b)
{
    for (int i = 0; i < 3; i++) {
        size_t n = number(a), m = number(b);
        int    order = compare_numbers(a, n, b, m);
        if (order)
            return order;
        a += n;
        b += m;
        a += i < 2 && *a == '.';
        b += i < 2 && *b == '.';
    }
    if (*a != '-' || *b != '-')
        return (*b == '-') - (*a == '-');
    return compare_prerelease(a + 1, b + 1);
}
