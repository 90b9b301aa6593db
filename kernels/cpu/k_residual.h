/* k_residual.h - codes of a row of residuals as values (tessera.residual/1), by lines of 64 bytes.  A line has
 * 32/bits vectors; v_residual() may spread its outputs over them in an order of its own, which v_residual_order()
 * ends: every output is a chain by itself. */
#ifndef TSR_K_RESIDUAL_H
#define TSR_K_RESIDUAL_H

#include "simd.h"

#if TSR_SIMD == 512

/* Lane i of vector v has output 32/bits * i + v of the line: one shift for the whole line. */
INLINE v16 v_residual(const uint8_t *line, int v, uint32_t bits)
{
    if (bits == 16)
        return v_load_f16(line + 32 * v);
    /* the look-up takes four bits of a lane, whatever stands above them */
    const __m512 four = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512 two = _mm512_setr_ps(-2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1);
    __m512i      w = _mm512_loadu_si512(line);
    if (bits == 8) {
        w = _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
        w = (__m512i)((__v16su)w << (24 - 8 * v));
        return _mm512_cvtepi32_ps(_mm512_srai_epi32(w, 24));
    }
    w = (__m512i)((__v16su)w >> ((int32_t)bits * v));
    return _mm512_permutexvar_ps(w, bits == 4 ? four : two);
}

/* Of n vectors those of the first half and of the second lane by lane in turn. */
INLINE void v_in_turn(const v16 *from, v16 *to, int n)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    UNROLL
    for (int i = 0; i < n / 2; i++) {
        v16 a = from[i], b = from[i + n / 2];
        to[2 * i] = _mm512_permutex2var_ps(a, low, b);
        to[2 * i + 1] = _mm512_permutex2var_ps(a, high, b);
    }
}

/* The vectors of a line in the order of its outputs. */
INLINE void v_residual_order(v16 *a, uint32_t bits)
{
    v16 t[16];
    switch (bits) {
    case 2:
        v_in_turn(a, t, 16);
        v_in_turn(t, a, 16);
        v_in_turn(a, t, 16);
        v_in_turn(t, a, 16);
        break;
    case 4:
        v_in_turn(a, t, 8);
        v_in_turn(t, a, 8);
        v_in_turn(a, t, 8);
        memcpy(a, t, 8 * sizeof *a);
        break;
    case 8:
        v_in_turn(a, t, 4);
        v_in_turn(t, a, 4);
        break;
    default:
        break;
    }
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
INLINE v16 v_residual(const uint8_t *line, int v, uint32_t bits)
{
    const uint8_t *p = line + 2 * (int)bits * v;
    uint64_t       w = 0;
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
INLINE void v_residual_order(v16 *a, uint32_t bits)
{
    (void)a;
    (void)bits;
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

INLINE v16 v_residual(const uint8_t *line, int v, uint32_t bits)
{
    const uint8_t *p = line + 2 * (int)bits * v;
    v16            r;
    if (bits == 16)
        return v_load_f16(p);
    for (uint32_t l = 0; l < 16; l++) {
        uint32_t per = 8 / bits, code = (uint32_t)p[l / per] >> (l % per * bits);
        r.f[l] = (float)((int32_t)(code & ((1u << bits) - 1)) - (int32_t)(1u << (bits - 1)));
    }
    return r;
}
INLINE void v_residual_order(v16 *a, uint32_t bits)
{
    (void)a;
    (void)bits;
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
