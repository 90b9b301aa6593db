/* simd_neon_int.h - the integers of simd_neon.h: 16 lanes of 32 bits, or 16 x 4 bytes, and products of bytes by
 * usdot (i8mm), sdot (dotprod) or products of words.  All of them are exact.  Included by simd.h only. */
#ifndef TSR_SIMD_NEON_INT_H
#define TSR_SIMD_NEON_INT_H

#include "simd_neon.h"

/* Vector arithmetic of the compiler: an intrinsic would require the shift as an immediate. */
typedef uint8_t  u8x16 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef int32_t  i32x4 __attribute__((vector_size(16)));

static inline i16v vi_set1(int32_t x)
{
    const int32x4_t v = vdupq_n_s32(x);
    return (i16v){ v, v, v, v };
}
static inline i16v vi_zero(void)
{
    return vi_set1(0);
}
static inline int32x4_t vi_load_quarter(const uint8_t *p)
{
    return vreinterpretq_s32_u8(vld1q_u8(p));
}
static inline i16v vi_load(const void *p)
{
    const uint8_t *b = p;
    return (i16v){ vi_load_quarter(b), vi_load_quarter(b + 16), vi_load_quarter(b + 32),
                   vi_load_quarter(b + 48) };
}
static inline i16v vi_load_u8(const void *p)
{
    return vi_of_u8(vld1q_u8(p));
}
static inline i16v vi_bits(i16v w, int shift, int mask)
{
    const u8x16 m = (u8x16)vdupq_n_u8((uint8_t)mask);
    return (i16v){ (int32x4_t)((u8x16)w.a >> shift & m), (int32x4_t)((u8x16)w.b >> shift & m),
                   (int32x4_t)((u8x16)w.c >> shift & m), (int32x4_t)((u8x16)w.d >> shift & m) };
}
static inline i16v vi_byte(i16v w, uint32_t j)
{
    const u32x4    m = (u32x4)vdupq_n_u32(255);
    const uint32_t s = 8 * j;
    return (i16v){ (int32x4_t)((u32x4)w.a >> s & m), (int32x4_t)((u32x4)w.b >> s & m),
                   (int32x4_t)((u32x4)w.c >> s & m), (int32x4_t)((u32x4)w.d >> s & m) };
}
static inline int32x4_t vi_mul16_quarter(int32x4_t x, int32x4_t y)
{
    return vmull_s16(vmovn_s32(x), vmovn_s32(y));
}
#define VI_BINARY(name, op)                                                                        \
    static inline i16v name(i16v x, i16v y)                                                        \
    {                                                                                              \
        return V_MAP2(i16v, op, x, y);                                                             \
    }
VI_BINARY(vi_or, vorrq_s32)
VI_BINARY(vi_add, vaddq_s32)
VI_BINARY(vi_sub, vsubq_s32)
VI_BINARY(vi_mul, vmulq_s32)
VI_BINARY(vi_mul16, vi_mul16_quarter)
static inline i16v vi_four(const void *q)
{
    int32_t i;
    memcpy(&i, q, 4);
    return vi_set1(i);
}

/* Bytes of w are unsigned, those of q signed. */
#if defined(__ARM_FEATURE_MATMUL_INT8)
static inline int32x4_t vi_dot4_quarter(int32x4_t acc, int32x4_t w, int32x4_t q)
{
    return vusdotq_s32(acc, vreinterpretq_u8_s32(w), vreinterpretq_s8_s32(q));
}
#define vi_dot4_low_quarter vi_dot4_quarter
#elif defined(__ARM_FEATURE_DOTPROD)
static inline int32x4_t vi_dot4_low_quarter(int32x4_t acc, int32x4_t w, int32x4_t q)
{
    return vdotq_s32(acc, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(q));
}
/* w - 128 is signed; 128 times the sum of q is one computation for all that share q. */
static inline int32x4_t vi_dot4_quarter(int32x4_t acc, int32x4_t w, int32x4_t q)
{
    const int8x16_t s = vreinterpretq_s8_s32(q);
    const int8x16_t v = vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_s32(w), vdupq_n_u8(128)));
    const int32x4_t sum = vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(1), s);
    return vaddq_s32(vdotq_s32(acc, v, s), vshlq_n_s32(sum, 7));
}
#else
static inline int32x4_t vi_pairs_quarter(int32x4_t acc, int16x8_t low, int16x8_t high)
{
    return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}
