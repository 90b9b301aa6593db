/* tessera.mx/1 and tessera.lut/1: the decoders against recorded MX vectors, against each other over
 * every code, and what they refuse. */
#include "cpu_fixture.h"

#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "quant/quant.h"

static const uint32_t elements[] = {
    TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2, TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1,
    TSR_MX_FP5_E2M2, TSR_MX_FP5_E1M3, TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2, TSR_MX_FP3_E1M1,
    TSR_MX_INT(2),   TSR_MX_INT(3),   TSR_MX_INT(4),   TSR_MX_INT(5),   TSR_MX_INT(6),
    TSR_MX_INT(7),   TSR_MX_INT(8),
};
#define ELEMENTS (sizeof elements / sizeof *elements)

static struct tsr_format mx_of(uint32_t element, uint64_t group, uint32_t scale_bits)
{
    return (struct tsr_format){ .struct_size = sizeof(struct tsr_format),
                                .id = TSR_FORMAT_MX,
                                .bits = 1 + (element >> 8) + (element & 255),
                                .element = element,
                                .group = group,
                                .scale_bits = scale_bits };
}

static void put_code(uint8_t *codes, uint64_t k, uint32_t bits, uint32_t code)
{
    for (uint32_t b = 0; b < bits; b++) {
        uint64_t at = k * bits + b;
        codes[at / 8] |= (uint8_t)((code >> b & 1) << (at % 8));
    }
}

/* "fp4_e2m1", "int5" */
static uint32_t element_named(const char *name)
{
    unsigned bits, e, m;
    if (sscanf(name, "fp%u_e%um%u", &bits, &e, &m) == 3 && bits == 1 + e + m)
        return TSR_MX_ELEMENT(e, m);
    assert_int_equal(sscanf(name, "int%u", &bits), 1);
    return TSR_MX_INT(bits);
}

/* The code whose value under the scale 1 is v.  Fails where the element has none. */
static uint32_t code_for(const struct tsr_format *f, float v)
{
    uint8_t lim = (uint8_t)((1 << (f->scale_bits - 1)) - 1);
    for (uint32_t code = 0; code < 1u << f->bits; code++) {
        uint8_t bytes[2] = { 0 };
        float   got;
        put_code(bytes, 0, f->bits, code);
        assert_int_equal(tsr_ref_decode_row(f, 1, bytes, &lim, &got), TSR_OK);
        if (got == v)
            return code;
    }
    fail_msg("element %x has no code for %a", f->element, (double)v);
    return 0;
}

static const char *text(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));
    assert_non_null(s);
    return s;
}

static uint64_t number(const json_t *v, const char *key)
{
    const json_t *n = json_object_get(v, key);
    assert_true(json_is_integer(n));
    return (uint64_t)json_integer_value(n);
}

/* A recorded vector gives each element's own value, the exponent of its block and the product: the
 * codes of those values under that exponent must decode to the product. */
