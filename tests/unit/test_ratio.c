/* Ratios of samples: which quotients bound the interval, against the published table of the Mann-Whitney test, and how
 * often the interval holds the ratio. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "cli/bench/ratio.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Largest U that is significant at 5 % on both sides together (Siegel and Castellan, table of the Wilcoxon-Mann-Whitney
 * test); -1: none is. */
static const struct {
    uint64_t n, m;
    int      critical;
} table[] = { { 3, 3, -1 }, { 3, 5, 0 },    { 4, 4, 0 },    { 5, 5, 2 },    { 5, 7, 5 },
              { 6, 6, 5 },  { 7, 7, 8 },    { 7, 9, 12 },   { 8, 8, 13 },   { 9, 9, 17 },
              { 1, 9, -1 }, { 10, 10, 23 }, { 15, 15, 64 }, { 20, 20, 127 } };

static void test_table(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
        double             a[20], b[20], q[400];
        uint64_t           n = table[t].n, m = table[t].m, at = 0;
        struct bench_ratio r;
        struct tsr_errbuf  e = TSR_ERRBUF(e);
        for (uint64_t i = 0; i < n; i++)
            a[i] = 1 + tsr_uniform(5, t, i);
        for (uint64_t i = 0; i < m; i++)
            b[i] = 1 + tsr_uniform(6, t, i);
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < m; j++)
                q[at++] = b[j] / a[i];
        qsort(q, at, sizeof *q, ascending);
        assert_int_equal(bench_ratio_of(a, n, b, m, &r, &e.err), TSR_OK);
        if (table[t].critical < 0) {
            assert_true(r.low == 0 && isinf(r.high));
        } else {
            uint64_t c = (uint64_t)table[t].critical;
            assert_true(r.low == q[c]);
            assert_true(r.high == q[at - 1 - c]);
        }
        assert_true(r.mid >= q[(at - 1) / 2] && r.mid <= q[at / 2]);
    }
}

/* One sample times two is the other: the ratio is 2, and swapping the sides inverts all three. */
static void test_relations(void **state)
{
    double             a[9], b[9];
    struct bench_ratio r, back;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    (void)state;
    for (uint64_t i = 0; i < 9; i++) {
        a[i] = exp(0.1 * tsr_normal(1, 0, i));
        b[i] = 2 * a[i];
    }
    assert_int_equal(bench_ratio_of(a, 9, b, 9, &r, &e.err), TSR_OK);
    assert_int_equal(bench_ratio_of(b, 9, a, 9, &back, &e.err), TSR_OK);
    assert_true(r.mid == 2 && r.low < 2 && r.high > 2);
    /* a quotient is rounded once, its inverse twice */
    assert_true(fabs(r.low * back.high - 1) < 1e-15 && fabs(r.high * back.low - 1) < 1e-15);
}

/* Of 2,000 pairs of samples at least 95 % of the intervals hold the true ratio, less three standard errors (1.5 %). */
static void test_coverage(void **state)
{
    const uint64_t runs = 2000;
    uint64_t       held = 0;
    (void)state;
    for (uint64_t t = 0; t < runs; t++) {
        double             a[7], b[7];
        struct bench_ratio r;
        struct tsr_errbuf  e = TSR_ERRBUF(e);
        for (uint64_t i = 0; i < 7; i++) {
            a[i] = exp(0.05 * tsr_normal(2, t, i));
            b[i] = 0.9 * exp(0.05 * tsr_normal(3, t, i));
        }
        assert_int_equal(bench_ratio_of(a, 7, b, 7, &r, &e.err), TSR_OK);
        held += r.low <= 0.9 && r.high >= 0.9;
    }
    assert_true((double)held >= 0.935 * (double)runs);
    assert_true(held < runs); /* or the intervals are no intervals */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_relations),
        cmocka_unit_test(test_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
