/* Quantized checkpoints that are wrong in one way each: one sentence that names what and where, and
 * nothing is read as something else. */
#include "../fixtures/error_is.h"
#include "import_image.h"

/* A tensor of the image, or the same with another dtype, shape or content. */
struct tensor {
    const char *name, *dtype;
    uint64_t    rows, cols;
    uint32_t    bits; /* every element */
};

struct bad {
    const char   *about, *facts;
    const char   *config; /* NULL: the good one */
    struct tensor change; /* takes the place of the tensor of its name; rows 0 and no dtype: none */
};

static void expect_bad(const char *config, const struct tensor *good, size_t n, const struct bad *b,
                       uint64_t rows, uint64_t cols)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_model_packed *p = NULL;
    struct image            *m = image_new(b->config ? b->config : config);
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = &good[i];
        if (b->change.name && strcmp(b->change.name, t->name) == 0)
            t = &b->change;
        if (t->dtype)
            image_fill(m, t->name, t->dtype, t->rows, t->cols, t->bits);
    }
    tsr_status st = image_linear(m, rows, cols, &p, &e);
    if (!b->about) {
        if (st != TSR_OK || !p)
            fail_msg("the good one: %s", e.text);
    } else if (st != TSR_E_INPUT || p || !error_is(&e.err, b->about, b->facts)) {
        fail_msg("%s: status %d, \"%s\"", b->about, st, e.text);
    } else if (strlen(e.text) < 30) {
        fail_msg("no sentence: %s", e.text);
    }
    tsr_model_packed_destroy(p);
    image_free(m);
}

static void all(const char *config, const struct tensor *good, size_t n, const struct bad *b,
                size_t n_bad, uint64_t rows, uint64_t cols)
{
    const struct bad whole = { .about = NULL };
    expect_bad(config, good, n, &whole, rows, cols);
    for (size_t i = 0; i < n_bad; i++)
        expect_bad(config, good, n, &b[i], rows, cols);
}

#define COUNT(a)           (sizeof(a) / sizeof *(a))
#define ALL(c, t, b, r, k) all(c, t, COUNT(t), b, COUNT(b), r, k)

static void methods(void **state)
{
    static const struct tensor t[] = { { "l.qweight", "I32", 2, 8, 0 } };
    static const struct bad    b[] = {
           { "config.json", "quant_method hqq", "{\"quant_method\":\"hqq\"}", { 0 } },
           { "config.json",
             "quantization_config quant_method fp6",
             "{\"quant_method\":\"fp6\"}",
             { 0 } },
           { "config.json", "quant_method", "{\"quant_method\":7}", { 0 } },
           { "config.json", "quantization_config", "[]", { 0 } },
           { "config.json: \"quantization_config\" (gptq)", "bits", "{}", { 0 } },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(b); i++)
        expect_bad("{}", t, COUNT(t), &b[i], 8, 16);
}

#define GPTQ "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":8"

