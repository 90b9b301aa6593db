/* k_mx512.h - MX blocks of 8, 16, 32, ... 512 columns with AVX-512.  Included by k_encode.c only.
 *
 * With y = x / 2^S and f the exponent of y, at least emin, the element's step is 2^(f - mant).
 * Adding 2^(f - mant + 23) to |y| rounds it, half to even, to whole steps that then lie in the
 * sum's low bits.  They are the code but for (f - emin) << mant, which is added; all that
 * is known beforehand goes into the number that is added, as long as it stays even.
 */
#ifndef TSR_ENCODE_K_MX512_H
#define TSR_ENCODE_K_MX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel.h"

#define MX_INLINE static inline __attribute__((always_inline))

/* Every lane: the largest |x| bits of the lane's run of 8 or 16. */
MX_INLINE __m512i mx_spread(__m512i v, const int eight)
{
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
    v = _mm512_max_epu32(v, _mm512_shuffle_i32x4(v, v, 0xb1));
    if (!eight)
        v = _mm512_max_epu32(v, _mm512_shuffle_i32x4(v, v, 0x4e));
    return v;
}

struct mx512 {
    __m512i emax, low, lim;     /* 127 + emax, -lim, lim */
    __m512i emin, magic, steps; /* bits of 2^emin; what is added to f's bits; mask of magnitudes */
    __m512i half;               /* to f's bits: half a step */
    __m512  top;                /* the largest element */
    __m128i mant, sign;         /* shifts */
};

MX_INLINE __m512i mx_code512(const struct mx512 *c, const float *x, __m512 up,
                             const uint32_t rounding)
{
    __m512  y = _mm512_mul_ps(_mm512_loadu_ps(x), up);
    __m512i u = _mm512_castps_si512(y);
    __m512  a = _mm512_min_ps(_mm512_abs_ps(y), c->top);
    __m512i f = _mm512_and_si512(u, _mm512_set1_epi32(0x7f800000));
    f = _mm512_max_epi32(f, c->emin);
    __m512  magic = _mm512_castsi512_ps(_mm512_add_epi32(f, c->magic));
    __m512  sum = _mm512_add_ps(a, magic);
    __m512i k = _mm512_castps_si512(sum);
    k = _mm512_sub_epi32(k, _mm512_sub_epi32(f, _mm512_srl_epi32(f, c->mant)));
    if (rounding != TSR_ENCODE_EVEN) { /* what the rounding took away; exact */
        __m512 rest = _mm512_sub_ps(a, _mm512_sub_ps(sum, magic));
        if (rounding == TSR_ENCODE_NEAREST) {
            __m512 half = _mm512_castsi512_ps(_mm512_add_epi32(f, c->half));
            k = _mm512_mask_add_epi32(k, _mm512_cmp_ps_mask(rest, half, _CMP_GE_OQ), k,
                                      _mm512_set1_epi32(1));
        } else {
            k = _mm512_mask_sub_epi32(k, _mm512_cmp_ps_mask(rest, _mm512_setzero_ps(), _CMP_LT_OQ),
                                      k, _mm512_set1_epi32(1));
        }
    }
    /* steps ? k : the sign where it belongs; higher bits are rubbish */
    return _mm512_ternarylogic_epi32(c->steps, k, _mm512_srl_epi32(u, c->sign), 0xca);
}

/* Codes, one a byte, and scales of n columns, a multiple of the block and of 16.  Returns 0,
 * with nothing worth keeping, when a block is NaN. */
MX_INLINE int mx_run512(const struct mx512 *c, const float *x, uint64_t n, const uint64_t block,
                        const uint32_t rounding, uint8_t *codes, uint8_t *scales)
{
    const __m512i  abs = _mm512_set1_epi32(0x7fffffff);
    const __m512i  bias = _mm512_set1_epi32(127), small = _mm512_set1_epi32(0x400000);
    const uint64_t unit = block < 16 ? 16 : block;
    __m512i        worst = _mm512_setzero_si512();
    for (uint64_t i = 0; i < n; i += unit) {
        __m512i m = _mm512_and_si512(_mm512_loadu_si512(x + i), abs);
        for (uint64_t j = 16; j < unit; j += 16)
            m = _mm512_max_epu32(m, _mm512_and_si512(_mm512_loadu_si512(x + i + j), abs));
        m = mx_spread(m, block == 8);
        worst = _mm512_max_epu32(worst, m);
        __m512i s = _mm512_sub_epi32(_mm512_srli_epi32(m, 23), c->emax);
        s = _mm512_max_epi32(s, c->low);
        __m512i up = _mm512_slli_epi32(_mm512_sub_epi32(bias, s), 23);
        up = _mm512_max_epi32(up, small); /* S = 127: 2^-127 is a subnormal */
        s = _mm512_add_epi32(s, c->lim);
        *scales++ = (uint8_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(s));
        if (block == 8)
            *scales++ = (uint8_t)_mm_cvtsi128_si32(_mm512_extracti32x4_epi32(s, 2));
        for (uint64_t j = 0; j < unit; j += 16) {
            __m512i k = mx_code512(c, x + i + j, _mm512_castsi512_ps(up), rounding);
            _mm_storeu_si128((__m128i *)(void *)(codes + i + j), _mm512_cvtepi32_epi8(k));
        }
    }
    uint32_t top = _mm512_reduce_max_epu32(worst);
    __m128i  s =
        _mm_sub_epi32(_mm_cvtsi32_si128((int32_t)(top >> 23)), _mm512_castsi512_si128(c->emax));
    return top < 0x7f800000u &&
           _mm_cvtsi128_si32(s) <= _mm_cvtsi128_si32(_mm512_castsi512_si128(c->lim));
}

