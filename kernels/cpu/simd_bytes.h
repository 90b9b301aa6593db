/* simd_bytes.h - more operations on the 16-lane vector, for codes that are looked up: bytes within
 * four quarters of 16, tables, transposes.  The scalar part gives the meaning of each;
 * those of NEON are in simd_neon_int.h. */
#ifndef TSR_SIMD_BYTES_H
#define TSR_SIMD_BYTES_H

#include "simd.h"

#if TSR_SIMD == 512

/* Low or high nibble of every byte. */
static inline i16v vb_nibble(i16v w, const int high)
{
    i16v m = _mm512_set1_epi8(15);
    return _mm512_and_si512(high ? _mm512_srli_epi16(w, 4) : w, m);
}
/* Byte i of each quarter becomes byte idx[i] (below 16) of the same quarter of the table. */
static inline i16v vb_lookup(i16v table, i16v idx)
{
    return _mm512_shuffle_epi8(table, idx);
}
/* In each quarter the four by four 32-bit lanes of a[0..3], transposed. */
static inline void vb_transpose4(i16v a[4])
{
    i16v x = _mm512_unpacklo_epi32(a[0], a[1]), y = _mm512_unpackhi_epi32(a[0], a[1]);
    i16v z = _mm512_unpacklo_epi32(a[2], a[3]), u = _mm512_unpackhi_epi32(a[2], a[3]);
    a[0] = _mm512_unpacklo_epi64(x, z);
    a[1] = _mm512_unpackhi_epi64(x, z);
    a[2] = _mm512_unpacklo_epi64(y, u);
    a[3] = _mm512_unpackhi_epi64(y, u);
}
static inline void vb_store(void *p, i16v v)
{
    _mm512_storeu_si512(p, v);
}
/* table[n] for each lane n below 16. */
static inline v16 v_pick16(const float *table, i16v n)
{
    return _mm512_permutexvar_ps(n, _mm512_loadu_ps(table));
}
/* table[n] for the 16 low or high nibbles n at p. */
static inline v16 v_lookup16(const float *table, const uint8_t *p, const int high)
{
    __m128i c = _mm_loadu_si128((const void *)p);
    c = _mm_and_si128(high ? _mm_srli_epi16(c, 4) : c, _mm_set1_epi8(15));
    return v_pick16(table, _mm512_cvtepu8_epi32(c));
}
/* a[i] lane j becomes a[j] lane i. */
static inline void v_transpose16(v16 a[16])
{
    v16 t[16];
    for (int i = 0; i < 16; i += 4) { /* 4 by 4 in quarters */
        v16 x = _mm512_unpacklo_ps(a[i], a[i + 1]), y = _mm512_unpackhi_ps(a[i], a[i + 1]);
        v16 z = _mm512_unpacklo_ps(a[i + 2], a[i + 3]), u = _mm512_unpackhi_ps(a[i + 2], a[i + 3]);
        t[i] = _mm512_shuffle_ps(x, z, 0x44);
        t[i + 1] = _mm512_shuffle_ps(x, z, 0xee);
        t[i + 2] = _mm512_shuffle_ps(y, u, 0x44);
        t[i + 3] = _mm512_shuffle_ps(y, u, 0xee);
    }
    for (int j = 0; j < 4; j++) { /* the quarters: rows 4i+j hold columns j, j+4, j+8, j+12 */
        v16 x = _mm512_shuffle_f32x4(t[j], t[4 + j], 0x44);
        v16 y = _mm512_shuffle_f32x4(t[j], t[4 + j], 0xee);
        v16 z = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0x44);
        v16 u = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0xee);
        a[j] = _mm512_shuffle_f32x4(x, z, 0x88);
        a[4 + j] = _mm512_shuffle_f32x4(x, z, 0xdd);
        a[8 + j] = _mm512_shuffle_f32x4(y, u, 0x88);
        a[12 + j] = _mm512_shuffle_f32x4(y, u, 0xdd);
    }
}
/* As u16x32: immediate where n is a constant. */
typedef int32_t    i32x16 __attribute__((vector_size(64)));
typedef uint32_t   u32x16 __attribute__((vector_size(64)));
static inline i16v vi_shl(i16v v, uint32_t n)
{
    return (i16v)((u32x16)v << n);
}
/* Signs come in from above. */
static inline i16v vi_sar(i16v v, uint32_t n)
{
    return (i16v)((i32x16)v >> n);
}
/* table[code & 127] of every byte. parts: bit i is set if one of the sixteen entries from 16 i is not 0.
 * permute: the CPU has AVX512-VBMI, for which this file is not compiled. */
