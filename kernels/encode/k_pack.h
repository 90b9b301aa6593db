/* k_pack.h - codes of one byte to a bit stream, and F16.  Included by k_encode.c only. */
#ifndef TSR_ENCODE_K_PACK_H
#define TSR_ENCODE_K_PACK_H

#include <stdint.h>
#include <string.h>

#include "kernel.h"
#include "tessera/f16.h"

#if ENCODE_SIMD
#include <immintrin.h>
#endif

/* n codes to ceil(n * bits / 8) bytes; `more` codes of the row come later, so that their bytes
 * may be written before. */
static inline void pack_codes(uint8_t *dst, const uint8_t *codes, uint64_t n, uint64_t more,
                              uint32_t bits)
{
    uint64_t i = 0, x;
    if (bits == 8) {
        memcpy(dst, codes, n);
        return;
    }
#if ENCODE_SIMD == 512
    if (bits == 4) /* a * 1 + b * 16 per pair of bytes */
        for (; i + 64 <= n; i += 64) {
            __m512i v = _mm512_loadu_si512(codes + i);
            v = _mm512_maddubs_epi16(v, _mm512_set1_epi16(0x1001));
            _mm256_storeu_si256((__m256i *)(void *)(dst + i / 2), _mm512_cvtepi16_epi8(v));
        }
#elif ENCODE_SIMD == 2
    if (bits == 4)
        for (; i + 64 <= n; i += 64) {
            const __m256i pair = _mm256_set1_epi16(0x1001);
            __m256i       a = _mm256_loadu_si256((const __m256i *)(const void *)(codes + i));
            __m256i       b = _mm256_loadu_si256((const __m256i *)(const void *)(codes + i + 32));
            a = _mm256_maddubs_epi16(a, pair);
            b = _mm256_maddubs_epi16(b, pair);
            a = _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
            _mm256_storeu_si256((__m256i *)(void *)(dst + i / 2), a);
        }
#endif
    /* eight bytes are written where fewer count: up to six, 24 codes, beyond; codes are below 2^7, so
     * that they may be the signed factor */
    for (; i + 64 <= n && i + 64 + 24 <= n + more; i += 64) {
        uint64_t t[8];
#if ENCODE_SIMD == 512
        /* pairs, fours, eights: a + b * 2^bits and so on */
        __m512i v = _mm512_loadu_si512(codes + i);
        v = _mm512_maddubs_epi16(_mm512_set1_epi16((int16_t)(1 << (8 + bits) | 1)), v);
        v = _mm512_madd_epi16(v, _mm512_set1_epi32(1 << (16 + 2 * bits) | 1));
        __m512i high =
            _mm512_sll_epi64(_mm512_srli_epi64(v, 32), _mm_cvtsi32_si128((int)(4 * bits)));
        v = _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi64(0xffffffff)), high);
        _mm512_storeu_si512(t, v);
#elif ENCODE_SIMD == 2
        for (uint64_t j = 0; j < 8; j += 4) {
            __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(codes + i + 8 * j));
            v = _mm256_maddubs_epi16(_mm256_set1_epi16((int16_t)(1 << (8 + bits) | 1)), v);
            v = _mm256_madd_epi16(v, _mm256_set1_epi32(1 << (16 + 2 * bits) | 1));
            __m256i high =
                _mm256_sll_epi64(_mm256_srli_epi64(v, 32), _mm_cvtsi32_si128((int)(4 * bits)));
            v = _mm256_and_si256(v, _mm256_set1_epi64x(0xffffffff));
            _mm256_storeu_si256((__m256i *)(void *)(t + j), _mm256_or_si256(v, high));
        }
#else
        memcpy(t, codes + i, sizeof t);
        for (int j = 0; j < 8; j++)
            t[j] = tsr_squeeze8(t[j], bits);
#endif
        for (uint64_t j = 0; j < 8; j++)
            memcpy(dst + (i / 8 + j) * bits, t + j, 8);
    }
    for (; i + 8 <= n; i += 8) {
        memcpy(&x, codes + i, 8);
        x = tsr_squeeze8(x, bits);
        for (uint32_t b = 0; b < bits; b++)
            dst[i / 8 * bits + b] = (uint8_t)(x >> 8 * b);
    }
    if (i < n) {
        x = 0;
        memcpy(&x, codes + i, n - i);
        x = tsr_squeeze8(x, bits);
        for (uint32_t b = 0; b < ((n - i) * bits + 7) / 8; b++)
            dst[i / 8 * bits + b] = (uint8_t)(x >> 8 * b);
    }
}

#if ENCODE_SIMD
static inline uint16_t f32_f16(float f)
{
    return (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}
static inline float f16_f32(uint16_t h)
{
    return _cvtsh_ss(h);
}
#else
static inline uint16_t f32_f16(float f)
{
    return tsr_f32_f16(f);
}
static inline float f16_f32(uint16_t h)
{
    return tsr_f16_f32_quiet(h);
}
#endif
#endif
