/* Linear algebra: to the bit against plain loops that spell docs/decisions/numerics.md, on every
 * instruction set; and against double precision. */
#include "../fixtures/error_is.h"
#include "cpu_fixture.h"

#include <math.h>
#include <stdio.h>

static struct tsr_cpu             *cpu[ISAS];
static const struct tsr_linalg_v1 *lin[ISAS];

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < ISAS; i++) {
        cpu[i] = cpu_new(test_isas[i]);
        lin[i] = cpu[i] ? tsr_cpu_extension(cpu[i], TSR_LINALG) : NULL;
    }
    return lin[0] && lin[0]->struct_size == sizeof *lin[0] ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < ISAS; i++)
        tsr_cpu_destroy(cpu[i]);
    return host_bytes == 0 ? 0 : -1; /* all scratch was given back */
}

static float *copy(const float *a, uint64_t n)
{
    float *p = malloc(n * 4);
    assert_non_null(p);
    memcpy(p, a, n * 4);
    return p;
}

static void same(const float *got, const float *want, uint64_t rows, uint64_t cols, uint64_t ld,
                 const char *what)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++) {
            const float *g = got + i * ld + j, *w = want + i * ld + j;
            if (memcmp(g, w, 4) != 0 && !(isnan(*g) && isnan(*w)))
                fail_msg("%s: (%llu,%llu) is %a, wanted %a", what, (unsigned long long)i,
                         (unsigned long long)j, (double)*g, (double)*w);
        }
}

/* ---- the page -------------------------------------------------------------------- */

static void page_gemm(uint64_t m, uint64_t n, uint64_t k, float alpha, const float *a, uint64_t lda,
                      const float *b, uint64_t ldb, int t, float *c, uint64_t ldc)
{
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++) {
            float s = c[i * ldc + j];
            for (uint64_t x = 0; x < k; x++)
                s = fmaf(alpha * a[i * lda + x], t ? b[j * ldb + x] : b[x * ldb + j], s);
            c[i * ldc + j] = s;
        }
}

static void page_syrk(uint64_t n, uint64_t rows, float alpha, const float *x, uint64_t ldx,
                      float *c, uint64_t ldc)
{
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j <= i; j++) {
            float s = c[i * ldc + j];
            for (uint64_t k = 0; k < rows; k++)
                s = fmaf(alpha * x[k * ldx + i], x[k * ldx + j], s);
            c[i * ldc + j] = c[j * ldc + i] = s;
        }
}

static void page_cholesky(uint64_t n, float *a, uint64_t lda)
{
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = j; i < n; i++) {
            float s = a[i * lda + j];
            for (uint64_t k = 0; k < j; k++)
                s = fmaf(-a[i * lda + k], a[j * lda + k], s);
            a[i * lda + j] = i == j ? sqrtf(s) : s / a[j * lda + j];
            if (i != j)
                a[j * lda + i] = 0.0f;
        }
}

static void page_inverse(uint64_t n, float *l, uint64_t ldl)
{
    float *m = calloc(n * n, 4);
    assert_non_null(m);
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = j; i < n; i++) {
            float s = i == j ? 1.0f : 0.0f;
            for (uint64_t k = j; k < i; k++)
                s = fmaf(-l[i * ldl + k], m[k * n + j], s);
            m[i * n + j] = s / l[i * ldl + i];
        }
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j <= i; j++) {
            float s = 0.0f;
            for (uint64_t k = i; k < n; k++)
                s = fmaf(m[k * n + i], m[k * n + j], s);
            l[i * ldl + j] = l[j * ldl + i] = s;
        }
    free(m);
}

/* X^T X of tall random X plus a ridge: positive definite, condition number about 1e3. */
static float *definite(uint64_t n, uint64_t ld)
{
    uint64_t rows = n + n / 2 + 3;
    float   *x = rnd_new(rows * n, 1.0f), *a = rnd_new(n * ld, 1.0f);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++)
            a[i * ld + j] = i == j ? 0.01f * (float)rows : 0.0f;
    page_syrk(n, rows, 1.0f, x, n, a, ld);
    free(x);
    return a;
}

/* ---- tests --------------------------------------------------------------------------- */

static const uint64_t sizes[] = { 1, 2, 15, 16, 17, 31, 33, 64, 97, 192, 261, 300 };
#define SIZES (sizeof sizes / sizeof sizes[0])

