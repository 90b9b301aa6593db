/* simd_avx2.h - the 16-lane vector as two 256-bit registers (AVX2, FMA, F16C); see
 * simd_scalar.h for the meaning of each operation.  Included by simd.h only. */
#ifndef TSR_SIMD_AVX2_H
#define TSR_SIMD_AVX2_H

#include <immintrin.h>

typedef struct {
    __m256 a, b;
} v16;
typedef struct {
    __m256i a, b;
} i16v;
typedef v16 m16; /* all bits of a lane set, or none */

static inline v16 v_make(__m256 a, __m256 b)
{
    v16 r = { a, b };
    return r;
}
static inline i16v vi_make(__m256i a, __m256i b)
{
    i16v r = { a, b };
    return r;
}
static inline v16 v_set1(float x)
{
    return v_make(_mm256_set1_ps(x), _mm256_set1_ps(x));
}
static inline v16 v_load(const float *p)
{
    return v_make(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
static inline void v_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
static inline i16v v_first(uint64_t n)
{
    __m256i k = _mm256_set1_epi32((int32_t)n);
    return vi_make(_mm256_cmpgt_epi32(k, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                   _mm256_cmpgt_epi32(k, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)));
}
static inline v16 v_loadn(const float *p, uint64_t n)
{
    i16v m = v_first(n);
    return v_make(_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b));
}
static inline void v_storen(float *p, v16 v, uint64_t n)
{
    i16v m = v_first(n);
    _mm256_maskstore_ps(p, m.a, v.a);
    _mm256_maskstore_ps(p + 8, m.b, v.b);
}
static inline v16 v_keep(v16 v, uint64_t n)
{
    i16v m = v_first(n);
    return v_make(_mm256_and_ps(v.a, _mm256_castsi256_ps(m.a)),
                  _mm256_and_ps(v.b, _mm256_castsi256_ps(m.b)));
}
#define V_BINARY(name, op)                                                                         \
    static inline v16 name(v16 x, v16 y)                                                           \
    {                                                                                              \
        return v_make(op(x.a, y.a), op(x.b, y.b));                                                 \
    }
V_BINARY(v_add, _mm256_add_ps)
V_BINARY(v_sub, _mm256_sub_ps)
V_BINARY(v_mul, _mm256_mul_ps)
V_BINARY(v_div, _mm256_div_ps)
V_BINARY(v_max, _mm256_max_ps)
V_BINARY(v_min, _mm256_min_ps)
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return v_make(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
/* Lane l has that of l ^ H. */
static inline v16 v_swap1(v16 v)
{
    return v_make(_mm256_permute_ps(v.a, 0xb1), _mm256_permute_ps(v.b, 0xb1));
}
static inline v16 v_swap2(v16 v)
{
    return v_make(_mm256_permute_ps(v.a, 0x4e), _mm256_permute_ps(v.b, 0x4e));
}
static inline v16 v_swap4(v16 v)
{
    return v_make(_mm256_permute2f128_ps(v.a, v.a, 1), _mm256_permute2f128_ps(v.b, v.b, 1));
}
static inline v16 v_swap8(v16 v)
{
    return v_make(v.b, v.a);
}
static inline v16 v_neg(v16 v)
{
    __m256 s = _mm256_set1_ps(-0.0f);
    return v_make(_mm256_xor_ps(v.a, s), _mm256_xor_ps(v.b, s));
}
static inline v16 v_abs(v16 v)
{
    __m256 s = _mm256_set1_ps(-0.0f);
    return v_make(_mm256_andnot_ps(s, v.a), _mm256_andnot_ps(s, v.b));
}
static inline v16 v_copysign(v16 v, v16 sign)
{
    __m256 s = _mm256_set1_ps(-0.0f);
    return v_make(_mm256_or_ps(_mm256_andnot_ps(s, v.a), _mm256_and_ps(s, sign.a)),
                  _mm256_or_ps(_mm256_andnot_ps(s, v.b), _mm256_and_ps(s, sign.b)));
}
#define ROUND_EVEN (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
static inline v16 v_rint(v16 v)
{
    return v_make(_mm256_round_ps(v.a, ROUND_EVEN), _mm256_round_ps(v.b, ROUND_EVEN));
}
static inline m16 v_lt(v16 x, v16 y)
{
    return v_make(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ));
}
static inline m16 v_isnan(v16 v)
{
    return v_make(_mm256_cmp_ps(v.a, v.a, _CMP_UNORD_Q), _mm256_cmp_ps(v.b, v.b, _CMP_UNORD_Q));
}
static inline v16 v_sel(m16 m, v16 x, v16 y)
{
    return v_make(_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b));
}
static inline int v_all_finite(v16 v)
{
    __m256 big = _mm256_set1_ps(FLT_MAX);
    v16    a = v_abs(v);
    return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a.a, big, _CMP_NLE_UQ),
                                           _mm256_cmp_ps(a.b, big, _CMP_NLE_UQ))) == 0;
}
static inline v16 v_pow2(v16 n)
{
    __m256i bias = _mm256_set1_epi32(127);
    __m256i a = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.a), bias), 23);
    __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.b), bias), 23);
    return v_make(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
}
static inline float v_tree16(v16 v)
{
    __m256 a = _mm256_add_ps(v.a, v.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
static inline float v_hmax(v16 v)
{
    __m256 a = _mm256_max_ps(v.a, v.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
static inline v16 v_load_f16(const void *p)
{
    return v_make(_mm256_cvtph_ps(_mm_loadu_si128(p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + 1)));
}
static inline void v_store_f16(void *p, v16 v)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(v.a, ROUND_EVEN));
    _mm_storeu_si128((__m128i *)p + 1, _mm256_cvtps_ph(v.b, ROUND_EVEN));
}
static inline __m256 v_up_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline v16 v_load_bf16(const void *p)
{
    return v_make(v_up_bf16(_mm_loadu_si128(p)),
                  v_up_bf16(_mm_loadu_si128((const __m128i *)p + 1)));
}
static inline v16 v_load_i8(const void *p)
{
    __m128i q = _mm_loadu_si128(p);
    return v_make(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8))));
}
static inline v16 v_set1_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return v_set1(_cvtsh_ss(h));
}
static inline v16 v_load_u4(const void *p)
{
    __m128i q = _mm_loadl_epi64(p), low = _mm_set1_epi8(15);
    __m128i a = _mm_and_si128(q, low), b = _mm_and_si128(_mm_srli_epi16(q, 4), low);
    return v_make(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(a)),
                  _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b)));
}
static inline void v_store_i8(void *p, v16 v)
{
    __m256i a = _mm256_cvtps_epi32(v.a), b = _mm256_cvtps_epi32(v.b);
    __m128i x = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    __m128i y = _mm_packs_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    _mm_storeu_si128(p, _mm_packs_epi16(x, y));
}
static inline __m256 v_round_bf16_half(__m256 x)
{
    __m256i u = _mm256_castps_si256(x), top = _mm256_set1_epi32((int32_t)0xffff0000u);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i q = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256  nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256  s = _mm256_blendv_ps(_mm256_castsi256_ps(r), _mm256_castsi256_ps(q), nan);
    return _mm256_and_ps(s, _mm256_castsi256_ps(top));
}
static inline v16 v_round_bf16(v16 v)
{
    return v_make(v_round_bf16_half(v.a), v_round_bf16_half(v.b));
}

