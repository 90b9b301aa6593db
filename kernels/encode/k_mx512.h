/* k_mx512.h - MX blocks of 8, 16, 32 and multiples of 64 columns with AVX-512. Included by k_encode.c only.
 *
 * With y = |x| / 2^S and f the exponent of y, at least emin, the element's step is 2^(f - mant). Adding 2^(f
 * - mant + 23) to y rounds it to whole steps in the sum's low bits: half to even, or toward zero if the
 * instruction's rounding mode does so. Half away from zero is half a step more, then toward zero; that sum
 * keeps one bit more. The steps are the code except for (f - emin) << mant, of which f << mant is the
 * exponent shifted to the right. Only the low byte of each sum counts.
 *
 * The latency from a column's block maximum to its bits is some hundred cycles, more than the scheduler
 * can cover. Hence short passes over CHUNK512 columns: maxima, scales, bytes, bits.
 */
#ifndef TSR_ENCODE_K_MX512_H
#define TSR_ENCODE_K_MX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "k_max512.h"
#include "k_mx.h"

#define TOWARD_ZERO (_MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)

struct mx512 {
    __m512i   round, limit;         /* of a maximum's bits: mx_carry(), mx_limit() */
    __m512i   emax, low, lim;       /* 127 + emax, -lim, lim */
    __m512i   emin, magic, shift;   /* bits of 2^emin; addend of f's bits; shift of f's bits */
    __m512i   lack, top, sign;      /* bytes: (127 + emin) << mant, the largest, the sign's bit */
    __m512i   pairs, fours, eights; /* packing: factors, factors, a shift per 32 bits */
    __m512i   squeeze, join;        /* bytes of a lane, words of all lanes */
    __m128i   down, to_sign;        /* after `eights`; from bit 7 of a byte */
    __mmask64 out;                  /* bytes of 64 codes */
    uint32_t  bits;
};

/* ---- the scale --------------------------------------------------------------------- */

/* Scales of blocks with these maxima, and the multipliers of their columns. Returns the number of blocks
 * before the first NaN block. */
static uint64_t mx_scales512(const struct mx512 *c, const uint32_t *most, uint64_t blocks,
                             float *up, uint8_t *scales)
{
    const __m512i one = _mm512_set1_epi32(0x800000);
    for (uint64_t b = 0; b < blocks; b += 16) {
        __mmask16 in = (__mmask16)(blocks - b < 16 ? (1u << (blocks - b)) - 1 : 0xffffu);
        __m512i   m = _mm512_maskz_loadu_epi32(in, most + b);
        __mmask16 nan = _mm512_cmpge_epi32_mask(m, c->limit);
        /* subnormals as in mx_scale() */
        __m512i twice = _mm512_sub_epi32(_mm512_add_epi32(m, m), one);
        m = _mm512_mask_max_epi32(m, _mm512_cmplt_epi32_mask(m, one), twice,
                                  _mm512_setzero_si512());
        __m512i s = _mm512_srli_epi32(_mm512_add_epi32(m, c->round), 23);
        s = _mm512_max_epi32(_mm512_sub_epi32(s, c->emax), c->low);
        m = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(127), s), 23);
        m = _mm512_max_epi32(m, _mm512_set1_epi32(0x400000)); /* S = 127: 2^-127 is a subnormal */
        _mm512_storeu_si512(up + b, m);
        __m128i bytes = _mm512_cvtepi32_epi8(_mm512_add_epi32(s, c->lim));
        _mm_mask_storeu_epi8(scales + b, in, bytes);
        if (nan)
            return b + (uint64_t)__builtin_ctz(nan);
    }
    return blocks;
}

/* ---- codes ------------------------------------------------------------------------- */

/* The code without its sign, plus `lack`, modulo 256. */
INLINE512 __m512i mx_code512(const struct mx512 *c, __m512i u, __m512 up, const uint32_t rounding)
{
    __m512i a = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
    __m512  y = _mm512_mul_ps(_mm512_castsi512_ps(a), up);
    __m512i f = _mm512_max_epi32(_mm512_castps_si512(y), c->emin);
    f = _mm512_and_si512(f, _mm512_set1_epi32(0x7f800000));
    __m512  magic = _mm512_castsi512_ps(_mm512_add_epi32(f, c->magic));
    __m512i sum;
    if (rounding == TSR_ENCODE_EVEN) {
        sum = _mm512_castps_si512(_mm512_add_ps(y, magic));
    } else {
        sum = _mm512_castps_si512(_mm512_add_round_ps(y, magic, TOWARD_ZERO));
        if (rounding == TSR_ENCODE_NEAREST)
            sum = _mm512_srli_epi32(sum, 1);
    }
    sum = _mm512_add_epi32(sum, _mm512_srlv_epi32(f, c->shift));
    return _mm512_and_si512(sum, _mm512_set1_epi32(0xff));
}

