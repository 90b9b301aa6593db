/* Quantized checkpoints that are wrong in one way each: one sentence that names what and where, and
 * nothing is read as something else. */
#include "import_image.h"

/* A tensor of the image, or the same with another dtype, shape or content. */
struct tensor {
    const char *name, *dtype;
    uint64_t    rows, cols;
    uint32_t    bits; /* every element */
};

struct bad {
    const char   *says;
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
    if (!b->says) {
        if (st != TSR_OK || !p)
            fail_msg("the good one: %s", e.text);
    } else if (st != TSR_E_INPUT || p || !strstr(e.text, b->says)) {
        fail_msg("%s: status %d, \"%s\"", b->says, st, e.text);
    } else if (strchr(e.text, '\n') || strlen(e.text) < 30) {
        fail_msg("no sentence: %s", e.text);
    }
    tsr_model_packed_destroy(p);
    image_free(m);
}

static void all(const char *config, const struct tensor *good, size_t n, const struct bad *b,
                size_t n_bad, uint64_t rows, uint64_t cols)
{
    const struct bad whole = { .says = NULL };
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
           { "\"quant_method\" \"hqq\" cannot be read", "{\"quant_method\":\"hqq\"}", { 0 } },
           { "known are gptq, awq", "{\"quant_method\":\"fp8\"}", { 0 } },
           { "\"quant_method\"", "{\"quant_method\":7}", { 0 } },
           { "not an object", "[]", { 0 } },
           { "\"bits\" is missing", "{}", { 0 } },
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
           { "5 bits", "{\"quant_method\":\"gptq\",\"bits\":5}", { 0 } },
           { "\"bits\"", "{\"quant_method\":\"gptq\",\"bits\":\"4\"}", { 0 } },
           { "\"marlin\" cannot be read", GPTQ ",\"checkpoint_format\":\"marlin\"}", { 0 } },
           { "\"gptq_p\" cannot be read", GPTQ ",\"format\":\"gptq_p\"}", { 0 } },
           { "\"int64\"", GPTQ ",\"pack_dtype\":\"int64\"}", { 0 } },
           { "\"group_size\" is 0", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0}", { 0 } },
           { "\"sym\"", GPTQ ",\"sym\":\"yes\"}", { 0 } },
           { "\"dynamic\"", GPTQ ",\"dynamic\":[]}", { 0 } },
           { "\"dynamic\": \"l\" is not an object", GPTQ ",\"dynamic\":{\"l\":4}}", { 0 } },
           { "has shape [2, 8]", "{\"quant_method\":\"gptq\",\"bits\":8}", { 0 } },
           { "has shape [2, 1]", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":4}", { 0 } },
           { "do not fill whole words", "{\"quant_method\":\"gptq\",\"bits\":3}", { 0 } },
           { "takes too long", GPTQ ",\"dynamic\":{\"(?:|){20}[^l]\":{}}}", { 0 } },
           { "\"qweight\" is missing", NULL, { .name = "l.qweight" } },
           { "\"qzeros\" is missing", NULL, { .name = "l.qzeros" } },
           { "\"scales\" is missing", NULL, { .name = "l.scales" } },
           { "has dtype F32; I32", NULL, { "l.qweight", "F32", 2, 8, 0 } },
           { "has shape [3, 8]", NULL, { "l.qweight", "I32", 3, 8, 0 } },
           { "has shape [1, 1]", NULL, { "l.qzeros", "I32", 1, 1, 0 } },
           { "has shape [16]", NULL, { "l.scales", "F16", 16, 0, 0 } },
           { "has dtype I64", NULL, { "l.scales", "I64", 2, 8, 0 } },
           { "has inf at element 0", NULL, { "l.scales", "F16", 2, 8, 0x7c00 } },
           { "has nan at element 0", NULL, { "l.scales", "F16", 2, 8, 0x7e00 } },
           { "has group 2 for column 0", NULL, { "l.g_idx", "I32", 16, 0, 2 } },
           { "has group -5 for column 0", NULL, { "l.g_idx", "I32", 16, 0, 0xfffffffb } },
           { "has shape [15]", NULL, { "l.g_idx", "I32", 15, 0, 0 } },
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
           { "\"w_bit\" is missing", "{\"quant_method\":\"awq\",\"group_size\":8}", { 0 } },
           { "\"bits\"", "{\"quant_method\":\"awq\",\"bits\":8,\"group_size\":8}", { 0 } },
           { "\"gemv\" is another layout", AWQ ",\"version\":\"gemv\"}", { 0 } },
           { "\"gemv_fast\" is another layout", AWQ ",\"version\":\"gemv_fast\"}", { 0 } },
           { "\"llm-awq\" is another layout", AWQ ",\"format\":\"llm-awq\"}", { 0 } },
           { "without zero points", AWQ ",\"zero_point\":false}", { 0 } },
           { "groups of 0", "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":0}", { 0 } },
           { "\"qzeros\" is missing", NULL, { .name = "l.qzeros" } },
           /* a GPTQ matrix under an AWQ header */
           { "has shape [2, 8]", NULL, { "l.qweight", "I32", 2, 8, 0 } },
           { "has dtype F8_E4M3", NULL, { "l.scales", "F8_E4M3", 2, 8, 0 } },
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
           { "\"frozen\"",
             CT_AS(",\"quantization_status\":\"frozen\"", "\"Linear\"", GOOD_CT),
             { 0 } },
           { "\"marlin-24\"", CT_AS(",\"format\":\"marlin-24\"", "\"Linear\"", GOOD_CT), { 0 } },
           { "sparse",
             CT_AS(",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}", "\"Linear\"", GOOD_CT),
             { 0 } },
           { "transform", CT_AS(",\"transform_config\":{\"a\":1}", "\"Linear\"", GOOD_CT), { 0 } },
           { "\"config_groups\" is missing", "{\"quant_method\":\"compressed-tensors\"}", { 0 } },
           { "preset",
             "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"W4A16\":[]}}",
             { 0 } },
           { "no config group has it", CT_AS("", "\"re:k\"", GOOD_CT), { 0 } },
           { "list of strings", CT_AS("", "3", GOOD_CT), { 0 } },
           { "\"num_bits\" is missing", CT("\"group_size\":8"), { 0 } },
           { "\"num_bits\"", CT("\"num_bits\":16,\"group_size\":8"), { 0 } },
           { "float\" with 6 bits", CT("\"num_bits\":6,\"type\":\"float\""), { 0 } },
           { "type \"ternary\"", CT("\"num_bits\":2,\"type\":\"ternary\""), { 0 } },
           { "\"token\" of weights", CT("\"num_bits\":4,\"strategy\":\"token\""), { 0 } },
           { "needs a \"group_size\"", CT("\"num_bits\":4,\"strategy\":\"group\""), { 0 } },
           { "\"block_structure\" is missing", CT("\"num_bits\":4,\"strategy\":\"block\""), { 0 } },
           { "not [rows, columns]",
             CT("\"num_bits\":4,\"strategy\":\"block\",\"block_structure\":[0,1]"),
             { 0 } },
           { "has 2 words for 16 codes of 8 bits", CT("\"num_bits\":8,\"group_size\":8"), { 0 } },
           { "\"weight_g_idx\" is missing", CT(GOOD_CT ",\"actorder\":\"group\""), { 0 } },
           { "\"weight_scale\" is missing", NULL, { .name = "l.weight_scale" } },
           { "\"weight_zero_point\" is missing", NULL, { .name = "l.weight_zero_point" } },
           { "has 3 words for 16", NULL, { "l.weight_packed", "I32", 8, 3, 0 } },
           { "has shape [7, 2]", NULL, { "l.weight_packed", "I32", 7, 2, 0 } },
           { "has dtype U8; I32", NULL, { "l.weight_packed", "U8", 8, 8, 0 } },
           { "has shape [8, 1]", NULL, { "l.weight_scale", "F16", 8, 1, 0 } },
           { "has shape [8]", NULL, { "l.weight_scale", "F16", 8, 0, 0 } },
           { "has dtype U8; F16 BF16 F32", NULL, { "l.weight_scale", "U8", 8, 2, 0 } },
           { "has 2 words for 8 codes", NULL, { "l.weight_zero_point", "I32", 2, 2, 0 } },
           { "zero point 64, outside", NULL, { "l.weight_zero_point", "I8", 8, 2, 64 } },
    };
    (void)state;
    ALL(CT(GOOD_CT), t, b, 8, 16);
}

