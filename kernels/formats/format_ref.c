#include "format_ref.h"

#include <math.h>
#include <string.h>

static float bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Little-endian bytes, whatever the host is. */
static uint32_t get_le(const uint8_t *p, unsigned bytes)
{
    uint32_t u = 0;
    for (unsigned i = 0; i < bytes; i++)
        u |= (uint32_t)p[i] << (8 * i);
    return u;
}

/* sign * 2^(e-15) * 1.m, or sign * 2^-14 * 0.m */
static float f16_value(uint32_t h)
{
    int   e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    float v;
    if (e == 31)
        v = m ? NAN : INFINITY;
    else if (e == 0)
        v = ldexpf((float)m, -24);
    else
        v = ldexpf((float)(1024 + m), e - 25);
    return h & 0x8000 ? -v : v;
}

static float float_at(const uint8_t *p, uint32_t dtype, uint64_t i)
{
    if (dtype == TSR_F32)
        return bits_f32(get_le(p + 4 * i, 4));
    if (dtype == TSR_BF16)
        return bits_f32(get_le(p + 2 * i, 2) << 16);
    return f16_value(get_le(p + 2 * i, 2));
}

/* Code k of a row's bit stream, one bit after the other. */
static uint32_t code_at(const uint8_t *codes, uint64_t k, uint32_t bits)
{
    uint32_t code = 0;
    for (uint32_t b = 0; b < bits; b++) {
        uint64_t at = k * bits + b;
        code |= (uint32_t)(codes[at / 8] >> (at % 8) & 1) << b;
    }
    return code;
}

static int is_scale_dtype(uint32_t dtype)
{
    return dtype == TSR_F16 || dtype == TSR_F32;
}

static tsr_status decode_float(const struct tsr_format *f, uint64_t cols, const uint8_t *codes,
                               float *dst)
{
    if (f->dtype != TSR_F32 && f->dtype != TSR_F16 && f->dtype != TSR_BF16)
        return TSR_E_UNSUPPORTED;
    for (uint64_t k = 0; k < cols; k++)
        dst[k] = float_at(codes, f->dtype, k);
    return TSR_OK;
}

static tsr_status decode_int(const struct tsr_format *f, uint64_t cols, const uint8_t *codes,
                             const uint8_t *meta, float *dst)
{
    if (f->bits < 2 || f->bits > 8 || !is_scale_dtype(f->scale_dtype) || f->zero > TSR_ZERO_STORED)
        return TSR_E_UNSUPPORTED;
    uint64_t groups = tsr_format_groups(f, cols);
    for (uint64_t k = 0; k < cols; k++) {
        uint64_t g = f->group ? k / f->group : 0;
        float    scale = float_at(meta, f->scale_dtype, g);
        int32_t  zero = 1 << (f->bits - 1);
        if (f->zero == TSR_ZERO_STORED)
            zero = meta[groups * (f->scale_dtype == TSR_F32 ? 4 : 2) + g];
        dst[k] = (float)((int32_t)code_at(codes, k, f->bits) - zero) * scale;
    }
    return TSR_OK;
}

static int affine_known(const struct tsr_format *f)
{
    int levels = f->scale_bits == 4 || f->scale_bits == 6 || f->scale_bits == 8;
    int group = f->group == 16 || f->group == 32 || f->group == 64 || f->group == 128;
    if (f->bits < 2 || f->bits > 8 || f->zero != 0)
        return 0;
    return levels
               ? group
               : f->scale_bits == 0 && is_scale_dtype(f->scale_dtype) && (group || f->group == 0);
}

