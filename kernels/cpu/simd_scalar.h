/* simd_scalar.h - the 16-lane vector in plain C: the meaning of every operation that the other
 * headers spell in intrinsics.  Included by simd.h only. */
#ifndef TSR_SIMD_SCALAR_H
#define TSR_SIMD_SCALAR_H

#include <math.h>

#include "tessera/f16.h"

typedef struct {
    float f[16];
} v16;
typedef struct {
    int32_t i[16];
} i16v;
typedef struct {
    uint32_t m;
} m16;

#define EACH for (int l = 0; l < 16; l++)

static inline v16 v_set1(float x)
{
    v16  r;
    EACH r.f[l] = x;
    return r;
}
static inline v16 v_load(const float *p)
{
    v16 r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
static inline void v_store(float *p, v16 v)
{
    memcpy(p, v.f, sizeof v.f);
}
/* The first n lanes; the others are +0. */
static inline v16 v_loadn(const float *p, uint64_t n)
{
    v16 r = { { 0 } };
    memcpy(r.f, p, n * 4);
    return r;
}
static inline void v_storen(float *p, v16 v, uint64_t n)
{
    memcpy(p, v.f, n * 4);
}
static inline v16 v_keep(v16 v, uint64_t n)
{
    EACH v.f[l] = (uint64_t)l < n ? v.f[l] : 0.0f;
    return v;
}
#define V_BINARY(name, expr)                                                                       \
    static inline v16 name(v16 a, v16 b)                                                           \
    {                                                                                              \
        v16  r;                                                                                    \
        EACH r.f[l] = (expr);                                                                      \
        return r;                                                                                  \
    }
V_BINARY(v_add, a.f[l] + b.f[l])
V_BINARY(v_sub, a.f[l] - b.f[l])
V_BINARY(v_mul, a.f[l] * b.f[l])
V_BINARY(v_div, a.f[l] / b.f[l])
V_BINARY(v_max, a.f[l] > b.f[l] ? a.f[l] : b.f[l])
V_BINARY(v_min, a.f[l] < b.f[l] ? a.f[l] : b.f[l])
V_BINARY(v_copysign, copysignf(a.f[l], b.f[l]))
static inline v16 v_fma(v16 a, v16 b, v16 c)
{
    EACH c.f[l] = fmaf(a.f[l], b.f[l], c.f[l]);
    return c;
}
/* Lane l has that of l ^ H, for H 1, 2, 4 or 8. */
#define V_SWAP(h)                                                                                  \
    static inline v16 v_swap##h(v16 a)                                                             \
    {                                                                                              \
        v16  r;                                                                                    \
        EACH r.f[l] = a.f[l ^ (h)];                                                                \
        return r;                                                                                  \
    }
V_SWAP(1)
V_SWAP(2)
V_SWAP(4)
V_SWAP(8)
static inline v16 v_neg(v16 a)
{
    EACH a.f[l] = -a.f[l];
    return a;
}
static inline v16 v_abs(v16 a)
{
    EACH a.f[l] = fabsf(a.f[l]);
    return a;
}
static inline v16 v_rint(v16 a)
{
    EACH a.f[l] = rintf(a.f[l]);
    return a;
}
static inline m16 v_lt(v16 a, v16 b)
{
    m16  r = { 0 };
    EACH r.m |= (uint32_t)(a.f[l] < b.f[l]) << l;
    return r;
}
static inline m16 v_isnan(v16 a)
{
    m16  r = { 0 };
    EACH r.m |= (uint32_t)(a.f[l] != a.f[l]) << l;
    return r;
}
static inline v16 v_sel(m16 m, v16 a, v16 b)
{
    EACH b.f[l] = m.m >> l & 1u ? a.f[l] : b.f[l];
    return b;
}
static inline int v_all_finite(v16 a)
{
    int  ok = 1;
    EACH ok &= fabsf(a.f[l]) <= FLT_MAX;
    return ok;
}
/* 2^n for whole n in -126..127. */
static inline v16 v_pow2(v16 n)
{
    EACH
    {
        uint32_t u = (uint32_t)((int32_t)n.f[l] + 127) << 23;
        memcpy(&n.f[l], &u, 4);
    }
    return n;
}
static inline float v_tree16(v16 v)
{
    for (int h = 8; h; h /= 2)
        for (int l = 0; l < h; l++)
            v.f[l] += v.f[l + h];
    return v.f[0];
}
static inline float v_hmax(v16 v)
{
    float m = v.f[0];
    EACH  m = v.f[l] > m ? v.f[l] : m;
    return m;
}
static inline v16 v_load_f16(const void *p)
{
    v16 r;
    EACH
    {
        uint16_t h;
        memcpy(&h, (const char *)p + 2 * l, 2);
        r.f[l] = tsr_f16_f32_quiet(h);
    }
    return r;
}
static inline void v_store_f16(void *p, v16 v)
{
    EACH
    {
        uint16_t h = tsr_f32_f16(v.f[l]);
        memcpy((char *)p + 2 * l, &h, 2);
    }
}
static inline v16 v_load_bf16(const void *p)
{
    v16 r;
    EACH
    {
        uint16_t h;
        memcpy(&h, (const char *)p + 2 * l, 2);
        r.f[l] = tsr_bf16_f32(h);
    }
    return r;
}
static inline v16 v_load_i8(const void *p)
{
    v16  r;
    EACH r.f[l] = (float)((const int8_t *)p)[l];
    return r;
}
/* A F16 in every lane. */
static inline v16 v_set1_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return v_set1(tsr_f16_f32_quiet(h));
}
/* Sixteen codes of 4 bits in 8 bytes: element j is the low nibble of byte j, element j + 8 the high one. */
static inline v16 v_load_u4(const void *p)
{
    const uint8_t *b = p;
    v16            r;
    EACH           r.f[l] = (float)(l < 8 ? b[l] & 15 : b[l - 8] >> 4);
    return r;
}
/* Whole values in -128..127. */
static inline void v_store_i8(void *p, v16 v)
{
    EACH((int8_t *)p)[l] = (int8_t)(int32_t)v.f[l];
}
/* To the nearest BF16, ties to even; NaN stays NaN. */
static inline v16 v_round_bf16(v16 v)
{
    EACH v.f[l] = tsr_bf16_f32(tsr_f32_bf16(v.f[l]));
    return v;
}

