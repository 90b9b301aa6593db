/* Hadamard and random orthogonal matrices: H H^T = n I entry by entry, sizes that have none, and products of rows and
 * columns against the matrix written out. */
#include "rotate/orthogonal.h"

#include "base/mem.h"
#include "model/online.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, e.text);                                                     \
    } while (0)

/* The matrix, row after row: e_i H. */
static double *written_out(const struct tsr_hadamard *h)
{
    double *m = tsr_new(h->n, h->n * sizeof *m), *scratch = tsr_new(2 * h->base, sizeof *m);
    assert_non_null(m);
    assert_non_null(scratch);
    for (uint64_t i = 0; i < h->n; i++) {
        m[i * h->n + i] = 1;
        tsr_hadamard_apply(h, m + i * h->n, scratch);
    }
    free(scratch);
    return m;
}

static void every_entry_is_a_sign_and_rows_are_orthogonal(void **state)
{
    unsigned known = 0;
    (void)state;
    for (uint64_t n = 1; n <= 288; n++) {
        struct tsr_errbuf   e = TSR_ERRBUF(e);
        struct tsr_hadamard h;
        if (tsr_hadamard_create(&h, n, &e.err) != TSR_OK)
            continue;
        known++;
        double *m = written_out(&h);
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j <= i; j++) {
                double dot = 0;
                for (uint64_t k = 0; k < n; k++)
                    dot += m[i * n + k] * m[j * n + k];
                if (!(fabs(dot - (i == j)) < 1e-12))
                    fail_msg("%d rows: rows %d and %d have the product %g", (int)n, (int)i, (int)j,
                             dot);
                double entry = fabs(m[i * n + j]) * sqrt((double)n);
                if (!(fabs(entry - 1) < 1e-12))
                    fail_msg("%d rows: an entry of %g", (int)n, entry);
            }
        free(m);
        tsr_hadamard_free(&h);
    }
    assert_int_equal(known, 61); /* 1, 2, and all multiples of 4 but 13 of the 72 */
}

/* Hidden sizes, head sizes and feed-forwards of published models. */
static void sizes_of_models(void **state)
{
    static const uint64_t yes[] = { 64,   80,   96,   128,  576,  896,   1536,  2048,  2560,
                                    2880, 3072, 3584, 4096, 5120, 11008, 13824, 14336, 18944 };
    static const uint64_t no[] = { 0, 3, 6, 10, 42, 52, 92, 100, 116 };
    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        struct tsr_errbuf   e = TSR_ERRBUF(e);
        struct tsr_hadamard h;
        OK(tsr_hadamard_create(&h, yes[i], &e.err));
        tsr_hadamard_free(&h);
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        struct tsr_errbuf   e = TSR_ERRBUF(e);
        struct tsr_hadamard h;
        assert_int_equal(tsr_hadamard_create(&h, no[i], &e.err), TSR_E_INPUT);
    }
}

/* Q, from the rows of the unit matrix. */
static float *matrix_of(const struct tsr_orthogonal *q)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    float            *m = tsr_new(q->n, q->n * sizeof *m);
    assert_non_null(m);
    for (uint64_t i = 0; i < q->n; i++)
        m[i * q->n + i] = 1;
    OK(tsr_orthogonal_rows(q, NULL, m, q->n, q->n, NULL, 0, &e.err));
    return m;
}

static void rows_and_columns(void **state)
{
    static const struct {
        enum tsr_orthogonal_kind kind;
        uint64_t                 n;
    } cases[] = { { TSR_ORTHOGONAL_HADAMARD, 16 },
                  { TSR_ORTHOGONAL_HADAMARD, 24 },
                  { TSR_ORTHOGONAL_RANDOM, 7 },
                  { TSR_ORTHOGONAL_RANDOM, 1 },
                  { TSR_ORTHOGONAL_RANDOM, 24 } };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        const uint64_t        n = cases[k].n;
        struct tsr_orthogonal q;
        uint64_t              at[24];
        OK(tsr_orthogonal_create(&q, cases[k].kind, n, 11, 3, &e.err));
        float *m = matrix_of(&q), *w = tsr_new(n, 2 * n * sizeof *w), *v = tsr_new(n, n * 4);
        assert_non_null(w);
        assert_non_null(v);
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < n; j++) {
                double dot = 0;
                for (uint64_t l = 0; l < n; l++)
                    dot += (double)m[i * n + l] * (double)m[j * n + l];
                assert_true(fabs(dot - (i == j)) < 1e-6);
            }
        /* rows of two runs, of which the gain takes twice the second: (w * g) Q */
        float gain[48];
        for (uint64_t i = 0; i < 2 * n; i++)
            gain[i] = i < n ? 0 : 1;
        for (uint64_t i = 0; i < 2 * n * n; i++)
            w[i] = (float)((i * 37) % 23) - 11;
        OK(tsr_orthogonal_rows(&q, NULL, w, n, 2 * n, gain, 1, &e.err));
        for (uint64_t r = 0; r < n; r++)
            for (uint64_t c = 0; c < 2 * n; c++) {
                double want = 0;
                for (uint64_t l = 0; l < n; l++) {
                    uint64_t from = r * 2 * n + c / n * n + l;
                    want += ((double)((from * 37) % 23) - 11) * (c < n ? 1 : 2) *
                            (double)m[l * n + c % n];
                }
                assert_true(fabs((double)w[r * 2 * n + c] - want) < 1e-4);
            }
        /* the listed rows, backwards: Q^T v of every column */
        for (uint64_t i = 0; i < n; i++)
            at[i] = n - 1 - i;
        for (uint64_t i = 0; i < n * n; i++)
            v[i] = (float)((i * 29) % 19) - 9;
        OK(tsr_orthogonal_columns(&q, NULL, v, at, n, &e.err));
        for (uint64_t r = 0; r < n; r++)
            for (uint64_t c = 0; c < n; c++) {
                double want = 0;
                for (uint64_t l = 0; l < n; l++)
                    want += (double)m[l * n + r] * ((double)((at[l] * n + c) * 29 % 19) - 9);
                assert_true(fabs((double)v[at[r] * n + c] - want) < 1e-4);
            }
        free(m);
        free(w);
        free(v);
        tsr_orthogonal_free(&q);
    }
}