static void one_gemm(uint64_t m, uint64_t n, uint64_t k, float alpha)
{
    uint64_t lda = k + 3, ldc = n + 5, ldb = (n > k ? n : k) + 1;
    float   *a = rnd_new(m * lda, 1.0f), *b = rnd_new((n > k ? n : k) * ldb, 1.0f);
    float   *c = rnd_new(m * ldc, 1.0f);
    for (int t = 0; t < 2; t++) {
        float *want = copy(c, m * ldc);
        page_gemm(m, n, k, alpha, a, lda, b, ldb, t, want, ldc);
        for (int i = 0; i < ISAS; i++) {
            if (!lin[i])
                continue;
            float *got = copy(c, m * ldc);
            assert_int_equal(lin[i]->gemm(lin[i]->ctx, m, n, k, alpha, a, lda, b, ldb, t, got, ldc,
                                          NULL),
                             TSR_OK);
            same(got, want, m, ldc, ldc, test_isas[i]); /* between the rows, too */
            free(got);
        }
        free(want);
    }
    free(a);
    free(b);
    free(c);
}

static void test_gemm(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < SIZES; i++)
        one_gemm(sizes[i], sizes[rnd() % SIZES], sizes[rnd() % SIZES], i % 2 ? -1.0f : 0.37f);
    one_gemm(1, 300, 40, 1.0f);
    one_gemm(300, 1, 40, 1.0f);
    one_gemm(13, 33, 1100, 1.0f); /* several blocks of k */
}

/* Rows in one call and in three give the same bytes. */
static void test_syrk(void **state)
{
    (void)state;
    for (uint64_t s = 0; s <= SIZES; s++) {
        /* at last more rows than are packed at once */
        uint64_t n = s < SIZES ? sizes[s] : 2, rows = s < SIZES ? 1 + rnd() % 400 : 900001,
                 ldx = n + 2, ldc = n + 1, cut = rows / 3;
        float *x = rnd_new(rows * ldx, 1.0f), *c = rnd_new(n * ldc, 1.0f);
        float *want = copy(c, n * ldc);
        page_syrk(n, rows, 0.7f, x, ldx, want, ldc);
        for (int i = 0; i < ISAS; i++) {
            if (!lin[i])
                continue;
            float *got = copy(c, n * ldc);
            assert_int_equal(lin[i]->syrk(lin[i]->ctx, n, cut, 0.7f, x, ldx, got, ldc, NULL),
                             TSR_OK);
            assert_int_equal(lin[i]->syrk(lin[i]->ctx, n, rows - cut, 0.7f, x + cut * ldx, ldx, got,
                                          ldc, NULL),
                             TSR_OK);
            same(got, want, n, ldc, ldc, test_isas[i]);
            free(got);
        }
        free(x);
        free(c);
        free(want);
    }
}

static void test_cholesky(void **state)
{
    (void)state;
    for (uint64_t s = 0; s <= SIZES; s++) {
        uint64_t n = s < SIZES ? sizes[s] : 500, ld = n + 3; /* 500: several tasks, three rounds */
        float   *a = definite(n, ld), *l = copy(a, n * ld), *inv;
        page_cholesky(n, l, ld);
        inv = copy(l, n * ld);
        page_inverse(n, inv, ld);
        for (int i = 0; i < ISAS; i++) {
            if (!lin[i])
                continue;
            float   *got = copy(a, n * ld);
            uint64_t pivot = 77;
            for (uint64_t r = 0; r < n; r++) /* the upper triangle is not read */
                for (uint64_t c = r + 1; c < n; c++)
                    got[r * ld + c] = NAN;
            assert_int_equal(lin[i]->cholesky(lin[i]->ctx, n, got, ld, &pivot, NULL), TSR_OK);
            assert_int_equal(pivot, 77);
            same(got, l, n, ld, ld, test_isas[i]);
            assert_int_equal(lin[i]->cholesky_inverse(lin[i]->ctx, n, got, ld, NULL), TSR_OK);
            same(got, inv, n, ld, ld, test_isas[i]);
            free(got);
        }
        free(a);
        free(l);
        free(inv);
    }
}