static inline int32x4_t vi_dot4_low_quarter(int32x4_t acc, int32x4_t w, int32x4_t q)
{
    const int8x16_t u = vreinterpretq_s8_s32(w), s = vreinterpretq_s8_s32(q);
    return vi_pairs_quarter(acc, vmull_s8(vget_low_s8(u), vget_low_s8(s)), vmull_high_s8(u, s));
}
/* A product of an unsigned and a signed byte fits a word. */
static inline int32x4_t vi_dot4_quarter(int32x4_t acc, int32x4_t w, int32x4_t q)
{
    const uint8x16_t u = vreinterpretq_u8_s32(w);
    const int8x16_t  s = vreinterpretq_s8_s32(q);
    const int16x8_t  x = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(u)));
    const int16x8_t  y = vreinterpretq_s16_u16(vmovl_high_u8(u));
    return vi_pairs_quarter(acc, vmulq_s16(x, vmovl_s8(vget_low_s8(s))),
                            vmulq_s16(y, vmovl_high_s8(s)));
}
#endif
static inline i16v vi_dot4(i16v acc, i16v w, i16v q)
{
    return V_MAP3(i16v, vi_dot4_quarter, acc, w, q);
}
static inline i16v vi_dot4_low(i16v acc, i16v w, i16v q)
{
    return V_MAP3(i16v, vi_dot4_low_quarter, acc, w, q);
}
static inline i16v vi_opaque(i16v v)
{
    __asm__ volatile("" : "+w"(v.a), "+w"(v.b), "+w"(v.c), "+w"(v.d));
    return v;
}

/* ---- codes that are looked up: see simd_bytes.h ------------------------------- */

static inline i16v vb_nibble(i16v w, const int high)
{
    return vi_bits(w, high ? 4 : 0, 15);
}
static inline int32x4_t vb_lookup_quarter(int32x4_t table, int32x4_t idx)
{
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(idx)));
}
static inline i16v vb_lookup(i16v table, i16v idx)
{
    return V_MAP2(i16v, vb_lookup_quarter, table, idx);
}
/* Four rows of four. */
static inline void vb_transpose4_quarter(int32x4_t *a, int32x4_t *b, int32x4_t *c, int32x4_t *d)
{
    const int64x2_t x = vreinterpretq_s64_s32(vtrn1q_s32(*a, *b));
    const int64x2_t y = vreinterpretq_s64_s32(vtrn2q_s32(*a, *b));
    const int64x2_t z = vreinterpretq_s64_s32(vtrn1q_s32(*c, *d));
    const int64x2_t u = vreinterpretq_s64_s32(vtrn2q_s32(*c, *d));
    *a = vreinterpretq_s32_s64(vtrn1q_s64(x, z));
    *b = vreinterpretq_s32_s64(vtrn1q_s64(y, u));
    *c = vreinterpretq_s32_s64(vtrn2q_s64(x, z));
    *d = vreinterpretq_s32_s64(vtrn2q_s64(y, u));
}
static inline void vb_transpose4(i16v a[4])
{
    vb_transpose4_quarter(&a[0].a, &a[1].a, &a[2].a, &a[3].a);
    vb_transpose4_quarter(&a[0].b, &a[1].b, &a[2].b, &a[3].b);
    vb_transpose4_quarter(&a[0].c, &a[1].c, &a[2].c, &a[3].c);
    vb_transpose4_quarter(&a[0].d, &a[1].d, &a[2].d, &a[3].d);
}
static inline void vb_store(void *p, i16v v)
{
    uint8_t *b = p;
    vst1q_u8(b, vreinterpretq_u8_s32(v.a));
    vst1q_u8(b + 16, vreinterpretq_u8_s32(v.b));
    vst1q_u8(b + 32, vreinterpretq_u8_s32(v.c));
    vst1q_u8(b + 48, vreinterpretq_u8_s32(v.d));
}
/* Entry n of 4 bytes lies at 4n. */
static inline float32x4_t v_pick_quarter(uint8x16x4_t table, int32x4_t n)
{
    const int32x4_t at = vmlaq_s32(vdupq_n_s32(0x03020100), n, vdupq_n_s32(0x04040404));
    return vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_s32(at)));
}
static inline v16 v_pick16(const float *table, i16v n)
{
    const uint8x16x4_t t = vld1q_u8_x4((const uint8_t *)(const void *)table);
    return (v16){ v_pick_quarter(t, n.a), v_pick_quarter(t, n.b), v_pick_quarter(t, n.c),
                  v_pick_quarter(t, n.d) };
}
static inline v16 v_lookup16(const float *table, const uint8_t *p, const int high)
{
    const uint8x16_t c = vld1q_u8(p);
    return v_pick16(table, vi_of_u8(high ? vshrq_n_u8(c, 4) : vandq_u8(c, vdupq_n_u8(15))));
}
static inline i16v vi_of_f32(v16 v)
{
    return V_MAP1(i16v, vreinterpretq_s32_f32, v);
}
static inline v16 vi_bits_f32(i16v v)
{
    return V_MAP1(v16, vreinterpretq_f32_s32, v);
}
static inline void v_transpose16(v16 a[16])
{
    i16v t[16];
    for (int i = 0; i < 16; i++)
        t[i] = vi_of_f32(a[i]);
    for (int i = 0; i < 16; i += 4)
        vb_transpose4(t + i);
    for (int i = 0; i < 4; i++) { /* the quarters are transposed; now each goes to its place */
        const i16v x = t[i], y = t[4 + i], z = t[8 + i], u = t[12 + i];
        a[i] = vi_bits_f32((i16v){ x.a, y.a, z.a, u.a });
        a[4 + i] = vi_bits_f32((i16v){ x.b, y.b, z.b, u.b });
        a[8 + i] = vi_bits_f32((i16v){ x.c, y.c, z.c, u.c });
        a[12 + i] = vi_bits_f32((i16v){ x.d, y.d, z.d, u.d });
    }
}
static inline i16v vi_shl(i16v v, uint32_t n)
{
    return (i16v){ (int32x4_t)((u32x4)v.a << n), (int32x4_t)((u32x4)v.b << n),
                   (int32x4_t)((u32x4)v.c << n), (int32x4_t)((u32x4)v.d << n) };
}
static inline i16v vi_sar(i16v v, uint32_t n)
{
    return (i16v){ (int32x4_t)((i32x4)v.a >> (int32_t)n), (int32x4_t)((i32x4)v.b >> (int32_t)n),
                   (int32x4_t)((i32x4)v.c >> (int32_t)n), (int32x4_t)((i32x4)v.d >> (int32_t)n) };
}
/* Places outside of a table of 64 give 0 in the first look-up and leave the byte in the second. */
static inline int32x4_t vb_lookup128_quarter(uint8x16x4_t low, uint8x16x4_t high, int32x4_t codes)
{
    const uint8x16_t at = vandq_u8(vreinterpretq_u8_s32(codes), vdupq_n_u8(127));
    const uint8x16_t v = vqtbl4q_u8(low, at);
    return vreinterpretq_s32_u8(vqtbx4q_u8(v, high, vsubq_u8(at, vdupq_n_u8(64))));
}
static inline i16v vb_lookup128(const uint8_t *table, i16v codes, const uint32_t parts,
                                const int permute)
{
    const uint8x16x4_t x = vld1q_u8_x4(table), y = vld1q_u8_x4(table + 64);
    (void)parts;
    (void)permute;
    return (i16v){ vb_lookup128_quarter(x, y, codes.a), vb_lookup128_quarter(x, y, codes.b),
                   vb_lookup128_quarter(x, y, codes.c), vb_lookup128_quarter(x, y, codes.d) };
}
static inline int32x4_t vb_signed_quarter(int32x4_t q, int32x4_t codes)
{
    const int8x16_t m = vshrq_n_s8(vreinterpretq_s8_s32(codes), 7);
    return vreinterpretq_s32_s8(vsubq_s8(veorq_s8(vreinterpretq_s8_s32(q), m), m));
}
static inline i16v vb_signed(i16v q, i16v codes)
{
    return V_MAP2(i16v, vb_signed_quarter, q, codes);
}
static inline i16v vb_dot4(i16v acc, i16v w, i16v q)
{
    return vi_dot4(acc, w, q);
}
static inline i16v vi_and(i16v v, int32_t mask)
{
    const i16v m = vi_set1(mask);
    return V_MAP2(i16v, vandq_s32, v, m);
}