static void one_golden(const json_t *v)
{
    struct tsr_format f = mx_of(element_named(text(v, "elem_format")), number(v, "block_size"),
                                (uint32_t)number(v, "scale_bits"));
    const json_t     *values = json_object_get(v, "element_value_before_scale");
    const json_t     *scales = json_object_get(v, "shared_exponent_per_block");
    const json_t     *expected = json_object_get(v, "expected_bits");
    uint64_t          cols = json_array_size(expected), groups = json_array_size(scales);
    assert_true(cols > 0 && tsr_format_groups(&f, cols) == groups && tsr_model_format_known(&f));
    uint8_t *codes = calloc(tsr_model_format_code_bytes(&f, cols), 1);
    uint8_t *meta = calloc(tsr_model_format_meta_bytes(&f, cols), 1);
    float   *ref = malloc(cols * 4), *core = malloc(cols * 4);
    int      lim = (1 << (f.scale_bits - 1)) - 1;
    assert_true(codes && meta && ref && core);
    for (uint64_t g = 0; g < groups; g++) {
        const json_t *s = json_array_get(scales, g);
        meta[g] = (uint8_t)(json_is_integer(s) ? (int)json_integer_value(s) + lim : 2 * lim + 1);
    }
    for (uint64_t k = 0; k < cols; k++) {
        const json_t *e = json_array_get(values, k);
        if (json_is_number(e))
            put_code(codes, k, f.bits, code_for(&f, (float)json_number_value(e)));
    }
    assert_int_equal(tsr_ref_decode_row(&f, cols, codes, meta, ref), TSR_OK);
    tsr_model_format_decode_row(&f, cols, codes, meta, core);
    for (uint64_t k = 0; k < cols; k++) {
        const char *hex = json_string_value(json_array_get(expected, k));
        float       want = NAN;
        assert_non_null(hex);
        if (strcmp(hex, "nan") != 0) {
            uint32_t u = (uint32_t)strtoul(hex, NULL, 16);
            memcpy(&want, &u, 4);
        }
        if (!(ref[k] == want || (isnan(ref[k]) && isnan(want))) ||
            !(core[k] == want || (isnan(core[k]) && isnan(want))))
            fail_msg("%s: element %llu: reference %a, core %a, wanted %a", text(v, "name"),
                     (unsigned long long)k, (double)ref[k], (double)core[k], (double)want);
    }
    free(codes);
    free(meta);
    free(ref);
    free(core);
}

static void golden_vectors(void **state)
{
    (void)state;
    json_t *root = NULL;
    assert_int_equal(tsr_json_load(&root, TEST_GOLDEN "/mx/vectors.json", 1 << 20, 8, NULL),
                     TSR_OK);
    const json_t *list = json_object_get(root, "vectors");
    assert_int_equal(json_array_size(list), 57);
    for (size_t i = 0; i < json_array_size(list); i++)
        one_golden(json_array_get(list, i));
    json_decref(root);
}

/* Every code of every element under every byte of scale: the core equals the reference. */
static void every_mx_code(void **state)
{
    (void)state;
    const int whole = getenv("TSR_TEST_ALL") != NULL;
    for (size_t e = 0; e < ELEMENTS; e++)
        for (uint32_t scale_bits = 4; scale_bits <= 8; scale_bits++) {
            struct tsr_format f = mx_of(elements[e], 0, scale_bits);
            uint8_t           codes[256] = { 0 };
            uint64_t          n = UINT64_C(1) << f.bits;
            assert_true(tsr_model_format_known(&f));
            for (uint32_t c = 0; c < n; c++)
                put_code(codes, c, f.bits, c);
            for (uint32_t s = 0; s < 256;
                 s += whole || s < 2 || s > 252 ? 1 : 1 + (uint32_t)rnd() % 20) {
                uint8_t meta = (uint8_t)s;
                float   a[256], b[256];
                assert_int_equal(tsr_ref_decode_row(&f, n, codes, &meta, a), TSR_OK);
                tsr_model_format_decode_row(&f, n, codes, &meta, b);
                for (uint64_t c = 0; c < n; c++)
                    assert_true(memcmp(&a[c], &b[c], 4) == 0 || (isnan(a[c]) && isnan(b[c])));
            }
        }
}

static void random_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 400; i++) {
        struct wt w;
        uint64_t  cols = 1 + rnd() % 300;
        if (i % 2)
            wt_mx(&w, 1, cols, elements[rnd() % ELEMENTS], rnd() % 40, 4 + (uint32_t)rnd() % 5);
        else
            wt_lut(&w, 1, cols, 2 + (uint32_t)rnd() % 7, rnd() % (cols < 9 ? cols + 1 : 9),
                   i & 2 ? TSR_F32 : TSR_F16);
        float *a = wt_dense(&w), *b = malloc(cols * 4);
        assert_non_null(b);
        tsr_model_format_decode_row(&w.format, cols, w.codes, w.meta, b);
        for (uint64_t k = 0; k < cols; k++)
            assert_true(memcmp(&a[k], &b[k], 4) == 0 || (isnan(a[k]) && isnan(b[k])));
        free(a);
        free(b);
        wt_free(&w);
    }
}

