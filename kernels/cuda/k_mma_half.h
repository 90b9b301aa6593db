/* k_mma_half.h - products of F16 or BF16 matrices by a warp with sums in F32, and pairs of F16 in a word.
 *
 * mma_half(c, a, b, bf16): c += A B for A [16,16], B [16,8] of 16 bits and c of F32, all 32 lanes together.  The
 * fragments are PTX's of mma.m16n8k16, two numbers a word; lane = 4 g + t:
 *   a[0], a[2]  row g, columns 2t.. and 8 + 2t.. of A; a[1], a[3] the same of row g + 8
 *   b[0], b[1]  rows 2t.. and 8 + 2t.. of B's column g
 *   c[0], c[1]  row g, columns 2t and 2t + 1 of c; c[2], c[3] the same of row g + 8
 * The order of a sum's 16 products, and how they are rounded, is the device's.  BF16: from sm_80 on.
 * square_load(v, p, pitch, turn): of the 16 rows and columns of F16 at p, v[i] becomes the fragment of the 8 by 8 with
 * rows from 8 (i % 2) and columns from 8 (i / 2), as a and c have it; with `turn` of its transpose.  All 32 lanes
 * together; rows begin on 16 bytes of shared memory.
 * half2_add, _fma, _mul: of both halves of a word; _mul ends at +-65504, and half2_clamp() brings a word there.
 * pack_half: two F32, nearest even, the first in the lower half; too large for F16 becomes infinite.
 */
#ifndef TSR_CUDA_K_MMA_HALF_H
#define TSR_CUDA_K_MMA_HALF_H

#include "k_math.h"
#include "k_mma.h"

#if defined(__CUDACC__) && !(defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)

DEV uint32_t half2_add(uint32_t x, uint32_t y)
{
    uint32_t z;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
DEV uint32_t half2_fma(uint32_t x, uint32_t y, uint32_t z)
{
    uint32_t v;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(x), "r"(y), "r"(z));
    return v;
}
DEV uint32_t half2_clamp(uint32_t x)
{
    uint32_t z;
    asm("{.reg .b32 t;\n min.NaN.f16x2 t, %1, %2;\n max.NaN.f16x2 %0, t, %3;}"
        : "=r"(z)
        : "r"(x), "r"(0x7bff7bffu), "r"(0xfbfffbffu));
    return z;
}
DEV uint32_t half2_mul(uint32_t x, uint32_t y)
{
    uint32_t z;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return half2_clamp(z);
}
DEV uint32_t pack_half(float low, float high, const int bf16)
{
    uint32_t z;
    if (bf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(high), "f"(low));
    return z;
}
#else

/* F32 holds products of two F16 exactly, and its rounding of a sum changes none to F16. */
DEV uint32_t half2_fma(uint32_t x, uint32_t y, uint32_t z)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < 32; i += 16)
        v |= k_to_half(
                 fmaf(k_half(x >> i & 0xffffu), k_half(y >> i & 0xffffu), k_half(z >> i & 0xffffu)))
             << i;
    return v;
}
DEV uint32_t half2_add(uint32_t x, uint32_t y)
{
    return half2_fma(x, 0x3c003c00u, y);
}
DEV uint32_t half2_clamp(uint32_t x)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < 32; i += 16) {
        const float p = k_half(x >> i & 0xffffu);
        v |= k_to_half(p > 65504.0f ? 65504.0f : p < -65504.0f ? -65504.0f : p) << i;
    }
    return v;
}
DEV uint32_t half2_mul(uint32_t x, uint32_t y)
{
    return half2_clamp(half2_fma(x, y, 0x80008000u));
}
DEV uint32_t pack_half(float low, float high, const int bf16)
{
    if (bf16)
        return (uint32_t)tsr_f32_bf16(low) | (uint32_t)tsr_f32_bf16(high) << 16;
#ifdef __CUDACC__
    uint32_t z;
    asm("{\n.reg .b16 l, h;\ncvt.rn.f16.f32 l, %1;\ncvt.rn.f16.f32 h, %2;\nmov.b32 %0, {l, h};\n}"
        : "=r"(z)
        : "f"(low), "f"(high));
    return z;
#else
    return k_to_half(low) | k_to_half(high) << 16;
#endif
}