/* ---- words: see simd_words.h ------------------------------------------------- */

static inline int32x4_t vb_words_quarter(int32x4_t low, int32x4_t high, int32x4_t codes,
                                         const int odd)
{
    const uint16x8_t l = vreinterpretq_u16_s32(low), h = vreinterpretq_u16_s32(high);
    const int16x8_t  c = vreinterpretq_s16_s32(codes);
    const uint16x8_t v = odd ? vsriq_n_u16(h, l, 8) : vsliq_n_u16(l, h, 8);
    const int16x8_t  m = vshrq_n_s16(odd ? c : vshlq_n_s16(c, 8), 15);
    return vreinterpretq_s32_s16(vsubq_s16(veorq_s16(vreinterpretq_s16_u16(v), m), m));
}
static inline i16v vb_words(i16v low, i16v high, i16v codes, const int odd)
{
    return (i16v){ vb_words_quarter(low.a, high.a, codes.a, odd),
                   vb_words_quarter(low.b, high.b, codes.b, odd),
                   vb_words_quarter(low.c, high.c, codes.c, odd),
                   vb_words_quarter(low.d, high.d, codes.d, odd) };
}
static inline int32x4_t vb_widen_quarter(int32x4_t q, const int odd)
{
    const int16x8_t w = vreinterpretq_s16_s32(q);
    return vreinterpretq_s32_s16(vshrq_n_s16(odd ? w : vshlq_n_s16(w, 8), 8));
}
static inline i16v vb_widen(i16v q, const int odd)
{
    return (i16v){ vb_widen_quarter(q.a, odd), vb_widen_quarter(q.b, odd),
                   vb_widen_quarter(q.c, odd), vb_widen_quarter(q.d, odd) };
}
static inline int32x4_t vb_pairs_quarter(int32x4_t acc, int32x4_t w, int32x4_t q)
{
    const int16x8_t x = vreinterpretq_s16_s32(w), y = vreinterpretq_s16_s32(q);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    return vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(x, y)));
}
static inline i16v vb_pairs(i16v acc, i16v w, i16v q)
{
    return V_MAP3(i16v, vb_pairs_quarter, acc, w, q);
}
#endif
