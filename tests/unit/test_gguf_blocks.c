/* Blocks of every type that is read: widened, they are what llama.cpp's own decoder in Python gave;
 * in a packed layout, the same to the last bit.  And the words of the format's page. */
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/safetensors/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS TSR_SOURCE_ROOT "/tests/golden/gguf/blocks.safetensors"

static const struct {
    const char *name;
    uint32_t    type;
    bool        packed;
} types[] = {
    { "F32", TSR_GGUF_T_F32, false },    { "F16", TSR_GGUF_T_F16, false },
    { "BF16", TSR_GGUF_T_BF16, false },  { "Q8_0", TSR_GGUF_T_Q8_0, true },
    { "Q4_0", TSR_GGUF_T_Q4_0, true },   { "Q4_1", TSR_GGUF_T_Q4_1, true },
    { "Q5_0", TSR_GGUF_T_Q5_0, true },   { "Q5_1", TSR_GGUF_T_Q5_1, true },
    { "Q2_K", TSR_GGUF_T_Q2_K, true },   { "Q3_K", TSR_GGUF_T_Q3_K, true },
    { "Q4_K", TSR_GGUF_T_Q4_K, true },   { "Q5_K", TSR_GGUF_T_Q5_K, true },
    { "Q6_K", TSR_GGUF_T_Q6_K, true },   { "IQ4_NL", TSR_GGUF_T_IQ4_NL, true },
    { "MXFP4", TSR_GGUF_T_MXFP4, true }, { "IQ4_XS", TSR_GGUF_T_IQ4_XS, true },
    { "TQ1_0", TSR_GGUF_T_TQ1_0, true }, { "TQ2_0", TSR_GGUF_T_TQ2_0, true },
    { "IQ2_S", TSR_GGUF_T_IQ2_S, true }, { "IQ2_XS", TSR_GGUF_T_IQ2_XS, true },
    { "IQ3_S", TSR_GGUF_T_IQ3_S, true }, { "IQ2_XXS", TSR_GGUF_T_IQ2_XXS, true },
    { "IQ1_S", TSR_GGUF_T_IQ1_S, true }, { "IQ3_XXS", TSR_GGUF_T_IQ3_XXS, true },
    { "IQ1_M", TSR_GGUF_T_IQ1_M, true },
};

static void *read(const struct tsr_safetensors *st, const char *name, const char *suffix,
                  uint64_t *bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              key[64];
    (void)snprintf(key, sizeof key, "%s.%s", name, suffix);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, key);
    assert_non_null(t);
    *bytes = t->end - t->begin;
    void *p = malloc(*bytes);
    assert_non_null(p);
    assert_int_equal(tsr_safetensors_read(st, t, p, &e.err), TSR_OK);
    return p;
}

static void same(const char *name, const char *how, const float *got, const float *want, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!(got[i] == want[i]))
            fail_msg("%s %s: element %d is %.9g, recorded %.9g", name, how, (int)i, (double)got[i],
                     (double)want[i]);
}

static void every_type(void **state)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    (void)state;
    assert_int_equal(tsr_safetensors_open(&st, BLOCKS, &e.err), TSR_OK);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        uint64_t          raw_bytes, wide_bytes, n;
        uint32_t          elements, bytes;
        struct tsr_format f;
        char              buf[16];
        unsigned char    *raw = read(&st, types[i].name, "blocks", &raw_bytes);
        float            *want = read(&st, types[i].name, "values", &wide_bytes);
        float            *got = malloc(wide_bytes);
        assert_non_null(got);
        n = wide_bytes / sizeof *want;
        assert_true(tsr_gguf_block(types[i].type, &elements, &bytes));
        assert_string_equal(tsr_gguf_type_name(types[i].type, buf), types[i].name);
        assert_int_equal(raw_bytes, n / elements * bytes);
        tsr_gguf_widen(types[i].type, raw, n, got);
        same(types[i].name, "widened", got, want, n);
        assert_int_equal(tsr_gguf_format(types[i].type, &f), types[i].packed);
        if (types[i].packed) {
            assert_true(tsr_model_format_known(&f));
            unsigned char *codes = malloc(tsr_model_format_code_bytes(&f, n));
            unsigned char *meta = malloc(tsr_model_format_meta_bytes(&f, n));
            assert_true(codes && meta);
            assert_null(tsr_gguf_pack_row(types[i].type, raw, n, codes, meta));
            memset(got, 0xff, wide_bytes);
            tsr_model_format_decode_row(&f, n, codes, meta, got);
            same(types[i].name, "packed", got, want, n);
            free(codes);
            free(meta);
        }
        free(raw);
        free(want);
        free(got);
    }
    tsr_safetensors_close(&st);
}

