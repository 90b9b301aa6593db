/* k_residual.h - rows of residuals of 2, 4 and 8 bits (tessera.residual/1) times integers, by lines of 64
 * bytes and eight rows at a time. Codes are unsigned here: the caller subtracts their offset. A line has
 * 32/bits vectors of sums in a permuted order; v_residual_order() restores the order. */
#ifndef TSR_K_RESIDUAL_H
#define TSR_K_RESIDUAL_H

#include "simd_bytes.h"

/* Rows that are added at a time. */
#define RESIDUAL_ROWS 8
/* The largest number: 127 * 256, so that both of its digits are signed bytes. */
#define RESIDUAL_TOP 32512

#if TSR_SIMD == 512

/* The numbers of rows 0 to 3 and 4 to 7 in digits to the base of 256, a byte for each row in every lane. */
struct v_eight {
    __m512i high[2], low[2];
};

INLINE struct v_eight v_eight(const int16_t *x)
{
    struct v_eight e;
    __m128i        v = _mm_loadu_si128((const __m128i *)(const void *)x);
    __m128i        high = _mm_srai_epi16(_mm_add_epi16(v, _mm_set1_epi16(128)), 8);
    __m128i        low = _mm_sub_epi16(v, _mm_slli_epi16(high, 8));
    high = _mm_packs_epi16(high, high);
    low = _mm_packs_epi16(low, low);
    e.high[0] = _mm512_broadcastd_epi32(high);
    e.low[0] = _mm512_broadcastd_epi32(low);
    e.high[1] = _mm512_broadcastd_epi32(_mm_srli_si128(high, 4));
    e.low[1] = _mm512_broadcastd_epi32(_mm_srli_si128(low, 4));
    return e;
}

/* Four rows byte by byte in turn: lane 4b + w of u[i] has bytes 16b + 4i + w of the rows. */
INLINE void v_four(const uint8_t *const *row, uint64_t at, __m512i *u)
{
    __m512i a = _mm512_loadu_si512(row[0] + at), b = _mm512_loadu_si512(row[1] + at);
    __m512i c = _mm512_loadu_si512(row[2] + at), d = _mm512_loadu_si512(row[3] + at);
    __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
    u[0] = _mm512_unpacklo_epi16(ab, cd);
    u[1] = _mm512_unpackhi_epi16(ab, cd);
    ab = _mm512_unpackhi_epi8(a, b);
    cd = _mm512_unpackhi_epi8(c, d);
    u[2] = _mm512_unpacklo_epi16(ab, cd);
    u[3] = _mm512_unpackhi_epi16(ab, cd);
}

/* Adds eight rows' line at byte `at` to its sums z, modulo 2^32. */
INLINE void v_residual_add(const uint8_t *const *row, uint64_t at, const struct v_eight *x,
                           int32_t *z, uint32_t bits)
{
    const int     codes = 8 / (int)bits; /* of a byte */
    const __m512i mask = _mm512_set1_epi8((char)((1u << bits) - 1));
    __m512i       u[8];
    v_four(row, at, u);
    v_four(row + 4, at, u + 4);
    UNROLL
    for (int i = 0; i < 4; i++) {
        UNROLL
        for (int e = 0; e < codes; e++, z += 16) {
            __m512i high = _mm512_setzero_si512(), low = _mm512_load_si512(z);
            UNROLL
            for (int q = 0; q < 2; q++) {
                __m512i c = u[4 * q + i];
                if (bits < 8)
                    c = _mm512_and_si512((__m512i)((__v32hu)c >> (uint16_t)((int32_t)bits * e)),
                                         mask);
                high = _mm512_dpbusd_epi32(high, c, x->high[q]);
                low = _mm512_dpbusd_epi32(low, c, x->low[q]);
            }
            _mm512_store_si512(z, _mm512_add_epi32(low, _mm512_slli_epi32(high, 8)));
        }
    }
}

INLINE v16 v_residual_sum(const int32_t *z, int32_t less)
{
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_load_si512(z), _mm512_set1_epi32(less)));
}

