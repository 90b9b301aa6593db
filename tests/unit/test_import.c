/* What each writer's words mean: literal vectors that were checked against the writers' own code
 * (bit order, zero points, nibbles), rules that choose between schemes, and what no golden
 * checkpoint has. */
#include "import_image.h"

#include "../fixtures/error_is.h"
#include "base/f16.h"

#include <math.h>

#define ONE16 0x3c00u     /* 1.0 as F16 */
#define ONE32 0x3f800000u /* as F32 */

/* Reads "l" and compares all weights.  want: [rows, cols]; format: what holds them. */
static void expect(struct image *m, uint64_t rows, uint64_t cols, const char *format,
                   const float *want)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_model_packed *p = NULL;
    char                     name[64];
    float                   *got = calloc(rows * cols, sizeof *got);
    assert_non_null(got);
    if (image_linear(m, rows, cols, &p, &e) != TSR_OK)
        fail_msg("%s", e.text);
    assert_non_null(p);
    tsr_model_format_name(&p->format, name, sizeof name);
    assert_string_equal(name, format);
    assert_int_equal(tsr_model_packed_dequantize(p, 0, rows, got, &e.err), TSR_OK);
    for (uint64_t i = 0; i < rows * cols; i++)
        if (!(got[i] == want[i]))
            fail_msg("row %d column %d is %g, not %g", (int)(i / cols), (int)(i % cols),
                     (double)got[i], (double)want[i]);
    tsr_model_packed_destroy(p);
    free(got);
    image_free(m);
}

/* A GPTQ linear of n outputs whose columns all hold `words`, scale 1, one group. */
static struct image *gptq(const char *config, uint32_t bits, uint64_t k, uint64_t n,
                          const uint32_t *words, const uint32_t *zeros, uint64_t n_zeros)
{
    struct image *m = image_new(config);
    uint32_t      w[64 * 64], z[64];
    uint64_t      height = k * bits / 32, width = n * bits / 32;
    for (uint64_t r = 0; r < height; r++)
        for (uint64_t i = 0; i < n; i++)
            w[r * n + i] = words[r];
    for (uint64_t i = 0; i < width; i++)
        z[i] = zeros[i % n_zeros];
    image_add(m, "l.qweight", "I32", height, n, w);
    image_add(m, "l.qzeros", "I32", 1, width, z);
    image_fill(m, "l.scales", "F16", 1, n, ONE16);
    return m;
}

/* Codes repeat every `period` columns: code(k) = k % period - zero. */
static void expect_ramp(struct image *m, uint32_t bits, uint64_t k, uint64_t n, uint32_t period,
                        int zero)
{
    float want[64 * 64];
    char  format[40];
    (void)snprintf(format, sizeof format, "tessera.int/1 with %u bits", bits);
    for (uint64_t i = 0; i < n * k; i++)
        want[i] = (float)((int)(i % k % period) - zero);
    expect(m, n, k, format, want);
}

#define GPTQ(bits, more)                                                                           \
    "{\"quant_method\":\"gptq\",\"bits\":" #bits ",\"group_size\":-1,\"sym\":true" more "}"