static inline i16v vb_lookup128(const uint8_t *table, i16v codes, const uint32_t parts,
                                const int permute)
{
    i16v v = _mm512_setzero_si512();
    if (permute) {
        v = codes;
        __asm__("vpermi2b %2, %1, %0" : "+v"(v) : "v"(vi_load(table)), "v"(vi_load(table + 64)));
        return v;
    }
    codes = _mm512_and_si512(codes, _mm512_set1_epi8(127));
    UNROLL
    for (int i = 0; i < 8; i++) { /* a byte of another sixteen has its top bit set */
        if (!(parts >> i & 1u))
            continue;
        i16v at = _mm512_xor_si512(codes, _mm512_set1_epi8((char)(16 * i)));
        at = _mm512_adds_epu8(at, _mm512_set1_epi8(0x70));
        i16v t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table + i));
        v = _mm512_or_si512(v, _mm512_shuffle_epi8(t, at));
    }
    return v;
}
/* Bytes of q, at least -127, negated where those of codes have their top bit set. */
static inline i16v vb_signed(i16v q, i16v codes)
{
    return _mm512_mask_sub_epi8(q, _mm512_movepi8_mask(codes), _mm512_setzero_si512(), q);
}
/* vi_dot4() for a q whose lanes differ. */
static inline i16v vb_dot4(i16v acc, i16v w, i16v q)
{
    return vi_dot4(acc, w, q);
}
static inline i16v vi_and(i16v v, int32_t mask)
{
    return _mm512_and_si512(v, _mm512_set1_epi32(mask));
}
/* The lanes' bits as F32. */
static inline v16 vi_bits_f32(i16v v)
{
    return _mm512_castsi512_ps(v);
}

#elif TSR_SIMD == 2

