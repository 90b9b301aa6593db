/* LINEAR and EMBED: against kernels/reference/exact.h, which spells docs/decisions/numerics.md, to the bit, on
 * every instruction set that this machine has; and against double precision. */
#include "exact.h"
#include "reference.h"
#include "table_fixture.h"

#include <math.h>
#include <stdio.h>

static int same_bits(const float *a, const float *b, uint64_t n, const char *what)
{
    for (uint64_t i = 0; i < n; i++) {
        if (isnan(a[i]) && isnan(b[i]))
            continue;
        if (memcmp(&a[i], &b[i], 4) != 0) {
            printf("%s: element %llu is %a, wanted %a\n", what, (unsigned long long)i, (double)a[i],
                   (double)b[i]);
            return 0;
        }
    }
    return 1;
}

/* One weight, T tokens, all acts, all instruction sets, against the page. */
static void check_weight(const struct wt *w, uint64_t T, const float *x, int has_bias)
{
    uint64_t N = w->desc.rows, K = w->desc.cols;
    float   *dense = wt_dense(w), *bias = rnd_new(N, 1.0f), *x16 = malloc(T * K * 4);
    float   *want = malloc(T * N * 4);
    int      packed = strcmp(w->format.id, TSR_FORMAT_FLOAT) != 0;
    assert_true(x16 && want);
    for (uint64_t i = 0; i < T * K; i++)
        x16[i] = tsr_ref_round_bf16(x[i]);
    for (uint32_t act = 0; act < 3; act++) {
        for (uint64_t n = 0; n < N; n++) {
            struct tsr_ref_row row;
            int                a8 = act == TSR_ACT_A8 && packed;
            if (a8)
                assert_int_equal(tsr_ref_row_make(&row, &w->format, K,
                                                  w->codes + n * w->desc.code_stride,
                                                  w->meta + n * w->desc.meta_stride),
                                 TSR_OK);
            for (uint64_t t = 0; t < T; t++) {
                const float *in = (act == TSR_ACT_A16 ? x16 : x) + t * K;
                float        y =
                    a8 ? tsr_ref_exact_a8(in, &row, K) : tsr_ref_exact_f32(in, dense + n * K, K);
                want[t * N + n] = has_bias ? y + bias[n] : y;
            }
            if (a8)
                tsr_ref_row_free(&row);
        }
        for (int isa = 0; isa < ISAS; isa++) {
            struct tsr_cpu *c = cpu_new(test_isas[isa]);
            if (!c)
                continue;
            void *h = NULL;
            assert_int_equal(tsr_cpu_weight_load(c, &w->desc, &h, NULL), TSR_OK);
            struct tsr_tensor out = dev(c, NULL, TSR_F32, T, N, 12);
            struct tsr_tensor in = dev(c, x, TSR_F32, T, K, 8);
            struct tsr_tensor b = dev(c, bias, TSR_F32, 1, N, 0);
            struct tsr_op     op = { .struct_size = sizeof op,
                                     .kind = TSR_OP_LINEAR,
                                     .out = &out,
                                     .in = { &in, has_bias ? &b : NULL },
                                     .weight = h,
                                     .act = act };
            run_ok(c, &op);
            float *got = host_of(c, &out);
            char   what[128];
            snprintf(what, sizeof what, "%s act %u N %llu K %llu T %llu bits %u group %llu",
                     test_isas[isa], act, (unsigned long long)N, (unsigned long long)K,
                     (unsigned long long)T, w->format.bits, (unsigned long long)w->format.group);
            assert_true(same_bits(got, want, T * N, what));
            free(got);
            undev(c, &out);
            undev(c, &in);
            undev(c, &b);
            tsr_cpu_weight_free(c, h);
            tsr_cpu_destroy(c);
        }
    }
    free(dense);
    free(bias);
    free(x16);
    free(want);
    assert_int_equal(host_bytes, 0);
}

static const uint64_t some_k[] = { 1, 31, 32, 33, 48, 172, 255, 1100 };
static const uint64_t some_n[] = { 1, 15, 16, 17, 33, 70 };
static const uint64_t some_t[] = { 1, 2, 3, 4, 5, 8, 13, 64, 101 };
#define PICK(a) a[rnd() % (sizeof a / sizeof *a)]

static void linear_float_follows_the_page(void **state)
{
    (void)state;
    static const uint32_t dtypes[] = { TSR_F32, TSR_F16, TSR_BF16 };
    for (int i = 0; i < 24; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = PICK(some_n), T = PICK(some_t);
        wt_float(&w, N, K, dtypes[i % 3]);
        float *x = rnd_new(T * K, 2.0f);
        check_weight(&w, T, x, i % 2);
        free(x);
        wt_free(&w);
    }
}