/* Codes 0 to 15, twice: element j and j + 16 share a byte there, neighbours do here. */
static void mxfp4_words(void **state)
{
    unsigned char block[17] = { 127 }, codes[16], meta[4];
    (void)state;
    for (unsigned i = 0; i < 16; i++)
        block[1 + i] = (unsigned char)(i << 4 | i);
    assert_null(tsr_gguf_pack_row(TSR_GGUF_T_MXFP4, block, 32, codes, meta));
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(codes[i], (i % 8 * 2) | (i % 8 * 2 + 1) << 4);
    assert_int_equal(meta[0], 127);
}

/* What no layout of ours can hold says so. */
static void no_layout(void **state)
{
    unsigned char block[128] = { 0 }, codes[128], meta[32];
    (void)state;
    assert_non_null(tsr_gguf_pack_row(TSR_GGUF_T_F32, block, 32, codes, meta));
}

/* Scales and minimums that are no numbers, in the second block of a row. */
static void not_numbers(void **state)
{
    static const struct {
        uint32_t type, scale; /* where the block has its scale; the minimum follows */
    } kinds[] = { { TSR_GGUF_T_Q4_1, 0 },
                  { TSR_GGUF_T_Q5_1, 0 },
                  { TSR_GGUF_T_Q2_K, 80 },
                  { TSR_GGUF_T_Q4_K, 0 },
                  { TSR_GGUF_T_Q5_K, 0 } };
    static const struct {
        uint32_t type, scale;
    } alone[] = { { TSR_GGUF_T_IQ4_NL, 0 }, { TSR_GGUF_T_IQ4_XS, 0 }, { TSR_GGUF_T_TQ1_0, 52 },
                  { TSR_GGUF_T_TQ2_0, 64 }, { TSR_GGUF_T_Q3_K, 108 }, { TSR_GGUF_T_Q6_K, 208 },
                  { TSR_GGUF_T_IQ2_S, 0 },  { TSR_GGUF_T_IQ3_S, 0 },  { TSR_GGUF_T_IQ1_S, 0 } };
    static const uint16_t bad[] = { 0x7c00, 0xfc00, 0x7e01 }; /* infinite, NaN */
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t k = 0; k < 6; k++) {
            unsigned char rows[2 * 176] = { 0 }, codes[320], meta[64];
            uint32_t      elements, bytes;
            assert_true(tsr_gguf_block(kinds[i].type, &elements, &bytes));
            unsigned char *at = rows + bytes + kinds[i].scale + 2 * (k % 2);
            at[0] = (unsigned char)bad[k / 2];
            at[1] = (unsigned char)(bad[k / 2] >> 8);
            const char *why =
                tsr_gguf_pack_row(kinds[i].type, rows, (uint64_t)2 * elements, codes, meta);
            assert_string_equal(why, k % 2 ? "has a minimum that is not a number"
                                           : "has a scale that is not a number");
        }
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        for (size_t k = 0; k < 3; k++) {
            unsigned char rows[2 * 210] = { 0 }, codes[512], meta[128];
            uint32_t      elements, bytes;
            assert_true(tsr_gguf_block(alone[i].type, &elements, &bytes));
            memcpy(rows + bytes + alone[i].scale, &bad[k], 2);
            const char *why =
                tsr_gguf_pack_row(alone[i].type, rows, (uint64_t)2 * elements, codes, meta);
            assert_non_null(why);
            assert_string_equal(why, "has a scale that is not a number");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_type), cmocka_unit_test(mxfp4_words),
                                        cmocka_unit_test(no_layout),
                                        cmocka_unit_test(not_numbers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
