/* Non-negative least squares against another method. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/cost/fit.h"

#include <math.h>

static double draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53;
}

static double cost(const double *a, const double *b, uint64_t rows, uint64_t cols, const double *x)
{
    double sum = 0;
    for (uint64_t r = 0; r < rows; r++) {
        double e = -b[r];
        for (uint64_t c = 0; c < cols; c++)
            e += a[r * cols + c] * x[c];
        sum += e * e;
    }
    return sum;
}

/* The least over all supports, each by projected coordinate descent to the end: another method. */
static double descent(const double *a, const double *b, uint64_t rows, uint64_t cols)
{
    double x[TSR_NNLS] = { 0 };
    for (int turn = 0; turn < 200000; turn++) {
        double moved = 0;
        for (uint64_t c = 0; c < cols; c++) {
            double num = 0, den = 0;
            for (uint64_t r = 0; r < rows; r++) {
                double e = b[r];
                for (uint64_t k = 0; k < cols; k++)
                    e -= k == c ? 0 : a[r * cols + k] * x[k];
                num += a[r * cols + c] * e;
                den += a[r * cols + c] * a[r * cols + c];
            }
            double to = den > 0 ? fmax(num / den, 0) : 0;
            moved = fmax(moved, fabs(to - x[c]));
            x[c] = to;
        }
        if (moved < 1e-13)
            break;
    }
    return cost(a, b, rows, cols, x);
}

static void least_squares(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          seed = 7;
    double            a[24 * 5], b[24], x[5], residual;
    for (int t = 0; t < 300; t++) {
        uint64_t rows = 1 + (uint64_t)(draw(&seed) * 24), cols = 1 + (uint64_t)(draw(&seed) * 5);
        for (uint64_t i = 0; i < rows * cols; i++)
            a[i] = draw(&seed) * 2 - 0.6;
        for (uint64_t i = 0; i < rows; i++)
            b[i] = draw(&seed) * 2 - 0.5;
        if (t % 5 == 0) /* a column of zeros, and one that is another's double */
            for (uint64_t r = 0; r < rows; r++) {
                a[r * cols] = 0;
                if (cols > 2)
                    a[r * cols + 2] = 2 * a[r * cols + 1];
            }
        assert_int_equal(tsr_plan_nnls(a, b, rows, cols, x, &residual, &e.err), TSR_OK);
        for (uint64_t c = 0; c < cols; c++)
            assert_true(x[c] >= 0 && isfinite(x[c]));
        double ours = cost(a, b, rows, cols, x), best = descent(a, b, rows, cols);
        assert_true(fabs(residual * residual - ours) <= 1e-9 * (1 + ours));
        assert_true(ours <= best + 1e-7 * (1 + best)); /* normal equations lose half the digits */
    }
    b[0] = NAN;
    assert_int_equal(tsr_plan_nnls(a, b, 1, 1, x, &residual, &e.err), TSR_E_NUMERIC);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(least_squares) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
