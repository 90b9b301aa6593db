/* What inputs are like: each token's |x| sorted by the C library, then the largest at each rank; mean squares; and the
 * borders of a selection, which are two of these numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "compensate/compensation.h"
#include "compensate/select.h"

#include <math.h>

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void test_profile(void **state)
{
    enum { T = 150, N = 1300 }; /* more rows than are sorted at a time */
    static float                       x[T * N], row[N], scale[N], top[N];
    static double                      square[N];
    struct tsr_compensate_profile_sums s;
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_pool                   *pool = NULL;
    float                              b0, b15;
    (void)state;
    for (uint64_t i = 0; i < T * N; i++) {
        double v = tsr_normal(11, 0, i);
        x[i] = i % 5 == 0 ? (float)(int)(v * 2) : (float)(v * v * v * 1e-3);
    }
    for (uint64_t k = 0; k < N; k++)
        scale[k] = (float)(0.5 + tsr_uniform(11, 1, k));
    assert_int_equal(tsr_pool_create(&pool, 2, NULL), TSR_OK);
    for (int scaled = 0; scaled < 2; scaled++) {
        memset(top, 0, sizeof top);
        memset(square, 0, sizeof square);
        for (uint64_t t = 0; t < T; t++) {
            for (uint64_t k = 0; k < N; k++) {
                float v = scaled ? x[t * N + k] / scale[k] : x[t * N + k];
                square[k] += (double)v * (double)v;
                row[k] = fabsf(v);
            }
            qsort(row, N, sizeof *row, descending);
            for (uint64_t k = 0; k < N; k++)
                top[k] = fmaxf(top[k], row[k]);
        }
        assert_int_equal(tsr_compensate_profile_create(&s, N, NULL), TSR_OK);
        /* in two calls, the first without a pool */
        const float *by = scaled ? scale : NULL;
        assert_int_equal(tsr_compensate_profile_add(&s, NULL, x, 7, by, NULL), TSR_OK);
        assert_int_equal(tsr_compensate_profile_add(&s, pool, x + 7 * N, T - 7, by, NULL), TSR_OK);
        assert_int_equal(s.rows, T);
        assert_memory_equal(s.top, top, sizeof top);
        assert_memory_equal(s.square, square, sizeof square);
        tsr_compensate_profile_free(&s);
    }
    /* 32 of 1300 / 1024 are 40 */
    assert_true(tsr_compensate_select_borders(top, N, 32, &b0, &b15));
    assert_true(b0 == top[0] && b15 == top[39] && b0 > b15);
    assert_false(tsr_compensate_select_borders(top, 100, 8, &b0, &b15));
    x[3] = NAN;
    assert_int_equal(tsr_compensate_profile_create(&s, N, NULL), TSR_OK);
    assert_int_equal(tsr_compensate_profile_add(&s, pool, x, 1, NULL, &err.err), TSR_E_NUMERIC);
    assert_true(error_is(&err.err, "", "1300"));
    tsr_compensate_profile_free(&s);
    tsr_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_profile) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
