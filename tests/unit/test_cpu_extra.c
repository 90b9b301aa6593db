/* LINEAR and EMBED on tessera.lut/1, tessera.mx/1 and LLM.int8 weights: against
 * kernels/reference/exact.h, which spells docs/decisions/numerics.md, to the bit, on every instruction set that this machine has. */
#include "../fixtures/error_is.h"
#include "exact.h"
#include "fp8_fixture.h"

#include <math.h>
#include <stdio.h>

/* ---- one weight, all acts, all instruction sets --------------------------------------- */

static void same_bits(const float *a, const float *b, uint64_t n, const char *what)
{
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], 4) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %llu is %a, wanted %a", what, (unsigned long long)i, (double)a[i],
                     (double)b[i]);
}

/* LINEAR of T tokens in one call, into got [T][N]. */
static void run_linear(struct tsr_cpu *c, void *h, const struct wt *w, uint64_t T, const float *x,
                       const float *bias, uint32_t act, float *got)
{
    uint64_t          N = w->desc.rows, K = w->desc.cols;
    struct tsr_tensor out = dev(c, NULL, TSR_F32, T, N, 12), in = dev(c, x, TSR_F32, T, K, 8);
    struct tsr_tensor b = dev(c, bias, TSR_F32, 1, N, 0);
    struct tsr_op     op = { .struct_size = sizeof op,
                             .kind = TSR_OP_LINEAR,
                             .out = &out,
                             .in = { &in, bias ? &b : NULL },
                             .weight = h,
                             .act = act };
    run_ok(c, &op);
    float *p = host_of(c, &out);
    memcpy(got, p, T * N * 4);
    free(p);
    undev(c, &out);
    undev(c, &in);
    undev(c, &b);
}

static void check_weight(const struct wt *w, uint64_t T, const float *x)
{
    uint64_t N = w->desc.rows, K = w->desc.cols;
    float   *dense = wt_dense(w), *bias = rnd_new(N, 1.0f);
    float   *want = malloc(3 * T * N * 4), *got = malloc(T * N * 4), *x16 = malloc(T * K * 4);
    int      llm = w->format.act8 == TSR_ACT8_LLM;
    assert_true(want && got && x16);
    for (uint64_t i = 0; i < T * K; i++)
        x16[i] = tsr_ref_round_bf16(x[i]);
    for (uint64_t n = 0; n < N; n++) {
        const uint8_t     *codes = w->codes + n * w->desc.code_stride;
        const uint8_t     *meta = w->meta + n * w->desc.meta_stride;
        struct tsr_ref_row row = { 0 };
        if (!llm)
            assert_int_equal(tsr_ref_row_make(&row, &w->format, K, codes, meta), TSR_OK);
        for (uint64_t t = 0; t < T; t++) {
            float f32 = tsr_ref_exact_f32(x + t * K, dense + n * K, K);
            float a8 =
                llm ? tsr_ref_exact_llm8(x + t * K, &w->format, codes, meta, dense + n * K, K)
                    : tsr_ref_exact_a8(x + t * K, &row, K);
            want[t * N + n] = f32 + bias[n];
            want[(T + t) * N + n] = tsr_ref_exact_f32(x16 + t * K, dense + n * K, K) + bias[n];
            want[(2 * T + t) * N + n] = a8 + bias[n];
        }
        tsr_ref_row_free(&row);
    }
    for (int isa = 0; isa <= ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa < ISAS ? isa : ISAS - 1]);
        void           *h = NULL;
        char            text[256] = "", what[160];
        struct tsr_err  err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
        if (!c)
            continue;
        c->permute = c->permute && isa < ISAS; /* the last again, without VBMI */
        if (tsr_cpu_weight_load(c, &w->desc, &h, &err) != TSR_OK)
            fail_msg("%s", text);
        for (uint32_t act = 0; act < 3; act++) {
            snprintf(what, sizeof what, "%s act %u %s element %x bits %u N %llu K %llu T %llu",
                     c->k->name, act, w->format.id, w->format.element, w->format.bits,
                     (unsigned long long)N, (unsigned long long)K, (unsigned long long)T);
            run_linear(c, h, w, T, x, bias, act, got);
            same_bits(got, want + act * T * N, T * N, what);
            /* the last token alone: what stands beside it changes nothing */
            run_linear(c, h, w, 1, x + (T - 1) * K, bias, act, got);
            same_bits(got, want + (act * T + T - 1) * N, N, what);
        }
        tsr_cpu_weight_free(c, h);
        tsr_cpu_destroy(c);
    }
    free(dense);
    free(bias);
    free(want);
    free(got);
    free(x16);
    assert_int_equal(host_bytes, 0);
}

