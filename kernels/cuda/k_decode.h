/* k_decode.h - decodes the codes of a panel in registers. */
#ifndef TSR_CUDA_K_DECODE_H
#define TSR_CUDA_K_DECODE_H

#include "k_math.h"

/* ---- any width, decided at run time: single elements, tails, groups off the steps ---- */

DEV uint64_t steps_of(const struct k_weight *w)
{
    return (w->cols + K_STEP - 1) / K_STEP;
}

DEV const uint8_t *step_at(const struct k_weight *w, uint64_t panel, uint64_t step)
{
    return AT(const uint8_t, w->codes) + (panel * steps_of(w) + step) * 128u * w->bits;
}

/* The F16 factor of a group's scale, or with which = 1 of its minimum. */
DEV float factor_of(const struct k_weight *w, uint64_t panel, uint64_t group, uint32_t lane,
                    const uint32_t which)
{
    const uint64_t record = panel * w->records + (group >> w->record_shift);
    return k_half(
        AT(const uint16_t, w->factors)[(record * (1 + w->affine) + which) * K_PANEL + lane]);
}

/* An E4M3 number. */
DEV float k_e4m3(uint32_t b)
{
    const uint32_t e = b >> 3 & 15u, m = b & 7u;
    float          v = e ? __uint_as_float((e + 120u) << 23 | m << 20) : (float)m * 0x1p-9f;
    v = (b & 127u) == 127u ? k_nan() : v;
    return b & 128u ? -v : v;
}

/* The stored bits of a group's scale, and what they mean: apart, so that a load can be early. */
DEV uint32_t scale_bits(const struct k_weight *w, uint64_t panel, uint64_t group, uint32_t lane)
{
    const uint64_t at = (panel * w->groups + group) * K_PANEL + lane;
    return w->scale_kind == K_SCALE_F32   ? AT(const uint32_t, w->scales)[at]
           : w->scale_kind == K_SCALE_F16 ? AT(const uint16_t, w->scales)[at]
                                          : AT(const uint8_t, w->scales)[at];
}

DEV float scale_from(const struct k_weight *w, uint32_t b, uint64_t panel, uint64_t group,
                     uint32_t lane)
{
    if (w->scale_kind == K_SCALE_F32)
        return __uint_as_float(b);
    if (w->scale_kind == K_SCALE_F16)
        return k_half(b);
    if (w->scale_kind == K_SCALE_E4M3)
        return k_e4m3(b) / AT(const float, w->factors)[panel * K_PANEL + lane];
    if (w->scale_kind != K_SCALE_E8) {
        b = w->scale_kind == K_SCALE_NIBBLES ? b & 15u : b;
        return factor_of(w, panel, group, lane, 0) * (float)((int32_t)b - (int32_t)w->bias);
    }
    return b == 255 ? k_nan() : __uint_as_float(b ? b << 23 : 0x400000u);
}

DEV float scale_of(const struct k_weight *w, uint64_t panel, uint64_t group, uint32_t lane)
{
    return scale_from(w, scale_bits(w, panel, group, lane), panel, group, lane);
}

/* The same of the minimum, +0 where there is none. */
DEV uint32_t minimum_bits(const struct k_weight *w, uint64_t panel, uint64_t group, uint32_t lane)
{
    const uint64_t at = (panel * w->groups + group) * K_PANEL + lane;
    return !w->affine                         ? 0u
           : w->scale_kind == K_SCALE_F32     ? AT(const uint32_t, w->minimums)[at]
           : w->scale_kind == K_SCALE_F16     ? AT(const uint16_t, w->minimums)[at]
           : w->scale_kind == K_SCALE_NIBBLES ? AT(const uint8_t, w->scales)[at] >> 4
                                              : AT(const uint8_t, w->minimums)[at];
}

DEV float minimum_from(const struct k_weight *w, uint32_t b, uint64_t panel, uint64_t group,
                       uint32_t lane)
{
    if (!w->affine)
        return 0.0f;
    if (w->scale_kind == K_SCALE_F32)
        return __uint_as_float(b);
    if (w->scale_kind == K_SCALE_F16)
        return k_half(b);
    return -(factor_of(w, panel, group, lane, 1) * (float)b);
}

