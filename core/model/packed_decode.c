/* The core's decoder of the packed layouts of tessera/format.h, a row at a time; held to the
 * reference in kernels/formats/ by a test. */
#include "base/f16.h"
#include "model/packed.h"

#include <math.h>
#include <string.h>

/* Codes of `bits` bits from a little-endian bit stream, one after the other. */
struct reader {
    const unsigned char *p;
    uint32_t             acc, have, bits;
};

static inline uint32_t next_code(struct reader *r)
{
    if (r->have < r->bits) {
        r->acc |= (uint32_t)*r->p++ << r->have;
        r->have += 8;
    }
    uint32_t code = r->acc & ((1u << r->bits) - 1u);
    r->acc >>= r->bits;
    r->have -= r->bits;
    return code;
}

static float scale_at(const unsigned char *meta, uint64_t g, uint32_t dtype)
{
    float f;
    tsr_widen(&f, meta + g * tsr_dtype_size(dtype), dtype, 1);
    return f;
}

static void decode_int(const struct tsr_format *f, uint64_t cols, const unsigned char *codes,
                       const unsigned char *meta, float *dst)
{
    uint64_t             groups = tsr_format_groups(f, cols);
    uint64_t             width = groups == 1 ? cols : f->group;
    const unsigned char *zeros = meta + groups * tsr_dtype_size(f->scale_dtype);
    struct reader        in = { .p = codes, .bits = f->bits };
    for (uint64_t g = 0; g < groups; g++) {
        float    scale = scale_at(meta, g, f->scale_dtype);
        int      zero = f->zero == TSR_ZERO_STORED ? zeros[g] : (1 << f->bits) / 2;
        uint64_t end = g + 1 == groups ? cols : (g + 1) * width;
        for (uint64_t k = g * width; k < end; k++)
            dst[k] = (float)((int)next_code(&in) - zero) * scale;
    }
}

/* The code of `bits` bits, at most 8, from bit `at` on. */
static uint32_t level_at(const unsigned char *p, uint64_t at, uint32_t bits)
{
    uint32_t v = p[at / 8];
    if (at % 8 + bits > 8)
        v |= (uint32_t)p[at / 8 + 1] << 8;
    return v >> at % 8 & ((1u << bits) - 1u);
}

/* Scale and minimum of a group. */
static void affine_at(const struct tsr_format *f, uint64_t groups, const unsigned char *meta,
                      uint64_t g, float *scale, float *minimum)
{
    if (f->scale_bits == 0) {
        *scale = scale_at(meta, g, f->scale_dtype);
        *minimum = scale_at(meta, groups + g, f->scale_dtype);
        return;
    }
    uint64_t             per = TSR_AFFINE_SUPER / f->group, at = g % per * f->scale_bits;
    const unsigned char *record = meta + g / per * tsr_format_affine_record_bytes(f);
    const unsigned char *a = record + 4, *b = a + tsr_format_affine_level_bytes(f);
    *scale = scale_at(record, 0, TSR_F16) * (float)level_at(a, at, f->scale_bits);
    *minimum = -(scale_at(record, 1, TSR_F16) * (float)level_at(b, at, f->scale_bits));
}

static void decode_affine(const struct tsr_format *f, uint64_t cols, const unsigned char *codes,
                          const unsigned char *meta, float *dst)
{
    uint64_t      groups = tsr_format_groups(f, cols), width = groups == 1 ? cols : f->group;
    struct reader in = { .p = codes, .bits = f->bits };
    for (uint64_t g = 0; g < groups; g++) {
        float    scale, minimum;
        uint64_t end = g + 1 == groups ? cols : (g + 1) * width;
        affine_at(f, groups, meta, g, &scale, &minimum);
        for (uint64_t k = g * width; k < end; k++) {
            float product = (float)next_code(&in) * scale;
            dst[k] = product + minimum;
        }
    }
}