static const uint64_t some_k[] = { 1, 3, 31, 32, 33, 48, 172, 255, 300, 1100 };
static const uint64_t some_n[] = { 1, 15, 16, 17, 33, 70 };
static const uint64_t some_t[] = { 1, 2, 4, 5, 13, 100 };
#define PICK(a) a[rnd() % (sizeof a / sizeof *a)]

static const uint32_t elements[] = {
    TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2, TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1,
    TSR_MX_FP5_E2M2, TSR_MX_FP5_E1M3, TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2, TSR_MX_FP3_E1M1,
    TSR_MX_INT(2),   TSR_MX_INT(3),   TSR_MX_INT(4),   TSR_MX_INT(5),   TSR_MX_INT(6),
    TSR_MX_INT(7),   TSR_MX_INT(8),   TSR_MX_FP4_E2M1,
};
#define ELEMENTS (sizeof elements / sizeof *elements)

/* Codes of FP8 that are no numbers lose the top bit of the exponent; of 4,096 rows keep about one. */
static void mostly_numbers(struct wt *w)
{
    uint32_t e = w->format.element;
    uint64_t bytes = w->desc.rows * w->desc.code_stride;
    for (uint64_t i = 0; i < bytes && e >> 8 >= 4; i++)
        if ((e == TSR_MX_FP8_E4M3 ? (w->codes[i] & 127) == 127 : (w->codes[i] & 124) == 124) &&
            rnd() % 32)
            w->codes[i] &= 0xbf;
}

static void mx_follows_the_page(void **state)
{
    (void)state;
    static const uint64_t groups[] = { 0, 1, 3, 4, 8, 16, 31, 32, 64, 100, 128, 5000 };
    for (size_t i = 0; i < 3 * ELEMENTS; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = PICK(some_n), T = PICK(some_t);
        wt_mx(&w, N, K, elements[i % ELEMENTS], PICK(groups), 4 + (uint32_t)rnd() % 5);
        mostly_numbers(&w);
        float *x = rnd_new(T * K, 2.0f);
        check_weight(&w, T, x);
        free(x);
        wt_free(&w);
    }
}

/* Stored scales, F32 and BF16. */
static void fp8_follows_the_page(void **state)
{
    (void)state;
    static const uint64_t groups[] = { 0, 6, 16, 32, 64, 100, 128, 256, 5000 };
    for (uint32_t i = 0; i < 36; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = PICK(some_n), T = PICK(some_t);
        wt_fp8(&w, N, K, i % 3 == 2 ? TSR_MX_FP8_E5M2 : TSR_MX_FP8_E4M3, groups[i % 9],
               i / 2 % 2 ? TSR_F32 : TSR_BF16);
        mostly_numbers(&w);
        float *x = rnd_new(T * K, 2.0f);
        check_weight(&w, T, x);
        free(x);
        wt_free(&w);
    }
}

static const uint32_t digits[] = { TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2,
                                   TSR_MX_FP5_E3M1 };

/* Small floats at every number of tokens that a tile may have, in blocks that begin on four columns and
 * in such that do not. */