static void gptq_words(void **state)
{
    static const uint32_t w4[] = { 0x76543210, 0xfedcba98 };
    static const uint32_t w3[] = { 0x88fac688, 0xc688fac6, 0xfac688fa };
    static const uint32_t w2[] = { 0xe4e4e4e4 }, w8[] = { 0x03020100 };
    static const uint32_t v1_4[] = { 0x77777777 }, v2_4[] = { 0x88888888 };
    static const uint32_t v1_8[] = { 0x7f7f7f7f }, v2_8[] = { 0x80808080 };
    static const uint32_t v1_2[] = { 0x55555555 }, v2_2[] = { 0xaaaaaaaa };
    static const uint32_t v1_3[] = { 0xdb6db6db, 0xb6db6db6, 0x6db6db6d };
    static const uint32_t v2_3[] = { 0x24924924, 0x49249249, 0x92492492 };
    (void)state;
    /* symmetric zero points say their version themselves, whatever the header says */
    for (int i = 0; i < 2; i++) {
        const char *more[] = { "", ",\"checkpoint_format\":\"gptq_v2\"" };
        char        c[4][200];
        for (int b = 0; b < 4; b++)
            (void)snprintf(c[b], sizeof c[b],
                           "{\"quant_method\":\"gptq\",\"bits\":%d,\"group_size\":-1%s}",
                           b == 3 ? 8 : b + 2, more[i]);
        expect_ramp(gptq(c[0], 2, 16, 16, w2, v1_2, 1), 2, 16, 16, 4, 2);
        expect_ramp(gptq(c[0], 2, 16, 16, w2, v2_2, 1), 2, 16, 16, 4, 2);
        expect_ramp(gptq(c[1], 3, 32, 32, w3, v1_3, 3), 3, 32, 32, 8, 4);
        expect_ramp(gptq(c[1], 3, 32, 32, w3, v2_3, 3), 3, 32, 32, 8, 4);
        expect_ramp(gptq(c[2], 4, 16, 8, w4, v1_4, 1), 4, 16, 8, 16, 8);
        expect_ramp(gptq(c[2], 4, 16, 8, w4, v2_4, 1), 4, 16, 8, 16, 8);
        expect_ramp(gptq(c[3], 8, 4, 4, w8, v1_8, 1), 8, 4, 4, 4, 128);
        expect_ramp(gptq(c[3], 8, 4, 4, w8, v2_8, 1), 8, 4, 4, 4, 128);
    }
}

#define ASYM "{\"bits\":4,\"group_size\":-1,\"sym\":false"

static void gptq_zero_points(void **state)
{
    static const uint32_t w[] = { 0x76543210, 0xfedcba98 };
    static const uint32_t wrapped[] = { 0xffffffff }, borrowed[] = { 0xeeeeeeef };
    static const uint32_t seven[] = { 0x77777777 };
    static const char     model[] = ",\"meta\":{\"quantizer\":[\"gptqmodel:7.7.0\"]}}";
    (void)state;
    /* zero points of 0: a writer that goes field by field leaves all ones, GPTQModel borrows */
    expect_ramp(gptq(ASYM "}", 4, 16, 8, w, wrapped, 1), 4, 16, 8, 16, 0);
    char config[200];
    (void)snprintf(config, sizeof config, "%s%s", ASYM, model);
    expect_ramp(gptq(config, 4, 16, 8, w, borrowed, 1), 4, 16, 8, 16, 0);
    /* where weights are not symmetric the header decides */
    expect_ramp(gptq(ASYM "}", 4, 16, 8, w, seven, 1), 4, 16, 8, 16, 8);
    expect_ramp(gptq(ASYM ",\"checkpoint_format\":\"gptq\"}", 4, 16, 8, w, seven, 1), 4, 16, 8, 16,
                8);
    expect_ramp(gptq(ASYM ",\"checkpoint_format\":\"gptq_v2\"}", 4, 16, 8, w, seven, 1), 4, 16, 8,
                16, 7);
}

/* Groups in any order, counted from the end where they are negative. */
static void gptq_order(void **state)
{
    static const uint32_t w[] = { 0x76543210, 0xfedcba98 };
    int32_t               order[16], plain[16];
    const float           scale[2] = { 1.0f, 0.5f };
    uint16_t              scales[2 * 8];
    float                 want[8 * 16], sorted[8 * 16];
    (void)state;
    for (int k = 0; k < 16; k++) {
        order[k] = k % 3 == 0 ? 1 : k % 3 == 1 ? 0 : -1;
        plain[k] = k < 8 ? -2 : 1;
    }
    for (int i = 0; i < 16; i++)
        scales[i] = tsr_f32_f16(scale[i / 8]);
    for (int i = 0; i < 8 * 16; i++) {
        want[i] = (float)(i % 16 - 8) * scale[order[i % 16] != 0];
        sorted[i] = (float)(i % 16 - 8) * scale[i % 16 / 8];
    }
    for (int i = 0; i < 2; i++) {
        struct image *m = image_new("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":8,"
                                    "\"desc_act\":true}");
        uint32_t      words[2 * 8];
        for (int k = 0; k < 16; k++)
            words[k] = w[k / 8];
        image_add(m, "l.qweight", "I32", 2, 8, words);
        image_fill(m, "l.qzeros", "I32", 2, 1, 0x77777777);
        image_add(m, "l.scales", "F16", 2, 8, scales);
        image_add(m, "l.g_idx", "I32", 16, 0, i ? plain : order);
        expect(m, 8, 16, i ? "tessera.int/1 with 4 bits" : "tessera.float/1 F32",
               i ? sorted : want);
    }
}

