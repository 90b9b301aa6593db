/* k_decode.c - codes back to F32, and codes under a scale for each column; compiled once per
 * instruction set (ENCODE_SIMD 0, 2 or 512), the same numbers from each. */
#include <math.h>
#include <string.h>

#include "k_pack.h"
#include "kernel.h"

#define CHUNK 512u /* codes that are spread to bytes at once; a multiple of 8 */

/* n codes from a bit stream that begins at `src` and has `left` bytes; out has room for n rounded up
 * to a multiple of 8. */
static void unpack_codes(const uint8_t *src, uint64_t left, uint64_t n, uint32_t bits, uint8_t *out)
{
    if (bits == 8) {
        memcpy(out, src, n);
        return;
    }
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t x = 0, at = i / 8 * bits;
        if (left - at >= 8)
            memcpy(&x, src + at, 8);
        else
            memcpy(&x, src + at, left - at);
        x = tsr_spread8(x, bits);
        memcpy(out + i, &x, 8);
    }
}

/* 2^n, n from -127 (a subnormal) to 127. */
static inline float pow2(int32_t n)
{
    uint32_t u = n > -127 ? (uint32_t)(n + 127) << 23 : 0x400000u;
    float    f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float scale_of(const struct tsr_decode_mx *m, uint8_t stored)
{
    return stored > 2 * m->lim ? NAN : pow2((int32_t)stored - (int32_t)m->lim);
}

#if ENCODE_SIMD == 512
#include "k_decode512.h"
#endif

#if ENCODE_SIMD
#define WIDE (ENCODE_SIMD == 512 ? 16u : 8u)

#if ENCODE_SIMD == 512
typedef __m512 vec;
#define vec_load(p)     _mm512_loadu_ps(p)
#define vec_store(p, v) _mm512_storeu_ps(p, v)
#define vec_set(x)      _mm512_set1_ps(x)
#define vec_mul         _mm512_mul_ps
#define vec_add         _mm512_add_ps
#else
typedef __m256 vec;
#define vec_load(p)     _mm256_loadu_ps(p)
#define vec_store(p, v) _mm256_storeu_ps(p, v)
#define vec_set(x)      _mm256_set1_ps(x)
#define vec_mul         _mm256_mul_ps
#define vec_add         _mm256_add_ps
#endif

static inline void vec_put(float *dst, vec v, const int add)
{
    vec_store(dst, add ? vec_add(vec_load(dst), v) : v);
}

/* Two halves of a table of 16, and the codes of four bits that look things up in it. */
struct table16 {
#if ENCODE_SIMD == 512
    __m512 all;
#else
    __m256 low, high;
#endif
};

static inline struct table16 table16_of(const float *value)
{
#if ENCODE_SIMD == 512
    return (struct table16){ _mm512_loadu_ps(value) };
#else
    return (struct table16){ _mm256_loadu_ps(value), _mm256_loadu_ps(value + 8) };
#endif
}

/* The values of WIDE codes of four bits from src on. */
static inline vec look16(const struct table16 *t, const uint8_t *src)
{
#if ENCODE_SIMD == 512
    const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i shift =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    __m512i v = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)(const void *)src));
    v = _mm512_srlv_epi32(_mm512_permutexvar_epi32(spread, v), shift);
    return _mm512_permutexvar_ps(v, t->all); /* by the lowest four bits */
#else
    const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    uint32_t      u;
    memcpy(&u, src, 4);
    __m256i v = _mm256_srlv_epi32(_mm256_set1_epi32((int32_t)u), shift);
    __m256  high = _mm256_castsi256_ps(_mm256_slli_epi32(v, 28)); /* bit 3 */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t->low, v),
                            _mm256_permutevar8x32_ps(t->high, v), high);
#endif
}

/* Whole vectors of four-bit codes in whole blocks; returns their columns. */
static inline uint64_t mx_nibbles(const struct tsr_decode_mx *m, uint64_t cols,
                                  const uint8_t *codes, const uint8_t *scales, float *dst,
                                  const int add)
{
    struct table16 t = table16_of(m->value);
    uint64_t       k = 0;
    for (uint64_t b = 0; k + m->block <= cols; b++) {
        vec scale = vec_set(scale_of(m, scales[b]));
        for (uint64_t end = k + m->block; k < end; k += WIDE)
            vec_put(dst + k, vec_mul(look16(&t, codes + k / 2), scale), add);
    }
    return k;
}
#endif