static void small_floats_at_every_count(void **state)
{
    (void)state;
    static const uint64_t groups[] = { 8, 16, 32, 0, 6 };
    for (uint32_t i = 0; i < 4; i++)
        for (uint64_t T = 1 + i % 2; T <= 33; T += 2) {
            struct wt w;
            float    *x = rnd_new(T * 300, 2.0f);
            wt_mx(&w, 33, 300, digits[i], groups[(T + i) % 5], 8);
            mostly_numbers(&w);
            check_weight(&w, T, x);
            free(x);
            wt_free(&w);
        }
}

/* One token takes two halves of the columns in turn if they have the same segments and groups: most of these have,
 * groups of 40 and 352 columns have not. */
static void small_floats_in_two_streams(void **state)
{
    (void)state;
    static const uint64_t K[] = { 64, 384, 768, 2816, 352 }, groups[] = { 12, 32, 0, 64, 40 };
    for (uint32_t i = 0; i < 40; i++) {
        struct wt w;
        uint64_t  k = K[i % 5], group = groups[(i + i / 5) % 5];
        float    *x = rnd_new(k, 2.0f);
        if (i % 2)
            wt_mx(&w, 33, k, digits[i / 2 % 4], group, 8);
        else
            wt_fp8(&w, 33, k, TSR_MX_FP8_E4M3, group, i / 2 % 2 ? TSR_F32 : TSR_BF16);
        mostly_numbers(&w);
        check_weight(&w, 1, x);
        free(x);
        wt_free(&w);
    }
}

/* What AMX takes: groups of whole products, with tails of tokens, of rows, of segments and of blocks. */
static void small_floats_on_tiles(void **state)
{
    (void)state;
    static const uint64_t K[] = { 32, 160, 544, 1312 }, T[] = { 16, 17, 97, 31 };
    static const uint64_t groups[] = { 32, 64, 96, 128, 0 };
    for (uint32_t i = 0; i < 16; i++) {
        struct wt w;
        uint64_t  k = K[i % 4], t = T[(i + i / 4) % 4], n = PICK(some_n);
        float    *x = rnd_new(t * k, 2.0f);
        if (i % 2)
            wt_mx(&w, n, k, digits[i / 2 % 4], groups[i % 5], 8);
        else
            wt_fp8(&w, n, k, TSR_MX_FP8_E4M3, groups[i % 5], i / 2 % 2 ? TSR_F32 : TSR_BF16);
        mostly_numbers(&w);
        check_weight(&w, t, x);
        free(x);
        wt_free(&w);
    }
}

/* A code that is no number makes its row NaN under a8, and no other row. */
static void no_numbers(void **state)
{
    (void)state;
    static const struct {
        uint32_t element;
        uint8_t  code;
    } all[] = { { TSR_MX_FP8_E4M3, 0x7f }, { TSR_MX_FP8_E4M3, 0xff }, { TSR_MX_FP8_E5M2, 0x7c },
                { TSR_MX_FP8_E5M2, 0xfc }, { TSR_MX_FP8_E5M2, 0x7d }, { TSR_MX_FP8_E5M2, 0xff } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (uint64_t T = 1; T < 8; T += 5) {
            struct wt w;
            uint64_t  N = 35, K = 90;
            float    *x = rnd_new(T * K, 2.0f), *got = malloc(T * N * 4);
            assert_non_null(got);
            wt_mx(&w, N, K, all[i].element, 32, 8);
            for (uint64_t j = 0; j < N * w.desc.code_stride; j++)
                w.codes[j] &= 0xb7; /* exponents below the last */
            for (uint64_t j = 0; j < N * w.desc.meta_stride; j++)
                w.meta[j] = 127;
            w.codes[33 * w.desc.code_stride + 60] = all[i].code;
            x[60] = 0.0f; /* 0 times infinite */
            check_weight(&w, T, x);
            struct tsr_cpu *c = cpu_new("scalar");
            void           *h = NULL;
            assert_non_null(c);
            assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_OK);
            run_linear(c, h, &w, T, x, NULL, TSR_ACT_A8, got);
            for (uint64_t j = 0; j < T * N; j++)
                assert_int_equal(isnan(got[j]) != 0, j % N == 33);
            tsr_cpu_weight_free(c, h);
            tsr_cpu_destroy(c);
            free(got);
            free(x);
            wt_free(&w);
        }
}