static inline i16v vb_nibble(i16v w, const int high)
{
    __m256i m = _mm256_set1_epi8(15);
    return vi_make(_mm256_and_si256(high ? _mm256_srli_epi16(w.a, 4) : w.a, m),
                   _mm256_and_si256(high ? _mm256_srli_epi16(w.b, 4) : w.b, m));
}
static inline i16v vb_lookup(i16v table, i16v idx)
{
    return vi_make(_mm256_shuffle_epi8(table.a, idx.a), _mm256_shuffle_epi8(table.b, idx.b));
}
static inline void vb_transpose4_half(__m256i *a, __m256i *b, __m256i *c, __m256i *d)
{
    __m256i x = _mm256_unpacklo_epi32(*a, *b), y = _mm256_unpackhi_epi32(*a, *b);
    __m256i z = _mm256_unpacklo_epi32(*c, *d), u = _mm256_unpackhi_epi32(*c, *d);
    *a = _mm256_unpacklo_epi64(x, z);
    *b = _mm256_unpackhi_epi64(x, z);
    *c = _mm256_unpacklo_epi64(y, u);
    *d = _mm256_unpackhi_epi64(y, u);
}
static inline void vb_transpose4(i16v a[4])
{
    vb_transpose4_half(&a[0].a, &a[1].a, &a[2].a, &a[3].a);
    vb_transpose4_half(&a[0].b, &a[1].b, &a[2].b, &a[3].b);
}
static inline void vb_store(void *p, i16v v)
{
    _mm256_storeu_si256(p, v.a);
    _mm256_storeu_si256((__m256i *)p + 1, v.b);
}
static inline __m256 v_lookup8(const float *table, __m256i i)
{
    __m256 lo = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), i);
    __m256 hi = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), i);
    return _mm256_blendv_ps(lo, hi, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
}
static inline v16 v_pick16(const float *table, i16v n)
{
    return v_make(v_lookup8(table, n.a), v_lookup8(table, n.b));
}
static inline v16 v_lookup16(const float *table, const uint8_t *p, const int high)
{
    __m128i c = _mm_loadu_si128((const void *)p);
    c = _mm_and_si128(high ? _mm_srli_epi16(c, 4) : c, _mm_set1_epi8(15));
    return v_pick16(table,
                    vi_make(_mm256_cvtepu8_epi32(c), _mm256_cvtepu8_epi32(_mm_srli_si128(c, 8))));
}
/* Eight rows of eight. */
static inline void v_transpose8(__m256 a[8])
{
    __m256 t[8];
    for (int i = 0; i < 8; i += 4) {
        __m256 x = _mm256_unpacklo_ps(a[i], a[i + 1]), y = _mm256_unpackhi_ps(a[i], a[i + 1]);
        __m256 z = _mm256_unpacklo_ps(a[i + 2], a[i + 3]);
        __m256 u = _mm256_unpackhi_ps(a[i + 2], a[i + 3]);
        t[i] = _mm256_shuffle_ps(x, z, 0x44);
        t[i + 1] = _mm256_shuffle_ps(x, z, 0xee);
        t[i + 2] = _mm256_shuffle_ps(y, u, 0x44);
        t[i + 3] = _mm256_shuffle_ps(y, u, 0xee);
    }
    for (int j = 0; j < 4; j++) {
        a[j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x20);
        a[4 + j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x31);
    }
}
static inline void v_transpose16(v16 a[16])
{
    __m256 x[8], y[8], z[8], u[8];
    for (int i = 0; i < 8; i++) {
        x[i] = a[i].a;
        y[i] = a[i].b;
        z[i] = a[8 + i].a;
        u[i] = a[8 + i].b;
    }
    v_transpose8(x);
    v_transpose8(y);
    v_transpose8(z);
    v_transpose8(u);
    for (int i = 0; i < 8; i++) {
        a[i] = v_make(x[i], z[i]);
        a[8 + i] = v_make(y[i], u[i]);
    }
}
typedef int32_t    i32x8 __attribute__((vector_size(32)));
typedef uint32_t   u32x8 __attribute__((vector_size(32)));
static inline i16v vi_shl(i16v v, uint32_t n)
{
    return vi_make((__m256i)((u32x8)v.a << n), (__m256i)((u32x8)v.b << n));
}
static inline i16v vi_sar(i16v v, uint32_t n)
{
    return vi_make((__m256i)((i32x8)v.a >> n), (__m256i)((i32x8)v.b >> n));
}
static inline __m256i vb_lookup128_half(const uint8_t *table, __m256i codes, const uint32_t parts)
{
    __m256i v = _mm256_setzero_si256();
    codes = _mm256_and_si256(codes, _mm256_set1_epi8(127));
    UNROLL
    for (int i = 0; i < 8; i++) { /* a byte of another sixteen has its top bit set */
        if (!(parts >> i & 1u))
            continue;
        __m256i at = _mm256_xor_si256(codes, _mm256_set1_epi8((char)(16 * i)));
        at = _mm256_adds_epu8(at, _mm256_set1_epi8(0x70));
        __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table + i);
        v = _mm256_or_si256(v, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), at));
    }
    return v;
}
static inline i16v vb_lookup128(const uint8_t *table, i16v codes, const uint32_t parts,
                                const int permute)
{
    (void)permute;
    return vi_make(vb_lookup128_half(table, codes.a, parts),
                   vb_lookup128_half(table, codes.b, parts));
}
static inline i16v vb_signed(i16v q, i16v codes)
{
    __m256i one = _mm256_set1_epi8(1); /* a sign of 0 would give 0 */
    return vi_make(_mm256_sign_epi8(q.a, _mm256_or_si256(codes.a, one)),
                   _mm256_sign_epi8(q.b, _mm256_or_si256(codes.b, one)));
}
#if defined(TSR_VNNI)
static inline i16v vb_dot4(i16v acc, i16v w, i16v q)
{
    return vi_dot4(acc, w, q);
}
#else
static inline __m256i vb_dot4_half(__m256i acc, __m256i w, __m256i q)
{
    return vi_dot4_half(acc, w, _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8),
                        _mm256_srai_epi16(q, 8));
}
static inline i16v vb_dot4(i16v acc, i16v w, i16v q)
{
    return vi_make(vb_dot4_half(acc.a, w.a, q.a), vb_dot4_half(acc.b, w.b, q.b));
}
#endif
static inline i16v vi_and(i16v v, int32_t mask)
{
    __m256i m = _mm256_set1_epi32(mask);
    return vi_make(_mm256_and_si256(v.a, m), _mm256_and_si256(v.b, m));
}
static inline v16 vi_bits_f32(i16v v)
{
    return v_make(_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b));
}

