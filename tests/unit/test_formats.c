/* The vectors of kernels/formats/vectors through every reader of packed weights: the reference
 * decoder, the core's, and a row out of the CPU backend's panels. */
#include "table_fixture.h"

#include <math.h>
#include <stdio.h>

#include "quant/quant.h"

static uint64_t unhex(const char *s, uint8_t *out, uint64_t cap)
{
    uint64_t n = 0;
    for (; s[0] && s[1] && n < cap; s += 2, n++) {
        unsigned v = 0;
        assert_int_equal(sscanf(s, "%2x", &v), 1);
        out[n] = (uint8_t)v;
    }
    return n;
}

static uint32_t dtype_of(const char *s)
{
    return strcmp(s, "f32") == 0 ? TSR_F32 : strcmp(s, "f16") == 0 ? TSR_F16 : TSR_BF16;
}

/* Values behind " : " of a line. */
static uint64_t values(const char *line, float *v, uint64_t cap)
{
    const char *p = strstr(line, " : ");
    uint64_t    n = 0;
    assert_non_null(p);
    for (p += 3; n < cap; n++) {
        char *end;
        v[n] = strtof(p, &end);
        if (end == p)
            break;
        p = end;
    }
    return n;
}

static void same(const float *got, const float *want, uint64_t n, const char *who, const char *line)
{
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], 4) != 0 && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s: value %llu is %a, wanted %a in: %s", who, (unsigned long long)i,
                     (double)got[i], (double)want[i], line);
}

static void check(const struct tsr_format *f, uint64_t cols, const uint8_t *codes, uint64_t nc,
                  const uint8_t *meta, uint64_t nm, const float *want, const char *line)
{
    float got[300];
    assert_int_equal(tsr_ref_decode_row(f, cols, codes, meta, got), TSR_OK);
    same(got, want, cols, "reference", line);
    memset(got, 0, sizeof got);
    tsr_model_format_decode_row(f, cols, codes, meta, got);
    same(got, want, cols, "core", line);
    struct tsr_cpu *c = cpu_new("scalar");
    void           *h = NULL;
    assert_non_null(c);
    struct tsr_weight_desc d = { .struct_size = sizeof d,
                                 .name = "v",
                                 .format = f,
                                 .rows = 1,
                                 .cols = cols,
                                 .codes = codes,
                                 .meta = meta,
                                 .code_stride = nc,
                                 .meta_stride = nm };
    assert_int_equal(tsr_cpu_weight_load(c, &d, &h, NULL), TSR_OK);
    tsr_cpu_weight_row(h, 0, got);
    same(got, want, cols, "panel", line);
    tsr_cpu_weight_free(c, h);
    tsr_cpu_destroy(c);
}

static FILE *vectors(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", FORMAT_VECTORS, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    return f;
}

static void float_vectors(void **state)
{
    (void)state;
    FILE *f = vectors("float.txt");
    char  line[512], dtype[8], hex[128];
    int   rows = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        uint8_t codes[64];
        float   want[32];
        assert_int_equal(sscanf(line, "%7s %127s :", dtype, hex), 2);
        struct tsr_format fmt = { .struct_size = sizeof fmt,
                                  .id = TSR_FORMAT_FLOAT,
                                  .dtype = dtype_of(dtype) };
        uint64_t          n = unhex(hex, codes, sizeof codes), k = values(line, want, 32);
        assert_int_equal(n, k * (fmt.dtype == TSR_F32 ? 4 : 2));
        check(&fmt, k, codes, n, NULL, 0, want, line);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 3);
}

static void int_vectors(void **state)
{
    (void)state;
    FILE    *f = vectors("int.txt");
    char     line[512], dtype[8], zero[8], code_hex[128], meta_hex[128];
    unsigned bits, group, cols;
    int      rows = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        uint8_t codes[64], meta[64];
        float   want[32];
        assert_int_equal(sscanf(line, "%u %u %7s %7s %u %127s %127s :", &bits, &group, dtype, zero,
                                &cols, code_hex, meta_hex),
                         7);
        struct tsr_format fmt = { .struct_size = sizeof fmt,
                                  .id = TSR_FORMAT_INT,
                                  .bits = bits,
                                  .group = group,
                                  .scale_dtype = dtype_of(dtype),
                                  .zero =
                                      strcmp(zero, "mid") == 0 ? TSR_ZERO_MID : TSR_ZERO_STORED };
        uint64_t nc = unhex(code_hex, codes, sizeof codes), nm = unhex(meta_hex, meta, sizeof meta);
        assert_int_equal(nc, tsr_format_int_code_bytes(&fmt, cols));
        assert_int_equal(nm, tsr_format_int_meta_bytes(&fmt, cols));
        assert_int_equal(values(line, want, 32), cols);
        check(&fmt, cols, codes, nc, meta, nm, want, line);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 5);
}

