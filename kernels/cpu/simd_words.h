/* simd_words.h - operations on the 16-lane vector as 32 words, for machines without vpdpbusd.  The scalar part
 * gives the meaning of each; those of NEON are in simd_neon_int.h. */
#ifndef TSR_SIMD_WORDS_H
#define TSR_SIMD_WORDS_H

#include "simd.h"

#if TSR_SIMD == 2

static inline __m256i vb_words_half(__m256i low, __m256i high, __m256i codes, const int odd)
{
    __m256i v = odd ? _mm256_or_si256(_mm256_srli_epi16(low, 8),
                                      _mm256_slli_epi16(_mm256_srli_epi16(high, 8), 8))
                    : _mm256_or_si256(_mm256_srli_epi16(_mm256_slli_epi16(low, 8), 8),
                                      _mm256_slli_epi16(high, 8));
    __m256i sign = odd ? codes : _mm256_slli_epi16(codes, 8);
    return _mm256_sign_epi16(v, _mm256_or_si256(sign, _mm256_set1_epi16(1)));
}
static inline i16v vb_words(i16v low, i16v high, i16v codes, const int odd)
{
    return vi_make(vb_words_half(low.a, high.a, codes.a, odd),
                   vb_words_half(low.b, high.b, codes.b, odd));
}
static inline __m256i vb_widen_half(__m256i q, const int odd)
{
    return _mm256_srai_epi16(odd ? q : _mm256_slli_epi16(q, 8), 8);
}
static inline i16v vb_widen(i16v q, const int odd)
{
    return vi_make(vb_widen_half(q.a, odd), vb_widen_half(q.b, odd));
}
static inline i16v vb_pairs(i16v acc, i16v w, i16v q)
{
    return vi_make(_mm256_add_epi32(acc.a, _mm256_madd_epi16(w.a, q.a)),
                   _mm256_add_epi32(acc.b, _mm256_madd_epi16(w.b, q.b)));
}
/* Sums of words: acc + the products of unsigned bytes of w and signed ones of q, in pairs. */
static inline i16v vw_dot(i16v acc, i16v w, i16v q)
{
    return vi_make(_mm256_add_epi16(acc.a, _mm256_maddubs_epi16(w.a, q.a)),
                   _mm256_add_epi16(acc.b, _mm256_maddubs_epi16(w.b, q.b)));
}
static inline i16v vw_add(i16v a, i16v b)
{
    return vi_make(_mm256_add_epi16(a.a, b.a), _mm256_add_epi16(a.b, b.b));
}
/* Multiples of four. */
static inline i16v vw_quarter(i16v v)
{
    return vi_make(_mm256_srai_epi16(v.a, 2), _mm256_srai_epi16(v.b, 2));
}
/* acc + both words of each lane. */
static inline i16v vw_sum(i16v acc, i16v words)
{
    __m256i one = _mm256_set1_epi16(1);
    return vi_make(_mm256_add_epi32(acc.a, _mm256_madd_epi16(words.a, one)),
                   _mm256_add_epi32(acc.b, _mm256_madd_epi16(words.b, one)));
}
/* Nibbles of 16 bytes: the low ones in both words of a lane, the high ones 16 times, in the low word. */
struct words_codes {
    i16v low, high;
};
static inline struct words_codes vw_codes(const void *p)
{
    __m256i c = _mm256_broadcastsi128_si256(_mm_loadu_si128(p)), m = _mm256_set1_epi16(15);
    __m256i n = _mm256_set1_epi32(240);
    __m256i a = _mm256_shuffle_epi8(c, _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3,
                                                        -1, 3, -1, 4, -1, 4, -1, 5, -1, 5, -1, 6,
                                                        -1, 6, -1, 7, -1, 7, -1));
    __m256i b = _mm256_shuffle_epi8(c, _mm256_setr_epi8(8, -1, 8, -1, 9, -1, 9, -1, 10, -1, 10, -1,
                                                        11, -1, 11, -1, 12, -1, 12, -1, 13, -1, 13,
                                                        -1, 14, -1, 14, -1, 15, -1, 15, -1));
    struct words_codes r = { vi_make(_mm256_and_si256(a, m), _mm256_and_si256(b, m)),
                             vi_make(_mm256_and_si256(a, n), _mm256_and_si256(b, n)) };
    return r;
}
/* 16 bytes, each in both words of a lane. */
static inline i16v vw_bytes(const void *p)
{
    __m256i c = _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
    __m256i a = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1, 4, -1, 4,
                                 -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1);
    __m256i b = _mm256_setr_epi8(8, -1, 8, -1, 9, -1, 9, -1, 10, -1, 10, -1, 11, -1, 11, -1, 12, -1,
                                 12, -1, 13, -1, 13, -1, 14, -1, 14, -1, 15, -1, 15, -1);
    return vi_make(_mm256_shuffle_epi8(c, a), _mm256_shuffle_epi8(c, b));
}
/* 16 bytes in each quarter. */
static inline i16v vb_table(const void *p)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
    return vi_make(t, t);
}
/* A 256th of 16 elements of E4M3 without a sign: in F16 the exponent and mantissa of one mean that, also of
 * denormals. NaN is not among them. */
static inline v16 vw_e4m3(const void *p)
{
    __m256i h = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p)), 7);
    return v_make(_mm256_cvtph_ps(_mm256_castsi256_si128(h)),
                  _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
}
static inline i16v vb_abs(i16v v)
{
    return vi_make(_mm256_abs_epi8(v.a), _mm256_abs_epi8(v.b));
}
/* Bytes of v, at least -127, with the sign of those of s; 0 where they are. */
static inline i16v vb_sign(i16v v, i16v s)
{
    return vi_make(_mm256_sign_epi8(v.a, s.a), _mm256_sign_epi8(v.b, s.b));
}
/* Bytes less n. */
static inline i16v vb_less(i16v v, uint32_t n)
{
    __m256i m = _mm256_set1_epi8((char)n);
    return vi_make(_mm256_sub_epi8(v.a, m), _mm256_sub_epi8(v.b, m));
}

#elif TSR_SIMD == 0

/* Words of the even or the odd bytes (of three vectors of bytes): low and high byte, negated where that of
 * codes has its top bit set. */
static inline i16v vb_words(i16v low, i16v high, i16v codes, const int odd)
{
    uint8_t l[64], h[64], c[64];
    int16_t v[32];
    memcpy(l, low.i, 64);
    memcpy(h, high.i, 64);
    memcpy(c, codes.i, 64);
    for (int i = 0; i < 32; i++) {
        int n = h[2 * i + odd] * 256 + l[2 * i + odd];
        v[i] = (int16_t)(c[2 * i + odd] & 128 ? -n : n);
    }
    memcpy(low.i, v, 64);
    return low;
}
/* The even or the odd signed bytes as words. */
static inline i16v vb_widen(i16v q, const int odd)
{
    uint8_t b[64];
    int16_t v[32];
    memcpy(b, q.i, 64);
    for (int i = 0; i < 32; i++)
        v[i] = (int16_t)((b[2 * i + odd] ^ 128) - 128);
    memcpy(q.i, v, 64);
    return q;
}
/* acc + sum of two products of words. */
static inline i16v vb_pairs(i16v acc, i16v w, i16v q)
{
    int16_t a[32], b[32];
    memcpy(a, w.i, 64);
    memcpy(b, q.i, 64);
    for (int l = 0; l < 16; l++)
        acc.i[l] += a[2 * l] * b[2 * l] + a[2 * l + 1] * b[2 * l + 1];
    return acc;
}

#endif
#endif
