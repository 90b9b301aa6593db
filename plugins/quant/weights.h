/* plugins/quant/weights.h - what every quantizer of ours needs to read weights and to write
 * rows of tessera.int/1: widening, half-width scales, bit streams.  Header only, so that
 * each plugin stays one self-contained shared object. */
#ifndef TSR_QUANT_WEIGHTS_H
#define TSR_QUANT_WEIGHTS_H

#include <math.h>
#include <string.h>
#include <tessera/quantizer.h>

static inline float wt_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t wt_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* Of two numbers neither of which is NaN; fminf() would be a call. */
static inline float wt_min(float a, float b)
{
    return a < b ? a : b;
}

static inline float wt_max(float a, float b)
{
    return a > b ? a : b;
}

/* Exact for every F16, subnormals and infinities included. */
static inline float wt_f16_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = h >> 10 & 0x1fu, fraction = h & 0x3ffu;
    float    f;
    if (exponent == 31)
        return wt_bits_f32(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0)
        f = (float)fraction * 0x1p-24f;
    else
        f = wt_bits_f32((exponent + 112u) << 23 | fraction << 13);
    return wt_bits_f32(wt_f32_bits(f) | sign);
}

/* The nearest F16 to a finite f >= 0, ties to even; 0x7c00 where that is infinite. */
static inline uint16_t wt_f32_f16(float f)
{
    uint32_t u = wt_f32_bits(f);
    if (f >= 65520.0f)
        return 0x7c00;
    if (f < 0x1p-14f) /* adding 2^-1 leaves a unit of 2^-24 in the last place */
        return (uint16_t)(wt_f32_bits(f + 0.5f) - 0x3f000000u);
    u += 0xfffu + (u >> 13 & 1u);
    return (uint16_t)((u - 0x38000000u) >> 13);
}

/* Row r of w, widened to F32.  dtype is one that the plugin's src_dtypes allow. */
static inline void wt_row(float *dst, const struct tsr_matrix *w, uint64_t r)
{
    const unsigned char *src = (const unsigned char *)w->data + r * w->row_stride;
    if (w->dtype == TSR_F32) {
        memcpy(dst, src, w->cols * sizeof *dst);
        return;
    }
    for (uint64_t k = 0; k < w->cols; k++) {
        uint16_t h;
        memcpy(&h, src + 2 * k, sizeof h);
        dst[k] = w->dtype == TSR_F16 ? wt_f16_f32(h) : wt_bits_f32((uint32_t)h << 16);
    }
}

/* TSR_OK if a widened row is finite, else the sentence that names row and column. */
static inline tsr_status wt_check(const struct tsr_matrix *w, const float *row, uint64_t n_row,
                                  struct tsr_err *err)
{
    for (uint64_t k = 0; k < w->cols; k++)
        if (!isfinite(row[k]))
            return tsr_fail(err, TSR_E_NUMERIC,
                            "tensor '%s': row %llu column %llu is %s; only finite weights can be "
                            "quantized",
                            w->name ? w->name : "?", (unsigned long long)n_row,
                            (unsigned long long)k, isnan(row[k]) ? "NaN" : "infinite");
    return TSR_OK;
}

/* What a scale becomes when stored as dtype (TSR_F16 or TSR_F32), widened again; 0 if the
 * dtype cannot hold it: infinite, zero, or, in F16, below the normal numbers. */
static inline float wt_scale_round(float scale, uint32_t dtype)
{
    if (!isfinite(scale) || scale <= 0.0f)
        return 0.0f;
    if (dtype == TSR_F32)
        return scale;
    float s = wt_f16_f32(wt_f32_f16(scale));
    return isfinite(s) && s >= 0x1p-14f ? s : 0.0f;
}

/* The scale of group g into a row's meta.  The value is one that wt_scale_round() gave. */
static inline void wt_scale_put(unsigned char *meta, uint64_t g, uint32_t dtype, float scale)
{
    if (dtype == TSR_F32) {
        memcpy(meta + 4 * g, &scale, 4);
    } else {
        uint16_t h = wt_f32_f16(scale);
        memcpy(meta + 2 * g, &h, 2);
    }
}

static inline float wt_scale_get(const unsigned char *meta, uint64_t g, uint32_t dtype)
{
    float    f;
    uint16_t h;
    if (dtype == TSR_F32) {
        memcpy(&f, meta + 4 * g, 4);
        return f;
    }
    memcpy(&h, meta + 2 * g, 2);
    return wt_f16_f32(h);
}

/* n codes of `bits` bits each as one little-endian bit stream, padded with zero bits. */
static inline void wt_pack(unsigned char *dst, const uint8_t *codes, uint64_t n, uint32_t bits)
{
    uint32_t acc = 0, have = 0;
    for (uint64_t k = 0; k < n; k++) {
        acc |= (uint32_t)codes[k] << have;
        for (have += bits; have >= 8; have -= 8, acc >>= 8)
            *dst++ = (unsigned char)acc;
    }
    if (have)
        *dst = (unsigned char)acc;
}

static inline void wt_unpack(uint8_t *codes, const unsigned char *src, uint64_t n, uint32_t bits)
{
    uint32_t acc = 0, have = 0, mask = (1u << bits) - 1u;
    for (uint64_t k = 0; k < n; k++) {
        for (; have < bits; have += 8)
            acc |= (uint32_t)*src++ << have;
        codes[k] = (uint8_t)(acc & mask);
        acc >>= bits;
        have -= bits;
    }
}

/* One row of tessera.int/1 back to F32; codes is scratch for cols bytes. */
static inline void wt_decode_row(float *dst, const unsigned char *code_row,
                                 const unsigned char *meta_row, const struct tsr_format *f,
                                 uint64_t cols, uint8_t *codes)
{
    uint64_t groups = tsr_format_groups(f, cols);
    uint64_t width = groups == 1 ? cols : f->group;
    uint64_t zeros = groups * (f->scale_dtype == TSR_F32 ? 4u : 2u);
    wt_unpack(codes, code_row, cols, f->bits);
    for (uint64_t g = 0; g < groups; g++) {
        float    scale = wt_scale_get(meta_row, g, f->scale_dtype);
        int      zero = f->zero == TSR_ZERO_STORED ? meta_row[zeros + g] : 1 << (f->bits - 1);
        uint64_t end = g + 1 == groups ? cols : (g + 1) * width;
        for (uint64_t k = g * width; k < end; k++)
            dst[k] = (float)((int)codes[k] - zero) * scale;
    }
}

#endif