/* Element (i,j) of L, from the others of L. */
static void follows(const float *a, const float *l, uint64_t ld, uint64_t i, uint64_t j,
                    const char *what)
{
    float s = a[i * ld + j];
    for (uint64_t k = 0; k < j; k++)
        s = fmaf(-l[i * ld + k], l[j * ld + k], s);
    s = i == j ? sqrtf(s) : s / l[j * ld + j];
    if (memcmp(&s, &l[i * ld + j], 4) != 0)
        fail_msg("%s: (%llu,%llu) is %a, wanted %a", what, (unsigned long long)i,
                 (unsigned long long)j, (double)l[i * ld + j], (double)s);
}

/* A matrix large enough for the widest columns: elements at random, and those around borders. */
static void test_cholesky_large(void **state)
{
    (void)state;
    uint64_t n = 4099, ld = n + 2, edge[] = { 95, 480, 575, 576, 960, 3839, 3840, n - 8 };
    float   *a = rnd_new(n * ld, 1.0f);
    for (uint64_t i = 0; i < n; i++)
        a[i * ld + i] = (float)n;
    for (int i = lin[1] ? 1 : 0; i < ISAS; i++) { /* the plain one takes long */
        if (!lin[i])
            continue;
        float *l = copy(a, n * ld);
        assert_int_equal(lin[i]->cholesky(lin[i]->ctx, n, l, ld, NULL, NULL), TSR_OK);
        for (int s = 0; s < 4000; s++) {
            uint64_t r = rnd() % n;
            follows(a, l, ld, r, rnd() % (r + 1), test_isas[i]);
        }
        for (uint64_t e = 0; e < sizeof edge / sizeof edge[0]; e++)
            for (uint64_t f = 0; f <= e; f++)
                for (uint64_t r = edge[e] - 2; r < edge[e] + 3; r++)
                    for (uint64_t c = edge[f] - 2; c < edge[f] + 3 && c <= r; c++)
                        follows(a, l, ld, r, c, test_isas[i]);
        for (uint64_t r = 0; r < n; r++)
            for (uint64_t c = r + 1; c < n; c++)
                assert_true(l[r * ld + c] == 0);
        free(l);
    }
    free(a);
}

/* A * A^-1 is the unit matrix; the bound is n * eps * condition with a margin of 8. */
static void test_inverse_double(void **state)
{
    (void)state;
    uint64_t n = 300;
    float   *a = definite(n, n), *inv = copy(a, n * n);
    assert_int_equal(lin[0]->cholesky(lin[0]->ctx, n, inv, n, NULL, NULL), TSR_OK);
    assert_int_equal(lin[0]->cholesky_inverse(lin[0]->ctx, n, inv, n, NULL), TSR_OK);
    double worst = 0, norm_a = 0, norm_i = 0;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++) {
            double s = i == j ? -1.0 : 0.0;
            for (uint64_t k = 0; k < n; k++)
                s += (double)a[i * n + k] * (double)inv[k * n + j];
            worst = fmax(worst, fabs(s));
            norm_a += (double)a[i * n + j] * (double)a[i * n + j];
            norm_i += (double)inv[i * n + j] * (double)inv[i * n + j];
        }
    assert_true(worst < 8 * 0x1p-24 * sqrt(norm_a) * sqrt(norm_i));
    assert_true(worst > 0); /* the test looks at something */
    free(a);
    free(inv);
}

static void test_bad_pivot(void **state)
{
    (void)state;
    char               text[256];
    struct tsr_err     err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    uint64_t           n = 290, at[] = { 0, 5, 40, 261, 289 };
    static const float bad[] = { -1.0f, 0.0f, NAN, INFINITY };
    for (uint64_t p = 0; p < 5; p++)
        for (int v = 0; v < 4; v++)
            for (int i = 0; i < ISAS; i++) {
                if (!lin[i])
                    continue;
                float *a = calloc(n * n, 4);
                assert_non_null(a);
                for (uint64_t d = 0; d < n; d++)
                    a[d * n + d] = d == at[p] ? bad[v] : 2.0f;
                uint64_t pivot = UINT64_MAX;
                text[0] = 0;
                assert_int_equal(lin[i]->cholesky(lin[i]->ctx, n, a, n, &pivot, &err),
                                 TSR_E_NUMERIC);
                assert_int_equal(pivot, at[p]);
                assert_true(error_is(&err, "", NULL));
                free(a);
            }
}