static tsr_status decode_affine(const struct tsr_format *f, uint64_t cols, const uint8_t *codes,
                                const uint8_t *meta, float *dst)
{
    if (!affine_known(f))
        return TSR_E_UNSUPPORTED;
    uint64_t groups = tsr_format_groups(f, cols);
    for (uint64_t k = 0; k < cols; k++) {
        uint64_t g = f->group ? k / f->group : 0;
        float    scale, minimum;
        if (f->scale_bits == 0) {
            scale = float_at(meta, f->scale_dtype, g);
            minimum = float_at(meta, f->scale_dtype, groups + g);
        } else {
            uint64_t       per = 256 / f->group, bytes = (per * f->scale_bits + 7) / 8;
            const uint8_t *record = meta + k / 256 * (4 + 2 * bytes);
            scale =
                float_at(record, TSR_F16, 0) * (float)code_at(record + 4, g % per, f->scale_bits);
            minimum = -(float_at(record, TSR_F16, 1) *
                        (float)code_at(record + 4 + bytes, g % per, f->scale_bits));
        }
        float product = (float)code_at(codes, k, f->bits) * scale;
        dst[k] = product + minimum;
    }
    return TSR_OK;
}

static tsr_status decode_lut(const struct tsr_format *f, uint64_t cols, const uint8_t *codes,
                             const uint8_t *meta, float *dst)
{
    if (f->bits < 2 || f->bits > 8 || !is_scale_dtype(f->scale_dtype) || f->outliers > cols)
        return TSR_E_UNSUPPORTED;
    uint64_t       entries = UINT64_C(1) << f->bits, size = f->scale_dtype == TSR_F32 ? 4 : 2;
    uint64_t       values = (entries + f->outliers) * size;
    const uint8_t *columns = meta + (values + 3) / 4 * 4;
    for (uint64_t k = 0; k < cols; k++)
        dst[k] = float_at(meta, f->scale_dtype, code_at(codes, k, f->bits));
    for (uint64_t i = 0; i < f->outliers; i++) {
        uint32_t column = get_le(columns + 4 * i, 4);
        if (column >= cols || (i > 0 && column <= get_le(columns + 4 * (i - 1), 4)))
            return TSR_E_INVAL;
        dst[column] = float_at(meta, f->scale_dtype, entries + i);
    }
    return TSR_OK;
}

/* The element's own value, before the scale of its block. */
static float mx_element(uint32_t element, uint32_t code)
{
    int      ebits = (int)(element >> 8), mbits = (int)(element & 255);
    uint32_t magnitude = code & ((1u << (ebits + mbits)) - 1u);
    int      e = (int)(magnitude >> mbits), m = (int)(magnitude & ((1u << mbits) - 1u));
    float    v;
    if (ebits == 0) /* one bit before the point */
        v = ldexpf((float)magnitude, 1 - mbits);
    else if (element == TSR_MX_FP8_E4M3 && magnitude == 127)
        v = NAN;
    else if (element == TSR_MX_FP8_E5M2 && e == 31)
        v = m ? NAN : INFINITY;
    else {
        int bias = (1 << (ebits - 1)) - 1;
        v = e ? ldexpf((float)((1 << mbits) + m), e - bias - mbits)
              : ldexpf((float)m, 1 - bias - mbits);
    }
    return v != 0.0f && code >> (ebits + mbits) & 1 ? -v : v;
}

static int mx_known(uint32_t element)
{
    static const uint32_t floats[] = { TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2,
                                       TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1, TSR_MX_FP5_E2M2,
                                       TSR_MX_FP5_E1M3, TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2,
                                       TSR_MX_FP3_E1M1 };
    for (unsigned i = 0; i < sizeof floats / sizeof *floats; i++)
        if (element == floats[i])
            return 1;
    return element >= TSR_MX_INT(2) && element <= TSR_MX_INT(8);
}

static tsr_status decode_mx(const struct tsr_format *f, uint64_t cols, const uint8_t *codes,
                            const uint8_t *meta, float *dst)
{
    if (!mx_known(f->element) || f->bits != 1 + (f->element >> 8) + (f->element & 255) ||
        f->scale_bits < 4 || f->scale_bits > 8)
        return TSR_E_UNSUPPORTED;
    int lim = (1 << (f->scale_bits - 1)) - 1;
    for (uint64_t k = 0; k < cols; k++) {
        int   scale = meta[f->group ? k / f->group : 0];
        float v = mx_element(f->element, code_at(codes, k, f->bits));
        dst[k] = scale > 2 * lim ? NAN : ldexpf(v, scale - lim);
    }
    return TSR_OK;
}

