/* Verdicts on perplexity against channels: lines with a known slope, noise, and one step that rises. */
#include "pipeline/steps/sweep_trend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define WINDOWS 12u
#define EACH    40u
#define TOKENS  (WINDOWS * EACH)
#define POINTS  6u

static float        nll[POINTS][TOKENS];
static const float *at[POINTS];
static uint64_t     start[WINDOWS + 1];
static double       scratch[TOKENS];

static double noise(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (double)(*x >> 11) / (double)(UINT64_C(1) << 53) - 0.5;
}

/* means of the points, and noise of each token at each point */
static void make(const double *mean, double size, uint64_t seed)
{
    for (uint64_t i = 0; i < TOKENS; i++) {
        double token = 3 + noise(&seed);
        for (uint64_t p = 0; p < POINTS; p++)
            nll[p][i] = (float)(token + mean[p] + size * noise(&seed));
    }
    for (uint64_t p = 0; p < POINTS; p++)
        at[p] = nll[p];
    for (uint64_t w = 0; w <= WINDOWS; w++)
        start[w] = w * EACH;
}

static void test_line(void **state)
{
    static const double         mean[POINTS] = { 0, -0.1, -0.2, -0.3, -0.4, -0.5 };
    struct tsr_step_sweep_trend t;
    (void)state;
    make(mean, 1e-3, 1);
    tsr_step_sweep_trend(at, POINTS, start, WINDOWS, 0.05, scratch, &t);
    assert_int_equal(t.steps, POINTS - 1);
    assert_int_equal(t.rises, 0);
    assert_int_equal(t.proven, 0);
    assert_int_equal(t.verdict, TSR_PIPELINE_TREND_FALLS);
    /* noise of 1e-3 / sqrt(12 * 480) a point */
    assert_true(fabs(t.slope.mean + 0.1) < 1e-4);
    assert_true(t.slope.low < t.slope.mean && t.slope.mean < t.slope.high && t.slope.high < 0);
    for (uint64_t s = 0; s < t.steps; s++)
        assert_true(fabs(t.step[s].mean + 0.1) < 1e-3);
}

/* The slope by the textbook, from the means of the points. */
static void test_slope(void **state)
{
    static const double         mean[POINTS] = { 0.4, -0.3, 0.1, 0, 0.2, -0.6 };
    struct tsr_step_sweep_trend t;
    double                      xy = 0, xx = 0;
    (void)state;
    make(mean, 0.5, 2);
    tsr_step_sweep_trend(at, POINTS, start, WINDOWS, 0.05, scratch, &t);
    for (uint64_t p = 0; p < POINTS; p++) {
        double y = 0;
        for (uint64_t i = 0; i < TOKENS; i++)
            y += (double)nll[p][i] / TOKENS;
        xy += ((double)p - 2.5) * y;
        xx += ((double)p - 2.5) * ((double)p - 2.5);
    }
    assert_true(fabs(t.slope.mean - xy / xx) < 1e-9);
}

static void test_noise(void **state)
{
    static const double         mean[POINTS] = { 0 };
    uint64_t                    open = 0, rises = 0;
    struct tsr_step_sweep_trend t;
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        make(mean, 1, 100 + seed);
        tsr_step_sweep_trend(at, POINTS, start, WINDOWS, 0.05, scratch, &t);
        open += t.verdict == TSR_PIPELINE_TREND_OPEN;
        rises += t.proven > 0;
        assert_true(t.proven <= t.rises);
    }
    /* nominally 5 of 100 slopes and, one-sided, 2.5 of 100 rises; 15 has a chance of 1e-4 */
    assert_true(open > 100 - 15);
    assert_true(rises < 10);
}

/* A fall at large that has one clear rise in it. */
static void test_rise(void **state)
{
    static const double         mean[POINTS] = { 0, -0.3, -0.6, -0.5, -0.9, -1.2 };
    struct tsr_step_sweep_trend t;
    (void)state;
    make(mean, 0.1, 3);
    tsr_step_sweep_trend(at, POINTS, start, WINDOWS, 0.05, scratch, &t);
    assert_int_equal(t.rises, 1);
    assert_int_equal(t.proven, 1);
    assert_true(t.step[2].low > 0);
    assert_true(t.slope.high < 0);
    assert_int_equal(t.verdict, TSR_PIPELINE_TREND_RISES);
}

/* One window says nothing. */
static void test_one(void **state)
{
    static const double         mean[POINTS] = { 0, -1, -2, -3, -4, -5 };
    struct tsr_step_sweep_trend t;
    (void)state;
    make(mean, 1e-3, 4);
    start[1] = TOKENS;
    tsr_step_sweep_trend(at, 2, start, 1, 0.05, scratch, &t);
    assert_int_equal(t.steps, 1);
    assert_int_equal(t.verdict, TSR_PIPELINE_TREND_OPEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line), cmocka_unit_test(test_slope), cmocka_unit_test(test_noise),
        cmocka_unit_test(test_rise), cmocka_unit_test(test_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