static void lut_follows_the_page(void **state)
{
    (void)state;
    static const uint64_t outliers[] = { 0, 0, 1, 2, 9, 40 };
    for (uint32_t i = 0; i < 49; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = PICK(some_n), T = PICK(some_t), n = PICK(outliers);
        wt_lut(&w, N, K, 2 + i % 7, n < K ? n : K, i & 1 ? TSR_F32 : TSR_F16);
        float *x = rnd_new(T * K, 2.0f);
        check_weight(&w, T, x);
        free(x);
        wt_free(&w);
    }
}

static void wt_llm(struct wt *w, uint64_t N, uint64_t K, uint32_t scale_dtype, double threshold)
{
    wt_int(w, N, K, 8, 0, scale_dtype, TSR_ZERO_MID);
    w->format.act8 = TSR_ACT8_LLM;
    w->format.act8_threshold = threshold;
}

static void llm_follows_the_page(void **state)
{
    (void)state;
    static const double thresholds[] = { 0, 1.5, 1.9, 0.25, 100 };
    for (int i = 0; i < 20; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = PICK(some_n), T = PICK(some_t);
        wt_llm(&w, N, K, i & 1 ? TSR_F32 : TSR_F16, PICK(thresholds));
        float *x = rnd_new(T * K, 2.0f);
        check_weight(&w, T, x);
        free(x);
        wt_free(&w);
    }
}

/* Full blocks, segments and tiles. */
static void wide(void **state)
{
    (void)state;
    struct wt w;
    float    *x = rnd_new(13 * 4096, 1.0f);
    wt_mx(&w, 20, 4096, TSR_MX_FP4_E2M1, 32, 8);
    check_weight(&w, 13, x);
    wt_free(&w);
    wt_mx(&w, 20, 4096, TSR_MX_FP8_E4M3, 32, 8);
    for (uint64_t i = 0; i < 20 * w.desc.code_stride; i++)
        w.codes[i] &= (w.codes[i] & 127) == 127 ? 0xbf : 0xff;
    check_weight(&w, 13, x);
    wt_free(&w);
    wt_lut(&w, 20, 4096, 3, 18, TSR_F32);
    check_weight(&w, 13, x);
    wt_free(&w);
    wt_llm(&w, 20, 4096, TSR_F32, 0.9);
    check_weight(&w, 13, x);
    wt_free(&w);
    free(x);
}

static void strange_activations(void **state)
{
    (void)state;
    struct wt w;
    uint64_t  K = 700, T = 9;
    float    *x = rnd_new(T * K, 1.0f);
    memset(x, 0, K * 4); /* zeros */
    for (uint64_t k = 0; k < K; k++)
        x[K + k] *= 1e-38f; /* too small to divide by */
    x[2 * K + 5] = NAN;
    x[3 * K + 200] = INFINITY;
    x[4 * K + 1] = 3e38f;
    for (uint64_t k = 0; k < K; k++)
        x[5 * K + k] = -0.0f;
    wt_mx(&w, 17, K, TSR_MX_FP4_E2M1, 16, 8);
    check_weight(&w, T, x);
    wt_free(&w);
    wt_mx(&w, 17, K, TSR_MX_FP6_E3M2, 16, 8);
    check_weight(&w, T, x);
    wt_free(&w);
    wt_lut(&w, 17, K, 4, 0, TSR_F16);
    check_weight(&w, T, x);
    memset(w.meta, 0, 32); /* a row of zeros */
    w.meta[w.desc.meta_stride] = 0;
    w.meta[w.desc.meta_stride + 1] = 0x7e; /* NaN in a table */
    check_weight(&w, T, x);
    wt_free(&w);
    wt_llm(&w, 17, K, TSR_F32, 0.5);
    check_weight(&w, T, x);
    wt_free(&w);
    free(x);
}

