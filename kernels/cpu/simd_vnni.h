/* simd_vnni.h - more operations on the 16-lane vector of AVX-512, for loops that no other set has. */
#ifndef TSR_SIMD_VNNI_H
#define TSR_SIMD_VNNI_H

#include "simd.h"

/* Zeros come in from above. */
static inline i16v vi_shr(i16v w, uint32_t n)
{
    return _mm512_srli_epi32(w, n);
}
/* Of every byte the bits of a where those of mask are set, else those of b. */
static inline i16v vi_select(int mask, i16v a, i16v b)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)mask), a, b, 0xca);
}
/* Lane n of the table for each lane n, of which four bits count. */
static inline v16 v_pick(v16 table, i16v n)
{
    return _mm512_permutexvar_ps(n, table);
}
/* 0, 1, .. 15 */
static inline v16 v_counts(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
/* A 256th of 16 elements of E4M3 without a sign, as in simd_words.h. */
static inline v16 vw_e4m3(const void *p)
{
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p)), 7));
}

#endif