static uint32_t column_at(const unsigned char *columns, uint64_t i)
{
    const unsigned char *p = columns + 4 * i;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The columns of a lut row's outliers. */
static const unsigned char *lut_columns(const struct tsr_format *f, const unsigned char *meta)
{
    return meta + tsr_format_lut_meta_bytes(f) - 4 * f->outliers;
}

static void decode_lut(const struct tsr_format *f, uint64_t cols, const unsigned char *codes,
                       const unsigned char *meta, float *dst)
{
    uint64_t             entries = UINT64_C(1) << f->bits;
    const unsigned char *columns = lut_columns(f, meta);
    float                table[256];
    struct reader        in = { .p = codes, .bits = f->bits };
    tsr_widen(table, meta, f->scale_dtype, entries);
    for (uint64_t k = 0; k < cols; k++)
        dst[k] = table[next_code(&in)];
    for (uint64_t i = 0; i < f->outliers; i++) {
        uint64_t column = column_at(columns, i);
        if (column < cols) /* tsr_model_format_row_check() says when it is not */
            dst[column] = scale_at(meta, entries + i, f->scale_dtype);
    }
}

/* The value of each code of an MX element.  A float's exponent and mantissa, put where F32 has
 * them, are the value divided by a power of two, also for the denormals. */
static void mx_table(const struct tsr_format *f, float *table)
{
    uint32_t ebits = f->element >> 8, mbits = f->element & 255, n = 1u << (ebits + mbits);
    for (uint32_t m = 0; m < n; m++) {
        float v;
        if (ebits == 0)
            v = (float)m * tsr_bits_f32((128 - mbits) << 23);
        else
            v = tsr_bits_f32(m << (23 - mbits)) *
                tsr_bits_f32((127 + 127 - ((1u << (ebits - 1)) - 1)) << 23);
        if (f->element == TSR_MX_FP8_E4M3 && m == 0x7f)
            v = NAN;
        if (f->element == TSR_MX_FP8_E5M2 && m >= 0x7c)
            v = m == 0x7c ? INFINITY : NAN;
        table[m] = v;
        table[n + m] = 0.0f - v; /* a zero has no sign */
    }
}

static void decode_mx(const struct tsr_format *f, uint64_t cols, const unsigned char *codes,
                      const unsigned char *meta, float *dst)
{
    uint64_t      groups = tsr_format_groups(f, cols), width = groups == 1 ? cols : f->group;
    int           lim = (1 << (f->scale_bits - 1)) - 1;
    float         table[256] = { 0 }; /* zeros for codes wider than the element */
    struct reader in = { .p = codes, .bits = f->bits };
    mx_table(f, table);
    for (uint64_t g = 0; g < groups; g++) {
        /* exact, and so is the product unless F32 overflows: infinite */
        float    scale = meta[g] > 2 * lim ? NAN : ldexpf(1.0f, (int)meta[g] - lim);
        uint64_t end = g + 1 == groups ? cols : (g + 1) * width;
        for (uint64_t k = g * width; k < end; k++)
            dst[k] = table[next_code(&in)] * scale;
    }
}

static void decode_fp8(const struct tsr_format *f, uint64_t cols, const unsigned char *codes,
                       const unsigned char *meta, float *dst)
{
    uint64_t groups = tsr_format_groups(f, cols), width = groups == 1 ? cols : f->group;
    float    table[256];
    mx_table(f, table);
    for (uint64_t g = 0; g < groups; g++) {
        float    scale = scale_at(meta, g, f->scale_dtype);
        uint64_t end = g + 1 == groups ? cols : (g + 1) * width;
        for (uint64_t k = g * width; k < end; k++)
            dst[k] = table[codes[k]] * scale;
    }
}

/* The scale of a group: stored, a signed code under a factor, or an element under the row's divisor. */
static float table_scale(const struct tsr_format *f, const unsigned char *meta, uint64_t g,
                         const float *element)
{
    if (f->scale_bits == 0)
        return scale_at(meta, g, f->scale_dtype);
    if (f->element)
        return element[meta[4 + g]] / scale_at(meta, 0, TSR_F32);
    uint64_t             per = TSR_TABLE_SUPER / f->group, at = g % per * f->scale_bits;
    const unsigned char *record = meta + g / per * tsr_format_table_record_bytes(f);
    int                  middle = (1 << f->scale_bits) / 2;
    int                  code = (int)level_at(record + 2, at, f->scale_bits);
    return scale_at(record, 0, TSR_F16) * (float)(code - middle);
}

static void decode_table(const struct tsr_format *f, uint64_t cols, const unsigned char *codes,
                         const unsigned char *meta, float *dst)
{
    uint64_t      groups = tsr_format_groups(f, cols), width = groups == 1 ? cols : f->group;
    float         element[256] = { 0 };
    struct reader in = { .p = codes, .bits = f->bits };
    int           middle = (1 << f->bits) / 2;
    if (f->element)
        mx_table(f, element);
    for (uint64_t g = 0; g < groups; g++) {
        float    scale = table_scale(f, meta, g, element);
        uint64_t end = g + 1 == groups ? cols : (g + 1) * width;
        for (uint64_t k = g * width; k < end && f->bits <= 4; k++)
            dst[k] = f->table[next_code(&in)] * scale;
        for (uint64_t k = g * width; k < end && f->bits > 4; k++)
            dst[k] = (float)((int)next_code(&in) - middle) * scale;
    }
}

void tsr_model_format_decode_row(const struct tsr_format *f, uint64_t cols, const void *codes,
                                 const void *meta, float *dst)
{
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0)
        tsr_widen(dst, codes, f->dtype, cols);
    else if (strcmp(f->id, TSR_FORMAT_INT) == 0)
        decode_int(f, cols, codes, meta, dst);
    else if (strcmp(f->id, TSR_FORMAT_AFFINE) == 0)
        decode_affine(f, cols, codes, meta, dst);
    else if (strcmp(f->id, TSR_FORMAT_LUT) == 0)
        decode_lut(f, cols, codes, meta, dst);
    else if (strcmp(f->id, TSR_FORMAT_TABLE) == 0)
        decode_table(f, cols, codes, meta, dst);
    else if (strcmp(f->id, TSR_FORMAT_FP8) == 0)
        decode_fp8(f, cols, codes, meta, dst);
    else
        decode_mx(f, cols, codes, meta, dst);
}

const char *tsr_model_format_row_check(const struct tsr_format *f, uint64_t cols, const void *meta)
{
    if (strcmp(f->id, TSR_FORMAT_LUT) != 0)
        return NULL; /* any bytes have a meaning */
    const unsigned char *columns = lut_columns(f, meta);
    for (uint64_t i = 0; i < f->outliers; i++) {
        if (column_at(columns, i) >= cols)
            return "an outlier's column lies outside the row";
        if (i > 0 && column_at(columns, i) <= column_at(columns, i - 1))
            return "the outliers' columns do not ascend";
    }
    return NULL;
}