/* 40 codes of 5 bits take 7 words either way: nothing in the file says which. */
static void ct_ambiguous(void **state)
{
    static const struct tensor t[] = { { "l.weight_packed", "I32", 8, 7, 0 },
                                       { "l.weight_scale", "F16", 8, 1, 0x3c00 } };
    static const struct bad    b = { "either of two ways", NULL, { 0 } };
    (void)state;
    expect_bad(CT("\"num_bits\":5,\"strategy\":\"channel\""), t, COUNT(t), &b, 8, 40);
}

static void ct_bytes(void **state)
{
    static const struct tensor ints[] = { { "l.weight", "I8", 8, 16, 3 },
                                          { "l.weight_scale", "F32", 8, 1, 0x3f800000 },
                                          { "l.weight_g_idx", "I32", 16, 0, 0 } };
    static const struct bad    bad_ints[] = {
           { "has 4 at element 0, outside of 3 bits", NULL, { "l.weight", "I8", 8, 16, 4 } },
           { "has dtype F16; I8", NULL, { "l.weight", "F16", 8, 16, 4 } },
           { "has group 1 for column 0", NULL, { "l.weight_g_idx", "I32", 16, 0, 1 } },
           { "has group -2 for column 0", NULL, { "l.weight_g_idx", "I32", 16, 0, 0xfffffffe } },
    };
    static const struct tensor floats[] = { { "l.weight", "F8_E4M3", 8, 16, 0x38 },
                                            { "l.weight_scale", "F32", 8, 1, 0x3f000000 } };
    static const struct bad    bad_floats[] = {
           { "is NaN at element 0", NULL, { "l.weight", "F8_E4M3", 8, 16, 0xff } },
           { "has dtype I8; F8_E4M3", NULL, { "l.weight", "I8", 8, 16, 0 } },
           { "has 255 at element 0", NULL, { "l.weight_scale", "U8", 8, 1, 255 } },
           { "has nan at element 0", NULL, { "l.weight_scale", "F8_E4M3", 8, 1, 0x7f } },
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
           { "is 0, which is not a divisor", NULL, { "l.weight_global_scale", "F32", 1, 0, 0 } },
           { "is -1, which is not a divisor",
             NULL,
             { "l.weight_global_scale", "F32", 1, 0, 0xbf800000 } },
           { "too small for the scales", NULL, { "l.weight_global_scale", "F32", 1, 0, 1 } },
           { "\"weight_global_scale\" is missing", NULL, { .name = "l.weight_global_scale" } },
           { "U8 (MXFP4) or F8_E4M3 (NVFP4)", NULL, { "l.weight_scale", "F16", 8, 1, 0x3c00 } },
           { "has shape [8, 16]", NULL, { "l.weight_packed", "U8", 8, 16, 0 } },
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
           { "one of", "{\"quant_method\":\"bitsandbytes\"}", { 0 } },
           { "one of",
             "{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true,\"load_in_4bit\":true}",
             { 0 } },
           { "is 1; rows as they are", NULL, { "l.weight_format", "U8", 0, 0, 1 } },
           { "has shape [7]", NULL, { "l.SCB", "F32", 7, 0, 0 } },
           { "has inf", NULL, { "l.SCB", "F32", 8, 0, 0x7f800000 } },
           { "has dtype U8; I8", NULL, { "l.weight", "U8", 8, 16, 0 } },
    };
    (void)state;
    ALL("{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}", t, b, 8, 16);
}

