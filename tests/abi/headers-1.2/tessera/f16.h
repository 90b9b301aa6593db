/* tessera/f16.h - F16 and BF16: inline conversions between F32, F16 and BF16.
 *
 * The header implements them, and quantizers, codecs and backends call them, in C, C++ and CUDA.
 * They need no host.  F16 is IEEE 754 binary16, and BF16 is the upper half of a binary32.  [any]
 *
 * Widening is exact.  Narrowing rounds to nearest, ties to even, in the default rounding mode.  A
 * number that is too large becomes an infinity.  Subnormals stay.  A NaN becomes a quiet NaN with
 * its sign.
 *
 * Example: a row, narrowed to BF16 and widened again.
 *
 *     static void round_row(const float *x, uint16_t *narrow, float *wide, uint64_t cols)
 *     {
 *         for (uint64_t k = 0; k < cols; k++) {
 *             narrow[k] = tsr_f32_bf16(x[k]);
 *             wide[k] = tsr_bf16_f32(narrow[k]);
 *         }
 *     }
 */
#ifndef TSR_F16_H
#define TSR_F16_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define TSR_F16_FN static __host__ __device__ __forceinline__
#else
#define TSR_F16_FN static inline
#endif

TSR_F16_FN float tsr_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

TSR_F16_FN uint32_t tsr_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

TSR_F16_FN float tsr_bf16_f32(uint16_t h)
{
    return tsr_bits_f32((uint32_t)h << 16);
}

TSR_F16_FN uint16_t tsr_f32_bf16(float f)
{
    uint32_t u = tsr_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* A NaN keeps its bits, even if it is signalling. */
TSR_F16_FN float tsr_f16_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 0x1fu, m = h & 0x3ffu;
    if (e == 31)
        return tsr_bits_f32(sign | 0x7f800000u | m << 13);
    if (e != 0)
        return tsr_bits_f32(sign | (e + 112u) << 23 | m << 13);
    /* subnormal: m * 2^-24, exact in F32 */
    return tsr_bits_f32(sign | tsr_f32_bits((float)m * 5.9604644775390625e-08f));
}

/* A NaN becomes quiet, as CPU instructions do it. */
TSR_F16_FN float tsr_f16_f32_quiet(uint16_t h)
{
    uint32_t nan = (h & 0x7fffu) > 0x7c00u ? 0x400000u : 0u;
    return tsr_bits_f32(tsr_f32_bits(tsr_f16_f32(h)) | nan);
}

TSR_F16_FN uint16_t tsr_f32_f16(float f)
{
    uint32_t u = tsr_f32_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) /* rounds to 65536 or above */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) /* below 2^-14: the sum has its last bit at 2^-24 */
        return (uint16_t)(sign | (tsr_f32_bits(tsr_bits_f32(a) + 0.5f) - 0x3f000000u));
    a += 0xfffu + (a >> 13 & 1u);
    return (uint16_t)(sign | (a - 0x38000000u) >> 13);
}

#undef TSR_F16_FN
#endif