static inline void mx_any(const struct tsr_decode_mx *m, uint64_t cols, const uint8_t *codes,
                          const uint8_t *scales, float *dst, const int add)
{
    uint64_t bytes = (cols * m->bits + 7) / 8, from = 0, block = m->block ? m->block : 1;
#if ENCODE_SIMD
    if (m->bits == 4 && block % WIDE == 0)
        from = mx_nibbles(m, cols, codes, scales, dst, add);
#endif
#if ENCODE_SIMD == 512
    if (from == 0 && (block == 8 || block % 16 == 0))
        from = mx_vectors512(m, cols, codes, scales, dst, add);
#endif
    /* from is a multiple of 8 */
    for (uint64_t at = from; at < cols; at += CHUNK) {
        uint8_t  code[CHUNK];
        uint64_t stop = at + CHUNK < cols ? at + CHUNK : cols, first = at / 8 * m->bits;
        unpack_codes(codes + first, bytes - first, stop - at, m->bits, code);
        for (uint64_t k = at; k < stop;) {
            uint64_t b = k / block, end = (b + 1) * block < stop ? (b + 1) * block : stop;
            float    scale = scale_of(m, scales[b]);
            for (; k < end; k++) {
                float v = m->value[code[k - at]] * scale;
                dst[k] = add ? dst[k] + v : v;
            }
        }
    }
}

void DECODE(mx_decode)(const struct tsr_decode_mx *m, uint64_t cols, const uint8_t *codes,
                       const uint8_t *scales, float *dst, int add)
{
    if (add)
        mx_any(m, cols, codes, scales, dst, 1);
    else
        mx_any(m, cols, codes, scales, dst, 0);
}

/* ---- a scale for each column ----------------------------------------------------- */

#define MAGIC 12582912.0f /* 1.5 * 2^23: adding it leaves rint() in the low bits */

/* rint(x * inv) within -most..most, biased to 0..2 * most + 1; 0: x is not a number. */
static void scaled_codes(uint64_t n, const float *x, const float *inv, int32_t most, uint8_t *codes)
{
    uint64_t i = 0;
#if ENCODE_SIMD == 512
    const __m512  low = _mm512_set1_ps((float)-most), high = _mm512_set1_ps((float)most);
    const __m512i bias = _mm512_set1_epi32(most + 1);
    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        __m512 y = _mm512_mul_ps(v, _mm512_loadu_ps(inv + i));
        y = _mm512_min_ps(_mm512_max_ps(y, low), high);
        __mmask16 good = _knot_mask16(_mm512_fpclass_ps_mask(v, 0x99)); /* NaN, Inf */
        __m512i   q = _mm512_maskz_add_epi32(good, _mm512_cvtps_epi32(y), bias);
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm512_cvtepi32_epi8(q));
    }
#endif
    for (; i < n; i++) {
        float    y = x[i] * inv[i];
        uint32_t u;
        int32_t  q;
        memcpy(&u, x + i, 4);
        y = y < (float)-most ? (float)-most : y > (float)most ? (float)most : y;
        y += MAGIC;
        memcpy(&q, &y, 4);
        codes[i] = (u & 0x7f800000u) == 0x7f800000u ? 0 : (uint8_t)(q - 0x4b400000 + most + 1);
    }
}

void DECODE(scaled_encode)(uint32_t bits, uint64_t cols, const float *x, const float *inv,
                           uint8_t *codes)
{
    for (uint64_t at = 0; at < cols; at += CHUNK) {
        uint8_t  bytes[CHUNK];
        uint64_t n = cols - at < CHUNK ? cols - at : CHUNK;
        scaled_codes(n, x + at, inv + at, (1 << (bits - 1)) - 1, bytes);
        pack_codes(codes + at / 8 * bits, bytes, n, cols - at - n, bits);
    }
}

static inline void scaled_any(uint32_t bits, uint64_t cols, const uint8_t *codes,
                              const float *scale, float *dst, const int add)
{
    float    value[256];
    uint64_t bytes = (cols * bits + 7) / 8, from = 0;
    int32_t  most = (1 << (bits - 1)) - 1;
    for (int32_t c = 0; c <= 2 * most + 1; c++)
        value[c] = c ? (float)(c - most - 1) : NAN;
#if ENCODE_SIMD
    if (bits == 4) {
        struct table16 t = table16_of(value);
        for (; from + WIDE <= cols; from += WIDE)
            vec_put(dst + from, vec_mul(look16(&t, codes + from / 2), vec_load(scale + from)), add);
    }
#endif
#if ENCODE_SIMD == 512
    if (bits != 4)
        from = scaled_vectors512(bits, cols, codes, scale, dst, add);
#endif
    for (uint64_t at = from; at < cols; at += CHUNK) {
        uint8_t  code[CHUNK];
        uint64_t n = cols - at < CHUNK ? cols - at : CHUNK, first = at / 8 * bits;
        unpack_codes(codes + first, bytes - first, n, bits, code);
        for (uint64_t i = 0; i < n; i++) {
            float v = value[code[i]] * scale[at + i];
            dst[at + i] = add ? dst[at + i] + v : v;
        }
    }
}

void DECODE(scaled_decode)(uint32_t bits, uint64_t cols, const uint8_t *codes, const float *scale,
                           float *dst, int add)
{
    if (add)
        scaled_any(bits, cols, codes, scale, dst, 1);
    else
        scaled_any(bits, cols, codes, scale, dst, 0);
}