static void refusals(void **state)
{
    (void)state;
    struct tsr_format f = mx_of(TSR_MX_FP4_E2M1, 32, 8);
    assert_true(tsr_model_format_known(&f));
    f.bits = 5;
    assert_false(tsr_model_format_known(&f));
    f = mx_of(TSR_MX_ELEMENT(4, 1), 32, 8); /* no such element */
    assert_false(tsr_model_format_known(&f));
    f = mx_of(TSR_MX_INT(9), 32, 8);
    assert_false(tsr_model_format_known(&f));
    f = mx_of(TSR_MX_FP4_E2M1, 32, 9);
    assert_false(tsr_model_format_known(&f));
    f = mx_of(TSR_MX_FP4_E2M1, 32, 3);
    assert_false(tsr_model_format_known(&f));
    f = mx_of(TSR_MX_FP4_E2M1, 32, 8);
    f.act8 = TSR_ACT8_LLM; /* of int only */
    assert_false(tsr_model_format_known(&f));

    struct tsr_format l = {
        .id = TSR_FORMAT_LUT, .bits = 2, .scale_dtype = TSR_F16, .outliers = 2
    };
    uint8_t codes[1] = { 0 }, meta[20] = { 0 };
    float   row[4];
    meta[12] = 1;
    meta[16] = 3;
    assert_true(tsr_model_format_known(&l) && tsr_model_format_fits(&l, 4) &&
                !tsr_model_format_fits(&l, 1));
    assert_int_equal(tsr_model_format_meta_bytes(&l, 4), sizeof meta);
    assert_null(tsr_model_format_row_check(&l, 4, meta));
    meta[16] = 4; /* behind the row */
    assert_non_null(tsr_model_format_row_check(&l, 4, meta));
    assert_int_equal(tsr_ref_decode_row(&l, 4, codes, meta, row), TSR_E_INVAL);
    tsr_model_format_decode_row(&l, 4, codes, meta, row); /* writes nothing outside */
    meta[16] = 1;                                         /* twice */
    assert_non_null(tsr_model_format_row_check(&l, 4, meta));
    assert_int_equal(tsr_ref_decode_row(&l, 4, codes, meta, row), TSR_E_INVAL);
    l.scale_dtype = TSR_BF16;
    assert_false(tsr_model_format_known(&l));

    struct tsr_format i = { .id = TSR_FORMAT_INT,
                            .bits = 8,
                            .scale_dtype = TSR_F16,
                            .act8 = TSR_ACT8_LLM,
                            .act8_threshold = 6 };
    assert_true(tsr_model_format_known(&i));
    i.group = 32;
    assert_false(tsr_model_format_known(&i));
    i.group = 0;
    i.zero = TSR_ZERO_STORED;
    assert_false(tsr_model_format_known(&i));
    i.zero = TSR_ZERO_MID;
    i.act8_threshold = (double)NAN;
    assert_false(tsr_model_format_known(&i));
    i.act8_threshold = -1;
    assert_false(tsr_model_format_known(&i));
    i.act8 = 2;
    assert_false(tsr_model_format_known(&i));
}

static void names(void **state)
{
    (void)state;
    struct tsr_format f = mx_of(TSR_MX_FP6_E3M2, 32, 8);
    char              name[64];
    tsr_model_format_name(&f, name, sizeof name);
    assert_string_equal(name, "tessera.mx/1 with fp6_e3m2");
    f = mx_of(TSR_MX_INT(5), 32, 8);
    tsr_model_format_name(&f, name, sizeof name);
    assert_string_equal(name, "tessera.mx/1 with int5");
    f = (struct tsr_format){ .id = TSR_FORMAT_LUT, .bits = 3 };
    tsr_model_format_name(&f, name, sizeof name);
    assert_string_equal(name, "tessera.lut/1 with 3 bits");
    f = (struct tsr_format){ .id = TSR_FORMAT_FLOAT, .dtype = TSR_BF16 };
    tsr_model_format_name(&f, name, sizeof name);
    assert_string_equal(name, "tessera.float/1 BF16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors), cmocka_unit_test(every_mx_code),
        cmocka_unit_test(random_rows),    cmocka_unit_test(refusals),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
