/* simd_neon.h - the 16-lane vector as four 128-bit registers (NEON, and products of bytes by the instructions
 * that the set is compiled for); see simd_scalar.h for the meaning of each operation.  Included by simd.h only. */
#ifndef TSR_SIMD_NEON_H
#define TSR_SIMD_NEON_H

#include <arm_neon.h>

typedef struct {
    float32x4_t a, b, c, d;
} v16;
typedef struct {
    int32x4_t a, b, c, d;
} i16v;
typedef struct {
    uint32x4_t a, b, c, d; /* all bits of a lane set, or none */
} m16;

/* What f(x, y...) makes of each register. */
#define V_MAP1(type, f, x) ((type){ f((x).a), f((x).b), f((x).c), f((x).d) })
#define V_MAP2(type, f, x, y)                                                                      \
    ((type){ f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d) })
#define V_MAP3(type, f, x, y, z)                                                                   \
    ((type){ f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b), f((x).c, (y).c, (z).c),               \
             f((x).d, (y).d, (z).d) })

#define AS_U32 vreinterpretq_u32_f32
#define AS_F32 vreinterpretq_f32_u32

static inline v16 v_set1(float x)
{
    const float32x4_t v = vdupq_n_f32(x);
    return (v16){ v, v, v, v };
}
static inline v16 v_load(const float *p)
{
    return (v16){ vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12) };
}
static inline void v_store(float *p, v16 v)
{
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
}
static inline m16 v_first(uint64_t n)
{
    static const uint32_t lane[4] = { 0, 1, 2, 3 };
    const uint32x4_t      l = vld1q_u32(lane), k = vdupq_n_u32((uint32_t)n);
    return (m16){ vcltq_u32(l, k), vcltq_u32(vaddq_u32(l, vdupq_n_u32(4)), k),
                  vcltq_u32(vaddq_u32(l, vdupq_n_u32(8)), k),
                  vcltq_u32(vaddq_u32(l, vdupq_n_u32(12)), k) };
}
static inline v16 v_loadn(const float *p, uint64_t n)
{
    float t[16] = { 0 };
    if (n >= 16)
        return v_load(p);
    memcpy(t, p, n * sizeof *t);
    return v_load(t);
}
static inline void v_storen(float *p, v16 v, uint64_t n)
{
    float t[16];
    if (n >= 16) {
        v_store(p, v);
        return;
    }
    v_store(t, v);
    memcpy(p, t, n * sizeof *t);
}
static inline float32x4_t v_keep_quarter(float32x4_t x, uint32x4_t m)
{
    return AS_F32(vandq_u32(AS_U32(x), m));
}
static inline v16 v_keep(v16 v, uint64_t n)
{
    const m16 m = v_first(n);
    return V_MAP2(v16, v_keep_quarter, v, m);
}
/* Not the instructions for a maximum and a minimum: those of a NaN and a number give the NaN. */
static inline float32x4_t v_max_quarter(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
static inline float32x4_t v_min_quarter(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcltq_f32(x, y), x, y);
}
static inline float32x4_t v_sign_quarter(float32x4_t v, float32x4_t sign)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, v);
}
#define V_BINARY(name, op)                                                                         \
    static inline v16 name(v16 x, v16 y)                                                           \
    {                                                                                              \
        return V_MAP2(v16, op, x, y);                                                              \
    }
V_BINARY(v_add, vaddq_f32)
V_BINARY(v_sub, vsubq_f32)
V_BINARY(v_mul, vmulq_f32)
V_BINARY(v_div, vdivq_f32)
V_BINARY(v_max, v_max_quarter)
V_BINARY(v_min, v_min_quarter)
V_BINARY(v_copysign, v_sign_quarter)
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return V_MAP3(v16, vfmaq_f32, z, x, y);
}
/* Lane l has that of l ^ H. */
static inline float32x4_t v_swap2_quarter(float32x4_t x)
{
    return vextq_f32(x, x, 2);
}
static inline v16 v_swap1(v16 v)
{
    return V_MAP1(v16, vrev64q_f32, v);
}
static inline v16 v_swap2(v16 v)
{
    return V_MAP1(v16, v_swap2_quarter, v);
}
static inline v16 v_swap4(v16 v)
{
    return (v16){ v.b, v.a, v.d, v.c };
}
static inline v16 v_swap8(v16 v)
{
    return (v16){ v.c, v.d, v.a, v.b };
}
static inline v16 v_neg(v16 v)
{
    return V_MAP1(v16, vnegq_f32, v);
}
static inline v16 v_abs(v16 v)
{
    return V_MAP1(v16, vabsq_f32, v);
}
static inline v16 v_rint(v16 v)
{
    return V_MAP1(v16, vrndnq_f32, v);
}
static inline m16 v_lt(v16 x, v16 y)
{
    return V_MAP2(m16, vcltq_f32, x, y);
}
static inline uint32x4_t v_isnan_quarter(float32x4_t x)
{
    return vmvnq_u32(vceqq_f32(x, x));
}
static inline m16 v_isnan(v16 v)
{
    return V_MAP1(m16, v_isnan_quarter, v);
}
static inline v16 v_sel(m16 m, v16 x, v16 y)
{
    return V_MAP3(v16, vbslq_f32, m, x, y);
}
static inline uint32x4_t v_finite_quarter(float32x4_t x)
{
    return vcaleq_f32(x, vdupq_n_f32(FLT_MAX));
}
static inline int v_all_finite(v16 v)
{
    const m16 m = V_MAP1(m16, v_finite_quarter, v);
    return vminvq_u32(vandq_u32(vandq_u32(m.a, m.b), vandq_u32(m.c, m.d))) != 0;
}
static inline float32x4_t v_pow2_quarter(float32x4_t n)
{
    const int32x4_t e = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(e, 23));
}
static inline v16 v_pow2(v16 n)
{
    return V_MAP1(v16, v_pow2_quarter, n);
}
/* Lanes l and l + 8, then l + 4, then l + 2: the first two levels of the tree leave one register. */
static inline float32x4_t v_tree_quarter(v16 v)
{
    return vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
}
static inline float v_tree16(v16 v)
{
    const float32x4_t q = v_tree_quarter(v);
    return vpadds_f32(vadd_f32(vget_low_f32(q), vget_high_f32(q)));
}
static inline float v_hmax(v16 v)
{
    const float32x4_t q = v_max_quarter(v_max_quarter(v.a, v.c), v_max_quarter(v.b, v.d));
    const float32x4_t h = v_max_quarter(q, vextq_f32(q, q, 2));
    return vgetq_lane_f32(v_max_quarter(h, vrev64q_f32(h)), 0);
}