/* The first rule that matches from the start of the name holds. */
static void gptq_rules(void **state)
{
    static const uint32_t    w8[] = { 0x03020100 }, v1_8[] = { 0x7f7f7f7f };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_model_packed *p = NULL;
    (void)state;
    expect_ramp(gptq(GPTQ(4, ",\"dynamic\":{\"x\":{\"bits\":2},\"+:.*l$\":{\"bits\":8},\"l\":"
                             "{\"bits\":3}}"),
                     8, 4, 4, w8, v1_8, 1),
                8, 4, 4, 4, 128);
    struct image *m = image_new(GPTQ(4, ",\"dynamic\":{\"-:l\":{}}"));
    image_fill(m, "l.weight", "F16", 4, 4, ONE16);
    assert_int_equal(image_linear(m, 4, 4, &p, &e), TSR_OK);
    assert_null(p); /* as it was */
    image_free(m);
    m = gptq(GPTQ(8, ",\"dynamic\":{\"(\":{}}"), 8, 4, 4, w8, v1_8, 1);
    assert_int_equal(image_linear(m, 4, 4, &p, &e), TSR_E_INPUT);
    assert_true(error_is(&e.err, "config.json: \"quantization_config\" (gptq)", "("));
    image_free(m);
}

static void awq_words(void **state)
{
    struct image *m = image_new("{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":-1,"
                                "\"version\":\"GEMM\",\"zero_point\":true}");
    float         want[8 * 4];
    (void)state;
    image_fill(m, "l.qweight", "I32", 4, 1, 0x75316420);
    image_fill(m, "l.qzeros", "I32", 1, 1, 0x75316420 - 0x11111110);
    image_fill(m, "l.scales", "F16", 1, 8, ONE16);
    for (int i = 0; i < 8 * 4; i++) /* the code of output n is n, its zero point n-1 but for 0 */
        want[i] = i / 4 == 0 ? 0.0f : 1.0f;
    expect(m, 8, 4, "tessera.int/1 with 4 bits", want);
}

#define CT(weights)                                                                                \
    "{\"quant_method\":\"compressed-tensors\",\"quantization_status\":\"compressed\","             \
    "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{" weights "}}}}"

static void ct_words(void **state)
{
    static const uint32_t w[] = { 0x76543210, 0xfedcba98 };
    static const int64_t  shape[] = { 1, 16 };
    float                 want[64];
    struct image         *m = image_new(CT("\"num_bits\":4,\"strategy\":\"channel\""));
    (void)state;
    image_add(m, "l.weight_packed", "I32", 1, 2, w);
    image_add(m, "l.weight_shape", "I64", 2, 0, shape);
    image_fill(m, "l.weight_scale", "F32", 1, 1, ONE32);
    for (int k = 0; k < 16; k++)
        want[k] = (float)(k - 8);
    expect(m, 1, 16, "tessera.int/1 with 4 bits", want);

    /* 3 bits: 10 to a word as older files have them, or without a gap */
    static const uint32_t dense[] = { 0x88fac688, 0xc688fac6, 0xfac688fa };
    uint32_t              old[4] = { 0 };
    for (int k = 0; k < 32; k++) {
        old[k / 10] |= (uint32_t)(k % 8) << 3 * (k % 10);
        want[k] = (float)(k % 8 - 4);
    }
    for (int i = 0; i < 2; i++) {
        m = image_new(CT("\"num_bits\":3,\"strategy\":\"tensor\""));
        image_add(m, "l.weight_packed", "I32", 1, i ? 4 : 3, i ? old : dense);
        image_fill(m, "l.weight_scale", "F16", 1, 0, ONE16);
        expect(m, 1, 32, "tessera.int/1 with 3 bits", want);
    }

    /* zero points along the outputs, packed or one byte each: 8 outputs, two groups */
    static const uint32_t packed_zeros[] = { 0x76543210, 0xfedcba98 };
    int8_t                zeros[16];
    float                 both[8 * 16];
    for (int n = 0; n < 8; n++) {
        zeros[2 * n] = (int8_t)(n - 8);
        zeros[2 * n + 1] = (int8_t)n;
        for (int k = 0; k < 16; k++)
            both[n * 16 + k] = (float)(k - (k < 8 ? n : n + 8));
    }
    for (int i = 0; i < 2; i++) {
        uint32_t words[16];
        for (int n = 0; n < 16; n++)
            words[n] = w[n % 2];
        m = image_new(CT("\"num_bits\":4,\"group_size\":8,\"symmetric\":false"));
        image_add(m, "l.weight_packed", "I32", 8, 2, words);
        image_fill(m, "l.weight_scale", "F16", 8, 2, ONE16);
        if (i == 0)
            image_add(m, "l.weight_zero_point", "I32", 1, 2, packed_zeros);
        else
            image_add(m, "l.weight_zero_point", "I8", 8, 2, zeros);
        expect(m, 8, 16, "tessera.int/1 with 4 bits", both);
    }

    /* zero points of 20 outputs take 2 words in both packings: they are packed as the weights are */
    static const uint32_t fives[2][2] = { { 0x6db6db6d, 0x0b6db6db }, { 0x2db6db6d, 0x2db6db6d } };
    static float          minus[20 * 32];
    for (int k = 0; k < 20 * 32; k++)
        minus[k] = -5;
    for (int i = 0; i < 2; i++) {
        m = image_new(CT("\"num_bits\":3,\"strategy\":\"channel\",\"symmetric\":false"));
        image_fill(m, "l.weight_packed", "I32", 20, i ? 4 : 3, 0);
        image_fill(m, "l.weight_scale", "F16", 20, 1, ONE16);
        image_add(m, "l.weight_zero_point", "I32", 2, 1, fives[i]);
        expect(m, 20, 32, "tessera.int/1 with 3 bits", minus);
    }
}

