/* k_mx256.h - MX blocks of 8, 16, 32, ... 512 columns with AVX2: the arithmetic of k_mx512.h, eight
 * lanes at a time.  Included by k_encode.c only.
 */
#ifndef TSR_ENCODE_K_MX256_H
#define TSR_ENCODE_K_MX256_H

#include <immintrin.h>
#include <stdint.h>

#include "k_mx.h"
#include "k_pack.h"

#define MX_INLINE static inline __attribute__((always_inline))

#define MX_GROUP 32u  /* columns that are packed to bytes together */
#define MX_CHUNK 512u /* columns whose codes wait as bytes */

struct mx256 {
    __m256i emax, low, lim;     /* 127 + emax, -lim, lim */
    __m256i emin, magic, steps; /* bits of 2^emin; addend of f's bits; mask of magnitudes */
    __m256i half;               /* to f's bits: half a step */
    __m256i code, minus;        /* mask of a whole code in 32 bits; minus zero in bytes */
    __m256  top;                /* the largest element */
    __m128i mant, sign;         /* shifts */
};

/* Every lane: the largest of all. */
MX_INLINE __m256i mx_spread256(__m256i v)
{
    v = _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0x4e));
    v = _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0xb1));
    return _mm256_max_epu32(v, _mm256_permute2x128_si256(v, v, 1));
}

MX_INLINE __m256i mx_code256(const struct mx256 *c, const float *x, __m256 up,
                             const uint32_t rounding)
{
    __m256  y = _mm256_mul_ps(_mm256_loadu_ps(x), up);
    __m256i u = _mm256_castps_si256(y);
    __m256  a = _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff)));
    a = _mm256_min_ps(a, c->top);
    __m256i f = _mm256_and_si256(u, _mm256_set1_epi32(0x7f800000));
    f = _mm256_max_epi32(f, c->emin);
    __m256  magic = _mm256_castsi256_ps(_mm256_add_epi32(f, c->magic));
    __m256  sum = _mm256_add_ps(a, magic);
    __m256i k = _mm256_castps_si256(sum);
    k = _mm256_sub_epi32(k, _mm256_sub_epi32(f, _mm256_srl_epi32(f, c->mant)));
    if (rounding != TSR_ENCODE_EVEN) { /* the rounding error; exact */
        __m256 rest = _mm256_sub_ps(a, _mm256_sub_ps(sum, magic));
        if (rounding == TSR_ENCODE_NEAREST) {
            __m256 half = _mm256_castsi256_ps(_mm256_add_epi32(f, c->half));
            k = _mm256_sub_epi32(k, _mm256_castps_si256(_mm256_cmp_ps(rest, half, _CMP_GE_OQ)));
        } else {
            __m256 below = _mm256_cmp_ps(rest, _mm256_setzero_ps(), _CMP_LT_OQ);
            k = _mm256_add_epi32(k, _mm256_castps_si256(below));
        }
    }
    /* steps ? k : the sign where it belongs */
    k = _mm256_or_si256(_mm256_and_si256(c->steps, k),
                        _mm256_andnot_si256(c->steps, _mm256_srl_epi32(u, c->sign)));
    return _mm256_and_si256(k, c->code);
}

/* Four times eight codes to bytes; minus zero becomes zero. */
MX_INLINE void mx_bytes256(const struct mx256 *c, const __m256i k[4], uint8_t *codes)
{
    __m256i v =
        _mm256_packus_epi16(_mm256_packus_epi32(k[0], k[1]), _mm256_packus_epi32(k[2], k[3]));
    v = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    v = _mm256_andnot_si256(_mm256_cmpeq_epi8(v, c->minus), v);
    _mm256_storeu_si256((__m256i *)(void *)codes, v);
}

/* The block's scale byte, and the factor of its columns. */
MX_INLINE __m256 mx_block256(const struct mx256 *c, const float *x, const uint64_t block,
                             __m256i *worst, uint8_t *scale)
{
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    __m256i       m = _mm256_setzero_si256();
    for (uint64_t j = 0; j < block; j += 8) {
        __m256i v = _mm256_castps_si256(_mm256_loadu_ps(x + j));
        m = _mm256_max_epu32(m, _mm256_and_si256(v, abs));
    }
    m = mx_spread256(m);
    *worst = _mm256_max_epu32(*worst, m);
    __m256i s = _mm256_sub_epi32(_mm256_srli_epi32(m, 23), c->emax);
    s = _mm256_max_epi32(s, c->low);
    __m256i up = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(127), s), 23);
    up = _mm256_max_epi32(up, _mm256_set1_epi32(0x400000)); /* S = 127: 2^-127 is a subnormal */
    s = _mm256_add_epi32(s, c->lim);
    *scale = (uint8_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(s));
    return _mm256_castsi256_ps(up);
}

/* Codes, one a byte, and scales of n columns, a multiple of the block and of MX_GROUP. Returns 0, with
 * undefined output, when a block is NaN. */
