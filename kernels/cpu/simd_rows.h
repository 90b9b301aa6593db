/* simd_rows.h - the 32 BF16 of a panel's column as two vectors of F32.  Which rows a vector has depends on the instruction
 * set, as pairs that lie in one word are taken apart without a shuffle; v_in_rows() puts results into the order of the rows. */
#ifndef TSR_SIMD_ROWS_H
#define TSR_SIMD_ROWS_H

#include "simd.h"

#if TSR_SIMD == 512

static inline void v_load_rows_bf16(const void *p, v16 *x, v16 *y)
{
    const __m512i rows = _mm512_loadu_si512(p);
    *x = _mm512_castsi512_ps(_mm512_slli_epi32(rows, 16));
    *y = _mm512_castsi512_ps(_mm512_and_si512(rows, _mm512_set1_epi32(-65536)));
}

static inline void v_in_rows(v16 *x, v16 *y)
{
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const v16     rows = _mm512_permutex2var_ps(*x, first, *y);
    *y = _mm512_permutex2var_ps(*x, _mm512_add_epi32(first, _mm512_set1_epi32(8)), *y);
    *x = rows;
}

#elif TSR_SIMD == 2

static inline void v_load_rows_bf16(const void *p, v16 *x, v16 *y)
{
    const __m256i a = _mm256_loadu_si256(p), b = _mm256_loadu_si256((const __m256i *)p + 1);
    const __m256i high = _mm256_set1_epi32(-65536);
    *x = v_make(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)));
    *y = v_make(_mm256_castsi256_ps(_mm256_and_si256(a, high)),
                _mm256_castsi256_ps(_mm256_and_si256(b, high)));
}

static inline v16 v_sixteen_rows(__m256 x, __m256 y)
{
    const __m256 u = _mm256_unpacklo_ps(x, y), h = _mm256_unpackhi_ps(x, y);
    return v_make(_mm256_permute2f128_ps(u, h, 0x20), _mm256_permute2f128_ps(u, h, 0x31));
}

static inline void v_in_rows(v16 *x, v16 *y)
{
    const v16 rows = v_sixteen_rows(x->a, y->a);
    *y = v_sixteen_rows(x->b, y->b);
    *x = rows;
}

#else /* rows 0 to 15, and 16 to 31 */

static inline void v_load_rows_bf16(const void *p, v16 *x, v16 *y)
{
    *x = v_load_bf16(p);
    *y = v_load_bf16((const char *)p + 32);
}

static inline void v_in_rows(v16 *x, v16 *y)
{
    (void)x;
    (void)y;
}

#endif

#endif