/* The largest codes and activations over the longest rows: nothing may overflow or saturate. */
static void extremes(void **state)
{
    (void)state;
    struct wt w;
    uint64_t  K = 65536, T = 5;
    float    *x = malloc(T * K * 4);
    assert_non_null(x);
    for (uint64_t i = 0; i < T * K; i++)
        x[i] = i / K % 2 ? 1.0f : -1.0f;
    wt_llm(&w, 2, K, TSR_F32, 0);
    memset(w.codes, 0xff, 2 * w.desc.code_stride);
    memset(w.codes, 0x00, w.desc.code_stride);
    check_weight(&w, T, x);
    wt_free(&w);
    /* the largest numbers, one sign in a row: 57344 * 2^16 * 127 * 128 of fp8_e5m2 in a run */
    static const uint8_t top[][2] = {
        { 0x7e, 0xfe }, { 0x7b, 0xfb }, { 0xff, 0xff }, { 0xff, 0xff }
    };
    for (uint32_t i = 0; i < 4; i++)
        for (uint64_t group = 0; group < 256; group += 128) {
            wt_mx(&w, 2, 2048, digits[i], group, 8);
            for (uint64_t r = 0; r < 2; r++)
                memset(w.codes + r * w.desc.code_stride, top[i][r], w.desc.code_stride);
            if (i >= 2) /* the positive twin: signs cleared */
                for (uint64_t k = 0; k < 2048; k++)
                    w.codes[((k + 1) * w.format.bits - 1) / 8] &=
                        (uint8_t) ~(1u << ((k + 1) * w.format.bits - 1) % 8);
            check_weight(&w, T, x);
            wt_free(&w);
        }
    wt_lut(&w, 2, 512, 4, 0, TSR_F32);
    memset(w.codes, 0xff, 2 * w.desc.code_stride);
    for (uint64_t r = 0; r < 2; r++)
        for (uint64_t i = 0; i < 16; i++) {
            float v = r ? -1.0f : 1.0f;
            memcpy(w.meta + r * w.desc.meta_stride + 4 * i, &v, 4);
        }
    check_weight(&w, T, x);
    wt_free(&w);
    free(x);
}

/* A row that LLM.int8 cannot sum in 32 bits runs with F32 activations. */
static void llm_of_a_long_row(void **state)
{
    (void)state;
    struct wt w;
    uint64_t  K = 65537;
    float    *x = rnd_new(K, 1.0f), got[2], want[1];
    wt_llm(&w, 1, K, TSR_F32, 0);
    float          *dense = wt_dense(&w);
    struct tsr_cpu *c = cpu_new("scalar");
    void           *h = NULL;
    assert_non_null(c);
    assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_OK);
    run_linear(c, h, &w, 1, x, NULL, TSR_ACT_A8, got);
    want[0] = tsr_ref_exact_f32(x, dense, K);
    same_bits(got, want, 1, "long row");
    tsr_cpu_weight_free(c, h);
    tsr_cpu_destroy(c);
    free(dense);
    free(x);
    wt_free(&w);
}

static void embed_takes_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = 70;
        if (i % 8 == 7)
            wt_fp8(&w, N, K, TSR_MX_FP8_E4M3, 1 + rnd() % 40, i & 16 ? TSR_F32 : TSR_BF16);
        else if (i % 3 == 0)
            wt_lut(&w, N, K, 2 + i / 3 % 7, K < 5 ? 1 : 5, i & 1 ? TSR_F32 : TSR_F16);
        else
            wt_mx(&w, N, K, elements[i % ELEMENTS], 1 + rnd() % 40, 8);
        float          *dense = wt_dense(&w);
        uint32_t        ids[5] = { 69, 0, 16, 31, 32 };
        struct tsr_cpu *c = cpu_new("scalar");
        void           *h = NULL;
        assert_non_null(c);
        assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_OK);
        struct tsr_tensor out = dev(c, NULL, TSR_F32, 5, K, 4), in = dev(c, ids, TSR_U32, 1, 5, 0);
        struct tsr_op     op = { .struct_size = sizeof op,
                                 .kind = TSR_OP_EMBED,
                                 .out = &out,
                                 .in = { &in },
                                 .weight = h,
                                 .scale = 1 };
        run_ok(c, &op);
        float *got = host_of(c, &out);
        for (uint64_t t = 0; t < 5; t++)
            same_bits(got + t * K, dense + ids[t] * K, K, "embed");
        free(got);
        undev(c, &out);
        undev(c, &in);
        tsr_cpu_weight_free(c, h);
        tsr_cpu_destroy(c);
        free(dense);
        wt_free(&w);
    }
    assert_int_equal(host_bytes, 0);
}