/* Codes of n bytes without what lies above them; minus zero becomes zero. */
MX_INLINE void mx_clean512(uint8_t *codes, uint64_t n, uint32_t sign)
{
    const __m512i mask = _mm512_set1_epi8((int8_t)((2u << sign) - 1));
    const __m512i minus = _mm512_set1_epi8((int8_t)(1u << sign));
    for (uint64_t i = 0; i < n; i += 64) {
        __mmask64 in = n - i < 64 ? (UINT64_C(1) << (n - i)) - 1 : ~UINT64_C(0);
        __m512i   v = _mm512_and_si512(_mm512_maskz_loadu_epi8(in, codes + i), mask);
        v = _mm512_maskz_mov_epi8(_mm512_cmpneq_epi8_mask(v, minus), v);
        _mm512_mask_storeu_epi8(codes + i, in, v);
    }
}

/* As many whole blocks of [0,n) as this file knows: their columns; 0 when there are none. */
static uint64_t mx_blocks512(const struct tsr_encode_element *el, int32_t lim, uint32_t rounding,
                             uint64_t block, const float *x, uint64_t n, uint8_t *codes,
                             uint8_t *scales)
{
    uint64_t unit = block < 16 ? 16 : block, cols = n / unit * unit;
    if (el->mant == 0 || block < 8 || block > 512 || (block & (block - 1)) || cols == 0)
        return 0;
    /* even, and what the code lacks modulo 2^bits */
    uint32_t     lack = (0u - ((uint32_t)(127 + el->emin) << el->mant)) & 0xffu;
    uint32_t     f = el->max >> el->mant, frac = el->max & ((1u << el->mant) - 1);
    uint32_t     top = ((uint32_t)(127 + el->emin - 1) + f) << 23 | frac << (23 - el->mant);
    struct mx512 c = {
        _mm512_set1_epi32(127 + el->emax),
        _mm512_set1_epi32(-lim),
        _mm512_set1_epi32(lim),
        _mm512_set1_epi32((127 + el->emin) << 23),
        _mm512_set1_epi32((int32_t)((uint32_t)(23 - el->mant) << 23 | lack)),
        _mm512_set1_epi32((int32_t)((1u << el->sign) - 1)),
        _mm512_set1_epi32((int32_t)(0u - ((uint32_t)(el->mant + 1) << 23))),
        _mm512_castsi512_ps(_mm512_set1_epi32((int32_t)top)),
        _mm_cvtsi32_si128(23 - el->mant),
        _mm_cvtsi32_si128((int32_t)(31 - el->sign)),
    };
    int good = 0;
#define RUN(b, r)                                                                                  \
    case r:                                                                                        \
        good = mx_run512(&c, x, cols, b, r, codes, scales);                                        \
        break
#define ROUNDS(b)                                                                                  \
    switch (rounding) {                                                                            \
        RUN(b, TSR_ENCODE_NEAREST);                                                                \
        RUN(b, TSR_ENCODE_EVEN);                                                                   \
        RUN(b, TSR_ENCODE_FLOOR);                                                                  \
    default:                                                                                       \
        break;                                                                                     \
    }
    switch (block) {
    case 8:
        ROUNDS(8)
        break;
    case 16:
        ROUNDS(16)
        break;
    case 32:
        ROUNDS(32)
        break;
    default:
        ROUNDS(block)
        break;
    }
#undef RUN
#undef ROUNDS
    if (!good)
        return 0;
    mx_clean512(codes, cols, el->sign);
    return cols;
}
#endif
