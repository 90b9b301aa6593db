/* k_half_row.h - eight columns of a row of a packed weight, as four words of F16 or BF16.
 *
 * Lane 4 g + t takes rows g, g + 8, g + 16, g + 24 of a panel and columns 8t..8t+7 of a step: a word of 4 bits, two of 8.
 */
#ifndef TSR_CUDA_K_HALF_ROW_H
#define TSR_CUDA_K_HALF_ROW_H

#include "k_decode.h"
#include "k_mma_half.h"

/* What widens a lane's codes of its four rows: stored bits, loaded a group ahead of their use. */
struct half_meta {
    uint32_t scale[4], minimum[4], zero[4];
};

DEV void half_meta_load(const struct k_weight *w, const int kind, uint64_t panel, uint32_t g,
                        uint32_t group, struct half_meta *m)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        m->scale[i] = scale_bits(w, panel, group, g + 8 * i);
        m->minimum[i] = kind == (int)K_INT ? minimum_bits(w, panel, group, g + 8 * i) : 0;
        m->zero[i] = kind == (int)K_INT ? zero_of(w, panel, group, g + 8 * i) : 0;
    }
}

/* The group of the lane's columns, where it ends, and the one that was loaded ahead. */
struct half_groups {
    uint32_t group, end, ahead;
};

DEV void half_meta_begin(const struct k_weight *w, const int kind, uint64_t panel, uint32_t g,
                         uint32_t column, struct half_groups *at, struct half_meta *next)
{
    at->ahead = column / w->group;
    at->ahead =
        at->ahead < w->groups ? at->ahead : w->groups - 1; /* past the end there are zeros */
    at->group = at->ahead;
    at->end = 0;
    half_meta_load(w, kind, panel, g, at->ahead, next);
}

/* Of the step whose columns of the lane begin at `column`; the next ones are on their way then. */
DEV void half_meta_take(const struct k_weight *w, const int kind, uint64_t panel, uint32_t g,
                        uint32_t column, struct half_groups *at, struct half_meta *now,
                        struct half_meta *next)
{
    if (column < at->end)
        return;
    *now = *next;
    at->group = at->ahead;
    at->end = (at->group + 1) * w->group;
    const uint32_t after = (at->end > column + K_STEP ? at->end : column + K_STEP) / w->group;
    if (at->end >= w->cols)
        at->end = 0xffffffffu;
    at->ahead = after < w->groups ? after : w->groups - 1;
    if (at->ahead != at->group)
        half_meta_load(w, kind, panel, g, at->ahead, next);
}

/* Codes of columns 8t..8t+3 and 8t+4..8t+7 of a row, a byte each. */
DEV void half_codes(const int bits, uint32_t width, const uint8_t *p, uint32_t row, uint32_t t,
                    uint32_t c[2])
{
    uint32_t at = 0;
    if (bits == 8) {
        const uint2 v = *(const uint2 *)(const void *)(p + t / 2 * 512 + row * 16 + t % 2 * 8);
        c[0] = v.x;
        c[1] = v.y;
        return;
    }
    c[0] = c[1] = 0;
    if (width & 4u) {
        const uint32_t v = *(const uint32_t *)(const void *)(p + row * 16 + 4 * t);
        c[0] = v & 0x0f0f0f0fu;
        c[1] = v >> 4 & 0x0f0f0f0fu;
        p += 512;
        at = 4;
    }
    if (width & 2u) {
        const uint32_t v =
            *(const uint32_t *)(const void *)(p + row * 8 + t / 2 * 4) >> 4 * (t % 2);
        c[0] |= (v & 0x03030303u) << at;
        c[1] |= (v >> 2 & 0x03030303u) << at;
        p += 256;
        at += 2;
    }
    if (width & 1u) {
        const uint32_t v = *(const uint32_t *)(const void *)(p + row * 4) >> 2 * t;
        c[0] |= (v & 0x01010101u) << at;
        c[1] |= (v >> 1 & 0x01010101u) << at;
    }
}

/* Eight columns of a row as four pairs in 16 bits. */
DEV void half_row(const struct k_weight *w, const int kind, const int bits, const int bf16,
                  const uint8_t *p, uint32_t row, uint32_t t, float scale, float zero,
                  float minimum, const float *table, uint32_t stride, uint32_t out[4])
{
    uint32_t c[2];
    half_codes(bits, bits == K_ANY ? w->bits : (uint32_t)bits, p, row, t, c);
    UNROLL_LOOP
    for (int h = 0; h < 2; h++) {
        float v[4];
        UNROLL_LOOP
        for (int i = 0; i < 4; i++) {
            if (kind == (int)K_INT)
                v[i] = byte_float(c[h], i, zero) * scale + minimum;
            else
                v[i] = table[(c[h] >> 8 * i & 255u) * stride] * scale;
        }
        out[2 * h] = pack_half(v[0], v[1], bf16);
        out[2 * h + 1] = pack_half(v[2], v[3], bf16);
        if (!bf16) { /* as k_dense does it */
            out[2 * h] = half2_clamp(out[2 * h]);
            out[2 * h + 1] = half2_clamp(out[2 * h + 1]);
        }
    }
}

/* The same of 4 bits with a scale of F16: numbers 1024 + code are put together from bits, differences are exact. */
DEV void half_row4(const uint8_t *p, uint32_t row, uint32_t t, uint32_t scale, uint32_t zero,
                   uint32_t out[4])
{
    const uint32_t v =
        __byte_perm(*(const uint32_t *)(const void *)(p + row * 16 + 4 * t), 0, 0x3120);
    const uint32_t u = v >> 8;
    out[0] = half2_mul(half2_add((v & 0x000f000fu) | 0x64006400u, zero), scale);
    out[1] = half2_mul(half2_add((u & 0x000f000fu) | 0x64006400u, zero), scale);
    /* 1024 + 16 code, times 1/16: 64 + code */
    const uint32_t high = half2_add(zero, 0x63806380u); /* less 64, not 1024 */
    out[2] = half2_mul(half2_fma((v & 0x00f000f0u) | 0x64006400u, 0x2c002c00u, high), scale);
    out[3] = half2_mul(half2_fma((u & 0x00f000f0u) | 0x64006400u, 0x2c002c00u, high), scale);
}

#endif
