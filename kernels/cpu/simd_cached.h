/* simd_cached.h - operations on the 16-lane vector for cached heads: E4M3, and four bits with a scale and a minimum.  The
 * part for other sets than AVX-512 gives the meaning of each. */
#ifndef TSR_SIMD_CACHED_H
#define TSR_SIMD_CACHED_H

#include "k_e4m3.h"

#if TSR_SIMD == 512

/* Through F16, which has the same mantissa and a bit more of exponent: the value divided by 2^8. */
static inline v16 v_load_e4m3(const void *p)
{
    __m128i   codes = _mm_loadu_si128(p), low = _mm_set1_epi8(127);
    __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_and_si128(codes, low), low);
    __m256i   half = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    half = _mm256_and_si256(half, _mm256_set1_epi16((int16_t)0xbf80));
    v16 v = v_fma(_mm512_cvtph_ps(half), v_set1(0x1p8f), v_set1(0.0f)); /* a zero has no sign */
    return _mm512_mask_blend_ps(nan, v, v_set1(__builtin_nanf("")));
}

/* The sixteen values of a group of four bits. */
typedef v16 u4_levels;

/* scale * code + minimum, of the F16 scale and minimum at p. */
static inline u4_levels v_levels(const uint8_t *p)
{
    int16_t scale, minimum;
    memcpy(&scale, p, 2);
    memcpy(&minimum, p + 2, 2);
    const v16 code = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return v_fma(code, _mm512_cvtph_ps(_mm256_set1_epi16(scale)),
                 _mm512_cvtph_ps(_mm256_set1_epi16(minimum)));
}

/* The values of the codes that v_load_u4() reads. */
static inline v16 v_pick_u4(u4_levels l, const void *p)
{
    int64_t codes;
    memcpy(&codes, p, 8);
    i16v w = _mm512_cvtepu8_epi32(_mm_set1_epi64x(codes));
    w = _mm512_srlv_epi32(w, _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4));
    return _mm512_permutexvar_ps(w, l); /* the low four bits of an index count */
}

#else

static inline v16 v_load_e4m3(const void *p)
{
    return v_e4m3(vi_load_u8(p));
}

typedef struct {
    v16 scale, minimum;
} u4_levels;

static inline u4_levels v_levels(const uint8_t *p)
{
    return (u4_levels){ v_set1_f16(p), v_set1_f16(p + 2) };
}

static inline v16 v_pick_u4(u4_levels l, const void *p)
{
    return v_fma(v_load_u4(p), l.scale, l.minimum);
}

#endif

#endif
