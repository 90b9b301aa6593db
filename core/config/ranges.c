#include "config/config.h"

#include <string.h>

/* A decimal number at *s below 10^9; false without digits. */
static bool take(const char **s, uint64_t *v)
{
    const char *p = *s;
    uint64_t    x = 0;
    while (*p >= '0' && *p <= '9') {
        if (x < 1000000000u)
            x = x * 10 + (uint64_t)(*p - '0');
        p++;
    }
    if (p == *s)
        return false;
    *s = p;
    *v = x;
    return true;
}

static void skip(const char **s)
{
    while (**s == ' ')
        (*s)++;
}

tsr_status tsr_parse_ranges(const char *text, uint64_t n, bool *in, struct tsr_err *err)
{
    memset(in, 0, n * sizeof *in);
    const char *s = text;
    for (;;) {
        skip(&s);
        const char *part = s;
        uint64_t    a = 0, b;
        bool        ok = take(&s, &a);
        b = a;
        skip(&s);
        if (ok && *s == '-') {
            s++;
            skip(&s);
            ok = take(&s, &b);
            skip(&s);
        }
        size_t len = strcspn(part, ",");
        if (len > 40)
            len = 40;
        if (!ok || (*s && *s != ','))
            return tsr_fail(err, TSR_E_INPUT,
                            "\"%s\": \"%.*s\" is not a layer or a range such as 0-3", text,
                            (int)len, part);
        if (a > b)
            return tsr_fail(err, TSR_E_INPUT, "\"%s\": %.*s runs backwards", text, (int)len, part);
        if (b >= n)
            return tsr_fail(err, TSR_E_INPUT, "\"%s\": there is no layer %llu, the last is %llu",
                            text, (unsigned long long)b, (unsigned long long)(n ? n - 1 : 0));
        for (uint64_t i = a; i <= b; i++)
            in[i] = true;
        if (!*s)
            return TSR_OK;
        s++;
    }
}
