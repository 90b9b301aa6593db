/* k_encode.c - the encoders; compiled once per instruction set (ENCODE_SIMD 0, 2 or 512).
 * MX codes come from the bits of the exact x / 2^S. */
#include <string.h>

#include "k_mx.h"
#include "k_pack.h"
#include "kernel.h"
#if ENCODE_SIMD == 512
#include "k_int512.h"
#include "k_mx512.h"
#elif ENCODE_SIMD == 2
#include "k_mx256.h"
#endif

#define SIGN  0x80000000u
#define CHUNK 512u /* codes that wait as bytes until they are packed; a multiple of 8 */

/* The bits of max |x|: NaN and Inf are those from INF on. */
static uint32_t amax_bits(const float *x, uint64_t n)
{
    uint32_t m = 0;
    uint64_t i = 0;
#if ENCODE_SIMD == 512
    __m512i v = _mm512_setzero_si512(), abs = _mm512_set1_epi32(0x7fffffff);
    for (; i + 16 <= n; i += 16)
        v = _mm512_max_epu32(v, _mm512_and_si512(_mm512_loadu_si512(x + i), abs));
    m = _mm512_reduce_max_epu32(v);
#endif
    for (; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        u &= ~SIGN;
        m = u > m ? u : m;
    }
    return m;
}

/* 2^n, n from -127 (a subnormal) to 127. */
static inline float pow2(int32_t n)
{
    uint32_t u = n > -127 ? (uint32_t)(n + 127) << 23 : 0x400000u;
    float    f;
    memcpy(&f, &u, 4);
    return f;
}

/* ---- MX -------------------------------------------------------------------- */

/* One code; up: 2^-S, so that the product is exact (or far below half a step).  Written without
 * branches, for the compiler's vectors. */
static inline uint32_t mx_code(const struct mx *m, float x, float up, uint32_t rounding)
{
    uint32_t u;
    x *= up;
    memcpy(&u, &x, 4);
    uint32_t a = u & ~SIGN, f = a >> 23, frac = (a & 0x7fffffu) | 0x800000u;
    int32_t  e = (int32_t)f - 127 - m->el.emin; /* above emin; a subnormal's is far below */
    int32_t  sh = 23 - m->el.mant - (e < 0 ? e : 0);
    uint32_t shift = (uint32_t)(sh > 31 ? 31 : sh); /* frac is below 2^24: 25 and more give 0 */
    uint32_t half = 1u << (shift - 1), add = half;
    if (rounding == TSR_ENCODE_EVEN)
        add = half - 1 + (frac >> shift & 1);
    if (rounding == TSR_ENCODE_FLOOR)
        add = 0;
    uint32_t k = ((frac + add) >> shift) + ((uint32_t)(e < 0 ? 0 : e) << m->el.mant);
    k = k > m->el.max ? m->el.max : k;
    return k | (k ? u >> 31 << m->el.sign : 0u);
}

static inline void mx_codes_any(const struct mx *m, const float *x, uint64_t n, float up,
                                uint32_t rounding, uint8_t *codes)
{
    for (uint64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)mx_code(m, x[i], up, rounding);
}

/* The compiler sees the rounding as a constant. */
static void mx_codes(const struct mx *m, const float *x, uint64_t n, float up, uint8_t *codes)
{
    if (m->rounding == TSR_ENCODE_EVEN)
        mx_codes_any(m, x, n, up, TSR_ENCODE_EVEN, codes);
    else if (m->rounding == TSR_ENCODE_NEAREST)
        mx_codes_any(m, x, n, up, TSR_ENCODE_NEAREST, codes);
    else
        mx_codes_any(m, x, n, up, TSR_ENCODE_FLOOR, codes);
}

/* A row, or part of it from the start of a block on, with `more` columns after it. Returns the first NaN
 * block. */
static uint64_t mx_plain(const struct mx *m, uint64_t block, const float *x, uint64_t cols,
                         uint64_t more, uint8_t *codes, uint8_t *scales)
{
    uint64_t bad = TSR_ENCODE_NONE, end = 0, b = 0; /* of the current block; the next block */
    float    up = 0;
    int      none = 0; /* the block is NaN */
    for (uint64_t at = 0; at < cols; at += CHUNK) {
        uint8_t  bytes[CHUNK];
        uint64_t stop = at + CHUNK < cols ? at + CHUNK : cols;
        for (uint64_t k = at; k < stop;) {
            if (k == end) {
                uint64_t n = cols - k < block ? cols - k : block;
                scales[b] = mx_scale(m, amax_bits(x + k, n));
                none = scales[b] == 2 * m->lim + 1;
                up = pow2(m->lim - scales[b]);
                bad = none && bad == TSR_ENCODE_NONE ? b : bad;
                end = k + n;
                b++;
            }
            uint64_t n = (end < stop ? end : stop) - k;
            if (none)
                memset(bytes + (k - at), 0, n);
            else
                mx_codes(m, x + k, n, up, bytes + (k - at));
            k += n;
        }
        pack_codes(codes + at / 8 * m->el.bits, bytes, stop - at, cols + more - stop, m->el.bits);
    }
    return bad;
}

