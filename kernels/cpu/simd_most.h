/* simd_most.h - the largest of many bytes, for AVX2 and AVX-512. */
#ifndef TSR_SIMD_MOST_H
#define TSR_SIMD_MOST_H

#include <immintrin.h>

/* Unsigned bytes of 32 places. */
typedef __m256i b32;

static inline b32 b32_zero(void)
{
    return _mm256_setzero_si256();
}
/* Of each place the larger of a and the byte at p. */
static inline b32 b32_most(b32 a, const void *p)
{
    return _mm256_max_epu8(a, _mm256_loadu_si256(p));
}
/* Whether all are less than n, which is from 1 to 255. */
static inline int b32_below(b32 a, int n)
{
    b32 m = _mm256_set1_epi8((char)n);
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(a, m), a)) == 0;
}

#endif