/* One byte to a code, of fewer bits too. */
static void ct_int8(void **state)
{
    int8_t q[2 * 11];
    float  want[2 * 11], scale[2] = { 0.25f, 3.0f };
    (void)state;
    for (uint32_t bits = 2; bits <= 8; bits++) {
        char config[300], format[40];
        int  half = 1 << (bits - 1);
        (void)snprintf(config, sizeof config,
                       "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":"
                       "{\"targets\":[\"l\"],\"weights\":{\"num_bits\":%u,\"strategy\":"
                       "\"channel\"}}}}",
                       bits);
        (void)snprintf(format, sizeof format, "tessera.int/1 with %u bits", bits);
        for (int i = 0; i < 22; i++) {
            q[i] = (int8_t)(i * 37 % (2 * half) - half);
            want[i] = (float)q[i] * scale[i / 11];
        }
        struct image *m = image_new(config);
        image_add(m, "l.weight", "I8", 2, 11, q);
        image_add(m, "l.weight_scale", "F32", 2, 1, scale);
        expect(m, 2, 11, format, want);
    }
}

/* E4M3 with one scale per row, with powers of two, and in blocks. */
static void ct_fp8(void **state)
{
    static const uint8_t w[2 * 4] = { 0x38, 0x40, 0xb8, 0x01, 0x7e, 0x00, 0x08, 0xfe };
    static const float   v[2 * 4] = { 1, 2, -1, 0x1p-9f, 448, 0, 0x1p-6f, -448 };
    const float          rows[2] = { 0.3f, 0.7f }, blocks[2] = { 0.3f, 0.7f };
    const uint8_t        e8m0[4] = { 127, 128, 126, 120 };
    float                want[8];
    (void)state;
    struct image *m = image_new(CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\""));
    image_add(m, "l.weight", "F8_E4M3", 2, 4, w);
    image_add(m, "l.weight_scale", "F32", 2, 1, rows);
    for (int i = 0; i < 8; i++)
        want[i] = v[i] * rows[i / 4];
    expect(m, 2, 4, "tessera.fp8/1 with fp8_e4m3", want);

    m = image_new(CT("\"num_bits\":8,\"type\":\"float\",\"group_size\":2"));
    image_add(m, "l.weight", "F8_E4M3", 2, 4, w);
    image_add(m, "l.weight_scale", "U8", 2, 2, e8m0);
    for (int i = 0; i < 8; i++)
        want[i] = ldexpf(v[i], e8m0[i / 2] - 127);
    expect(m, 2, 4, "tessera.mx/1 with fp8_e4m3", want);

    m = image_new(CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\","
                     "\"block_structure\":[2,2]"));
    image_add(m, "l.weight", "F8_E4M3", 2, 4, w);
    image_add(m, "l.weight_scale", "F32", 1, 2, blocks);
    for (int i = 0; i < 8; i++)
        want[i] = v[i] * blocks[i % 4 / 2];
    expect(m, 2, 4, "tessera.fp8/1 with fp8_e4m3", want);
}

