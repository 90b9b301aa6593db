/* k_max512.h - the largest magnitudes of blocks of columns with AVX-512, four blocks at a time.
 * Included by k_encode.c only.
 */
#ifndef TSR_ENCODE_K_MAX512_H
#define TSR_ENCODE_K_MAX512_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE512 static inline __attribute__((always_inline))
#define STEP512   64u  /* columns of one round */
#define CHUNK512  512u /* columns whose scales come first */

/* Columns of whole blocks in one round or more; 0: blocks that maxima512() does not know. */
static inline uint64_t unit512(uint64_t block)
{
    if (block == 8 || block == 16 || block == 32)
        return STEP512;
    return block % STEP512 == 0 ? block : 0;
}

/* The largest bits of n columns, a multiple of 16, by lanes. */
INLINE512 __m512i lanes512(const float *x, const uint64_t n)
{
    const __m512i abs = _mm512_set1_epi32(0x7fffffff);
    __m512i       m = _mm512_and_si512(_mm512_loadu_si512(x), abs);
    for (uint64_t i = 16; i < n; i += 16)
        m = _mm512_max_epu32(m, _mm512_and_si512(_mm512_loadu_si512(x + i), abs));
    return m;
}

/* In each group of 8 lanes twice the maxima of these 8 lanes in a[0] to a[3]. */
INLINE512 __m512i halves512(const __m512i a[4])
{
    __m512i m, n;
    m = _mm512_max_epu32(_mm512_unpacklo_epi64(a[0], a[1]), _mm512_unpackhi_epi64(a[0], a[1]));
    n = _mm512_max_epu32(_mm512_unpacklo_epi64(a[2], a[3]), _mm512_unpackhi_epi64(a[2], a[3]));
    __m512 f = _mm512_castsi512_ps(m), g = _mm512_castsi512_ps(n);
    m = _mm512_max_epu32(_mm512_castps_si512(_mm512_shuffle_ps(f, g, 0x88)),
                         _mm512_castps_si512(_mm512_shuffle_ps(f, g, 0xdd)));
    return _mm512_max_epu32(m, _mm512_shuffle_i32x4(m, m, 0xb1));
}

/* The bits of the largest magnitudes of `blocks` blocks; of blocks of 8 a multiple of 8.  `most` has
 * room for blocks rounded up to a multiple of 4. */
INLINE512 void maxima512(const float *x, uint64_t blocks, const uint64_t block, uint32_t *most)
{
    __m512i a[4] = { 0 };
    if (block == 8) {
        const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0);
        for (uint64_t b = 0; b < blocks; b += 8) {
            for (uint64_t j = 0; j < 4; j++)
                a[j] = lanes512(x + 8 * b + 16 * j, 16);
            __m512i m = _mm512_permutexvar_epi32(order, halves512(a));
            _mm256_storeu_si256((__m256i *)(void *)(most + b), _mm512_castsi512_si256(m));
        }
        return;
    }
    for (uint64_t b = 0; b < blocks; b += 4) {
        uint64_t have = blocks - b < 4 ? blocks - b : 4;
        if (have == 4)
            for (uint64_t j = 0; j < 4; j++)
                a[j] = lanes512(x + (b + j) * block, block);
        else
            for (uint64_t j = 0; j < have; j++)
                a[j] = lanes512(x + (b + j) * block, block);
        __m512i m = halves512(a);
        __m256i n = _mm256_max_epu32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
        _mm_storeu_si128((__m128i *)(void *)(most + b), _mm256_castsi256_si128(n));
    }
}
#endif
