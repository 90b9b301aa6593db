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

/* One part: "3", "0-3" or, of the model's depth, "33%-67%". */
struct range {
    uint64_t a, b; /* the last is in it; of a share: percent */
    bool     share;
};

static bool take_part(const char **s, struct range *r)
{
    *r = (struct range){ 0 };
    skip(s);
    if (!take(s, &r->a))
        return false;
    r->b = r->a;
    r->share = **s == '%';
    *s += r->share;
    skip(s);
    if (**s != '-')
        return !r->share;
    ++*s;
    skip(s);
    if (!take(s, &r->b) || (**s == '%') != r->share)
        return false;
    *s += r->share;
    skip(s);
    return true;
}

/* The nearest border between two layers. */
static uint64_t border(uint64_t percent, uint64_t n)
{
    return (n * percent + 50) / 100;
}

tsr_status tsr_config_parse_ranges(const char *text, uint64_t n, bool *in, struct tsr_err *err)
{
    return tsr_config_parse_ranges_of(text, "layer", n, in, err);
}

tsr_status tsr_config_parse_ranges_of(const char *text, const char *what, uint64_t n, bool *in,
                                      struct tsr_err *err)
{
    memset(in, 0, n * sizeof *in);
    const char *s = text;
    for (;; s++) {
        struct range r;
        skip(&s);
        const char *part = s;
        bool        ok = take_part(&s, &r);
        size_t      len = strcspn(part, ",");
        if (len > 40)
            len = 40;
        if (!ok || (*s && *s != ','))
            return tsr_fail(err, TSR_E_INPUT,
                            "\"%s\": \"%.*s\" is not %s %s, a range such as 0-3 or a "
                            "share such as 0%%-33%%",
                            text, (int)len, part, *what == 'e' ? "an" : "a", what);
        if (r.a > r.b)
            return tsr_fail(err, TSR_E_INPUT, "\"%s\": %.*s runs backwards", text, (int)len, part);
        if (r.share && r.b > 100)
            return tsr_fail(err, TSR_E_INPUT, "\"%s\": %.*s is more than all %ss", text, (int)len,
                            part, what);
        if (r.share && border(r.a, n) == border(r.b, n))
            return tsr_fail(err, TSR_E_INPUT, "\"%s\": no %s of %llu lies in %.*s", text, what,
                            (unsigned long long)n, (int)len, part);
        uint64_t first = r.share ? border(r.a, n) : r.a;
        uint64_t last = r.share ? border(r.b, n) - 1 : r.b;
        if (last >= n)
            return tsr_fail(err, TSR_E_INPUT, "\"%s\": there is no %s %llu, the last is %llu", text,
                            what, (unsigned long long)last, (unsigned long long)(n ? n - 1 : 0));
        for (uint64_t i = first; i <= last; i++)
            in[i] = true;
        if (!*s)
            return TSR_OK;
    }
}