#elif TSR_SIMD == 0

static inline i16v vb_nibble(i16v w, const int high)
{
    for (int l = 0; l < 16; l++)
        w.i[l] = (int32_t)((uint32_t)w.i[l] >> (high ? 4 : 0) & 0x0f0f0f0fu);
    return w;
}
static inline i16v vb_lookup(i16v table, i16v idx)
{
    uint8_t t[64], i[64];
    memcpy(t, table.i, 64);
    memcpy(i, idx.i, 64);
    for (int b = 0; b < 64; b++)
        i[b] = t[b / 16 * 16 + i[b]];
    memcpy(idx.i, i, 64);
    return idx;
}
static inline void vb_transpose4(i16v a[4])
{
    for (int q = 0; q < 16; q += 4)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < i; j++) {
                int32_t t = a[i].i[q + j];
                a[i].i[q + j] = a[j].i[q + i];
                a[j].i[q + i] = t;
            }
}
static inline void vb_store(void *p, i16v v)
{
    memcpy(p, v.i, sizeof v.i);
}
static inline v16 v_pick16(const float *table, i16v n)
{
    v16 r;
    for (int l = 0; l < 16; l++)
        r.f[l] = table[n.i[l]];
    return r;
}
static inline v16 v_lookup16(const float *table, const uint8_t *p, const int high)
{
    v16 r;
    for (int l = 0; l < 16; l++)
        r.f[l] = table[high ? p[l] >> 4 : p[l] & 15];
    return r;
}
static inline void v_transpose16(v16 a[16])
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < i; j++) {
            float t = a[i].f[j];
            a[i].f[j] = a[j].f[i];
            a[j].f[i] = t;
        }
}
static inline i16v vi_shl(i16v v, uint32_t n)
{
    for (int l = 0; l < 16; l++)
        v.i[l] = (int32_t)((uint32_t)v.i[l] << n);
    return v;
}
static inline i16v vi_sar(i16v v, uint32_t n)
{
    for (int l = 0; l < 16; l++)
        v.i[l] >>= n;
    return v;
}
static inline i16v vb_lookup128(const uint8_t *table, i16v codes, const uint32_t parts,
                                const int permute)
{
    uint8_t b[64];
    (void)parts;
    (void)permute;
    memcpy(b, codes.i, 64);
    for (int i = 0; i < 64; i++)
        b[i] = table[b[i] & 127];
    memcpy(codes.i, b, 64);
    return codes;
}
static inline i16v vb_signed(i16v q, i16v codes)
{
    uint8_t b[64], s[64];
    memcpy(b, q.i, 64);
    memcpy(s, codes.i, 64);
    for (int i = 0; i < 64; i++)
        b[i] = (uint8_t)(s[i] & 128 ? -b[i] : b[i]);
    memcpy(q.i, b, 64);
    return q;
}
static inline i16v vb_dot4(i16v acc, i16v w, i16v q)
{
    return vi_dot4(acc, w, q);
}
static inline i16v vi_and(i16v v, int32_t mask)
{
    for (int l = 0; l < 16; l++)
        v.i[l] &= mask;
    return v;
}
static inline v16 vi_bits_f32(i16v v)
{
    v16 r;
    memcpy(r.f, v.i, sizeof r.f);
    return r;
}

#endif
#endif