static inline i16v vi_zero(void)
{
    return vi_make(_mm256_setzero_si256(), _mm256_setzero_si256());
}
static inline i16v vi_set1(int32_t x)
{
    return vi_make(_mm256_set1_epi32(x), _mm256_set1_epi32(x));
}
static inline i16v vi_load(const void *p)
{
    return vi_make(_mm256_loadu_si256(p), _mm256_loadu_si256((const __m256i *)p + 1));
}
static inline i16v vi_load_u8(const void *p)
{
    return vi_make(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)),
                   _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)((const char *)p + 8))));
}
/* Vector arithmetic of the compiler: an intrinsic would require the shift as an immediate. */
typedef uint16_t   u16x16 __attribute__((vector_size(32)));
static inline i16v vi_bits(i16v w, int shift, int mask)
{
    __m256i m = _mm256_set1_epi8((char)mask);
    if (shift) {
        w.a = (__m256i)((u16x16)w.a >> shift);
        w.b = (__m256i)((u16x16)w.b >> shift);
    }
    return vi_make(_mm256_and_si256(w.a, m), _mm256_and_si256(w.b, m));
}
static inline i16v vi_or(i16v a, i16v b)
{
    return vi_make(_mm256_or_si256(a.a, b.a), _mm256_or_si256(a.b, b.b));
}
static inline i16v vi_byte(i16v w, uint32_t j)
{
    __m128i s = _mm_cvtsi32_si128((int32_t)(8 * j));
    __m256i m = _mm256_set1_epi32(255);
    return vi_make(_mm256_and_si256(_mm256_srl_epi32(w.a, s), m),
                   _mm256_and_si256(_mm256_srl_epi32(w.b, s), m));
}
static inline v16 vi_cvt(i16v x)
{
    return v_make(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b));
}
#define VI_BINARY(name, op)                                                                        \
    static inline i16v name(i16v x, i16v y)                                                        \
    {                                                                                              \
        return vi_make(op(x.a, y.a), op(x.b, y.b));                                                \
    }