/* The state of a 4-bit tensor is JSON in a tensor. */
static void bnb_four(void **state)
{
    static const struct {
        const char *text, *says;
    } all[] = {
        { "{\"blocksize\":8,\"shape\":[2,8]}", NULL },
        { "{\"blocksize\":8,\"shape\":[8,2]}", "\"shape\" is not [2, 8]" },
        { "{\"blocksize\":8,\"shape\":[16]}", "\"shape\" is not [2, 8]" },
        { "{\"blocksize\":0,\"shape\":[2,8]}", "\"blocksize\"" },
        { "{\"shape\":[2,8]}", "\"blocksize\" is missing" },
        { "{\"blocksize\":4,\"shape\":[2,8]}", "has shape [2]" },
        { "[]", "is not a JSON object" },
        { "{", "JSON" },
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
        if (all[i].says ? st != TSR_E_INPUT || !strstr(e.text, all[i].says) : st != TSR_OK)
            fail_msg("%s: status %d, \"%s\"", all[i].text, st, e.text);
        tsr_model_packed_destroy(p);
        p = NULL;
        if (i == 0) { /* half of its bytes are not there */
            assert_int_equal(image_linear(m, 2, 16, &p, &e), TSR_E_INPUT);
            assert_non_null(strstr(e.text, "has 8 bytes"));
        }
        image_free(m);
    }
}

static void mxfp4(void **state)
{
    static const struct tensor t[] = { { "l_blocks", "U8", 8, 16, 0 },
                                       { "l_scales", "U8", 8, 1, 127 } };
    static const struct bad    b[] = {
           { "is not U8 [..., 8, 1, 16]", NULL, { 0 } },
           { "has no \"_scales\"", NULL, { .name = "l_scales" } },
           { "has no \"_blocks\"", NULL, { .name = "l_blocks" } },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(b); i++)
        expect_bad("{\"quant_method\":\"mxfp4\"}", t, COUNT(t), &b[i], 8, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods),   cmocka_unit_test(gptq),         cmocka_unit_test(awq),
        cmocka_unit_test(ct_packed), cmocka_unit_test(ct_ambiguous), cmocka_unit_test(ct_bytes),
        cmocka_unit_test(ct_fp4),    cmocka_unit_test(bnb),          cmocka_unit_test(bnb_four),
        cmocka_unit_test(mxfp4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
