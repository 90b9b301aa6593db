/* k_decode512.h - codes of any width to F32 with AVX-512, 16 at a time.  Included by k_decode.c only.
 *
 * Up to 6 bits are looked up.  Of 7 and 8 the magnitude's bits become F32's exponent and mantissa, and
 * those of integers and subnormals a number times the smallest one.
 */
#ifndef TSR_ENCODE_K_DECODE512_H
#define TSR_ENCODE_K_DECODE512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "encode.h"

#define INLINE512 static inline __attribute__((always_inline))

/* How 16 codes become one a lane. */
struct spread512 {
    __m512i  words, shift; /* the two words with a code's bits; where it begins */
    __m512i  mask;
    uint32_t bits;
    uint16_t bytes; /* one bit for each byte that 16 codes take */
};

static struct spread512 spread512_of(uint32_t bits)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i       at = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int32_t)bits));
    __m512i       word = _mm512_srli_epi32(at, 4);
    __m512i       next = _mm512_add_epi32(word, _mm512_set1_epi32(1));
    return (struct spread512){ .words = _mm512_or_si512(word, _mm512_slli_epi32(next, 16)),
                               .shift = _mm512_and_si512(at, _mm512_set1_epi32(15)),
                               .mask = _mm512_set1_epi32((1 << bits) - 1),
                               .bits = bits,
                               .bytes = (uint16_t)((1u << 2 * bits) - 1) };
}

/* Codes from column k on, a multiple of 16. */
INLINE512 __m512i codes512(const struct spread512 *s, const uint8_t *codes, uint64_t k)
{
    __m128i v = _mm_maskz_loadu_epi8(s->bytes, codes + k / 8 * s->bits);
    __m512i w = _mm512_permutexvar_epi16(s->words, _mm512_zextsi128_si512(v));
    return _mm512_and_si512(_mm512_srlv_epi32(w, s->shift), s->mask);
}

struct values512 {
    __m512           t[4]; /* of the codes from 16 * i on, where there are */
    __m512i          shift, bias, sign, normal, most;
    __m512           one;
    struct spread512 spread;
};

static struct values512 values512_of(const struct tsr_decode_mx *m)
{
    uint32_t         n = 1u << m->bits;
    struct values512 v = { .shift = _mm512_set1_epi32(23 - (int32_t)m->mant),
                           .bias = _mm512_set1_epi32(m->bias * (1 << 23)),
                           .normal = _mm512_set1_epi32((int32_t)m->normal),
                           .sign = _mm512_set1_epi32((int32_t)(n / 2)),
                           .most = _mm512_set1_epi32((int32_t)m->max),
                           .one = _mm512_set1_ps(m->value[1]),
                           .spread = spread512_of(m->bits) };
    for (uint64_t i = 0; i < 4; i++)
        v.t[i] = _mm512_loadu_ps(m->value + 16 * i);
    return v;
}

/* Values before the scale of 16 codes of `bits` bits. */
INLINE512 __m512 look512(const struct values512 *v, const struct tsr_decode_mx *m, __m512i c,
                         const uint32_t bits)
{
    if (bits <= 4)
        return _mm512_permutexvar_ps(c, v->t[0]);
    if (bits == 5)
        return _mm512_permutex2var_ps(v->t[0], c, v->t[1]);
    if (bits == 6)
        return _mm512_mask_blend_ps(_mm512_test_epi32_mask(c, _mm512_set1_epi32(32)),
                                    _mm512_permutex2var_ps(v->t[0], c, v->t[1]),
                                    _mm512_permutex2var_ps(v->t[2], c, v->t[3]));
    __m512i   mag = _mm512_andnot_si512(v->sign, c);
    __mmask16 neg = _mm512_test_epi32_mask(c, v->sign);
    if (_mm512_cmpgt_epi32_mask(mag, v->most)) { /* NaN or Inf */
        uint32_t code[16];
        float    value[16];
        _mm512_storeu_si512(code, c);
        for (int i = 0; i < 16; i++)
            value[i] = m->value[code[i]];
        return _mm512_loadu_ps(value);
    }
    __m512    y = _mm512_mul_ps(_mm512_cvtepi32_ps(mag), v->one);
    __mmask16 normal = _mm512_cmpge_epi32_mask(mag, v->normal);
    y = _mm512_castsi512_ps(_mm512_mask_add_epi32(_mm512_castps_si512(y), normal,
                                                  _mm512_sllv_epi32(mag, v->shift), v->bias));
    return _mm512_mask_sub_ps(y, neg, _mm512_setzero_ps(), y); /* both zeros are +0 */
}

INLINE512 void put512(float *dst, __m512 v, const int add)
{
    _mm512_storeu_ps(dst, add ? _mm512_add_ps(_mm512_loadu_ps(dst), v) : v);
}

/* Whole vectors in whole blocks of 8 (and then two at a time) or of a multiple of 16. */
INLINE512 uint64_t mx_run512(const struct tsr_decode_mx *m, uint64_t cols, const uint8_t *codes,
                             const uint8_t *scales, float *dst, const int add, const uint32_t bits)
{
    struct values512 v = values512_of(m);
    const uint64_t   unit = m->block == 8 ? 16 : m->block;
    uint64_t         k = 0;
    while (k + unit <= cols) {
        __m512 scale = _mm512_set1_ps(scale_of(m, *scales++));
        if (m->block == 8)
            scale = _mm512_mask_blend_ps(0xff00, scale, _mm512_set1_ps(scale_of(m, *scales++)));
        for (uint64_t end = k + unit; k < end; k += 16) {
            __m512 y = look512(&v, m, codes512(&v.spread, codes, k), bits);
            put512(dst + k, _mm512_mul_ps(y, scale), add);
        }
    }
    return k;
}

/* The columns that mx_run512() decodes. */
INLINE512 uint64_t mx_vectors512(const struct tsr_decode_mx *m, uint64_t cols, const uint8_t *codes,
                                 const uint8_t *scales, float *dst, const int add)
{
    switch (m->bits) {
    case 5:
        return mx_run512(m, cols, codes, scales, dst, add, 5);
    case 6:
        return mx_run512(m, cols, codes, scales, dst, add, 6);
    case 7:
    case 8:
        return mx_run512(m, cols, codes, scales, dst, add, 8);
    default:
        return mx_run512(m, cols, codes, scales, dst, add, 4);
    }
}

/* Whole vectors of codes under a scale of each column's own: the columns. */
INLINE512 uint64_t scaled_vectors512(uint32_t bits, uint64_t cols, const uint8_t *codes,
                                     const float *scale, float *dst, const int add)
{
    struct spread512 s = spread512_of(bits);
    const __m512i    zero = _mm512_set1_epi32(1 << (bits - 1));
    uint64_t         k = 0;
    for (; k + 16 <= cols; k += 16) {
        __m512i c = codes512(&s, codes, k);
        __m512  y = _mm512_cvtepi32_ps(_mm512_sub_epi32(c, zero));
        y = _mm512_mask_mov_ps(y, _mm512_testn_epi32_mask(c, c), _mm512_set1_ps(NAN));
        put512(dst + k, _mm512_mul_ps(y, _mm512_loadu_ps(scale + k)), add);
    }
    return k;
}
#endif