static void linear_affine_follows_the_page(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 84; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = PICK(some_n), T = PICK(some_t);
        wt_affine_any(&w, N, K, i);
        float *x = rnd_new(T * K, 2.0f);
        check_weight(&w, T, x, i % 2);
        free(x);
        wt_free(&w);
    }
}

static void linear_table_follows_the_page(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 105; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = PICK(some_n), T = PICK(some_t);
        wt_table_any(&w, N, K, i);
        float *x = rnd_new(T * K, 2.0f);
        check_weight(&w, T, x, i % 2);
        free(x);
        wt_free(&w);
    }
}

static void linear_int_follows_the_page(void **state)
{
    (void)state;
    static const uint64_t groups[] = { 0, 1, 3, 4, 8, 16, 31, 32, 64, 96, 100, 128, 5000 };
    for (int i = 0; i < 56; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = PICK(some_n), T = PICK(some_t);
        wt_int(&w, N, K, 2 + (uint32_t)i % 7, PICK(groups), rnd() & 1 ? TSR_F32 : TSR_F16,
               rnd() & 1 ? TSR_ZERO_MID : TSR_ZERO_STORED);
        float *x = rnd_new(T * K, 2.0f);
        check_weight(&w, T, x, i % 2);
        free(x);
        wt_free(&w);
    }
}

/* A wide row, so that blocks, segments and tiles are full. */
static void linear_wide(void **state)
{
    (void)state;
    struct wt w;
    float    *x = rnd_new(13 * 4096, 1.0f);
    wt_int(&w, 20, 4096, 4, 128, TSR_F16, TSR_ZERO_MID);
    check_weight(&w, 13, x, 0);
    wt_free(&w);
    wt_int(&w, 20, 4096, 8, 0, TSR_F32, TSR_ZERO_STORED);
    check_weight(&w, 13, x, 1);
    wt_free(&w);
    wt_int(&w, 33, 4096, 3, 128, TSR_F16, TSR_ZERO_STORED);
    check_weight(&w, 4, x, 1);
    wt_free(&w);
    wt_int(&w, 20, 4096, 2, 32, TSR_F16, TSR_ZERO_MID);
    check_weight(&w, 13, x, 0);
    wt_free(&w);
    wt_float(&w, 20, 4096, TSR_BF16);
    check_weight(&w, 13, x, 1);
    wt_free(&w);
    free(x);
}

/* More tokens than go through a panel together, segments and rows with tails. */
static void linear_many_tokens(void **state)
{
    (void)state;
    static const uint32_t bits[] = { 2, 3, 4, 8, 6, 5 };
    float                *x = rnd_new(101 * 500, 1.0f);
    for (int i = 0; i < 6; i++) {
        struct wt w;
        wt_int(&w, 35, 500, bits[i], i % 2 ? 64 : 0, TSR_F16,
               i < 2 ? TSR_ZERO_MID : TSR_ZERO_STORED);
        check_weight(&w, 101, x, i % 2);
        wt_free(&w);
    }
    for (uint32_t i = 0; i < 7; i++) {
        struct wt w;
        wt_affine_any(&w, 35, 500, i % 2 ? i : 7 + i);
        check_weight(&w, 101, x, 0);
        wt_free(&w);
        wt_table_any(&w, 35, 500, 2 * i + 1);
        check_weight(&w, 101, x, 0);
        wt_free(&w);
    }
    static const uint64_t tokens[] = {
        8, 33, 101
    }; /* AVX2: loops for such groups, and for wide entries */
    for (int i = 0; i < 3; i++) {
        struct wt w;
        wt_int(&w, 35, 500, 6, 16, TSR_F16, TSR_ZERO_MID);
        check_weight(&w, tokens[i], x, 0);
        wt_free(&w);
        wt_table(&w, 35, 500, 6, 16, 0, 8, 0);
        check_weight(&w, tokens[i], x, 1);
        wt_free(&w);
        wt_table(&w, 35, 500, 4, 32, 0, 6, 0);
        for (int e = 0; e < 16; e++)
            w.format.table[e] = (float)(17 * e - 127);
        check_weight(&w, tokens[i], x, 0);
        wt_free(&w);
        wt_affine(&w, 35, 500, 8, 32, TSR_F16, 8);
        check_weight(&w, tokens[i], x, 0);
        wt_free(&w);
    }
    free(x);
}

/* Codes of eight bits, 20 tokens and more: segments of 96, 192 and 64 columns, which cut groups, so that a block of
 * activations has runs of unequal lengths. */