MX_INLINE int mx_run256(const struct mx256 *c, const float *x, uint64_t n, const uint64_t block,
                        const uint32_t rounding, uint8_t *codes, uint8_t *scales)
{
    const uint64_t unit = block < MX_GROUP ? MX_GROUP : block;
    __m256i        worst = _mm256_setzero_si256();
    for (uint64_t i = 0; i < n; i += unit) {
        __m256 up[4];
        for (uint64_t b = 0; b < unit; b += block) {
            __m256 one = mx_block256(c, x + i + b, block, &worst, scales++);
            for (uint64_t v = b / 8; v < 4 && v < (b + block) / 8; v++)
                up[v] = one;
        }
        for (uint64_t j = 0; j < unit; j += MX_GROUP) {
            __m256i k[4];
            for (uint64_t v = 0; v < 4; v++)
                k[v] = mx_code256(c, x + i + j + 8 * v, up[v], rounding);
            mx_bytes256(c, k, codes + i + j);
        }
    }
    uint32_t top[8];
    _mm256_storeu_si256((__m256i *)(void *)top, worst);
    for (int v = 1; v < 8; v++) /* of blocks of 8 each lane holds all of them */
        top[0] = top[v] > top[0] ? top[v] : top[0];
    int32_t s = (int32_t)(top[0] >> 23) - _mm_cvtsi128_si32(_mm256_castsi256_si128(c->emax));
    return top[0] < 0x7f800000u && s <= _mm_cvtsi128_si32(_mm256_castsi256_si128(c->lim));
}

/* As many whole blocks of [0,n) as this file knows: their columns; 0 when there are none. */
static uint64_t mx_blocks256(const struct tsr_encode_element *el, int32_t lim, uint32_t rounding,
                             uint64_t block, const float *x, uint64_t n, uint8_t *codes,
                             uint8_t *scales)
{
    uint64_t unit = block < MX_GROUP ? MX_GROUP : block, cols = n / unit * unit;
    /* even, and the code's deficit modulo 2^bits */
    uint32_t     lack = (0u - ((uint32_t)(127 + el->emin) << el->mant)) & 0xffu;
    uint32_t     f = el->max >> el->mant, frac = el->max & ((1u << el->mant) - 1);
    uint32_t     top = ((uint32_t)(127 + el->emin - 1) + f) << 23 | frac << (23 - el->mant);
    struct mx256 c = {
        _mm256_set1_epi32(127 + el->emax),
        _mm256_set1_epi32(-lim),
        _mm256_set1_epi32(lim),
        _mm256_set1_epi32((127 + el->emin) << 23),
        _mm256_set1_epi32((int32_t)((uint32_t)(23 - el->mant) << 23 | lack)),
        _mm256_set1_epi32((int32_t)((1u << el->sign) - 1)),
        _mm256_set1_epi32((int32_t)(0u - ((uint32_t)(el->mant + 1) << 23))),
        _mm256_set1_epi32((int32_t)((2u << el->sign) - 1)),
        _mm256_set1_epi8((int8_t)(1u << el->sign)),
        _mm256_castsi256_ps(_mm256_set1_epi32((int32_t)top)),
        _mm_cvtsi32_si128(23 - el->mant),
        _mm_cvtsi32_si128((int32_t)(31 - el->sign)),
    };
#define RUN(b, r)                                                                                  \
    case r:                                                                                        \
        return mx_run256(&c, x, cols, b, r, codes, scales) ? cols : 0
#define ROUNDS(b)                                                                                  \
    switch (rounding) {                                                                            \
        RUN(b, TSR_ENCODE_NEAREST);                                                                \
        RUN(b, TSR_ENCODE_EVEN);                                                                   \
        RUN(b, TSR_ENCODE_FLOOR);                                                                  \
    default:                                                                                       \
        return 0;                                                                                  \
    }
    switch (block) {
    case 8:
        ROUNDS(8)
    case 16:
        ROUNDS(16)
    case 32:
        ROUNDS(32)
    default:
        ROUNDS(block)
    }
#undef RUN
#undef ROUNDS
}

/* Columns of whole blocks that mx_fast() encodes at once; 0: none. */
static uint64_t mx_unit(const struct mx *m, uint64_t block)
{
    if (m->el.mant == 0 || m->scale_rule != TSR_ENCODE_SCALE_FLOOR || block < 8 ||
        block > MX_CHUNK || (block & (block - 1)))
        return 0;
    return block < MX_GROUP ? MX_GROUP : block;
}

/* The first columns of a row of n, up to a chunk with a NaN block or to less than a unit: how many.
 */
static uint64_t mx_fast(const struct mx *m, uint64_t block, const float *x, uint64_t n,
                        uint8_t *codes, uint8_t *scales)
{
    uint64_t at = 0;
    for (;;) {
        uint8_t  bytes[MX_CHUNK];
        uint64_t want = n - at < MX_CHUNK ? n - at : MX_CHUNK;
        uint64_t got = mx_blocks256(&m->el, m->lim, m->rounding, block, x + at, want, bytes,
                                    scales + at / block);
        if (got == 0)
            return at;
        pack_codes(codes + at / 8 * m->el.bits, bytes, got, n - at - got, m->el.bits);
        at += got;
    }
}
#endif