/* Uniform over the orthogonal matrices of 3 rows: every entry has the mean 0 and the square 1/3.  Over 4000 seeds their
 * standard errors are 0.009 and 0.005; without signs the diagonal would have the mean 1/2 or -1/2. */
static void random_matrices_are_uniform(void **state)
{
    double sum[9] = { 0 }, square[9] = { 0 };
    (void)state;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        struct tsr_orthogonal q;
        OK(tsr_orthogonal_create(&q, TSR_ORTHOGONAL_RANDOM, 3, seed, 0, &e.err));
        float *m = matrix_of(&q);
        for (int i = 0; i < 9; i++) {
            sum[i] += (double)m[i] / 4000;
            square[i] += (double)m[i] * (double)m[i] / 4000;
        }
        free(m);
        tsr_orthogonal_free(&q);
    }
    for (int i = 0; i < 9; i++) {
        assert_true(fabs(sum[i]) < 0.05);
        assert_true(fabs(square[i] - 1.0 / 3) < 0.03);
    }
}

static void streams_differ_and_repeat(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct tsr_orthogonal q[3];
        float                *m[3];
        for (int i = 0; i < 3; i++) {
            OK(tsr_orthogonal_create(&q[i], (enum tsr_orthogonal_kind)kind, 32, 5,
                                     (uint64_t)(i == 1), &e.err));
            m[i] = matrix_of(&q[i]);
        }
        assert_memory_equal(m[0], m[2], 32 * 32 * 4);
        assert_memory_not_equal(m[0], m[1], 32 * 32 * 4);
        for (int i = 0; i < 3; i++) {
            free(m[i]);
            tsr_orthogonal_free(&q[i]);
        }
    }
}

/* Columns of down_proj and their runs, by hand; and every run is one that HADAMARD takes, inside the segments that ranks own. */
static void runs_of_inputs(void **state)
{
    static const uint64_t by_hand[][2] = { { 4096, 512 },   { 11008, 32 }, { 13824, 576 },
                                           { 14336, 1792 }, { 18944, 64 }, { 28672, 3584 },
                                           { 512, 64 },     { 172, 4 },    { 24, 8 },
                                           { 7, 1 },        { 29568, 128 } };
    (void)state;
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++)
        assert_int_equal(tsr_model_online_run(by_hand[i][0]), by_hand[i][1]);
    for (uint64_t cols = 1; cols < 40000; cols += 1 + cols / 50) {
        uint64_t run = tsr_model_online_run(cols), segment = 32 * ((cols + 255) / 256);
        assert_true(run >= 1 && tsr_model_online_known(run));
        assert_int_equal(segment % run, 0);
        assert_int_equal(cols % run, 0);
        for (uint64_t n = run + 1; n <= segment; n++)
            assert_false(segment % n == 0 && cols % n == 0 && tsr_model_online_known(n));
    }
    assert_false(tsr_model_online_known(0));
    assert_false(tsr_model_online_known(92));      /* no construction is known here */
    assert_false(tsr_model_online_known(68 * 64)); /* 68 rows are too many for HADAMARD */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_is_a_sign_and_rows_are_orthogonal),
        cmocka_unit_test(sizes_of_models),
        cmocka_unit_test(rows_and_columns),
        cmocka_unit_test(runs_of_inputs),
        cmocka_unit_test(random_matrices_are_uniform),
        cmocka_unit_test(streams_differ_and_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
