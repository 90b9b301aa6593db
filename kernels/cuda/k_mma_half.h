/* k_mma_half.h - products of F16 or BF16 matrices by a warp with sums in F32, and pairs of F16 in a word.
 *
 * mma_half(c, a, b, bf16): c += A B for A [16,16], B [16,8] of 16 bits and c of F32, all 32 lanes together.  The
 * fragments are PTX's of mma.m16n8k16, two numbers a word; lane = 4 g + t:
 *   a[0], a[2]  row g, columns 2t.. and 8 + 2t.. of A; a[1], a[3] the same of row g + 8
 *   b[0], b[1]  rows 2t.. and 8 + 2t.. of B's column g
 *   c[0], c[1]  row g, columns 2t and 2t + 1 of c; c[2], c[3] the same of row g + 8
 * The order of a sum's 16 products, and how they are rounded, is the device's.
 * From sm_80 on.
 * half2_add, _fma, _mul: of both halves of a word; _mul ends at +-65504, and half2_clamp() brings a word there.  pack_half: two F32, nearest even.
 */
#ifndef TSR_CUDA_K_MMA_HALF_H
#define TSR_CUDA_K_MMA_HALF_H

#include "k_math.h"

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

#else /* simt/simt_kernel.h has mma_half(); before sm_80 there is none */

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
    return bf16 ? (uint32_t)tsr_f32_bf16(low) | (uint32_t)tsr_f32_bf16(high) << 16
                : k_to_half(low) | k_to_half(high) << 16;
}

#endif

#endif
