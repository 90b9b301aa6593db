/* k_math.h - numbers of docs/decisions/numerics.md on a device: the operations of
 * kernels/cpu/k_math.h, one element at a time, in the same order. */
#ifndef TSR_CUDA_K_MATH_H
#define TSR_CUDA_K_MATH_H

#include "k.h"
#include "tessera/f16.h"

/* As the CPU's vectors: the second of two where one is NaN. */
DEV float k_max(float a, float b)
{
    return a > b ? a : b;
}
DEV float k_min(float a, float b)
{
    return a < b ? a : b;
}
DEV float k_pow2(float n)
{
    return __uint_as_float((uint32_t)((int32_t)n + 127) << 23);
}
DEV float k_nan(void)
{
    return __uint_as_float(0x7fc00000u);
}
DEV int k_finite(float x)
{
    return fabsf(x) <= FLT_MAX;
}

DEV float k_exp(float x)
{
    float c = k_min(k_max(x, -105.0f), 89.0f);
    float n = rintf(c * 0x1.715476p+0f);
    float r = fmaf(n, -0x1.62e400p-1f, c);
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = 0x1.a01a02p-13f;
    p = fmaf(p, r, 0x1.6c16c2p-10f);
    p = fmaf(p, r, 0x1.111112p-7f);
    p = fmaf(p, r, 0x1.555556p-5f);
    p = fmaf(p, r, 0x1.555556p-3f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    float h = rintf(n * 0.5f);
    float y = (p * k_pow2(h)) * k_pow2(n - h);
    return x != x ? x : y;
}

DEV float k_tanh(float x)
{
    float a = fabsf(x), s = x * x;
    float p = -5.70498872745e-3f;
    p = fmaf(p, s, 2.06390887954e-2f);
    p = fmaf(p, s, -5.37397155531e-2f);
    p = fmaf(p, s, 1.33314422036e-1f);
    p = fmaf(p, s, -3.33332819422e-1f);
    float lo = fmaf(p * s, x, x);
    float hi = copysignf(1.0f - 2.0f / (k_exp(a + a) + 1.0f), x);
    float y = a < 0.625f ? lo : hi;
    return x != x ? x : y;
}

DEV float k_erf(float x)
{
    float t = k_min(fabsf(x), 10.0f), s = t * t;
    float r = fmaf(-1.72853470e-5f, t, 3.83197126e-4f);
    float u = fmaf(-3.88396438e-3f, t, 2.42546219e-2f);
    r = fmaf(r, s, u);
    r = fmaf(r, t, -1.06777877e-1f);
    r = fmaf(r, t, -6.34846687e-1f);
    r = fmaf(r, t, -1.28717512e-1f);
    r = fmaf(r, t, -t);
    float hi = copysignf(1.0f - k_exp(r), x);
    float p = -5.96761703e-4f;
    p = fmaf(p, s, 4.99119423e-3f);
    p = fmaf(p, s, -2.67681349e-2f);
    p = fmaf(p, s, 1.12819925e-1f);
    p = fmaf(p, s, -3.76125336e-1f);
    p = fmaf(p, s, 1.28379166e-1f);
    float lo = fmaf(p, x, x);
    float y = t < 0.927734375f ? lo : hi;
    return x != x ? x : y;
}

#ifdef __CUDACC__
/* The device's own conversions are those of tessera/f16.h, but for the bits of a NaN, which they set all. */
DEV float k_half(uint32_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)h));
    return (h & 0x7fffu) > 0x7c00u
               ? __uint_as_float((h & 0x8000u) << 16 | 0x7fc00000u | (h & 0x3ffu) << 13)
               : f;
}

DEV uint32_t k_to_half(float f)
{
    uint16_t       h;
    const uint32_t u = __float_as_uint(f);
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return f != f ? (u >> 16 & 0x8000u) | 0x7e00u | (u >> 13 & 0x3ffu) : h;
}

/* For a factor: a product has none of the bits of a NaN in it. */
DEV float k_half_factor(uint32_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)h));
    return f;
}

/* (a & mask) ^ b in one instruction, where the compiler takes two if it knows the constants. */
DEV uint32_t k_and_xor(uint32_t a, uint32_t mask, uint32_t b)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(a), "r"(mask), "r"(b));
    return r;
}
#else
/* F16 widened; exact. */
DEV float k_half(uint32_t h)
{
    return tsr_f16_f32_quiet((uint16_t)h);
}

/* F32 to F16, nearest even. */
DEV uint32_t k_to_half(float f)
{
    return tsr_f32_f16(f);
}

DEV float k_half_factor(uint32_t h)
{
    return k_half(h);
}

DEV uint32_t k_and_xor(uint32_t a, uint32_t mask, uint32_t b)
{
    return (a & mask) ^ b;
}
#endif

DEV float k_bf16(uint32_t h)
{
    return tsr_bf16_f32((uint16_t)h);
}
DEV float k_round_bf16(float x)
{
    return tsr_bf16_f32(tsr_f32_bf16(x));
}

/* tree16 over the lanes of each half of a warp; all 16 have the sum. */
DEV float k_tree16(float v)
{
    v = v + shfl_xor_f(ALL_LANES, v, 8);
    v = v + shfl_xor_f(ALL_LANES, v, 4);
    v = v + shfl_xor_f(ALL_LANES, v, 2);
    return v + shfl_xor_f(ALL_LANES, v, 1);
}

/* The tree sum over segments, then + 0. */
DEV float k_tree8(const float *s)
{
    return (((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))) + 0.0f;
}

#endif