/* ---- integers: 16 lanes of 32 bits, or 16 x 4 bytes ------------------------ */

static inline i16v vi_zero(void)
{
    i16v r = { { 0 } };
    return r;
}
static inline i16v vi_set1(int32_t x)
{
    i16v r;
    EACH r.i[l] = x;
    return r;
}
static inline i16v vi_load(const void *p)
{
    i16v r;
    memcpy(r.i, p, sizeof r.i);
    return r;
}
static inline i16v vi_load_u8(const void *p)
{
    i16v r;
    EACH r.i[l] = ((const uint8_t *)p)[l];
    return r;
}
/* (byte >> shift) & mask of every byte; the mask must exclude bits that come from the neighbouring byte. */
static inline i16v vi_bits(i16v w, int shift, int mask)
{
    EACH w.i[l] = (int32_t)((uint32_t)w.i[l] >> shift & (uint32_t)mask * 0x01010101u);
    return w;
}
static inline i16v vi_or(i16v a, i16v b)
{
    EACH a.i[l] |= b.i[l];
    return a;
}
/* Byte j of each lane. */
static inline i16v vi_byte(i16v w, uint32_t j)
{
    EACH w.i[l] = (int32_t)((uint32_t)w.i[l] >> (8 * j) & 255u);
    return w;
}
static inline v16 vi_cvt(i16v a)
{
    v16  r;
    EACH r.f[l] = (float)a.i[l];
    return r;
}
static inline i16v vi_add(i16v a, i16v b)
{
    EACH a.i[l] += b.i[l];
    return a;
}
static inline i16v vi_sub(i16v a, i16v b)
{
    EACH a.i[l] -= b.i[l];
    return a;
}
static inline i16v vi_mul(i16v a, i16v b)
{
    EACH a.i[l] *= b.i[l];
    return a;
}
/* The product of the low 16 bits, signed, where those of a above them are 0. */
static inline i16v vi_mul16(i16v a, i16v b)
{
    EACH a.i[l] = (int16_t)a.i[l] * (int16_t)b.i[l];
    return a;
}
/* The four signed bytes at q in every lane. */
static inline i16v vi_four(const void *q)
{
    i16v r;
    EACH memcpy(&r.i[l], q, 4);
    return r;
}
/* acc + sum of four products: bytes of w, unsigned, by bytes of q, signed; all lanes of q are equal. */
static inline i16v vi_dot4(i16v acc, i16v w, i16v q)
{
    EACH for (int j = 0; j < 4; j++) acc.i[l] +=
        (int32_t)((uint32_t)w.i[l] >> (8 * j) & 255u) * (int8_t)((uint32_t)q.i[l] >> (8 * j));
    return acc;
}
/* The same where every byte of w is at most 15. */
static inline i16v vi_dot4_low(i16v acc, i16v w, i16v q)
{
    return vi_dot4(acc, w, q);
}
static inline i16v vi_opaque(i16v v)
{
    return v;
}
static inline uint32_t v_bits(m16 m)
{
    return m.m;
}
static inline void v_numbers(uint32_t *to, uint32_t first, uint32_t m)
{
    for (; m; m &= m - 1)
        *to++ = first + (uint32_t)__builtin_ctz(m);
}
static inline void v_prefetch(const void *p)
{
    __builtin_prefetch(p);
}
/* Into the second cache. */
static inline void v_prefetch_l2(const void *p)
{
    __builtin_prefetch(p, 0, 2);
}
#undef EACH
#endif
