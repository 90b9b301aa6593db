/* LINEAR and SYRK under numerics: fast: near double precision, SYRK to the bit of an emulation, and
 * refused where they cannot be. */
#include "../fixtures/error_is.h"
#include "cpu_fixture.h"

#include <math.h>

static float to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    u = (u + 0x7fffu + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &u, 4);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* The fast instance, or NULL on a machine without the instruction, which must say so. */
static struct tsr_cpu *fast_new(void)
{
    char            text[256] = "";
    struct tsr_err  err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    struct tsr_cpu *c = cpu_new("avx512");
    if (!c)
        return NULL;
    tsr_status st = tsr_cpu_set_fast(c, &err);
    if (st == TSR_OK)
        return c;
    assert_int_equal(st, TSR_E_CONFIG);
    assert_true(error_is(&err, "", "AVX512-BF16"));
    tsr_cpu_destroy(c);
    return NULL;
}

static float *product(struct tsr_cpu *c, const struct wt *w, uint64_t T, const float *x,
                      const float *bias)
{
    void             *handle = NULL;
    struct tsr_tensor in = dev(c, x, TSR_F32, T, w->desc.cols, 12);
    struct tsr_tensor out = dev(c, NULL, TSR_F32, T, w->desc.rows, 4);
    struct tsr_tensor b = dev(c, bias, TSR_F32, 1, w->desc.rows, 0);
    struct tsr_op     op = { .struct_size = sizeof op,
                             .kind = TSR_OP_LINEAR,
                             .out = &out,
                             .in = { &in, &b },
                             .act = TSR_ACT_F32 };
    assert_int_equal(tsr_cpu_weight_load(c, &w->desc, &handle, NULL), TSR_OK);
    op.weight = handle;
    run_ok(c, &op);
    float *y = host_of(c, &out);
    tsr_cpu_weight_free(c, handle);
    undev(c, &in);
    undev(c, &out);
    undev(c, &b);
    return y;
}

static void one(struct tsr_cpu *c, uint64_t T, uint64_t N, uint64_t K)
{
    struct wt w;
    wt_float(&w, N, K, TSR_BF16);
    float *x = rnd_new(T * K, 1.0f), *bias = rnd_new(N, 1.0f), *dense = wt_dense(&w);
    float *y = product(c, &w, T, x, bias);
    for (uint64_t t = 0; t < T; t++)
        for (uint64_t n = 0; n < N; n++) {
            double s = bias[n], mass = fabs(s);
            for (uint64_t k = 0; k < K; k++) {
                double p = (double)to_bf16(x[t * K + k]) * (double)dense[n * K + k];
                s += p;
                mass += fabs(p);
            }
            /* K roundings of sums no larger than mass, each of half a unit, and one for safety */
            if (!(fabs((double)y[t * N + n] - s) <= (double)(K + 1) * 0x1p-24 * mass))
                fail_msg("T %llu N %llu K %llu: (%llu,%llu) is %.9g, wanted %.9g",
                         (unsigned long long)T, (unsigned long long)N, (unsigned long long)K,
                         (unsigned long long)t, (unsigned long long)n, (double)y[t * N + n], s);
        }
    free(x);
    free(bias);
    free(dense);
    free(y);
    wt_free(&w);
}

static void test_near(void **state)
{
    (void)state;
    struct tsr_cpu *c = fast_new();
    if (!c)
        skip();
    static const uint64_t T[] = { 5, 7, 12, 13, 40, 193, 205 }, N[] = { 1, 15, 32, 33, 100 };
    static const uint64_t K[] = { 1, 2, 31, 33, 255, 257, 600 };
    for (int i = 0; i < 20; i++)
        one(c, T[rnd() % 7], N[rnd() % 5], K[rnd() % 7]);
    one(c, 205, 100, 257);
    tsr_cpu_destroy(c);
}

/* Four tokens and fewer, and weights that are not BF16, keep the exact bytes. */
static void test_exact_rest(void **state)
{
    (void)state;
    struct tsr_cpu *c = fast_new(), *e = cpu_new("avx512");
    if (!c) {
        tsr_cpu_destroy(e);
        skip();
    }
    static const uint32_t types[] = { TSR_BF16, TSR_F16, TSR_F32 };
    for (int i = 0; i < 3; i++) {
        struct wt w;
        uint64_t  T = i == 0 ? 4 : 9, N = 50, K = 300;
        wt_float(&w, N, K, types[i]);
        float *x = rnd_new(T * K, 1.0f), *bias = rnd_new(N, 1.0f);
        float *a = product(c, &w, T, x, bias), *b = product(e, &w, T, x, bias);
        assert_memory_equal(a, b, T * N * 4);
        free(x);
        free(bias);
        free(a);
        free(b);
        wt_free(&w);
    }
    struct tsr_backend_props p = { .struct_size = sizeof p };
    assert_int_equal(tsr_cpu_properties(c, &p, NULL), TSR_OK);
    assert_int_equal(p.deterministic, 0);
    assert_int_equal(tsr_cpu_properties(e, &p, NULL), TSR_OK);
    assert_int_equal(p.deterministic, 1);
    tsr_cpu_destroy(c);
    tsr_cpu_destroy(e);
}

/* ---- SYRK ------------------------------------------------------------------------ */

/* Subnormals count as zero of their sign. */
static float flush(float f)
{
    return fabsf(f) < 0x1p-126f ? copysignf(0.0f, f) : f;
}