static void affine_vectors(void **state)
{
    (void)state;
    FILE    *f = vectors("int2.txt");
    char     line[4096], scales[8], code_hex[600], meta_hex[160];
    unsigned bits, group, cols;
    int      rows = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        uint8_t codes[300], meta[80];
        float   want[300];
        assert_int_equal(sscanf(line, "%u %u %7s %u %599s %159s :", &bits, &group, scales, &cols,
                                code_hex, meta_hex),
                         6);
        bool              levels = scales[0] != 'f';
        struct tsr_format fmt = { .struct_size = sizeof fmt,
                                  .id = TSR_FORMAT_AFFINE,
                                  .bits = bits,
                                  .group = group,
                                  .scale_dtype = levels ? 0 : dtype_of(scales),
                                  .scale_bits = levels ? (uint32_t)(scales[0] - '0') : 0 };
        uint64_t nc = unhex(code_hex, codes, sizeof codes), nm = unhex(meta_hex, meta, sizeof meta);
        assert_true(tsr_model_format_known(&fmt) && tsr_model_format_fits(&fmt, cols));
        assert_int_equal(nc, tsr_model_format_code_bytes(&fmt, cols));
        assert_int_equal(nm, tsr_model_format_meta_bytes(&fmt, cols));
        assert_int_equal(values(line, want, 300), cols);
        check(&fmt, cols, codes, nc, meta, nm, want, line);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 7);
}

static void table_vectors(void **state)
{
    (void)state;
    FILE    *f = vectors("table.txt");
    char     line[8192], scales[8], table[400], code_hex[300], meta_hex[160];
    unsigned bits, group, cols;
    int      rows = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        uint8_t codes[150], meta[80];
        float   want[300];
        assert_int_equal(sscanf(line, "%u %u %7s %u %399s %299s %159s :", &bits, &group, scales,
                                &cols, table, code_hex, meta_hex),
                         7);
        bool              levels = scales[0] != 'f', elements = scales[0] == 'e';
        struct tsr_format fmt = { .struct_size = sizeof fmt,
                                  .id = TSR_FORMAT_TABLE,
                                  .bits = bits,
                                  .group = group,
                                  .scale_dtype = levels ? 0 : dtype_of(scales),
                                  .element = elements ? TSR_MX_FP8_E4M3 : 0,
                                  .scale_bits = elements ? 8
                                                : levels ? (uint32_t)(scales[0] - '0')
                                                         : 0 };
        char             *p = table;
        for (uint32_t i = 0; bits <= 4 && i < 1u << bits; i++, p += *p == ',')
            fmt.table[i] = strtof(p, &p);
        uint64_t nc = unhex(code_hex, codes, sizeof codes), nm = unhex(meta_hex, meta, sizeof meta);
        assert_true(tsr_model_format_known(&fmt) && tsr_model_format_fits(&fmt, cols));
        assert_int_equal(nc, tsr_model_format_code_bytes(&fmt, cols));
        assert_int_equal(nm, tsr_model_format_meta_bytes(&fmt, cols));
        assert_int_equal(values(line, want, 300), cols);
        check(&fmt, cols, codes, nc, meta, nm, want, line);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 9);
}

static void lut_vectors(void **state)
{
    (void)state;
    FILE    *f = vectors("lut.txt");
    char     line[512], dtype[8], code_hex[128], meta_hex[160];
    unsigned bits, outliers, cols;
    int      rows = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        uint8_t codes[64], meta[80];
        float   want[32];
        assert_int_equal(sscanf(line, "%u %7s %u %u %127s %159s :", &bits, dtype, &outliers, &cols,
                                code_hex, meta_hex),
                         6);
        struct tsr_format fmt = { .struct_size = sizeof fmt,
                                  .id = TSR_FORMAT_LUT,
                                  .bits = bits,
                                  .outliers = outliers,
                                  .scale_dtype = dtype_of(dtype) };
        uint64_t nc = unhex(code_hex, codes, sizeof codes), nm = unhex(meta_hex, meta, sizeof meta);
        assert_true(tsr_model_format_known(&fmt) && tsr_model_format_fits(&fmt, cols));
        assert_int_equal(nc, tsr_model_format_code_bytes(&fmt, cols));
        assert_int_equal(nm, tsr_model_format_meta_bytes(&fmt, cols));
        assert_null(tsr_model_format_row_check(&fmt, cols, meta));
        assert_int_equal(values(line, want, 32), cols);
        check(&fmt, cols, codes, nc, meta, nm, want, line);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 5);
}