DEV float minimum_of(const struct k_weight *w, uint64_t panel, uint64_t group, uint32_t lane)
{
    return minimum_from(w, minimum_bits(w, panel, group, lane), panel, group, lane);
}

DEV uint32_t zero_of(const struct k_weight *w, uint64_t panel, uint64_t group, uint32_t lane)
{
    return w->zeros ? AT(const uint8_t, w->zeros)[(panel * w->groups + group) * K_PANEL + lane]
                    : w->mid;
}

/* The code of one row and column of a packed weight. */
DEV uint32_t code_at(const struct k_weight *w, uint64_t panel, uint32_t lane, uint64_t k)
{
    const uint8_t *p = step_at(w, panel, k / K_STEP);
    const uint32_t c = (uint32_t)(k % K_STEP), j = c / 4, i = c % 4;
    uint32_t       code = 0, at = 0;
    if (w->bits == 8)
        return p[c / 16 * 512 + lane * 16 + c % 16];
    if (w->bits & 4u) {
        code = p[lane * 16 + j / 2 * 4 + i] >> 4 * (j & 1u) & 15u;
        at = 4;
        p += 512;
    }
    if (w->bits & 2u) {
        code |= (p[lane * 8 + j / 4 * 4 + i] >> 2 * (j & 3u) & 3u) << at;
        at += 2;
        p += 256;
    }
    if (w->bits & 1u)
        code |= (p[lane * 4 + i] >> j & 1u) << at;
    return code;
}

/* The value of an outlier, if the row has one in column k. */
DEV float outlier_or(const struct k_weight *w, uint64_t row, uint64_t k, float value)
{
    const uint32_t *column = AT(const uint32_t, w->column) + row * w->outliers;
    uint32_t        lo = 0, hi = w->outliers;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (column[mid] < k)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < w->outliers && column[lo] == k ? AT(const float, w->value)[row * w->outliers + lo]
                                               : value;
}

/* One weight, widened as in docs/decisions/numerics.md. */
DEV_CALL float weight_at(const struct k_weight *w, uint64_t panel, uint32_t lane, uint64_t k)
{
    if (w->kind == K_FLOAT) {
        const uint8_t *p = step_at(w, panel, k / K_STEP);
        const uint32_t c = (uint32_t)(k % K_STEP);
        if (w->bits == 32)
            return ((const float *)(const void *)(p + c / 4 * 512 + lane * 16))[c % 4];
        uint32_t h = ((const uint16_t *)(const void *)(p + c / 8 * 512 + lane * 16))[c % 8];
        return w->bf16 ? k_bf16(h) : k_half(h);
    }
    const uint32_t code = code_at(w, panel, lane, k);
    const uint64_t g = k / w->group;
    if (w->kind == K_INT) {
        float v = (float)((int32_t)code - (int32_t)zero_of(w, panel, g, lane)) *
                  scale_of(w, panel, g, lane);
        return w->affine ? v + minimum_of(w, panel, g, lane) : v;
    }
    if (w->kind == K_MX)
        return AT(const float, w->table)[code] * scale_of(w, panel, g, lane);
    float v = AT(const float, w->table)[(panel * w->entries + code) * K_PANEL + lane];
    return w->outliers ? outlier_or(w, panel * K_PANEL + lane, k, v) : v;
}

/* ---- a width known to the compiler: the inner loops --------------------------------- */

/* A lane's 32 columns of `bits`; the words of k_args.h. */
struct step_words {
    uint32_t w[32];
};

DEV void put4(uint32_t *w, uint4 v)
{
    w[0] = v.x;
    w[1] = v.y;
    w[2] = v.z;
    w[3] = v.w;
}

/* Planes of 2 to 7 bits; `bits` may be known at run time alone. */
DEV void planes_load(struct step_words *s, const int bits, const uint8_t *p, uint32_t lane)
{
    if (bits & 4) {
        put4(s->w, ((const uint4 *)(const void *)p)[lane]);
        p += 512;
    }
    if (bits & 2) {
        uint2 v = ((const uint2 *)(const void *)p)[lane];
        s->w[4] = v.x;
        s->w[5] = v.y;
        p += 256;
    }
    if (bits & 1)
        s->w[6] = ((const uint32_t *)(const void *)p)[lane];
}