/* The instruction by two multiply-adds: the second of the pair first. */
static float dot2(float acc, const float a[2], const float b[2])
{
    float s = flush(fmaf(flush(a[1]), flush(b[1]), flush(acc)));
    return flush(fmaf(flush(a[0]), flush(b[0]), s));
}

static void page_syrk(uint64_t n, uint64_t rows, float alpha, const float *x, uint64_t ldx,
                      float *c, uint64_t ldc)
{
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j <= i; j++) {
            for (uint64_t k0 = 0; k0 < rows; k0 += BF16_ROWS) {
                float s = 0.0f;
                for (uint64_t k = k0; k < rows && k < k0 + BF16_ROWS; k += 2) {
                    float a[2] = { to_bf16(x[k * ldx + i]), 0.0f };
                    float b[2] = { to_bf16(x[k * ldx + j]), 0.0f };
                    if (k + 1 < rows) {
                        a[1] = to_bf16(x[(k + 1) * ldx + i]);
                        b[1] = to_bf16(x[(k + 1) * ldx + j]);
                    }
                    s = dot2(s, a, b);
                }
                c[i * ldc + j] = fmaf(alpha, s, c[i * ldc + j]);
            }
            c[j * ldc + i] = c[i * ldc + j];
        }
}

static void syrk_is_page(struct tsr_cpu *c, uint64_t n, uint64_t rows, float alpha, const float *x)
{
    const struct tsr_linalg_v1 *l = tsr_cpu_extension(c, TSR_LINALG);
    uint64_t                    ldc = n + 5;
    float                      *got = rnd_new(n * ldc, 1.0f), *want = malloc(n * ldc * 4);
    assert_non_null(want);
    for (uint64_t i = 0; i < n; i++) /* symmetric, as what it adds to */
        for (uint64_t j = 0; j < i; j++)
            got[j * ldc + i] = got[i * ldc + j];
    memcpy(want, got, n * ldc * 4);
    assert_int_equal(l->syrk(l->ctx, n, rows, alpha, x, n + 3, got, ldc, NULL), TSR_OK);
    page_syrk(n, rows, alpha, x, n + 3, want, ldc);
    for (uint64_t i = 0; i < n * ldc; i++)
        if (bits_of(got[i]) != bits_of(want[i]) && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("n %llu rows %llu: (%llu,%llu) is %a, wanted %a", (unsigned long long)n,
                     (unsigned long long)rows, (unsigned long long)(i / ldc),
                     (unsigned long long)(i % ldc), (double)got[i], (double)want[i]);
    free(got);
    free(want);
}

static void test_syrk(void **state)
{
    (void)state;
    struct tsr_cpu *c = fast_new();
    if (!c)
        skip();
    static const uint64_t N[] = { 1, 7, 47, 48, 49, 100, 250, 293 };
    static const uint64_t R[] = { 1, 2, 3, 255, 256, 257, 520, 700 };
    for (int i = 0; i < 24; i++) {
        uint64_t n = N[i % 8], rows = R[rnd() % 8];
        float   *x = rnd_new(rows * (n + 3), 1.0f);
        syrk_is_page(c, n, rows, 0.7f, x);
        free(x);
    }
    uint64_t n = 50, rows = 2051; /* more rows than are packed at once */
    float   *x = rnd_new(rows * (n + 3), 1.0f);
    syrk_is_page(c, n, rows, 0.5f, x);
    free(x);
    tsr_cpu_destroy(c);
}

/* Any bits: subnormals, infinity and NaN among them, and sums that cancel or leave F32. */
static void test_syrk_bits(void **state)
{
    (void)state;
    struct tsr_cpu *c = fast_new();
    if (!c)
        skip();
    static const float odd[] = { 0.0f,     -0.0f,     0x1p-126f, -0x1p-130f, 0x1p-149f, 0x1p-64f,
                                 0x1p-63f, -0x1p-63f, 0x1p127f,  -0x1p100f,  1.0f,      -1.0f };
    for (int round = 0; round < 12; round++) {
        uint64_t n = 64, rows = 9;
        float   *x = rnd_new(rows * (n + 3), 1.0f);
        for (uint64_t i = 0; i < rows * (n + 3); i++) {
            uint32_t bits = (uint32_t)rnd();
            if (round % 3 == 0) /* exponents anywhere */
                memcpy(x + i, &bits, 4);
            else if (round % 3 == 1)
                x[i] = odd[rnd() % (sizeof odd / sizeof *odd)];
            else /* near the smallest products */
                x[i] = ldexpf(x[i], -55 - (int)(rnd() % 16));
        }
        if (round == 11)
            x[5] = INFINITY;
        syrk_is_page(c, n, rows, round % 2 ? 0.5f : 0.3f, x);
        free(x);
    }
    tsr_cpu_destroy(c);
}

static void test_refused(void **state)
{
    (void)state;
    char            text[256] = "";
    struct tsr_err  err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    struct tsr_cpu *c = cpu_new("scalar"), *fast = fast_new(); /* NULL: the machine cannot */
    assert_int_equal(tsr_cpu_set_fast(c, &err), TSR_E_CONFIG);
    assert_true(error_is(&err, "", fast ? "AVX-512 TSR_ISA scalar" : "CPU AVX512 BF16"));
    tsr_cpu_destroy(fast);
    tsr_cpu_destroy(c);
    assert_int_equal(host_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near), cmocka_unit_test(test_exact_rest), cmocka_unit_test(test_syrk),
        cmocka_unit_test(test_syrk_bits), cmocka_unit_test(test_refused)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
