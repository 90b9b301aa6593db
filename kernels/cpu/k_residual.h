/* k_residual.h - 16 codes of a row of residuals as values (tessera.residual/1).  v_residual() may leave
 * them in an order of its own, which v_residual_place() ends: every output is a chain by itself. */
#ifndef TSR_K_RESIDUAL_H
#define TSR_K_RESIDUAL_H

#include "simd.h"

#if TSR_SIMD == 512

INLINE v16 v_residual(const uint8_t *p, uint32_t bits)
{
    uint64_t w = 0;
    if (bits == 16)
        return v_load_f16(p);
    if (bits == 8) {
        __m128i q = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)p),
                                  _mm_set1_epi8((char)0x80));
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q));
    }
    /* the look-up takes four bits of a lane, whatever stands above them */
    if (bits == 4) {
        __m512 t = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
        memcpy(&w, p, 8);
        __m512i s = _mm512_srlv_epi64(_mm512_set1_epi64((long long)w),
                                      _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28));
        return _mm512_permutexvar_ps(s, t);
    }
    __m512 t = _mm512_setr_ps(-2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1);
    memcpy(&w, p, 4);
    __m512i s = _mm512_srlv_epi32(_mm512_set1_epi32((int32_t)w),
                                  _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24,
                                                    26, 28, 30));
    return _mm512_permutexvar_ps(s, t);
}
INLINE v16 v_residual_place(v16 v, uint32_t bits)
{
    if (bits != 4)
        return v;
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13,
                                                   15),
                                 v);
}
/* Scales in the order of v_residual(). */
INLINE v16 v_residual_scale(v16 v, uint32_t bits)
{
    if (bits != 4)
        return v;
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7,
                                                   15),
                                 v);
}
INLINE uint32_t v_bits(m16 m)
{
    return m;
}
/* first + place of each bit of m, ascending; room for 16. */
INLINE void v_numbers(uint32_t *to, uint32_t first, uint32_t m)
{
    __m512i all = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    all = _mm512_add_epi32(all, _mm512_set1_epi32((int32_t)first));
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)m, all));
}

#elif TSR_SIMD == 2

INLINE v16 v_residual_bytes(__m128i q) /* 16 signed bytes */
{
    return v_make(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8))));
}
INLINE v16 v_residual(const uint8_t *p, uint32_t bits)
{
    uint64_t w = 0;
    if (bits == 16)
        return v_load_f16(p);
    if (bits == 8)
        return v_residual_bytes(_mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)p),
                                              _mm_set1_epi8((char)0x80)));
    if (bits == 4) {
        memcpy(&w, p, 8);
        __m128i b = _mm_cvtsi64_si128((long long)w), m = _mm_set1_epi8(15);
        __m128i q = _mm_unpacklo_epi8(_mm_and_si128(b, m), _mm_and_si128(_mm_srli_epi16(b, 4), m));
        return v_residual_bytes(_mm_sub_epi8(q, _mm_set1_epi8(8)));
    }
    memcpy(&w, p, 4);
    __m256i all = _mm256_set1_epi32((int32_t)w), m = _mm256_set1_epi32(3),
            two = _mm256_set1_epi32(2);
    __m256i a = _mm256_srlv_epi32(all, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    __m256i b = _mm256_srlv_epi32(all, _mm256_setr_epi32(16, 18, 20, 22, 24, 26, 28, 30));
    return v_make(_mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(a, m), two)),
                  _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(b, m), two)));
}
INLINE v16 v_residual_place(v16 v, uint32_t bits)
{
    (void)bits;
    return v;
}
INLINE v16 v_residual_scale(v16 v, uint32_t bits)
{
    (void)bits;
    return v;
}
INLINE uint32_t v_bits(m16 m)
{
    return (uint32_t)_mm256_movemask_ps(m.a) | (uint32_t)_mm256_movemask_ps(m.b) << 8;
}
INLINE void v_numbers(uint32_t *to, uint32_t first, uint32_t m)
{
    for (; m; m &= m - 1)
        *to++ = first + (uint32_t)__builtin_ctz(m);
}

#else

INLINE v16 v_residual(const uint8_t *p, uint32_t bits)
{
    v16 r;
    if (bits == 16)
        return v_load_f16(p);
    for (uint32_t l = 0; l < 16; l++) {
        uint32_t per = 8 / bits, code = (uint32_t)p[l / per] >> (l % per * bits);
        r.f[l] = (float)((int32_t)(code & ((1u << bits) - 1)) - (int32_t)(1u << (bits - 1)));
    }
    return r;
}
INLINE v16 v_residual_place(v16 v, uint32_t bits)
{
    (void)bits;
    return v;
}
INLINE v16 v_residual_scale(v16 v, uint32_t bits)
{
    (void)bits;
    return v;
}
INLINE uint32_t v_bits(m16 m)
{
    return m.m;
}
INLINE void v_numbers(uint32_t *to, uint32_t first, uint32_t m)
{
    for (; m; m &= m - 1)
        *to++ = first + (uint32_t)__builtin_ctz(m);
}

#endif
#endif