/* Codes 0 to 15 twice, low nibble first. */
static void fp4_bytes(void **state)
{
    static const uint8_t ocp[16] = { 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,
                                     0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe };
    static const float v[16] = { 0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6 };
    const uint8_t      scale = 130, fp8[2] = { 0x38, 0x45 }; /* 1 and 3.25 */
    const float        global = 3.0f;
    float              want[32];
    (void)state;
    for (int i = 0; i < 32; i++)
        want[i] = v[i % 16] * 8;
    struct image *m = image_new(CT("\"num_bits\":4,\"type\":\"float\",\"group_size\":32"));
    image_add(m, "l.weight_packed", "U8", 1, 16, ocp);
    image_add(m, "l.weight_scale", "U8", 1, 1, &scale);
    expect(m, 1, 32, "tessera.mx/1 with fp4_e2m1", want);
    m = image_new("{\"quant_method\":\"mxfp4\"}");
    image_add(m, "l_blocks", "U8", 1, 16, ocp); /* [rows, groups, 16] is asked for */
    image_add(m, "l_scales", "U8", 1, 1, &scale);
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_model_packed *p = NULL;
    assert_int_equal(image_linear(m, 1, 32, &p, &e), TSR_E_INPUT);
    image_free(m);

    for (int i = 0; i < 32; i++)
        want[i] = v[i % 16] * ((i < 16 ? 1.0f : 3.25f) / global);
    m = image_new(CT("\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\","
                     "\"group_size\":16"));
    image_add(m, "l.weight_packed", "U8", 1, 16, ocp);
    image_add(m, "l.weight_scale", "F8_E4M3", 1, 2, fp8);
    image_add(m, "l.weight_global_scale", "F32", 1, 0, &global);
    expect(m, 1, 32, "tessera.table/1 with 4 bits", want);
}

/* Exact names before patterns before classes, and what is ignored is not stored so. */
static void ct_groups(void **state)
{
    static const char head[] = "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{"
                               "\"a\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,"
                               "\"strategy\":\"channel\"}},\"b\":{\"targets\":[\"re:.*\"],"
                               "\"weights\":{\"num_bits\":%s,\"strategy\":\"channel\"}}%s}%s}";
    static const char exact[] = ",\"c\":{\"targets\":[\"k\",\"l\"],\"weights\":{\"num_bits\":2,"
                                "\"strategy\":\"channel\"}}";
    static const struct {
        const char *b, *c, *ignore, *format;
    } all[] = { { "4", "", "", "tessera.int/1 with 4 bits" },
                { "4", exact, "", "tessera.int/1 with 2 bits" },
                { "4", exact, ",\"ignore\":[\"lm_head\",\"re:.*x\"]", "tessera.int/1 with 2 bits" },
                { "4", exact, ",\"ignore\":[\"re:l$\"]", NULL } };
    static const int8_t q[2] = { -2, 1 };
    static const float  want[2] = { -2, 1 };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char                     config[700];
        struct tsr_errbuf        e = TSR_ERRBUF(e);
        struct tsr_model_packed *p = NULL;
        (void)snprintf(config, sizeof config, head, all[i].b, all[i].c, all[i].ignore);
        struct image *m = image_new(config);
        image_add(m, "l.weight", "I8", 1, 2, q);
        image_fill(m, "l.weight_scale", "F32", 1, 1, ONE32);
        if (all[i].format) {
            expect(m, 1, 2, all[i].format, want);
            continue;
        }
        assert_int_equal(image_linear(m, 1, 2, &p, &e), TSR_E_INPUT);
        assert_true(
            error_is(&e.err, "config.json: \"quantization_config\" (compressed-tensors)", "l"));
        image_free(m);
    }
}

static const float map16[16] = { -1,    -.7f, -.5f, -.4f, -.3f, -.2f, -.1f, 0,
                                 .125f, .16f, .25f, .33f, .44f, .56f, .72f, 1 };