static void refused(struct wt *w, const char *facts)
{
    char            text[256] = "";
    struct tsr_err  err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    void           *h = NULL;
    struct tsr_cpu *c = cpu_new("scalar");
    assert_non_null(c);
    assert_int_equal(tsr_cpu_weight_load(c, &w->desc, &h, &err), TSR_E_INVAL);
    assert_null(h);
    assert_true(error_is(&err, "w", facts));
    tsr_cpu_destroy(c);
}

static void refusals(void **state)
{
    (void)state;
    struct wt w;
    wt_mx(&w, 3, 40, TSR_MX_FP4_E2M1, 8, 8);
    w.format.bits = 5;
    refused(&w, "tessera.mx");
    w.format.bits = 4;
    w.format.scale_bits = 3;
    refused(&w, "scale_bits");
    w.format.scale_bits = 8;
    w.desc.meta_stride = 4;
    refused(&w, "code_stride meta_stride");
    w.format.id = TSR_FORMAT_FP8;
    refused(&w, "FP8");
    w.format.element = TSR_MX_FP8_E4M3;
    w.format.bits = 8;
    refused(&w, "scales");
    w.format.scale_bits = 0;
    w.format.scale_dtype = TSR_F16;
    refused(&w, "scales F32 BF16");
    w.format.scale_dtype = TSR_BF16;
    refused(&w, "code_stride meta_stride");
    w.desc.meta_stride = 9;
    w.format.act8 = TSR_ACT8_LLM;
    refused(&w, "act8");
    w.format.act8 = 0;
    w.format.struct_size = 40;
    refused(&w, "struct_size");
    wt_free(&w);
    wt_lut(&w, 3, 40, 4, 2, TSR_F16);
    w.format.outliers = 41;
    refused(&w, "outliers");
    w.format.outliers = 2;
    uint8_t *columns =
        w.meta + w.desc.meta_stride + tsr_format_lut_meta_bytes(&w.format) - 8; /* of row 1 */
    memset(columns, 0, 8);
    refused(&w, "row#1");
    columns[0] = 40;
    refused(&w, "row#1");
    w.format.scale_dtype = TSR_BF16;
    refused(&w, "tables");
    w.format.scale_dtype = TSR_F16;
    w.desc.meta = NULL;
    refused(&w, "scales");
    wt_free(&w);
    wt_llm(&w, 3, 40, TSR_F16, -1);
    refused(&w, "threshold");
    w.format.act8_threshold = 6;
    w.format.bits = 4;
    refused(&w, "8 bits");
    w.format.bits = 8;
    w.format.act8 = 7;
    refused(&w, "act8");
    wt_free(&w);
    assert_int_equal(host_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mx_follows_the_page),
        cmocka_unit_test(fp8_follows_the_page),
        cmocka_unit_test(small_floats_at_every_count),
        cmocka_unit_test(small_floats_in_two_streams),
        cmocka_unit_test(small_floats_on_tiles),
        cmocka_unit_test(no_numbers),
        cmocka_unit_test(lut_follows_the_page),
        cmocka_unit_test(llm_follows_the_page),
        cmocka_unit_test(wide),
        cmocka_unit_test(strange_activations),
        cmocka_unit_test(extremes),
        cmocka_unit_test(llm_of_a_long_row),
        cmocka_unit_test(embed_takes_rows),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