/* 64 codes, one a byte. */
INLINE512 __m512i mx_bytes512(const struct mx512 *c, const float *x, const float *up,
                              const uint64_t block, const uint32_t rounding)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i       u[4], k[4];
    for (uint64_t j = 0; j < 4; j++) {
        __m512 by = _mm512_set1_ps(up[block == 8    ? 2 * j
                                      : block == 16 ? j
                                      : block == 32 ? j / 2
                                                    : 0]);
        if (block == 8)
            by = _mm512_mask_broadcastss_ps(by, 0xff00, _mm_load_ss(up + 2 * j + 1));
        u[j] = _mm512_loadu_si512(x + 16 * j);
        k[j] = mx_code512(c, u[j], by, rounding);
    }
    __m512i v =
        _mm512_packus_epi16(_mm512_packus_epi32(k[0], k[1]), _mm512_packus_epi32(k[2], k[3]));
    __m512i n = _mm512_packs_epi16(_mm512_packs_epi32(u[0], u[1]),
                                   _mm512_packs_epi32(u[2], u[3])); /* signs */
    v = _mm512_min_epu8(_mm512_sub_epi8(v, c->lack), c->top);
    /* bit 7: negative, and the code is not zero */
    n = _mm512_and_si512(n, _mm512_sub_epi8(_mm512_setzero_si512(), v));
    n = _mm512_srl_epi16(n, c->to_sign);
    v = _mm512_ternarylogic_epi32(v, n, c->sign, 0xf8); /* v | (n & sign) */
    return _mm512_permutexvar_epi32(order, v);
}

/* n codes, one a byte, a multiple of 64, to their n / 8 * bits bytes. */
INLINE512 void mx_pack512(const struct mx512 *c, const uint8_t *bytes, uint64_t n, uint8_t *codes)
{
    for (uint64_t i = 0; i < n && c->bits == 4; i += STEP512) {
        __m512i v = _mm512_maddubs_epi16(c->pairs, _mm512_loadu_si512(bytes + i));
        _mm256_storeu_si256((__m256i *)(void *)(codes + i / 2), _mm512_cvtepi16_epi8(v));
    }
    for (uint64_t i = 0; i < n && c->bits != 4; i += STEP512) {
        __m512i v = _mm512_maddubs_epi16(c->pairs, _mm512_loadu_si512(bytes + i));
        v = _mm512_sllv_epi32(_mm512_madd_epi16(v, c->fours), c->eights);
        v = _mm512_shuffle_epi8(_mm512_srl_epi64(v, c->down), c->squeeze);
        v = _mm512_permutexvar_epi16(c->join, v);
        _mm512_mask_storeu_epi8(codes + i / 8 * c->bits, c->out, v);
    }
}

/* Codes and scales of whole blocks, one block or at most CHUNK512 columns, a multiple of STEP512. Returns
 * the number of columns before the first NaN block, again a multiple of STEP512. */
INLINE512 uint64_t mx_run512(const struct mx512 *c, const float *x, uint64_t blocks,
                             const uint64_t block, const uint32_t rounding, uint8_t *codes,
                             uint8_t *scales)
{
    uint32_t most[CHUNK512 / 8];
    float    up[CHUNK512 / 8];
    uint8_t  wait[CHUNK512];
    maxima512(x, blocks, block, most);
    blocks = mx_scales512(c, most, blocks, up, scales);
    uint64_t n = blocks * block / STEP512 * STEP512, b = 0, next = block;
    for (uint64_t at = 0; at < n; at += CHUNK512) {
        uint64_t stop = n - at < CHUNK512 ? n : at + CHUNK512;
        uint8_t *bytes = c->bits == 8 ? codes + at : wait;
        for (uint64_t i = at; i < stop; i += STEP512) {
            if (block < STEP512)
                b = i / block;
            else if (i == next)
                b++, next += block;
            __m512i v = mx_bytes512(c, x + i, up + b, block, rounding);
            _mm512_storeu_si512(bytes + (i - at), v);
        }
        if (c->bits < 8)
            mx_pack512(c, bytes, stop - at, codes + at / 8 * c->bits);
    }
    return n;
}

/* ---- rows -------------------------------------------------------------------------- */