static void linear_wide_codes_across_blocks(void **state)
{
    (void)state;
    static const uint64_t K[] = { 544, 1312, 500 }, T[] = { 64, 23 }, groups[] = { 16, 32, 64, 0 };
    float                *x = rnd_new((uint64_t)64 * 1312, 1.0f);
    for (uint32_t i = 0; i < 24; i++) {
        struct wt w;
        uint64_t  k = K[i % 3], t = T[i / 12], group = groups[i / 3 % 4];
        wt_int(&w, 35, k, 8, group, TSR_F16, i % 2 ? TSR_ZERO_STORED : TSR_ZERO_MID);
        check_weight(&w, t, x, 0);
        wt_free(&w);
        wt_affine(&w, 35, k, 8, group ? group : 128, TSR_F16, i % 2 ? 6 : 0);
        check_weight(&w, t, x, 0);
        wt_free(&w);
    }
    free(x);
}

/* What AMX takes: rows and groups of whole products, each with tails of tokens, of rows, of segments, of blocks
 * and of the columns that are unpacked together. */
static void linear_on_tiles(void **state)
{
    (void)state;
    static const uint64_t K[] = { 32, 160, 544, 1312, 4128 }, T[] = { 16, 64, 17, 101, 97 };
    static const uint64_t groups[] = { 32, 64, 96, 128, 0 };
    static const uint32_t levels[] = { 0, 4, 6, 8 };
    float                *x = rnd_new((uint64_t)101 * 1312, 1.0f);
    for (uint32_t i = 0; i < 35; i++) {
        struct wt w;
        uint64_t  k = K[i % 5], t = k > 2000 ? 17 : T[i / 5 % 5], n = PICK(some_n);
        wt_int(&w, n, k, 2 + i % 7, groups[(i + i / 5) % 5], i % 2 ? TSR_F32 : TSR_F16,
               i % 3 ? TSR_ZERO_MID : TSR_ZERO_STORED);
        check_weight(&w, t, x, i % 2);
        wt_free(&w);
        wt_affine(&w, n, k, 2 + i % 7, i % 2 ? 32 : 64, TSR_F16, levels[i % 4]);
        check_weight(&w, t, x, 0);
        wt_free(&w);
        wt_table_any(&w, n, k, i);
        check_weight(&w, t, x, 0);
        wt_free(&w);
    }
    free(x);
}

/* Enough rows that up to 4 tokens go through two panels at a time; the last panel is alone and short. */
static void linear_panels_in_pairs(void **state)
{
    (void)state;
    static const uint32_t bits[] = { 2, 3, 4, 8, 6, 5 };
    float                *x = rnd_new(4 * 300, 1.0f);
    for (int i = 0; i < 24; i++) {
        struct wt w;
        wt_int(&w, 34 * 32 + 5, 300, bits[i % 6], i % 2 ? 0 : 64, i % 2 ? TSR_F32 : TSR_F16,
               i % 6 < 2 || i == 17 ? TSR_ZERO_STORED : TSR_ZERO_MID);
        check_weight(&w, 1 + (uint64_t)i / 6, x, i % 2);
        wt_free(&w);
    }
    struct wt across; /* blocks of activations begin in one record of factors and end in the next */
    wt_affine(&across, 34 * 32 + 5, 1104, 2, 16, TSR_F16, 4);
    check_weight(&across, 1, x, 0);
    wt_free(&across);
    for (uint32_t i = 0; i < 14; i++) {
        struct wt w;
        wt_affine_any(&w, 34 * 32 + 5, 300, i);
        check_weight(&w, 1 + i % 4, x, i % 2);
        wt_free(&w);
        wt_table_any(&w, 34 * 32 + 5, 300, i);
        check_weight(&w, 1 + i % 4, x, i % 2);
        wt_free(&w);
    }
    free(x);
}

/* 2 to 6 bits take what they say; whole panels and steps, no scale stored for a tail. */
static void few_bits_take_few_bytes(void **state)
{
    (void)state;
    for (uint32_t bits = 2; bits <= 6; bits++) {
        struct wt       w;
        void           *h = NULL;
        struct tsr_cpu *c = cpu_new("scalar");
        assert_non_null(c);
        wt_int(&w, 64, 1024, bits, 128, TSR_F16, TSR_ZERO_MID);
        assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_OK);
        assert_int_equal(tsr_cpu_weight_bytes(c, h), 64 * 1024 * bits / 8 + 64 * 8 * 2);
        tsr_cpu_weight_free(c, h);
        tsr_cpu_destroy(c);
        wt_free(&w);
    }
    assert_int_equal(host_bytes, 0);
}