static tsr_status decode_fp8(const struct tsr_format *f, uint64_t cols, const uint8_t *codes,
                             const uint8_t *meta, float *dst)
{
    if ((f->element != TSR_MX_FP8_E4M3 && f->element != TSR_MX_FP8_E5M2) || f->bits != 8 ||
        f->zero != 0 || f->scale_bits != 0 ||
        (f->scale_dtype != TSR_F32 && f->scale_dtype != TSR_BF16))
        return TSR_E_UNSUPPORTED;
    for (uint64_t k = 0; k < cols; k++)
        dst[k] = mx_element(f->element, codes[k]) *
                 float_at(meta, f->scale_dtype, f->group ? k / f->group : 0);
    return TSR_OK;
}

static int table_known(const struct tsr_format *f)
{
    int power = f->group >= 16 && (f->group & (f->group - 1)) == 0;
    if (f->bits < 2 || f->bits > 8 || f->zero != 0)
        return 0;
    for (uint32_t i = 0; i < 16; i++)
        if (!isfinite(f->table[i]) || ((f->bits > 4 || i >= 1u << f->bits) && f->table[i] != 0.0f))
            return 0;
    if (f->scale_bits == 0)
        return f->element == 0 && is_scale_dtype(f->scale_dtype) && (power || f->group == 0);
    if (f->element)
        return f->element == TSR_MX_FP8_E4M3 && f->scale_bits == 8 && (power || f->group == 0);
    return (f->scale_bits == 6 || f->scale_bits == 8) && power && f->group <= 128;
}

static tsr_status decode_table(const struct tsr_format *f, uint64_t cols, const uint8_t *codes,
                               const uint8_t *meta, float *dst)
{
    if (!table_known(f))
        return TSR_E_UNSUPPORTED;
    for (uint64_t k = 0; k < cols; k++) {
        uint64_t g = f->group ? k / f->group : 0;
        float    scale;
        if (f->scale_bits == 0) {
            scale = float_at(meta, f->scale_dtype, g);
        } else if (f->element) {
            float divisor = float_at(meta, TSR_F32, 0);
            scale = mx_element(f->element, meta[4 + g]) / divisor;
        } else {
            uint64_t       per = f->group ? 256 / f->group : 1;
            uint64_t       bytes = 2 + (per * f->scale_bits + 7) / 8;
            const uint8_t *record = meta + k / 256 * bytes;
            int32_t        a = (int32_t)code_at(record + 2, g % per, f->scale_bits);
            scale = float_at(record, TSR_F16, 0) * (float)(a - (1 << (f->scale_bits - 1)));
        }
        uint32_t code = code_at(codes, k, f->bits);
        float value = f->bits > 4 ? (float)((int32_t)code - (1 << (f->bits - 1))) : f->table[code];
        dst[k] = value * scale;
    }
    return TSR_OK;
}

tsr_status tsr_ref_decode_row(const struct tsr_format *f, uint64_t cols, const void *codes,
                              const void *meta, float *dst)
{
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0)
        return decode_float(f, cols, codes, dst);
    if (strcmp(f->id, TSR_FORMAT_INT) == 0)
        return decode_int(f, cols, codes, meta, dst);
    if (strcmp(f->id, TSR_FORMAT_AFFINE) == 0)
        return decode_affine(f, cols, codes, meta, dst);
    if (strcmp(f->id, TSR_FORMAT_LUT) == 0)
        return decode_lut(f, cols, codes, meta, dst);
    if (strcmp(f->id, TSR_FORMAT_TABLE) == 0)
        return decode_table(f, cols, codes, meta, dst);
    if (strcmp(f->id, TSR_FORMAT_FP8) == 0)
        return decode_fp8(f, cols, codes, meta, dst);
    return strcmp(f->id, TSR_FORMAT_MX) == 0 ? decode_mx(f, cols, codes, meta, dst)
                                             : TSR_E_UNSUPPORTED;
}
