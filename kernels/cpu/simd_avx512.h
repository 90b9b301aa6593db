/* simd_avx512.h - the 16-lane vector as one 512-bit register (F, BW, VL, DQ, VNNI); see
 * simd_scalar.h for the meaning of each operation.  Included by simd.h only. */
#ifndef TSR_SIMD_AVX512_H
#define TSR_SIMD_AVX512_H

#include <immintrin.h>

typedef __m512    v16;
typedef __m512i   i16v;
typedef __mmask16 m16;

static inline v16 v_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline v16 v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, v16 v)
{
    _mm512_storeu_ps(p, v);
}
static inline __mmask16 v_first(uint64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}
static inline v16 v_loadn(const float *p, uint64_t n)
{
    return _mm512_maskz_loadu_ps(v_first(n), p);
}
static inline void v_storen(float *p, v16 v, uint64_t n)
{
    _mm512_mask_storeu_ps(p, v_first(n), v);
}
static inline v16 v_keep(v16 v, uint64_t n)
{
    return _mm512_maskz_mov_ps(v_first(n), v);
}
#define V_BINARY(name, op)                                                                         \
    static inline v16 name(v16 x, v16 y)                                                           \
    {                                                                                              \
        return op(x, y);                                                                           \
    }
V_BINARY(v_add, _mm512_add_ps)
V_BINARY(v_sub, _mm512_sub_ps)
V_BINARY(v_mul, _mm512_mul_ps)
V_BINARY(v_div, _mm512_div_ps)
V_BINARY(v_max, _mm512_max_ps)
V_BINARY(v_min, _mm512_min_ps)
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return _mm512_fmadd_ps(x, y, z);
}
/* Lane l has that of l ^ H. */
static inline v16 v_swap1(v16 v)
{
    return _mm512_permute_ps(v, 0xb1);
}
static inline v16 v_swap2(v16 v)
{
    return _mm512_permute_ps(v, 0x4e);
}
static inline v16 v_swap4(v16 v)
{
    return _mm512_shuffle_f32x4(v, v, 0xb1);
}
static inline v16 v_swap8(v16 v)
{
    return _mm512_shuffle_f32x4(v, v, 0x4e);
}
static inline v16 v_neg(v16 v)
{
    return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f));
}
static inline v16 v_abs(v16 v)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), v);
}
static inline v16 v_copysign(v16 v, v16 sign)
{
    return _mm512_or_ps(v_abs(v), _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}
#define ROUND_EVEN (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
static inline v16 v_rint(v16 v)
{
    return _mm512_roundscale_ps(v, ROUND_EVEN);
}
static inline m16 v_lt(v16 x, v16 y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ);
}
static inline m16 v_isnan(v16 v)
{
    return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
}
static inline v16 v_sel(m16 m, v16 x, v16 y)
{
    return _mm512_mask_blend_ps(m, y, x);
}
static inline int v_all_finite(v16 v)
{
    return _mm512_cmp_ps_mask(v_abs(v), _mm512_set1_ps(FLT_MAX), _CMP_NLE_UQ) == 0;
}
static inline v16 v_pow2(v16 n)
{
    __m512i i = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(i, 23));
}
static inline float v_tree16(v16 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
static inline float v_hmax(v16 v)
{
    return _mm512_reduce_max_ps(v);
}
static inline v16 v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline void v_store_f16(void *p, v16 v)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(v, ROUND_EVEN));
}
static inline v16 v_load_bf16(const void *p)
{
    __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}
static inline v16 v_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
static inline v16 v_set1_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _mm512_set1_ps(_cvtsh_ss(h));
}
static inline v16 v_load_u4(const void *p)
{
    __m128i q = _mm_loadl_epi64(p), low = _mm_set1_epi8(15);
    __m128i a = _mm_and_si128(q, low), b = _mm_and_si128(_mm_srli_epi16(q, 4), low);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi64(a, b)));
}
static inline void v_store_i8(void *p, v16 v)
{
    _mm_storeu_si128(p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}
static inline v16 v_round_bf16(v16 v)
{
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    r = _mm512_mask_or_epi32(r, v_isnan(v), u, _mm512_set1_epi32(0x400000));
    r = _mm512_and_si512(r, _mm512_set1_epi32((int32_t)0xffff0000u));
    return _mm512_castsi512_ps(r);
}

static inline i16v vi_zero(void)
{
    return _mm512_setzero_si512();
}
static inline i16v vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
static inline i16v vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline i16v vi_load_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
/* Vector arithmetic of the compiler: an intrinsic would require the shift as an immediate. */
typedef uint16_t   u16x32 __attribute__((vector_size(64)));
static inline i16v vi_bits(i16v w, int shift, int mask)
{
    if (shift)
        w = (i16v)((u16x32)w >> shift);
    return _mm512_and_si512(w, _mm512_set1_epi8((char)mask));
}
static inline i16v vi_or(i16v a, i16v b)
{
    return _mm512_or_si512(a, b);
}
static inline i16v vi_byte(i16v w, uint32_t j)
{
    __m512i s = _mm512_srl_epi32(w, _mm_cvtsi32_si128((int32_t)(8 * j)));
    return _mm512_and_si512(s, _mm512_set1_epi32(255));
}
static inline v16 vi_cvt(i16v a)
{
    return _mm512_cvtepi32_ps(a);
}
static inline i16v vi_add(i16v a, i16v b)
{
    return _mm512_add_epi32(a, b);
}
static inline i16v vi_sub(i16v a, i16v b)
{
    return _mm512_sub_epi32(a, b);
}
static inline i16v vi_mul(i16v a, i16v b)
{
    return _mm512_mullo_epi32(a, b);
}
static inline i16v vi_mul16(i16v a, i16v b)
{
    return _mm512_madd_epi16(a, b);
}
/* The four signed bytes at q in every lane. */
static inline i16v vi_four(const void *q)
{
    int32_t i;
    memcpy(&i, q, 4);
    return _mm512_set1_epi32(i);
}
/* In assembly, so that the accumulator stays in its register: gcc 12 copies it around the
 * builtin. */
static inline i16v vi_dot4(i16v acc, i16v w, i16v q)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(q));
    return acc;
}
static inline i16v vi_dot4_low(i16v acc, i16v w, i16v q)
{
    return vi_dot4(acc, w, q);
}
/* Hides a register's value from the optimizer, so that probes measure real work. */
static inline i16v vi_opaque(i16v v)
{
    __asm__ volatile("" : "+v"(v));
    return v;
}
/* In assembly: gcc 12 removes a loop that contains only prefetches. */
static inline uint32_t v_bits(m16 m)
{
    return m;
}
/* first + place of each bit of m, ascending; room for 16. */
static inline void v_numbers(uint32_t *to, uint32_t first, uint32_t m)
{
    __m512i all = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    all = _mm512_add_epi32(all, _mm512_set1_epi32((int32_t)first));
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)m, all));
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
