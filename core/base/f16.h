/* base/f16.h - half-width floats, exact in both directions.  Encoding rounds to
 * nearest, ties to even; NaN stays NaN; overflow becomes infinity. */
#ifndef TSR_BASE_F16_H
#define TSR_BASE_F16_H

#include <stdint.h>
#include <string.h>

static inline float tsr_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t tsr_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float tsr_bf16_f32(uint16_t h)
{
    return tsr_bits_f32((uint32_t)h << 16);
}
static inline uint16_t tsr_f32_bf16(float f)
{
    uint32_t u = tsr_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

float    tsr_f16_f32(uint16_t h);
uint16_t tsr_f32_f16(float f);

/* n elements of a dtype of plugin.h (F32, F16, BF16) widened to F32.  src need
 * not be aligned. */
void tsr_widen(float *dst, const void *src, uint32_t dtype, uint64_t n);

/* Bytes of one element; 0 for an unknown dtype.  "F32", "BF16", ...; "?" likewise. */
uint64_t    tsr_dtype_size(uint32_t dtype);
const char *tsr_dtype_name(uint32_t dtype);

#endif