static struct mx512 mx_constants512(const struct mx *m)
{
    const struct tsr_encode_element *el = &m->el;
    uint32_t                         nearest = m->rounding == TSR_ENCODE_NEAREST, bits = el->bits;
    uint32_t                         round = mx_carry(m), limit = mx_limit(m);
    int                              b = (int)bits;
    __m512i lane = _mm512_set4_epi32(0x0f0e0d0c, 0x0b0a0908, 0x07060504, 0x03020100);
    __m512i word = _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
                                    15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i gap8 = _mm512_set1_epi8((int8_t)(8 - b)), gap16 = _mm512_set1_epi16((int16_t)(8 - b));
    __m512i join = word;
    for (int i = 1; i < 4; i++) /* b words of each lane count */
        join = _mm512_mask_add_epi16(
            join, _mm512_cmpge_epi16_mask(word, _mm512_set1_epi16((int16_t)(i * b))), join, gap16);
    return (struct mx512){
        .round = _mm512_set1_epi32((int32_t)round),
        .limit = _mm512_set1_epi32((int32_t)limit),
        .emax = _mm512_set1_epi32(127 + el->emax),
        .low = _mm512_set1_epi32(-m->lim),
        .lim = _mm512_set1_epi32(m->lim),
        .emin = _mm512_set1_epi32((127 + el->emin) << 23),
        .magic = _mm512_set1_epi32(nearest ? ((22 - el->mant) << 23) + 1 : (23 - el->mant) << 23),
        .shift = _mm512_set1_epi32(23 - el->mant),
        .lack = _mm512_set1_epi8((int8_t)((127 + el->emin) << el->mant)),
        .top = _mm512_set1_epi8((int8_t)el->max),
        .sign = _mm512_set1_epi8((int8_t)(1u << el->sign)),
        .pairs = _mm512_set1_epi16((int16_t)(1u << (8 + bits) | 1u)),
        .fours = _mm512_set1_epi32((int32_t)(bits < 8 ? 1u << (16 + 2 * bits) | 1u : 0)),
        .eights = _mm512_set1_epi64(32 - 4 * b),
        .squeeze =
            _mm512_mask_add_epi8(lane, _mm512_cmpge_epi8_mask(lane, _mm512_set1_epi8((int8_t)b)),
                                 lane, gap8),
        .join = join,
        .to_sign = _mm_cvtsi32_si128((int)(7 - el->sign)),
        .down = _mm_cvtsi32_si128(32 - 4 * b),
        .out = bits < 8 ? (UINT64_C(1) << 8 * bits) - 1 : ~UINT64_C(0),
        .bits = bits,
    };
}

/* Columns of whole blocks that mx_fast() encodes at once; 0: none. */
static uint64_t mx_unit(const struct mx *m, uint64_t block)
{
    (void)m;
    return unit512(block);
}

static uint64_t mx_blocks512(const struct mx512 *c, uint32_t rounding, uint64_t block,
                             const float *x, uint64_t blocks, uint8_t *codes, uint8_t *scales)
{
#define RUN(b)                                                                                     \
    return rounding == TSR_ENCODE_EVEN                                                             \
               ? mx_run512(c, x, blocks, b, TSR_ENCODE_EVEN, codes, scales)                        \
           : rounding == TSR_ENCODE_NEAREST                                                        \
               ? mx_run512(c, x, blocks, b, TSR_ENCODE_NEAREST, codes, scales)                     \
               : mx_run512(c, x, blocks, b, TSR_ENCODE_FLOOR, codes, scales)
    switch (block) {
    case 8:
        RUN(8);
    case 16:
        RUN(16);
    case 32:
        RUN(32);
    case 64:
        RUN(64);
    case 128:
        RUN(128);
    default:
        RUN(block);
    }
#undef RUN
}

/* The first columns of a row of n, up to one that belongs to a NaN block or to a long block that n
 * cuts short: how many. */
static uint64_t mx_fast(const struct mx *m, uint64_t block, const float *x, uint64_t n,
                        uint8_t *codes, uint8_t *scales)
{
    struct mx512 c = mx_constants512(m);
    uint64_t     unit = mx_unit(m, block), whole = n / unit * unit, done = 0;
    uint64_t     chunk = unit < CHUNK512 ? CHUNK512 / unit * unit : unit;
    while (done < whole) {
        uint64_t want = whole - done < chunk ? whole - done : chunk;
        uint64_t got = mx_blocks512(&c, m->rounding, block, x + done, want / block,
                                    codes + done / 8 * c.bits, scales + done / block);
        done += got;
        if (got < want)
            return done;
    }
    if (done == n || unit > STEP512)
        return done;
    float   rest[STEP512] = { 0 };
    uint8_t bytes[STEP512], some[STEP512 / 8];
    memcpy(rest, x + done, (n - done) * sizeof *x);
    if (!mx_blocks512(&c, m->rounding, block, rest, STEP512 / block, bytes, some))
        return done;
    memcpy(codes + done / 8 * c.bits, bytes, ((n - done) * c.bits + 7) / 8);
    memcpy(scales + done / block, some, (n - done + block - 1) / block);
    return n;
}
#endif