/* The compile-time bit width of a loop over steps: a bit width, or any of 2 to 7 bits, on which all lanes
 * branch uniformly once a step. One loop for each bit width took most of the build time. */
#define K_ANY 0

DEV void step_load(struct step_words *s, const int bits, const struct k_weight *w, const uint8_t *p,
                   uint32_t lane)
{
    if (bits >= 8) {
        UNROLL_LOOP
        for (int v = 0; v < bits / 4; v++)
            put4(s->w + 4 * v, ((const uint4 *)(const void *)p)[v * 32 + (int)lane]);
        return;
    }
    planes_load(s, bits == K_ANY ? (int)w->bits : bits, p, lane);
}

/* The codes of columns 4j..4j+3, a byte each. */
DEV uint32_t codes4(const struct step_words *s, const int bits, const int j)
{
    uint32_t c = 0;
    int      at = 0;
    if (bits == 8)
        return s->w[j];
    if (bits & 4) {
        c = s->w[j / 2] >> 4 * (j & 1) & 0x0f0f0f0fu;
        at = 4;
    }
    if (bits & 2) {
        c |= (s->w[4 + j / 4] >> 2 * (j & 3) & 0x03030303u) << at;
        at += 2;
    }
    if (bits & 1)
        c |= (s->w[6] >> j & 0x01010101u) << at;
    return c;
}

/* The codes of K_ANY, a byte each, in the first eight words: those of 8 bits from now on. */
DEV void step_spread(struct step_words *s, const int bits)
{
    uint32_t c[8];
    int      at = 0;
    UNROLL_LOOP
    for (int j = 0; j < 8; j++)
        c[j] = 0;
    if (bits & 4) {
        UNROLL_LOOP
        for (int j = 0; j < 8; j++)
            c[j] = s->w[j / 2] >> 4 * (j & 1) & 0x0f0f0f0fu;
        at = 4;
    }
    if (bits & 2) {
        UNROLL_LOOP
        for (int j = 0; j < 8; j++)
            c[j] |= (s->w[4 + j / 4] >> 2 * (j & 3) & 0x03030303u) << at;
        at += 2;
    }
    if (bits & 1) {
        UNROLL_LOOP
        for (int j = 0; j < 8; j++)
            c[j] |= (s->w[6] >> j & 0x01010101u) << at;
    }
    UNROLL_LOOP
    for (int j = 0; j < 8; j++)
        s->w[j] = c[j];
}

/* Byte i of c as a number: 2^23 + byte is put together from bits, and is exact. */
DEV float byte_float(uint32_t c, const int i, float zero)
{
    return __uint_as_float(__byte_perm(c, 0x4b000000u, 0x7440u + (uint32_t)i)) -
           (8388608.0f + zero);
}

/* What widens a lane's codes: of one group, or of the row. */
struct decoder {
    float        scale, zero, minimum;
    const float *table; /* of this lane: entry e at table[e * stride] */
    uint32_t     stride;
};

/* Columns 4j..4j+3 of a step, widened; kind and bits are constants. */
DEV void widen4(const struct step_words *s, const int kind, const int bits, const int bf16,
                const int j, const struct decoder *d, float v[4])
{
    if (kind == (int)K_FLOAT && bits == 32) {
        UNROLL_LOOP
        for (int i = 0; i < 4; i++)
            v[i] = __uint_as_float(s->w[4 * j + i]);
        return;
    }
    if (kind == (int)K_FLOAT) {
        UNROLL_LOOP
        for (int i = 0; i < 4; i++) {
            uint32_t h = s->w[2 * j + i / 2] >> 16 * (i & 1) & 0xffffu;
            v[i] = bf16 ? k_bf16(h) : k_half(h);
        }
        return;
    }
    const uint32_t c = codes4(s, bits, j);
    UNROLL_LOOP
    for (int i = 0; i < 4; i++) {
        if (kind == (int)K_INT) /* a minimum of +0 changes no sum: chains begin at +0 */
            v[i] = byte_float(c, i, d->zero) * d->scale + d->minimum;
        else /* a scale of 1 changes nothing: LUT and MX share their code */
            v[i] = d->table[(c >> 8 * i & 255u) * d->stride] * d->scale;
    }
}

#endif
