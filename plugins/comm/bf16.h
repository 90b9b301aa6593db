/* bf16.h - F32 and BF16, for codecs. */
#ifndef TSR_PLUGINS_COMM_BF16_H
#define TSR_PLUGINS_COMM_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* To nearest, ties to even; NaN stays a quiet NaN of the same sign. */
static inline uint16_t f32_bf16(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float bf16_f32(uint16_t h)
{
    return bits_f32((uint32_t)h << 16);
}

#endif