static uint64_t mx_row(const struct tsr_encode_mx *spec, uint64_t cols, const float *x,
                       uint8_t *codes, uint8_t *scales)
{
    struct mx m = { tsr_encode_element(spec->element), (1 << (spec->scale_bits - 1)) - 1,
                    spec->rounding, spec->scale_rule };
    uint64_t  block = spec->block ? spec->block : cols;
#if ENCODE_SIMD
    uint64_t unit = mx_unit(&m, block), bad = TSR_ENCODE_NONE, k = 0;
    while (unit && k < cols) {
        k += mx_fast(&m, block, x + k, cols - k, codes + k / 8 * m.el.bits, scales + k / block);
        uint64_t n = cols - k < unit ? cols - k : unit; /* the block that it leaves */
        uint64_t b = mx_plain(&m, block, x + k, n, cols - k - n, codes + k / 8 * m.el.bits,
                              scales + k / block);
        bad = b != TSR_ENCODE_NONE && bad == TSR_ENCODE_NONE ? k / block + b : bad;
        k += n;
    }
    if (unit)
        return bad;
#endif
    return mx_plain(&m, block, x, cols, 0, codes, scales);
}

/* ---- int4 ------------------------------------------------------------------ */

#define MAGIC 12582912.0f /* 1.5 * 2^23: adding it leaves rint() in the low bits */

/* |x * inv| is at most 8: codes 0 to 15. */
static void int4_codes(const float *x, uint64_t n, float inv, uint8_t *codes)
{
    uint64_t i = 0;
#if ENCODE_SIMD == 512
    const __m512i low = _mm512_set1_epi32(-8), high = _mm512_set1_epi32(7);
    for (; i + 16 <= n; i += 16) {
        __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(inv)));
        q = _mm512_sub_epi32(_mm512_min_epi32(_mm512_max_epi32(q, low), high), low);
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm512_cvtepi32_epi8(q));
    }
#endif
    for (; i < n; i++) {
        float   y = x[i] * inv + MAGIC;
        int32_t q;
        memcpy(&q, &y, 4);
        q -= 0x4b400000;
        q = q < -8 ? -8 : q > 7 ? 7 : q;
        codes[i] = (uint8_t)(q + 8);
    }
}

/* Scale of a group as F16 bits, its reciprocal in *inv; 0 for a scale that encodes nothing. */
static uint16_t int4_scale(uint32_t amax, float *inv)
{
    float    a;
    uint16_t h = 0x7e00;
    *inv = 0.0f;
    if (amax >= INF)
        return h;
    memcpy(&a, &amax, 4);
    h = f32_f16(a / 7.0f);
    if (h >= 0x7c00)
        return 0x7e00;
    float r = 1.0f / f16_f32(h);
    if (!(r <= 3.402823466e38f))
        return 0;
    *inv = r;
    return h;
}

/* A row, or part of it from the start of a group on, with `more` columns after it. Returns the first NaN
 * group. */
static uint64_t int4_plain(uint64_t group, const float *x, uint64_t cols, uint64_t more,
                           uint8_t *codes, uint16_t *scales)
{
    uint64_t bad = TSR_ENCODE_NONE, end = 0, g = 0;
    float    inv = 0;
    for (uint64_t at = 0; at < cols; at += CHUNK) {
        uint8_t  bytes[CHUNK];
        uint64_t stop = at + CHUNK < cols ? at + CHUNK : cols;
        for (uint64_t k = at; k < stop;) {
            if (k == end) {
                uint64_t n = cols - k < group ? cols - k : group;
                scales[g] = int4_scale(amax_bits(x + k, n), &inv);
                bad = scales[g] == 0x7e00 && bad == TSR_ENCODE_NONE ? g : bad;
                end = k + n;
                g++;
            }
            uint64_t n = (end < stop ? end : stop) - k;
            if (inv == 0.0f)
                memset(bytes + (k - at), 8, n);
            else
                int4_codes(x + k, n, inv, bytes + (k - at));
            k += n;
        }
        pack_codes(codes + at / 2, bytes, stop - at, cols + more - stop, 4);
    }
    return bad;
}

static uint64_t int4_row(uint64_t group, uint64_t cols, const float *x, uint8_t *codes,
                         uint16_t *scales)
{
    group = group ? group : cols;
#if ENCODE_SIMD == 512
    uint64_t unit = int4_unit(group), bad = TSR_ENCODE_NONE, k = 0;
    while (unit && k < cols) {
        k += int4_fast(group, x + k, cols - k, codes + k / 2, scales + k / group);
        uint64_t n = cols - k < unit ? cols - k : unit; /* the remainder */
        uint64_t b = int4_plain(group, x + k, n, cols - k - n, codes + k / 2, scales + k / group);
        bad = b != TSR_ENCODE_NONE && bad == TSR_ENCODE_NONE ? k / group + b : bad;
        k += n;
    }
    if (unit)
        return bad;
#endif
    return int4_plain(group, x, cols, 0, codes, scales);
}

#define TABLE_(isa) tsr_encode_##isa
#define TABLE(isa)  TABLE_(isa)
#define TEXT_(s)    #s
#define TEXT(s)     TEXT_(s)

const struct tsr_encode TABLE(ENCODE_NAME) = { .name = TEXT(ENCODE_NAME),
                                               .mx_row = mx_row,
                                               .int4_row = int4_row,
                                               .mx_decode = DECODE(mx_decode),
                                               .scaled_encode = DECODE(scaled_encode),
                                               .scaled_decode = DECODE(scaled_decode) };
