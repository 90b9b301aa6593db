#include "cli/bench/ratio.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TAIL 0.025 /* on each side */

static int ascending(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Quotients that are left out on each side: one more than the largest U with P(U <= u) <= TAIL.  p: n m + 1 zeros.
 * Among samples of one distribution U counts partitions of u into at most n parts of at most m, which the product
 * (1 - x^(m+1)) ... (1 - x^(m+n)) / ((1 - x) ... (1 - x^n)) generates; with each factor as a probability it stays in range. */
static uint64_t left_out(double *p, uint64_t n, uint64_t m)
{
    uint64_t all = n * m, out = 0;
    double   sum = 0;
    p[0] = 1;
    for (uint64_t i = 1; i <= n; i++) {
        for (uint64_t u = all; u >= m + i; u--)
            p[u] -= p[u - m - i];
        for (uint64_t u = i; u <= all; u++)
            p[u] += p[u - i];
        for (uint64_t u = 0; u <= all; u++) /* of choose(m + i, i) */
            p[u] *= (double)i / (double)(m + i);
    }
    for (uint64_t u = 0; u <= all; u++, out++) {
        sum += p[u];
        if (sum > TAIL)
            break;
    }
    return out;
}

tsr_status bench_ratio_of(const double *a, uint64_t n, const double *b, uint64_t m,
                          struct bench_ratio *r, struct tsr_err *err)
{
    uint64_t all = n * m, at = 0;
    double  *v = tsr_new(2 * all + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, (2 * all + 1) * sizeof *v, "quotients");
    uint64_t out = left_out(v + all, n, m);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < m; j++)
            v[at++] = b[j] / a[i];
    qsort(v, all, sizeof *v, ascending);
    r->mid = all % 2 ? v[all / 2] : sqrt(v[all / 2 - 1] * v[all / 2]);
    r->low = out ? v[out - 1] : 0;
    r->high = out ? v[all - out] : INFINITY;
    free(v);
    return TSR_OK;
}