VI_BINARY(vi_add, _mm256_add_epi32)
VI_BINARY(vi_sub, _mm256_sub_epi32)
VI_BINARY(vi_mul, _mm256_mullo_epi32)
VI_BINARY(vi_mul16, _mm256_madd_epi16)
static inline i16v vi_four(const void *q)
{
    int32_t i;
    memcpy(&i, q, 4);
    return vi_set1(i);
}
#if defined(TSR_VNNI)
/* vpdpbusd of 256 bits, as CPUs with AVX-VNNI know it (1), or those with AVX-512 VNNI (2); in assembly, so that all the
 * rest is the same code. */
#if TSR_VNNI == 1
#define VPDPBUSD "%{vex%} vpdpbusd"
#else
#define VPDPBUSD "%{evex%} vpdpbusd"
#endif
static inline i16v vi_dot4(i16v acc, i16v w, i16v q)
{
    __asm__(VPDPBUSD " %2, %1, %0" : "+x"(acc.a) : "x"(w.a), "x"(q.a));
    __asm__(VPDPBUSD " %2, %1, %0" : "+x"(acc.b) : "x"(w.b), "x"(q.b));
    return acc;
}
static inline i16v vi_dot4_low(i16v acc, i16v w, i16v q)
{
    return vi_dot4(acc, w, q);
}
#else
/* vpmaddubsw would saturate on codes above 63, so 16-bit halves: even and odd bytes. */
static inline __m256i vi_dot4_half(__m256i acc, __m256i w, __m256i qe, __m256i qo)
{
    __m256i m = _mm256_set1_epi16(255);
    __m256i e = _mm256_madd_epi16(_mm256_and_si256(w, m), qe);
    __m256i o = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), qo);
    return _mm256_add_epi32(acc, _mm256_add_epi32(e, o));
}
static inline i16v vi_dot4(i16v acc, i16v w, i16v q)
{
    __m256i qe = _mm256_srai_epi16(_mm256_slli_epi16(q.a, 8), 8), qo = _mm256_srai_epi16(q.a, 8);
    return vi_make(vi_dot4_half(acc.a, w.a, qe, qo), vi_dot4_half(acc.b, w.b, qe, qo));
}
static inline i16v vi_dot4_low(i16v acc, i16v w, i16v q)
{
    __m256i one = _mm256_set1_epi16(1);
    __m256i a = _mm256_madd_epi16(_mm256_maddubs_epi16(w.a, q.a), one);
    __m256i b = _mm256_madd_epi16(_mm256_maddubs_epi16(w.b, q.b), one);
    return vi_make(_mm256_add_epi32(acc.a, a), _mm256_add_epi32(acc.b, b));
}
#endif
static inline i16v vi_opaque(i16v v)
{
    __asm__ volatile("" : "+x"(v.a), "+x"(v.b));
    return v;
}
/* In assembly: gcc 12 removes a loop that contains only prefetches. */
static inline uint32_t v_bits(m16 m)
{
    return (uint32_t)_mm256_movemask_ps(m.a) | (uint32_t)_mm256_movemask_ps(m.b) << 8;
}
static inline void v_numbers(uint32_t *to, uint32_t first, uint32_t m)
{
    for (; m; m &= m - 1)
        *to++ = first + (uint32_t)__builtin_ctz(m);
}
static inline void v_prefetch(const void *p)
{
    __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)p));
}
static inline void v_prefetch_l2(const void *p)
{
    __asm__ volatile("prefetcht1 %0" : : "m"(*(const char *)p));
}
#endif