/* tessera.int/2 as GGUF's types have it: not more than 3 % above the file's bytes per block. */
static void minimums_take_few_bytes(void **state)
{
    static const struct {
        uint32_t bits, group, level, block, bytes;
    } types[] = { { 4, 32, 0, 32, 20 },
                  { 5, 32, 0, 32, 24 },
                  { 2, 16, 4, 256, 84 },
                  { 4, 32, 6, 256, 144 },
                  { 5, 32, 6, 256, 176 } };
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct wt       w;
        void           *h = NULL;
        struct tsr_cpu *c = cpu_new("scalar");
        uint64_t        file = UINT64_C(64) * 1024 / types[i].block * types[i].bytes;
        assert_non_null(c);
        wt_affine(&w, 64, 1024, types[i].bits, types[i].group, TSR_F16, types[i].level);
        assert_int_equal(tsr_format_int_code_bytes(&w.format, 1024) +
                             tsr_format_affine_meta_bytes(&w.format, 1024),
                         file / 64);
        assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_OK);
        assert_in_range(tsr_cpu_weight_bytes(c, h), file, file + file * 3 / 100);
        tsr_cpu_weight_free(c, h);
        tsr_cpu_destroy(c);
        wt_free(&w);
    }
    assert_int_equal(host_bytes, 0);
}

/* The same of tessera.table/1: IQ4_NL, IQ4_XS, Q6_K, TQ2_0, NVFP4 and NF4. */
static void tables_take_few_bytes(void **state)
{
    static const struct {
        uint32_t bits, group, scale, level, element, block, bytes;
    } types[] = { { 4, 32, TSR_F16, 0, 0, 32, 18 },
                  { 4, 32, 0, 6, 0, 256, 136 },
                  { 6, 16, 0, 8, 0, 256, 210 },
                  { 2, 256, TSR_F16, 0, 0, 256, 66 },
                  { 4, 16, 0, 8, TSR_MX_FP8_E4M3, 16, 9 },
                  { 4, 64, TSR_F32, 0, 0, 64, 36 } };
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct wt       w;
        void           *h = NULL;
        struct tsr_cpu *c = cpu_new("scalar");
        uint64_t        file = UINT64_C(64) * 1024 / types[i].block * types[i].bytes;
        assert_non_null(c);
        wt_table(&w, 64, 1024, types[i].bits, types[i].group, types[i].scale, types[i].level,
                 types[i].element);
        assert_in_range(tsr_format_int_code_bytes(&w.format, 1024) +
                            tsr_format_table_meta_bytes(&w.format, 1024),
                        file / 64, file / 64 + 4); /* a divisor */
        assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_OK);
        assert_in_range(tsr_cpu_weight_bytes(c, h), file, file + file * 3 / 100);
        tsr_cpu_weight_free(c, h);
        tsr_cpu_destroy(c);
        wt_free(&w);
    }
    assert_int_equal(host_bytes, 0);
}

static void strange_activations(void **state)
{
    (void)state;
    struct wt w;
    uint64_t  K = 700, T = 9;
    float    *x = rnd_new(T * K, 1.0f);
    memset(x, 0, K * 4); /* zeros */
    for (uint64_t k = 0; k < K; k++)
        x[K + k] *= 1e-38f; /* too small for 1/sa */
    x[2 * K + 5] = NAN;
    x[3 * K + 200] = INFINITY;
    x[4 * K + 1] = 3e38f;
    for (uint64_t k = 0; k < K; k++)
        x[5 * K + k] = -0.0f;
    wt_int(&w, 17, K, 8, 0, TSR_F32, TSR_ZERO_STORED);
    check_weight(&w, T, x, 0);
    wt_free(&w);
    wt_int(&w, 17, K, 3, 64, TSR_F16, TSR_ZERO_MID);
    check_weight(&w, T, x, 0);
    wt_free(&w);
    wt_affine(&w, 17, K, 4, 32, 0, 6);
    check_weight(&w, T, x, 0);
    wt_free(&w);
    wt_table_any(&w, 17, K, 5);
    check_weight(&w, T, x, 0);
    wt_free(&w);
    free(x);
}

