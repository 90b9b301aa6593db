/* simd_words.h - operations on the 16-lane vector as 32 words, for machines without vpdpbusd.  The scalar part
 * gives the meaning of each. */
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

#else

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
