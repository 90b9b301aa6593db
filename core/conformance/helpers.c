#include "conformance/helpers.h"

#include "base/rng.h"

#include <string.h>
#include <time.h>

void tsr_conformance_rule_ok(struct tsr_conformance_case *c, tsr_status st,
                             const struct tsr_errbuf *e, const char *fmt, ...)
{
    char    what[256];
    va_list ap;
    if (st == TSR_OK)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    tsr_conformance_rule_fail(c, "%s gave %s (%s), wanted TSR_OK", what,
                              tsr_conformance_status_name(st),
                              e->text[0] ? e->text : "without a sentence");
}

void tsr_conformance_rule_refused(struct tsr_conformance_case *c, tsr_status st, tsr_status want,
                                  const struct tsr_errbuf *e, const char *fmt, ...)
{
    char    what[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (st != want)
        tsr_conformance_rule_fail(c, "%s gave %s, wanted %s", what, tsr_conformance_status_name(st),
                                  tsr_conformance_status_name(want));
    if (e->text[0] == '\0')
        tsr_conformance_rule_fail(c, "%s gave %s without a sentence in err", what,
                                  tsr_conformance_status_name(st));
}

void tsr_conformance_rule_normal(const struct tsr_conformance_case *c, uint64_t stream, float *x,
                                 uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)tsr_normal(c->seed, stream, i);
}

uint64_t tsr_conformance_rule_below(const struct tsr_conformance_case *c, uint64_t stream,
                                    uint64_t index, uint64_t n)
{
    return (uint64_t)(tsr_uniform(c->seed, stream, index) * (double)n);
}

double tsr_conformance_rule_cpu_s(void)
{
    struct timespec t = { 0, 0 };
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void *tsr_conformance_rule_room(uint64_t bytes)
{
    return tsr_conformance_roomy("a buffer", bytes, 0);
}

uint64_t tsr_conformance_rule_differ(const void *a, const void *b, uint64_t n)
{
    const unsigned char *p = a, *q = b;
    if (n == 0 || memcmp(p, q, n) == 0)
        return n;
    uint64_t i = 0;
    while (p[i] == q[i])
        i++;
    return i;
}