static void mx_vectors(void **state)
{
    (void)state;
    FILE    *f = vectors("mx.txt");
    char     line[512], code_hex[128], meta_hex[128];
    unsigned e, m, group, scale_bits, cols;
    int      rows = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        uint8_t codes[64], meta[64];
        float   want[32];
        assert_int_equal(sscanf(line, "%u %u %u %u %u %127s %127s :", &e, &m, &group, &scale_bits,
                                &cols, code_hex, meta_hex),
                         7);
        struct tsr_format fmt = { .struct_size = sizeof fmt,
                                  .id = TSR_FORMAT_MX,
                                  .bits = 1 + e + m,
                                  .element = TSR_MX_ELEMENT(e, m),
                                  .group = group,
                                  .scale_bits = scale_bits };
        uint64_t nc = unhex(code_hex, codes, sizeof codes), nm = unhex(meta_hex, meta, sizeof meta);
        assert_true(tsr_model_format_known(&fmt));
        assert_int_equal(nc, tsr_model_format_code_bytes(&fmt, cols));
        assert_int_equal(nm, tsr_model_format_meta_bytes(&fmt, cols));
        assert_int_equal(values(line, want, 32), cols);
        check(&fmt, cols, codes, nc, meta, nm, want, line);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 14);
}

static void fp8_vectors(void **state)
{
    (void)state;
    FILE    *f = vectors("fp8.txt");
    char     line[512], dtype[8], code_hex[128], meta_hex[128];
    unsigned e, m, group, cols;
    int      rows = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        uint8_t codes[64], meta[64];
        float   want[32];
        assert_int_equal(sscanf(line, "%u %u %u %7s %u %127s %127s :", &e, &m, &group, dtype, &cols,
                                code_hex, meta_hex),
                         7);
        struct tsr_format fmt = { .struct_size = sizeof fmt,
                                  .id = TSR_FORMAT_FP8,
                                  .bits = 8,
                                  .element = TSR_MX_ELEMENT(e, m),
                                  .group = group,
                                  .scale_dtype = dtype_of(dtype) };
        uint64_t nc = unhex(code_hex, codes, sizeof codes), nm = unhex(meta_hex, meta, sizeof meta);
        assert_true(tsr_model_format_known(&fmt));
        assert_int_equal(nc, tsr_model_format_code_bytes(&fmt, cols));
        assert_int_equal(nm, tsr_model_format_meta_bytes(&fmt, cols));
        assert_int_equal(values(line, want, 32), cols);
        check(&fmt, cols, codes, nc, meta, nm, want, line);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 4);
}

/* The core's decoder reads bits in words, the reference one by one: equal on random rows. */
static void decoders_agree(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 400; i++) {
        struct wt w;
        uint64_t  cols = 1 + rnd() % 300;
        wt_int(&w, 1, cols, 2 + i % 7, rnd() % 40, i & 8 ? TSR_F32 : TSR_F16,
               i & 16 ? TSR_ZERO_MID : TSR_ZERO_STORED);
        float *a = wt_dense(&w), *b = malloc(cols * 4);
        assert_non_null(b);
        tsr_model_format_decode_row(&w.format, cols, w.codes, w.meta, b);
        assert_memory_equal(a, b, cols * 4);
        free(a);
        free(b);
        wt_free(&w);
    }
}

/* The same of tessera.int/2 and of tessera.table/1, every kind of scales. */
static void affine_and_table_decoders_agree(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 800; i++) {
        struct wt w;
        uint64_t  cols = 1 + rnd() % 700;
        if (i % 2)
            wt_affine_any(&w, 1, cols, i / 2);
        else
            wt_table_any(&w, 1, cols, i / 2);
        float *a = wt_dense(&w), *b = malloc(cols * 4);
        assert_non_null(b);
        tsr_model_format_decode_row(&w.format, cols, w.codes, w.meta, b);
        assert_memory_equal(a, b, cols * 4);
        free(a);
        free(b);
        wt_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_vectors),  cmocka_unit_test(int_vectors),
        cmocka_unit_test(lut_vectors),    cmocka_unit_test(mx_vectors),
        cmocka_unit_test(decoders_agree), cmocka_unit_test(affine_vectors),
        cmocka_unit_test(table_vectors),  cmocka_unit_test(affine_and_table_decoders_agree),
        cmocka_unit_test(fp8_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