/* a[0..n), of each lane's bytes a code each, so that runs of four outputs lie in a quarter. */
INLINE void v_runs(v16 *a, int n)
{
    if (n == 2) {
        v16 low = _mm512_unpacklo_ps(a[0], a[1]);
        a[1] = _mm512_unpackhi_ps(a[0], a[1]);
        a[0] = low;
    }
    if (n == 4) {
        i16v t[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            t[i] = _mm512_castps_si512(a[i]);
        vb_transpose4(t);
        UNROLL
        for (int i = 0; i < 4; i++)
            a[i] = _mm512_castsi512_ps(t[i]);
    }
}

/* The vectors of a line in the order of its outputs. */
INLINE void v_residual_order(v16 *a, uint32_t bits)
{
    const int codes = 8 / (int)bits;
    v16       t[16];
    UNROLL
    for (int i = 0; i < 4; i++)
        v_runs(a + i * codes, codes);
    UNROLL
    for (int g = 0; g < codes; g++) { /* quarter b of vectors 4g.. is vector codes * b + g */
        const v16 *f = a + 4 * g;
        v16 p = _mm512_shuffle_f32x4(f[0], f[1], 0x88), q = _mm512_shuffle_f32x4(f[2], f[3], 0x88);
        v16 r = _mm512_shuffle_f32x4(f[0], f[1], 0xdd), s = _mm512_shuffle_f32x4(f[2], f[3], 0xdd);
        t[g] = _mm512_shuffle_f32x4(p, q, 0x88);
        t[codes + g] = _mm512_shuffle_f32x4(r, s, 0x88);
        t[2 * codes + g] = _mm512_shuffle_f32x4(p, q, 0xdd);
        t[3 * codes + g] = _mm512_shuffle_f32x4(r, s, 0xdd);
    }
    UNROLL
    for (int v = 0; v < 4 * codes; v++)
        a[v] = t[v];
}

#elif TSR_SIMD == 2

/* The numbers of two rows in every lane. */
struct v_eight {
    __m256i pair[4];
};

INLINE struct v_eight v_eight(const int16_t *x)
{
    struct v_eight e;
    for (int p = 0; p < 4; p++) {
        int32_t two;
        memcpy(&two, x + 2 * p, sizeof two);
        e.pair[p] = _mm256_set1_epi32(two);
    }
    return e;
}

/* Lane 4b + w of vector (h * codes + e) * 4 + s has code e of byte 32h + 16b + 4s + w. */
INLINE void v_residual_add(const uint8_t *const *row, uint64_t at, const struct v_eight *x,
                           int32_t *z, uint32_t bits)
{
    const int     codes = 8 / (int)bits;
    const __m256i mask = _mm256_set1_epi8((char)((1u << bits) - 1)), none = _mm256_setzero_si256();
    for (uint64_t h = 0; h < 2; h++) {
        UNROLL
        for (int e = 0; e < codes; e++, z += 32) {
            __m256i *to = (__m256i *)(void *)z;
            __m256i  sum[4] = { _mm256_load_si256(to), _mm256_load_si256(to + 1),
                                _mm256_load_si256(to + 2), _mm256_load_si256(to + 3) };
            UNROLL
            for (int p = 0; p < 4; p++) {
                const uint8_t *first = row[2 * p] + at + 32 * h,
                              *second = row[2 * p + 1] + at + 32 * h;
                __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)first);
                __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)second);
                a = _mm256_and_si256(_mm256_srli_epi16(a, (int)bits * e), mask);
                b = _mm256_and_si256(_mm256_srli_epi16(b, (int)bits * e), mask);
                __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
                __m256i part[4] = { _mm256_unpacklo_epi8(low, none),
                                    _mm256_unpackhi_epi8(low, none),
                                    _mm256_unpacklo_epi8(high, none),
                                    _mm256_unpackhi_epi8(high, none) };
                UNROLL
                for (int s = 0; s < 4; s++)
                    sum[s] = _mm256_add_epi32(sum[s], _mm256_madd_epi16(part[s], x->pair[p]));
            }
            UNROLL
            for (int s = 0; s < 4; s++)
                _mm256_store_si256(to + s, sum[s]);
        }
    }
}

