/* Sums of inputs in double and their largest eigenvalue: sums are equal to the bit, eigenvalues known. */
#include "../fixtures/error_is.h"
#include "base/mem.h"
#include "base/rng.h"
#include "quant/gram.h"
#include "quant/gram_tile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

static struct tsr_pool *pool[2]; /* 1 and 3 threads */

static int setup(void **state)
{
    (void)state;
    return tsr_pool_create(&pool[0], 1, NULL) == TSR_OK &&
                   tsr_pool_create(&pool[1], 3, NULL) == TSR_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    tsr_pool_destroy(pool[0]);
    tsr_pool_destroy(pool[1]);
    return 0;
}

static double noise(uint64_t i)
{
    return (double)(float)(tsr_normal(5, 0, i) * exp2((double)(i % 13) - 6));
}

/* Every kind of tile: one chain of sums for each element, and products that do not round. */
static void tiles_of_sums(void **state)
{
    (void)state;
    enum { STEPS = 77, LDC = 16 };
    static const char *const isas[] = { "scalar", "avx2", "" }; /* "": the widest of this CPU */
    static double            a[STEPS * 16], b[STEPS * 16];
    const char              *before = getenv("TSR_ISA");
    char                    *old = before ? strdup(before) : NULL;
    for (uint64_t i = 0; i < STEPS * 16; i++) {
        a[i] = noise(i);
        b[i] = noise(i + STEPS * 16);
    }
    for (int k = 0; k < 3; k++) {
        double c[16 * LDC];
        assert_int_equal(setenv("TSR_ISA", isas[k], 1), 0);
        const struct tsr_quant_gram_tile *t = tsr_quant_gram_tile();
        for (uint64_t i = 0; i < 16 * LDC; i++)
            c[i] = noise(i);
        t->run(c, LDC, a, b, STEPS);
        for (uint64_t i = 0; i < 16; i++)
            for (uint64_t j = 0; j < LDC; j++) {
                double sum = noise(i * LDC + j);
                for (uint64_t s = 0; s < STEPS && i < t->rows && j < t->cols; s++)
                    sum += a[s * t->rows + i] * b[s * t->cols + j];
                assert_true(c[i * LDC + j] == sum);
            }
    }
    assert_int_equal(old ? setenv("TSR_ISA", old, 1) : unsetenv("TSR_ISA"), 0);
    free(old);
}

/* Sums of inputs in the order of the tokens, however they are cut; beside the blocks' edges too. */
static void sums_of_inputs(void **state)
{
    (void)state;
    static const uint64_t widths[] = { 1, 63, 64, 65, 130 };
    static const uint64_t tokens[] = { 1, 64, 70, 3 }; /* of a call */
    enum { TOKENS = 138 };
    for (int w = 0; w < 5; w++) {
        struct tsr_errbuf     err = TSR_ERRBUF(err);
        struct tsr_quant_gram g;
        uint64_t              n = widths[w], at = 0;
        float                *x = tsr_new(TOKENS * n, sizeof *x);
        assert_non_null(x);
        for (uint64_t i = 0; i < TOKENS * n; i++)
            x[i] = (float)noise(i);
        OK(tsr_quant_gram_create(&g, n, &err.err));
        for (int k = 0; k < 4; at += tokens[k++])
            OK(tsr_quant_gram_add(&g, pool[k % 2], x + at * n, tokens[k], &err.err));
        assert_int_equal(at, TOKENS);
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j <= i; j++) {
                double sum = 0;
                for (uint64_t k = 0; k < TOKENS; k++)
                    sum += (double)x[k * n + i] * (double)x[k * n + j];
                assert_true(g.g[i * n + j] == sum);
            }
        tsr_quant_gram_free(&g);
        free(x);
    }
}

/* Rows of a Hadamard matrix times d: the eigenvalues are 64 d^2, exactly. */
static void known_eigenvalues(void **state)
{
    (void)state;
    enum { N = 64 };
    static const struct {
        float first, step; /* d of row i: first - i * step, not below 0 */
    } cases[] = {
        { 1000, 1 }, { 1000, 0.01f }, { 1000, 1000 }, { 1000, 0 }, { 3, 0.5f }, { 0, 0 }
    };
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
        struct tsr_errbuf     err = TSR_ERRBUF(err);
        struct tsr_quant_gram g;
        float                 x[N * N];
        double                top = NAN;
        bool                  settled = false;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                float d = fmaxf(cases[t].first - (float)i * cases[t].step, 0);
                x[i * N + j] = __builtin_parity((unsigned)(i & j)) ? -d : d;
            }
        OK(tsr_quant_gram_create(&g, N, &err.err));
        OK(tsr_quant_gram_add(&g, pool[1], x, N, &err.err));
        OK(tsr_quant_gram_top(&g, pool[1], &top, &settled, &err.err));
        assert_true(settled);
        double want = 64.0 * (double)cases[t].first * (double)cases[t].first;
        if (!(fabs(top - want) <= 1e-13 * want)) /* roundings of 64 terms */
            fail_msg("eigenvalue %.17g instead of %.17g", top, want);
        tsr_quant_gram_free(&g);
    }
}

/* Calibration refuses such inputs before; here they are an error, not an eigenvalue. */
static void not_finite(void **state)
{
    (void)state;
    static const float bad[] = { INFINITY, NAN };
    for (int t = 0; t < 2; t++) {
        struct tsr_errbuf     err = TSR_ERRBUF(err);
        struct tsr_quant_gram g;
        float                 x[3] = { 1, bad[t], 2 };
        double                top;
        bool                  settled;
        OK(tsr_quant_gram_create(&g, 3, &err.err));
        OK(tsr_quant_gram_add(&g, pool[0], x, 1, &err.err));
        assert_int_equal(tsr_quant_gram_top(&g, pool[0], &top, &settled, &err.err), TSR_E_NUMERIC);
        assert_true(error_is(&err.err, "", NULL));
        tsr_quant_gram_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(tiles_of_sums),
                                        cmocka_unit_test(sums_of_inputs),
                                        cmocka_unit_test(known_eigenvalues),
                                        cmocka_unit_test(not_finite) };
    return cmocka_run_group_tests_name("gram", tests, setup, teardown);
}