#endif

/* Four codes of int8 to F16: the byte becomes the low bits of 1024 + code + 128. */
DEV void int8_halves(uint32_t w, uint32_t *low, uint32_t *high)
{
    w ^= 0x80808080u;
#ifdef __CUDACC__
    asm("sub.rn.f16x2 %0, %1, %2;"
        : "=r"(*low)
        : "r"(__byte_perm(w, 0x64646464u, 0x4140u)), "r"(0x64806480u));
    asm("sub.rn.f16x2 %0, %1, %2;"
        : "=r"(*high)
        : "r"(__byte_perm(w, 0x64646464u, 0x4342u)), "r"(0x64806480u));
#else
    uint32_t h[4];
    for (uint32_t i = 0; i < 4; i++)
        h[i] = k_to_half(k_half(0x6400u | (w >> 8 * i & 0xffu)) - 1152.0f);
    *low = h[0] | h[1] << 16;
    *high = h[2] | h[3] << 16;
#endif
}

/* 2^x within 2 units of the last place; 0 below 2^-126. */
DEV float k_exp2_near(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return x < -126.0f ? 0.0f : exp2f(x);
#endif
}

#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750)
DEV void square_load(uint32_t *v, const uint8_t *p, const uint32_t pitch, const int turn)
{
    const uint32_t lane = threadIdx.x % WARP;
    for (uint32_t i = 0; i < 4; i++) {
        const uint8_t *at = p + 8 * (i % 2) * pitch + 16 * (i / 2);
        if (turn) {
            const uint8_t *x = at + 2 * (lane % 4) * pitch + 2 * (lane / 4);
            v[i] = *(const uint16_t *)(const void *)x |
                   (uint32_t) * (const uint16_t *)(const void *)(x + pitch) << 16;
        } else {
            v[i] = *(const uint32_t *)(const void *)(at + lane / 4 * pitch + 4 * (lane % 4));
        }
    }
}
#else
DEV void square_load(uint32_t *v, const uint8_t *p, const uint32_t pitch, const int turn)
{
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(p + lane % 16 * pitch + lane / 16 * 16);
    if (turn)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(at)
                     : "memory");
}
#endif

#ifdef __CUDACC__
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750 /* by other means; nobody launches it */
DEV void mma_half(float *c, const uint32_t *a, const uint32_t *b, const int bf16)
{
    (void)bf16; /* of F16 alone */
    const uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    UNROLL_LOOP
    for (uint32_t k = 0; k < 16; k++) {
        const uint32_t lane = k % 8 / 2, shift = k % 2 * 16;
        const float top = k_half(shfl_u(ALL_LANES, a[k / 8 * 2], 4 * g + lane) >> shift & 0xffffu);
        const float low =
            k_half(shfl_u(ALL_LANES, a[k / 8 * 2 + 1], 4 * g + lane) >> shift & 0xffffu);
        const float x = k_half(shfl_u(ALL_LANES, b[k / 8], 8 * t + lane) >> shift & 0xffffu);
        const float y = k_half(shfl_u(ALL_LANES, b[k / 8], 8 * t + 4 + lane) >> shift & 0xffffu);
        c[0] = fmaf(top, x, c[0]);
        c[1] = fmaf(top, y, c[1]);
        c[2] = fmaf(low, x, c[2]);
        c[3] = fmaf(low, y, c[3]);
    }
}
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800 /* half of it at a time */
DEV void mma_half(float *c, const uint32_t *a, const uint32_t *b, const int bf16)
{
    (void)bf16; /* of F16 alone */
    UNROLL_LOOP
    for (uint32_t k = 0; k < 2; k++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[k]));
}
#else
DEV void mma_half(float *c, const uint32_t *a, const uint32_t *b, const int bf16)
{
    if (bf16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
#endif /* else simt/simt_kernel.h has it */

#endif