INLINE v16 v_residual_sum(const int32_t *z, int32_t less)
{
    const __m256i *from = (const __m256i *)(const void *)z;
    __m256i        l = _mm256_set1_epi32(less);
    return v_make(_mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_load_si256(from), l)),
                  _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_load_si256(from + 1), l)));
}

/* a[0], a[4], ..., of each lane's bytes a code each, so that runs of four outputs lie in a half; to f[0..n). */
INLINE void v_runs(const __m256 *a, __m256 *f, int n)
{
    if (n == 1) {
        f[0] = a[0];
    } else if (n == 2) {
        f[0] = _mm256_unpacklo_ps(a[0], a[4]);
        f[1] = _mm256_unpackhi_ps(a[0], a[4]);
    } else {
        __m256d p = _mm256_castps_pd(_mm256_unpacklo_ps(a[0], a[4]));
        __m256d q = _mm256_castps_pd(_mm256_unpackhi_ps(a[0], a[4]));
        __m256d r = _mm256_castps_pd(_mm256_unpacklo_ps(a[8], a[12]));
        __m256d s = _mm256_castps_pd(_mm256_unpackhi_ps(a[8], a[12]));
        f[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(p, r));
        f[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(p, r));
        f[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(q, s));
        f[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(q, s));
    }
}

INLINE void v_residual_order(v16 *v, uint32_t bits)
{
    const int codes = 8 / (int)bits;
    __m256    a[32], f[16];
    for (int i = 0; i < 4 * codes; i++) {
        a[2 * i] = v[i].a;
        a[2 * i + 1] = v[i].b;
    }
    for (int h = 0; h < 2; h++) {
        for (int s = 0; s < 4; s++)
            v_runs(a + 4 * codes * h + s, f + s * codes, codes);
        for (int p = 0; p < codes; p++) { /* 4 codes quarters of 4: the lower halves come first */
            v16 *to = v + 2 * codes * h + p;
            to[0] = v_make(_mm256_permute2f128_ps(f[4 * p], f[4 * p + 1], 0x20),
                           _mm256_permute2f128_ps(f[4 * p + 2], f[4 * p + 3], 0x20));
            to[codes] = v_make(_mm256_permute2f128_ps(f[4 * p], f[4 * p + 1], 0x31),
                               _mm256_permute2f128_ps(f[4 * p + 2], f[4 * p + 3], 0x31));
        }
    }
}

#else

struct v_eight {
    int32_t x[RESIDUAL_ROWS];
};

INLINE struct v_eight v_eight(const int16_t *x)
{
    struct v_eight e;
    for (int r = 0; r < RESIDUAL_ROWS; r++)
        e.x[r] = x[r];
    return e;
}

INLINE void v_residual_add(const uint8_t *const *row, uint64_t at, const struct v_eight *x,
                           int32_t *z, uint32_t bits)
{
    const uint32_t codes = 8 / bits, mask = (1u << bits) - 1;
    for (uint32_t r = 0; r < RESIDUAL_ROWS; r++)
        for (uint32_t n = 0; n < 64 * codes; n++) {
            uint32_t c = (uint32_t)row[r][at + n / codes] >> n % codes * bits & mask;
            z[n] = (int32_t)((uint32_t)z[n] + c * (uint32_t)x->x[r]);
        }
}

INLINE v16 v_residual_sum(const int32_t *z, int32_t less)
{
    int32_t r[16];
    for (int l = 0; l < 16; l++)
        r[l] = (int32_t)((uint32_t)z[l] - (uint32_t)less);
    return vi_cvt(vi_load(r));
}

INLINE void v_residual_order(v16 *a, uint32_t bits)
{
    (void)a;
    (void)bits;
}

#endif
#endif