/* The largest codes and activations: no step of the integer path may saturate. */
static void extreme_codes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 14; i++) {
        struct wt w;
        uint64_t  K = 512, T = i < 7 ? 7 : 25;
        uint32_t  bits = 2 + i % 7;
        float    *x = rnd_new(T * K, 1.0f);
        for (uint64_t j = 0; j < T * K; j++)
            x[j] = j / K > 2 ? (x[j] < 0 ? -1.0f : 1.0f) : j / K % 2 ? 1.0f : -1.0f;
        wt_int(&w, 18, K, bits, 0, TSR_F32, TSR_ZERO_STORED);
        memset(w.codes, 0xff, 18 * w.desc.code_stride);
        for (uint64_t r = 0; r < 18; r++)
            w.meta[r * w.desc.meta_stride + 4] = 0;
        check_weight(&w, T, x, 0);
        wt_free(&w);
        wt_affine(&w, 18, K, bits, i < 7 ? 128 : 64, TSR_F16, 8);
        memset(w.codes, 0xff, 18 * w.desc.code_stride);
        for (uint64_t j = 0; i >= 7 && j < 18 * w.desc.code_stride; j++)
            w.codes[j] = rnd() & 1 ? 0xff : 0;
        check_weight(&w, T, x, 0);
        wt_free(&w);
        free(x);
    }
}

/* Against double: the chain of K additions of rounded values errs by at most about K/8 ulp of
 * the sum of magnitudes in each of 8 segments. */
static void linear_is_near_double(void **state)
{
    (void)state;
    struct wt w;
    uint64_t  K = 2000, N = 40;
    float    *x = rnd_new(K, 1.0f);
    wt_float(&w, N, K, TSR_F32);
    float *dense = wt_dense(&w);
    for (uint64_t n = 0; n < N; n++) {
        double mag, y = tsr_ref_linear(x, dense + n * K, K, 0, &mag);
        double e = fabs((double)tsr_ref_exact_f32(x, dense + n * K, K) - y);
        assert_true(e <= mag * (double)(K / 8 + 4) * 0x1p-24);
    }
    free(dense);
    free(x);
    wt_free(&w);
}

static void embed_takes_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct wt w;
        uint64_t  K = PICK(some_k), N = 70, T = 5;
        if (i < 3)
            wt_float(&w, N, K, i == 0 ? TSR_F32 : i == 1 ? TSR_F16 : TSR_BF16);
        else
            wt_int(&w, N, K, 2 + (uint32_t)i % 7, i % 2 ? 32 : 0, i % 3 ? TSR_F32 : TSR_F16,
                   i % 2 ? TSR_ZERO_STORED : TSR_ZERO_MID);
        float   *dense = wt_dense(&w);
        uint32_t ids[5] = { 69, 0, 16, 31, 32 };
        for (int isa = 0; isa < ISAS; isa++) {
            struct tsr_cpu *c = cpu_new(test_isas[isa]);
            if (!c)
                continue;
            void *h = NULL;
            assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_OK);
            struct tsr_tensor out = dev(c, NULL, TSR_F32, T, K, 4),
                              in = dev(c, ids, TSR_U32, 1, T, 0);
            float         scale = i % 2 ? 1.0f : 3.3f;
            struct tsr_op op = { .struct_size = sizeof op,
                                 .kind = TSR_OP_EMBED,
                                 .out = &out,
                                 .in = { &in },
                                 .weight = h,
                                 .scale = scale };
            run_ok(c, &op);
            float *got = host_of(c, &out);
            for (uint64_t t = 0; t < T; t++)
                for (uint64_t k = 0; k < K; k++)
                    assert_true(got[t * K + k] == dense[ids[t] * K + k] * scale);
            free(got);
            ids[2] = 70;
            assert_int_equal(tsr_cpu_upload(c, in.buffer, in.offset, ids, sizeof ids, NULL),
                             TSR_OK);
            assert_int_equal(tsr_cpu_run(c, NULL, &op, NULL), TSR_E_INVAL);
            ids[2] = 16;
            undev(c, &out);
            undev(c, &in);
            tsr_cpu_weight_free(c, h);
            tsr_cpu_destroy(c);
        }
        free(dense);
        wt_free(&w);
    }
    assert_int_equal(host_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_float_follows_the_page),
        cmocka_unit_test(linear_int_follows_the_page),
        cmocka_unit_test(linear_affine_follows_the_page),
        cmocka_unit_test(linear_table_follows_the_page),
        cmocka_unit_test(linear_wide),
        cmocka_unit_test(linear_many_tokens),
        cmocka_unit_test(linear_wide_codes_across_blocks),
        cmocka_unit_test(linear_on_tiles),
        cmocka_unit_test(linear_panels_in_pairs),
        cmocka_unit_test(few_bits_take_few_bytes),
        cmocka_unit_test(minimums_take_few_bytes),
        cmocka_unit_test(tables_take_few_bytes),
        cmocka_unit_test(strange_activations),
        cmocka_unit_test(extreme_codes),
        cmocka_unit_test(linear_is_near_double),
        cmocka_unit_test(embed_takes_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