/* ---- conversions ------------------------------------------------------------ */

static inline float32x4_t v_up_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline v16 v_load_f16(const void *p)
{
    const uint16_t *h = p;
    return (v16){ v_up_f16(h), v_up_f16(h + 4), v_up_f16(h + 8), v_up_f16(h + 12) };
}
static inline uint16x4_t v_down_f16(float32x4_t x)
{
    return vreinterpret_u16_f16(vcvt_f16_f32(x));
}
static inline void v_store_f16(void *p, v16 v)
{
    uint16_t *h = p;
    vst1_u16(h, v_down_f16(v.a));
    vst1_u16(h + 4, v_down_f16(v.b));
    vst1_u16(h + 8, v_down_f16(v.c));
    vst1_u16(h + 12, v_down_f16(v.d));
}
static inline float32x4_t v_up_bf16(const uint16_t *p)
{
    return AS_F32(vshll_n_u16(vld1_u16(p), 16));
}
static inline v16 v_load_bf16(const void *p)
{
    const uint16_t *h = p;
    return (v16){ v_up_bf16(h), v_up_bf16(h + 4), v_up_bf16(h + 8), v_up_bf16(h + 12) };
}
static inline i16v vi_of_s8(int8x16_t q)
{
    const int16x8_t x = vmovl_s8(vget_low_s8(q)), y = vmovl_high_s8(q);
    return (i16v){ vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x), vmovl_s16(vget_low_s16(y)),
                   vmovl_high_s16(y) };
}
static inline i16v vi_of_u8(uint8x16_t q)
{
    const uint16x8_t x = vmovl_u8(vget_low_u8(q)), y = vmovl_high_u8(q);
    return (i16v){ vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(x))),
                   vreinterpretq_s32_u32(vmovl_high_u16(x)),
                   vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(y))),
                   vreinterpretq_s32_u32(vmovl_high_u16(y)) };
}
static inline v16 vi_cvt(i16v x)
{
    return V_MAP1(v16, vcvtq_f32_s32, x);
}
static inline v16 v_load_i8(const void *p)
{
    return vi_cvt(vi_of_s8(vld1q_s8(p)));
}
static inline v16 v_set1_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    const float32x4_t x = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
    return (v16){ x, x, x, x };
}
static inline v16 v_load_u4(const void *p)
{
    const uint8x8_t q = vld1_u8(p);
    return vi_cvt(vi_of_u8(vcombine_u8(vand_u8(q, vdup_n_u8(15)), vshr_n_u8(q, 4))));
}
static inline void v_store_i8(void *p, v16 v)
{
    const i16v      i = V_MAP1(i16v, vcvtq_s32_f32, v);
    const int16x8_t x = vcombine_s16(vqmovn_s32(i.a), vqmovn_s32(i.b));
    const int16x8_t y = vcombine_s16(vqmovn_s32(i.c), vqmovn_s32(i.d));
    vst1q_s8(p, vcombine_s8(vqmovn_s16(x), vqmovn_s16(y)));
}
static inline float32x4_t v_round_bf16_quarter(float32x4_t x)
{
    const uint32x4_t u = AS_U32(x), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    const uint32x4_t r = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t q = vorrq_u32(u, vdupq_n_u32(0x400000));
    return AS_F32(vandq_u32(vbslq_u32(v_isnan_quarter(x), q, r), vdupq_n_u32(0xffff0000u)));
}
static inline v16 v_round_bf16(v16 v)
{
    return V_MAP1(v16, v_round_bf16_quarter, v);
}
static inline uint32_t v_bits_quarter(uint32x4_t m)
{
    static const uint32_t bit[4] = { 1, 2, 4, 8 };
    return vaddvq_u32(vandq_u32(m, vld1q_u32(bit)));
}
static inline uint32_t v_bits(m16 m)
{
    return v_bits_quarter(m.a) | v_bits_quarter(m.b) << 4 | v_bits_quarter(m.c) << 8 |
           v_bits_quarter(m.d) << 12;
}
static inline void v_numbers(uint32_t *to, uint32_t first, uint32_t m)
{
    for (; m; m &= m - 1)
        *to++ = first + (uint32_t)__builtin_ctz(m);
}
/* In assembly: gcc 12 removes a loop that contains only prefetches. */
static inline void v_prefetch(const void *p)
{
    __asm__ volatile("prfm pldl1keep, [%0]" : : "r"(p));
}
static inline void v_prefetch_l2(const void *p)
{
    __asm__ volatile("prfm pldl2keep, [%0]" : : "r"(p));
}
#endif