static void add_state(struct image *m, const char *kind, int rows, int cols, const char *more)
{
    char name[80], text[200];
    (void)snprintf(name, sizeof name, "l.weight.quant_state.bitsandbytes__%s", kind);
    (void)snprintf(text, sizeof text, "{\"quant_type\":\"%s\",\"blocksize\":8,\"shape\":[%d,%d]%s}",
                   kind, rows, cols, more);
    image_add(m, name, "U8", strlen(text), 0, text);
}

/* High nibble first; blocks run over the rows; absmax may be quantized itself. */
static void bnb_four(void **state)
{
    uint8_t data[12];
    float   want[24], absmax[3] = { 1, 2, 3 }, nested_map[256];
    (void)state;
    for (int i = 0; i < 12; i++)
        data[i] = (uint8_t)(i * 37 + 11);
    for (int i = 0; i < 256; i++)
        nested_map[i] = (float)i / 256 - 0.5f;
    for (int i = 0; i < 24; i++)
        want[i] = map16[i % 2 ? data[i / 2] & 15 : data[i / 2] >> 4] * absmax[i / 8];
    static const struct {
        int         rows, cols;
        const char *format;
    } shapes[] = { { 4, 6, "tessera.float/1 F32" },
                   { 3, 8, "tessera.table/1 with 4 bits" },
                   { 6, 4, "tessera.table/1 with 4 bits" } };
    for (int i = 0; i < 3; i++) {
        struct image *m = image_new("{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}");
        image_add(m, "l.weight", "U8", 12, 1, data);
        image_add(m, "l.weight.absmax", "F32", 3, 0, absmax);
        image_add(m, "l.weight.quant_map", "F32", 16, 0, map16);
        add_state(m, i ? "fp4" : "nf4", shapes[i].rows, shapes[i].cols, "");
        expect(m, (uint64_t)shapes[i].rows, (uint64_t)shapes[i].cols, shapes[i].format, want);
    }
    const uint8_t codes[3] = { 0, 128, 255 };
    const float   second[2] = { 2, 4 };
    for (int i = 0; i < 24; i++)
        want[i] = map16[i % 2 ? data[i / 2] & 15 : data[i / 2] >> 4] *
                  (nested_map[codes[i / 8]] * second[i / 16] + 1.5f);
    struct image *m = image_new("{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}");
    image_add(m, "l.weight", "U8", 12, 1, data);
    image_add(m, "l.weight.absmax", "U8", 3, 0, codes);
    image_add(m, "l.weight.quant_map", "F32", 16, 0, map16);
    image_add(m, "l.weight.nested_absmax", "F32", 2, 0, second);
    image_add(m, "l.weight.nested_quant_map", "F32", 256, 0, nested_map);
    add_state(m, "nf4", 3, 8, ",\"nested_blocksize\":2,\"nested_offset\":1.5");
    expect(m, 3, 8, "tessera.table/1 with 4 bits", want);
}

/* A row of zeros has the scale 0, and int8 runs as its writer's product. */
static void bnb_int8(void **state)
{
    static const int8_t      q[4] = { -127, 64, 0, 0 };
    const float              scb[2] = { 254.0f, 0.0f }, want[4] = { -254, 128, 0, 0 };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_model_packed *p = NULL;
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct image *m = image_new("{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true,"
                                    "\"llm_int8_threshold\":5.5}");
        image_add(m, "l.weight", "I8", 2, 2, q);
        image_add(m, "l.SCB", "F32", 2, 0, scb);
        if (i == 0) {
            expect(m, 2, 2, "tessera.int/1 with 8 bits", want);
            continue;
        }
        assert_int_equal(image_linear(m, 2, 2, &p, &e), TSR_OK);
        assert_int_equal(p->format.act8, TSR_ACT8_LLM);
        assert_true(p->format.act8_threshold == 5.5);
        tsr_model_packed_destroy(p);
        image_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gptq_words), cmocka_unit_test(gptq_zero_points),
        cmocka_unit_test(gptq_order), cmocka_unit_test(gptq_rules),
        cmocka_unit_test(awq_words),  cmocka_unit_test(ct_words),
        cmocka_unit_test(ct_int8),    cmocka_unit_test(ct_fp8),
        cmocka_unit_test(ct_groups),  cmocka_unit_test(fp4_bytes),
        cmocka_unit_test(bnb_four),   cmocka_unit_test(bnb_int8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