static void gptq(void **state)
{
    static const struct tensor t[] = { { "l.qweight", "I32", 2, 8, 0x76543210 },
                                       { "l.qzeros", "I32", 2, 1, 0x77777777 },
                                       { "l.scales", "F16", 2, 8, 0x3c00 },
                                       { "l.g_idx", "I32", 16, 0, 1 } };
    static const struct bad    b[] = {
           { "config.json: \"quantization_config\" (gptq)",
             "5",
             "{\"quant_method\":\"gptq\",\"bits\":5}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "bits",
             "{\"quant_method\":\"gptq\",\"bits\":\"4\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "marlin",
             GPTQ ",\"checkpoint_format\":\"marlin\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "gptq_p",
             GPTQ ",\"format\":\"gptq_p\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "int64",
             GPTQ ",\"pack_dtype\":\"int64\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "group_size 0",
             "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)", "sym", GPTQ ",\"sym\":\"yes\"}", { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "dynamic",
             GPTQ ",\"dynamic\":[]}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "dynamic l",
             GPTQ ",\"dynamic\":{\"l\":4}}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "l", /* it says that l is not quantized */
             GPTQ ",\"dynamic\":{\"x\":{},\"-:l\":{}}}",
             { 0 } },
           { "input", "[2 8]", "{\"quant_method\":\"gptq\",\"bits\":8}", { 0 } },
           { "input", "[2 1]", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":4}", { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "l 8 16",
             "{\"quant_method\":\"gptq\",\"bits\":3}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)",
             "l 20",
             GPTQ ",\"dynamic\":{\"(?:|){20}[^l]\":{}}}",
             { 0 } },
           { "config.json: \"quantization_config\" (gptq)", "qweight", NULL, { .name = "l.qweight" } },
           { "config.json: \"quantization_config\" (gptq)", "qzeros", NULL, { .name = "l.qzeros" } },
           { "config.json: \"quantization_config\" (gptq)", "scales", NULL, { .name = "l.scales" } },
           { "input", "F32 I32", NULL, { "l.qweight", "F32", 2, 8, 0 } },
           { "input", "[3 8]", NULL, { "l.qweight", "I32", 3, 8, 0 } },
           { "input", "[1 1]", NULL, { "l.qzeros", "I32", 1, 1, 0 } },
           { "input", "[16]", NULL, { "l.scales", "F16", 16, 0, 0 } },
           { "input", "I64", NULL, { "l.scales", "I64", 2, 8, 0 } },
           { "input", "0", NULL, { "l.scales", "F16", 2, 8, 0x7c00 } },
           { "input", "0", NULL, { "l.scales", "F16", 2, 8, 0x7e00 } },
           { "input", "2 0", NULL, { "l.g_idx", "I32", 16, 0, 2 } },
           { "input", "-5 0", NULL, { "l.g_idx", "I32", 16, 0, 0xfffffffb } },
           { "input", "[15]", NULL, { "l.g_idx", "I32", 15, 0, 0 } },
    };
    (void)state;
    ALL(GPTQ "}", t, b, 8, 16);
}

#define AWQ "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":8"

static void awq(void **state)
{
    static const struct tensor t[] = { { "l.qweight", "I32", 16, 1, 0x76543210 },
                                       { "l.qzeros", "I32", 2, 1, 0x77777777 },
                                       { "l.scales", "F16", 2, 8, 0x3c00 } };
    static const struct bad    b[] = {
           { "config.json: \"quantization_config\" (awq)",
             "w_bit",
             "{\"quant_method\":\"awq\",\"group_size\":8}",
             { 0 } },
           { "config.json: \"quantization_config\" (awq)",
             "bits 8",
             "{\"quant_method\":\"awq\",\"bits\":8,\"group_size\":8}",
             { 0 } },
           { "config.json: \"quantization_config\" (awq)",
             "gemv",
             AWQ ",\"version\":\"gemv\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (awq)",
             "gemv_fast",
             AWQ ",\"version\":\"gemv_fast\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (awq)",
             "llm-awq",
             AWQ ",\"format\":\"llm-awq\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (awq)",
             "AWQ",
             AWQ ",\"zero_point\":false}",
             { 0 } },
           { "config.json: \"quantization_config\" (awq)",
             "0",
             "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":0}",
             { 0 } },
           { "config.json: \"quantization_config\" (awq)", "qzeros", NULL, { .name = "l.qzeros" } },
           /* a GPTQ matrix under an AWQ header */
           { "input", "[2 8]", NULL, { "l.qweight", "I32", 2, 8, 0 } },
           { "input", "F8_E4M3", NULL, { "l.scales", "F8_E4M3", 2, 8, 0 } },
    };
    (void)state;
    ALL(AWQ "}", t, b, 8, 16);
}

#define CT_AS(more, targets, weights)                                                              \
    "{\"quant_method\":\"compressed-tensors\"" more                                                \
    ",\"config_groups\":{\"g\":{\"targets\":[" targets "],\"weights\":{" weights "}}}}"
#define CT(weights) CT_AS("", "\"Linear\"", weights)
#define GOOD_CT     "\"num_bits\":4,\"group_size\":8,\"symmetric\":false"

static void ct_packed(void **state)
{
    static const struct tensor t[] = { { "l.weight_packed", "I32", 8, 2, 0x76543210 },
                                       { "l.weight_scale", "F16", 8, 2, 0x3c00 },
                                       { "l.weight_zero_point", "I32", 1, 2, 0x88888888 } };
    static const struct bad    b[] = {
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "frozen",
             CT_AS(",\"quantization_status\":\"frozen\"", "\"Linear\"", GOOD_CT),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "marlin-24",
             CT_AS(",\"format\":\"marlin-24\"", "\"Linear\"", GOOD_CT),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "sparsity_config sparse-24-bitmask",
             CT_AS(",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}", "\"Linear\"", GOOD_CT),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "transform_config",
             CT_AS(",\"transform_config\":{\"a\":1}", "\"Linear\"", GOOD_CT),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "config_groups",
             "{\"quant_method\":\"compressed-tensors\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "config_groups W4A16",
             "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"W4A16\":[]}}",
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "l",
             CT_AS("", "\"re:k\"", GOOD_CT),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "list",
             CT_AS("", "3", GOOD_CT),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "num_bits",
             CT("\"group_size\":8"),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "num_bits",
             CT("\"num_bits\":16,\"group_size\":8"),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "float 6",
             CT("\"num_bits\":6,\"type\":\"float\""),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "ternary",
             CT("\"num_bits\":2,\"type\":\"ternary\""),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "token",
             CT("\"num_bits\":4,\"strategy\":\"token\""),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "group_size",
             CT("\"num_bits\":4,\"strategy\":\"group\""),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "block_structure",
             CT("\"num_bits\":4,\"strategy\":\"block\""),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "block_structure",
             CT("\"num_bits\":4,\"strategy\":\"block\",\"block_structure\":[0,1]"),
             { 0 } },
           { "input", "2 16 8", CT("\"num_bits\":8,\"group_size\":8"), { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "weight_g_idx",
             CT(GOOD_CT ",\"actorder\":\"group\""),
             { 0 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "weight_scale",
             NULL,
             { .name = "l.weight_scale" } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "weight_zero_point",
             NULL,
             { .name = "l.weight_zero_point" } },
           { "input", "3 16", NULL, { "l.weight_packed", "I32", 8, 3, 0 } },
           { "input", "[7 2]", NULL, { "l.weight_packed", "I32", 7, 2, 0 } },
           { "input", "U8 I32", NULL, { "l.weight_packed", "U8", 8, 8, 0 } },
           { "input", "[8 1]", NULL, { "l.weight_scale", "F16", 8, 1, 0 } },
           { "input", "[8]", NULL, { "l.weight_scale", "F16", 8, 0, 0 } },
           { "input", "U8 F16 BF16 F32", NULL, { "l.weight_scale", "U8", 8, 2, 0 } },
           { "input", "2 8", NULL, { "l.weight_zero_point", "I32", 2, 2, 0 } },
           { "input", "64", NULL, { "l.weight_zero_point", "I8", 8, 2, 64 } },
    };
    (void)state;
    ALL(CT(GOOD_CT), t, b, 8, 16);
}

/* 40 codes of 5 bits take 7 words either way: nothing in the file says which. */
static void ct_ambiguous(void **state)
{
    static const struct tensor t[] = { { "l.weight_packed", "I32", 8, 7, 0 },
                                       { "l.weight_scale", "F16", 8, 1, 0x3c00 } };
    static const struct bad    b = { "input", "l.weight_packed 40 5", NULL, { 0 } };
    (void)state;
    expect_bad(CT("\"num_bits\":5,\"strategy\":\"channel\""), t, COUNT(t), &b, 8, 40);
}

static void ct_bytes(void **state)
{
    static const struct tensor ints[] = { { "l.weight", "I8", 8, 16, 3 },
                                          { "l.weight_scale", "F32", 8, 1, 0x3f800000 },
                                          { "l.weight_g_idx", "I32", 16, 0, 0 } };
    static const struct bad    bad_ints[] = {
           { "input", "4 0 3", NULL, { "l.weight", "I8", 8, 16, 4 } },
           { "input", "F16 I8", NULL, { "l.weight", "F16", 8, 16, 4 } },
           { "input", "1 0", NULL, { "l.weight_g_idx", "I32", 16, 0, 1 } },
           { "input", "-2 0", NULL, { "l.weight_g_idx", "I32", 16, 0, 0xfffffffe } },
    };
    static const struct tensor floats[] = { { "l.weight", "F8_E4M3", 8, 16, 0x38 },
                                            { "l.weight_scale", "F32", 8, 1, 0x3f000000 } };
    static const struct bad    bad_floats[] = {
           { "input", "NaN 0", NULL, { "l.weight", "F8_E4M3", 8, 16, 0xff } },
           { "input", "I8 F8_E4M3", NULL, { "l.weight", "I8", 8, 16, 0 } },
           { "input", "255 0", NULL, { "l.weight_scale", "U8", 8, 1, 255 } },
           { "input", "0", NULL, { "l.weight_scale", "F8_E4M3", 8, 1, 0x7f } },
    };
    (void)state;
    ALL(CT("\"num_bits\":3,\"strategy\":\"channel\""), ints, bad_ints, 8, 16);
    ALL(CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\""), floats, bad_floats, 8,
        16);
}

static void ct_fp4(void **state)
{
    static const struct tensor t[] = { { "l.weight_packed", "U8", 8, 8, 0x21 },
                                       { "l.weight_scale", "F8_E4M3", 8, 1, 0x38 },
                                       { "l.weight_global_scale", "F32", 1, 0, 0x3f800000 } };
    static const struct bad    b[] = {
           { "input", "0", NULL, { "l.weight_global_scale", "F32", 1, 0, 0 } },
           { "input", "-1", NULL, { "l.weight_global_scale", "F32", 1, 0, 0xbf800000 } },
           { "input",
             "l.weight_global_scale 1.4013e",
             NULL,
             { "l.weight_global_scale", "F32", 1, 0, 1 } },
           { "config.json: \"quantization_config\" (compressed-tensors)",
             "weight_global_scale",
             NULL,
             { .name = "l.weight_global_scale" } },
           { "input", "U8 MXFP4 F8_E4M3 NVFP4", NULL, { "l.weight_scale", "F16", 8, 1, 0x3c00 } },
           { "input", "[8 16]", NULL, { "l.weight_packed", "U8", 8, 16, 0 } },
    };
    (void)state;
    ALL(CT("\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16"), t,
        b, 8, 16);
}

static void bnb(void **state)
{
    static const struct tensor t[] = { { "l.weight", "I8", 8, 16, 3 },
                                       { "l.SCB", "F32", 8, 0, 0x3f800000 },
                                       { "l.weight_format", "U8", 0, 0, 0 } };
    static const struct bad    b[] = {
           { "config.json: \"quantization_config\" (bitsandbytes)",
             "load_in_8bit load_in_4bit",
             "{\"quant_method\":\"bitsandbytes\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (bitsandbytes)",
             "load_in_8bit load_in_4bit",
             "{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true,\"load_in_4bit\":true}",
             { 0 } },
           { "input", "1", NULL, { "l.weight_format", "U8", 0, 0, 1 } },
           { "input", "[7]", NULL, { "l.SCB", "F32", 7, 0, 0 } },
           { "input", "l.SCB 0", NULL, { "l.SCB", "F32", 8, 0, 0x7f800000 } },
           { "input", "U8 I8", NULL, { "l.weight", "U8", 8, 16, 0 } },
    };
    (void)state;
    ALL("{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}", t, b, 8, 16);
}

/* The state of a 4-bit tensor is JSON in a tensor. */
static void bnb_four(void **state)
{
    static const struct {
        const char *text, *about, *facts;
    } all[] = {
        { "{\"blocksize\":8,\"shape\":[2,8]}", NULL, NULL },
        { "{\"blocksize\":8,\"shape\":[8,2]}", "input: \"l.weight.quant_state.bitsandbytes__nf4\"",
          "shape [2 8]" },
        { "{\"blocksize\":8,\"shape\":[16]}", "input: \"l.weight.quant_state.bitsandbytes__nf4\"",
          "shape [2 8]" },
        { "{\"blocksize\":0,\"shape\":[2,8]}", "input: \"l.weight.quant_state.bitsandbytes__nf4\"",
          "blocksize" },
        { "{\"shape\":[2,8]}", "input: \"l.weight.quant_state.bitsandbytes__nf4\"", "blocksize" },
        { "{\"blocksize\":4,\"shape\":[2,8]}", "input", "[2]" },
        { "[]", "input: \"l.weight.quant_state.bitsandbytes__nf4\"", NULL },
        { "{", "input: \"l.weight.quant_state.bitsandbytes__nf4\":1:1", NULL },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        struct tsr_errbuf        e = TSR_ERRBUF(e);
        struct tsr_model_packed *p = NULL;
        struct image *m = image_new("{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}");
        image_fill(m, "l.weight", "U8", 8, 1, 0);
        image_fill(m, "l.weight.absmax", "F32", 2, 0, 0);
        image_fill(m, "l.weight.quant_map", "F32", 16, 0, 0);
        image_add(m, "l.weight.quant_state.bitsandbytes__nf4", "U8", strlen(all[i].text), 0,
                  all[i].text);
        tsr_status st = image_linear(m, 2, 8, &p, &e);
        if (all[i].about ? st != TSR_E_INPUT || !error_is(&e.err, all[i].about, all[i].facts)
                         : st != TSR_OK)
            fail_msg("%s: status %d, \"%s\"", all[i].text, st, e.text);
        tsr_model_packed_destroy(p);
        p = NULL;
        if (i == 0) { /* half of its bytes are not there */
            assert_int_equal(image_linear(m, 2, 16, &p, &e), TSR_E_INPUT);
            assert_true(error_is(&e.err, "input", "8"));
        }
        image_free(m);
    }
}

static void mxfp4(void **state)
{
    static const struct tensor t[] = { { "l_blocks", "U8", 8, 16, 0 },
                                       { "l_scales", "U8", 8, 1, 127 } };
    static const struct bad    b[] = {
           { "input", "U8 8 1 16]", NULL, { 0 } },
           { "input", "_scales", NULL, { .name = "l_scales" } },
           { "input", "_blocks", NULL, { .name = "l_blocks" } },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(b); i++)
        expect_bad("{\"quant_method\":\"mxfp4\"}", t, COUNT(t), &b[i], 8, 32);
}

#define FP8 "{\"quant_method\":\"fp8\",\"weight_block_size\":[4,8]"

static void fp8(void **state)
{
    static const struct tensor t[] = { { "l.weight", "F8_E4M3", 6, 20, 0x38 },
                                       { "l.weight_scale_inv", "F32", 2, 3, 0x3f000000 } };
    static const struct bad    b[] = {
           { "input", "NaN 0", NULL, { "l.weight", "F8_E4M3", 6, 20, 0x7f } },
           { "input", "6 19 6 20", NULL, { "l.weight", "F8_E4M3", 6, 19, 0x38 } },
           { "input", "I8 F8_E4M3", NULL, { "l.weight", "I8", 6, 20, 0 } },
           { "input", "2 3", NULL, { "l.weight_scale_inv", "F32", 3, 2, 0x3f000000 } },
           { "input", "weight_scale_inv", NULL, { "l.weight_scale_inv", "F32", 2, 3, 0x7f800000 } },
           { "config.json: \"quantization_config\" (fp8)",
             "weight_block_size",
             "{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}",
             { 0 } },
           { "config.json: \"quantization_config\" (fp8)",
             "weight_block_size",
             "{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}",
             { 0 } },
           { "config.json: \"quantization_config\" (fp8)",
             "fmt e5m2",
             FP8 ",\"fmt\":\"e5m2\"}",
             { 0 } },
           { "config.json: \"quantization_config\" (fp8)",
             "l weight_scale_inv",
             NULL,
             { .name = "l.weight_scale_inv" } },
    };
    (void)state;
    ALL(FP8 "}", t, b, 6, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods),   cmocka_unit_test(gptq),         cmocka_unit_test(awq),
        cmocka_unit_test(ct_packed), cmocka_unit_test(ct_ambiguous), cmocka_unit_test(ct_bytes),
        cmocka_unit_test(ct_fp4),    cmocka_unit_test(bnb),          cmocka_unit_test(bnb_four),
        cmocka_unit_test(mxfp4),     cmocka_unit_test(fp8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