static void test_eigenvalue(void **state)
{
    (void)state;
    uint64_t n = 300, ld = 301;
    float   *a = calloc(n * ld, 4);
    double   got[ISAS] = { 0 };
    assert_non_null(a);
    /* A = Q D Q with Q = I - 2 w w^T: eigenvalues 1..n in steps of 1/n, and 9 */
    float *w = rnd_new(n, 1.0f);
    double ww = 0;
    for (uint64_t i = 0; i < n; i++)
        ww += (double)w[i] * (double)w[i];
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++) {
            double s = 0;
            for (uint64_t k = 0; k < n; k++) {
                double d = k == 7 ? 9.0 : (double)(k + 1) / (double)n;
                double qi = (i == k) - 2 * (double)w[i] * (double)w[k] / ww;
                double qj = (j == k) - 2 * (double)w[j] * (double)w[k] / ww;
                s += qi * d * qj;
            }
            a[i * ld + j] = (float)s;
        }
    for (int i = 0; i < ISAS; i++) {
        if (!lin[i])
            continue;
        assert_int_equal(lin[i]->largest_eigenvalue(lin[i]->ctx, n, a, ld, 200, 1e-12, &got[i],
                                                    NULL),
                         TSR_OK);
        /* entries are rounded to F32: |dA| <= 2^-24 |A|_F, and |A|_F is below 14 */
        assert_true(fabs(got[i] - 9.0) < 14 * 0x1p-24);
        assert_memory_equal(&got[i], &got[0], sizeof(double));
    }
    a[5 * ld + 9] = NAN;
    char           text[256] = "";
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    assert_int_equal(lin[0]->largest_eigenvalue(lin[0]->ctx, n, a, ld, 9, 0, got, &err),
                     TSR_E_NUMERIC);
    memset(a, 0, n * ld * 4);
    got[0] = 5;
    assert_int_equal(lin[0]->largest_eigenvalue(lin[0]->ctx, n, a, ld, 9, 0, got, &err), TSR_OK);
    assert_true(got[0] == 0);
    free(a);
    free(w);
}

static void test_refusals(void **state)
{
    (void)state;
    const struct tsr_linalg_v1 *l = lin[0];
    char                        text[256] = "";
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    float          a[16] = { 0 }, c[16] = { 0 };
    double         v;
    assert_int_equal(l->syrk(l->ctx, 4, 4, 1, NULL, 4, c, 4, &err), TSR_E_INVAL);
    assert_true(error_is(&err, "syrk: X", "NULL"));
    assert_int_equal(l->syrk(l->ctx, 4, 4, 1, a, 4, c, 3, &err), TSR_E_INVAL);
    assert_int_equal(l->gemm(l->ctx, 4, 4, 4, 1, a, 3, a, 4, 0, c, 4, &err), TSR_E_INVAL);
    assert_int_equal(l->gemm(l->ctx, 4, 4, UINT64_MAX / 2, 1, a, UINT64_MAX / 2, a, 4, 0, c, 4,
                             &err),
                     TSR_E_INVAL);
    assert_int_equal(l->cholesky(l->ctx, 4, NULL, 4, NULL, &err), TSR_E_INVAL);
    assert_int_equal(l->cholesky_inverse(l->ctx, 4, a, 2, &err), TSR_E_INVAL);
    assert_int_equal(l->largest_eigenvalue(l->ctx, 4, a, 4, 0, 0, &v, &err), TSR_E_INVAL);
    assert_int_equal(l->largest_eigenvalue(l->ctx, 4, a, 4, 5, NAN, &v, &err), TSR_E_INVAL);
    assert_int_equal(l->syrk(l->ctx, 0, 4, 1, NULL, 0, NULL, 0, &err), TSR_OK);
    assert_int_equal(l->gemm(l->ctx, 4, 4, 0, 1, NULL, 0, NULL, 4, 0, c, 4, &err), TSR_OK);
    assert_int_equal(l->cholesky(l->ctx, 0, NULL, 0, NULL, &err), TSR_OK);
    host_stop = 1;
    assert_int_equal(l->syrk(l->ctx, 4, 4, 1, a, 4, c, 4, &err), TSR_E_CANCELLED);
    assert_true(error_is(&err, "", NULL));
    assert_int_equal(l->largest_eigenvalue(l->ctx, 4, a, 4, 5, 0, &v, &err), TSR_E_CANCELLED);
    host_stop = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),           cmocka_unit_test(test_syrk),
        cmocka_unit_test(test_cholesky),       cmocka_unit_test(test_cholesky_large),
        cmocka_unit_test(test_inverse_double), cmocka_unit_test(test_bad_pivot),
        cmocka_unit_test(test_eigenvalue),     cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
