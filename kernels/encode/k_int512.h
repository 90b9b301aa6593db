/* k_int512.h - int4 groups of 8, 16, 32 and multiples of 64 columns with AVX-512, in passes as in
 * k_mx512.h.  Included by k_encode.c only.
 */
#ifndef TSR_ENCODE_K_INT512_H
#define TSR_ENCODE_K_INT512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "k_max512.h"

/* F16 scales of groups with these maxima, and their reciprocals, 0 for a scale of 0. Returns the number of
 * groups before the first NaN group. */
static uint64_t int4_scales512(const uint32_t *most, uint64_t groups, float *inv, uint16_t *scales)
{
    const __m256i inf = _mm256_set1_epi16(0x7c00);
    for (uint64_t g = 0; g < groups; g += 16) {
        __mmask16 in = (__mmask16)(groups - g < 16 ? (1u << (groups - g)) - 1 : 0xffffu);
        __m512    a = _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(in, most + g));
        __m256i   h = _mm512_cvtps_ph(_mm512_div_ps(a, _mm512_set1_ps(7.0f)),
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        __m512    s = _mm512_cvtph_ps(h);
        __mmask16 some = _mm512_cmpneq_epi32_mask(_mm512_castps_si512(s), _mm512_setzero_si512());
        _mm512_storeu_ps(inv + g, _mm512_maskz_div_ps(some, _mm512_set1_ps(1.0f), s));
        _mm256_mask_storeu_epi16(scales + g, in, h);
        __mmask16 nan = _mm256_cmpge_epi16_mask(h, inf); /* positive all of them */
        if (nan)
            return g + (uint64_t)__builtin_ctz(nan);
    }
    return groups;
}

/* 64 columns to 32 bytes. */
INLINE512 void int4_codes512(const float *x, const float *inv, const uint64_t group, uint8_t *codes)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i       q[4];
    for (uint64_t j = 0; j < 4; j++) {
        __m512 by = _mm512_set1_ps(inv[group == 8    ? 2 * j
                                       : group == 16 ? j
                                       : group == 32 ? j / 2
                                                     : 0]);
        if (group == 8)
            by = _mm512_mask_broadcastss_ps(by, 0xff00, _mm_load_ss(inv + 2 * j + 1));
        q[j] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * j), by));
    }
    __m512i v = _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
    v = _mm512_max_epi8(_mm512_min_epi8(v, _mm512_set1_epi8(7)), _mm512_set1_epi8(-8));
    v = _mm512_permutexvar_epi32(order, _mm512_add_epi8(v, _mm512_set1_epi8(8)));
    v = _mm512_maddubs_epi16(v, _mm512_set1_epi16(0x1001));
    _mm256_storeu_si256((__m256i *)(void *)codes, _mm512_cvtepi16_epi8(v));
}

/* Codes and scales of whole groups, one group or at most CHUNK512 columns, a multiple of STEP512. Returns
 * the number of columns before the first NaN group, again a multiple of STEP512. */
INLINE512 uint64_t int4_run512(const float *x, uint64_t groups, const uint64_t group,
                               uint8_t *codes, uint16_t *scales)
{
    uint32_t most[CHUNK512 / 8];
    float    inv[CHUNK512 / 8];
    maxima512(x, groups, group, most);
    groups = int4_scales512(most, groups, inv, scales);
    uint64_t n = groups * group / STEP512 * STEP512, g = 0, next = group;
    for (uint64_t i = 0; i < n; i += STEP512) {
        if (group < STEP512)
            g = i / group;
        else if (i == next)
            g++, next += group;
        int4_codes512(x + i, inv + g, group, codes + i / 2);
    }
    return n;
}

static uint64_t int4_groups512(uint64_t group, const float *x, uint64_t groups, uint8_t *codes,
                               uint16_t *scales)
{
    switch (group) {
    case 8:
        return int4_run512(x, groups, 8, codes, scales);
    case 16:
        return int4_run512(x, groups, 16, codes, scales);
    case 32:
        return int4_run512(x, groups, 32, codes, scales);
    case 64:
        return int4_run512(x, groups, 64, codes, scales);
    case 128:
        return int4_run512(x, groups, 128, codes, scales);
    default:
        return int4_run512(x, groups, group, codes, scales);
    }
}

/* Columns of whole groups that int4_fast() encodes at once; 0: none. */
static uint64_t int4_unit(uint64_t group)
{
    return unit512(group);
}

/* Encodes the first columns of a row of n, up to one in a NaN group or in a remainder smaller than a unit.
 * Returns their number. */
static uint64_t int4_fast(uint64_t group, const float *x, uint64_t n, uint8_t *codes,
                          uint16_t *scales)
{
    uint64_t unit = unit512(group), whole = n / unit * unit, done = 0;
    uint64_t chunk = unit < CHUNK512 ? CHUNK512 / unit * unit : unit;
    while (done < whole) {
        uint64_t want = whole - done < chunk ? whole - done : chunk;
        uint64_t got =
            int4_groups512(group, x + done, want / group, codes + done / 2, scales + done / group);
        done += got;
        if (got < want)
            break;
    }
    return done;
}
#endif
