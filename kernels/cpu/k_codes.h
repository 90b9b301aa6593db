/* k_codes.h - packed codes out of a panel, 16 rows by 4 columns at a time. */
#ifndef TSR_K_CODES_H
#define TSR_K_CODES_H

#include "kernels.h"
#include "simd.h"
#include "simd_bytes.h"

/* The vectors of 16 rows of a step; only W_I3, W_I5 and W_I6 have b and c, only W_I5 d and e. */
struct code_step {
    i16v a, b, c, d, e;
};

INLINE struct code_step code_load(const enum tsr_cpu_layout l, const uint8_t *p)
{
    struct code_step s;
    s.a = s.b = s.c = s.d = s.e = vi_load(p);
    if (l == W_I3 || l == W_I6 || l == W_I5) {
        s.b = vi_load(p + 64);
        s.c = vi_load(p + 128);
    }
    if (l == W_I5) {
        s.d = vi_load(p + 192);
        s.e = vi_load(p + 256);
    }
    return s;
}

/* Columns 4j to 4j+3 of the step, one byte each. */
INLINE i16v code_four(const enum tsr_cpu_layout l, const struct code_step *s, const int j)
{
    switch (l) {
    case W_I4:
        return vi_bits(s->a, 4 * j, 15);
    case W_I2:
        return vi_bits(s->a, 2 * j, 3);
    case W_I3: /* three vectors of two whole codes each; 6 and 7 are in the bits left over */
        if (j < 6)
            return vi_bits(j < 2 ? s->a : j < 4 ? s->b : s->c, j % 2 * 3, 7);
        return vi_or(vi_bits(j == 6 ? s->a : s->b, 6, 3), vi_bits(s->c, j - 2, 4));
    case W_I5: /* four vectors of nibbles; bit j of the fifth's bytes belongs to four j */
        return vi_or(vi_bits(j < 2   ? s->a
                             : j < 4 ? s->b
                             : j < 6 ? s->c
                                     : s->d,
                             4 * (j % 2), 15),
                     j < 4 ? vi_bits(vi_shl(s->e, (uint32_t)(4 - j)), 0, 16)
                           : vi_bits(s->e, j - 4, 16));
    case W_I6: /* three vectors of a whole code each; the fourth is in the bits left over */
        if (j < 3)
            return vi_bits(j == 0 ? s->a : j == 1 ? s->b : s->c, 0, 63);
        return vi_or(vi_bits(s->a, 6, 3), vi_or(vi_bits(s->b, 4, 12), vi_bits(s->c, 2, 48)));
    default:
        return s->a;
    }
}

/* The four of column k. */
INLINE i16v four_at(const enum tsr_cpu_layout l, const uint8_t *codes, uint64_t k)
{
    const uint64_t   step = cpu_step(l), j = k % step / 4;
    struct code_step s = code_load(l, codes + k / step * 2 * cpu_unit(l));
    return code_four(l, &s, (int)j);
}

INLINE v16 group_scale(const struct tsr_cpu_weight *w, uint64_t at)
{
    return w->scale_f16 ? v_load_f16(w->scales + 2 * at)
                        : v_load((const float *)(const void *)w->scales + at);
}

/* Scale and minimum of 16 rows. */
struct affine {
    v16 scale, minimum;
};

/* tessera.int/2: rows 16 * half and on of a panel. */
INLINE struct affine group_affine(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group,
                                  uint64_t half)
{
    const uint64_t at = (panel * w->groups + group) * PANEL + 16 * half;
    if (w->affine == AFFINE_STORED) {
        struct affine s = { group_scale(w, at),
                            w->scale_f16 ? v_load_f16(w->minimums + 2 * at)
                                         : v_load((const float *)(const void *)w->minimums + at) };
        return s;
    }
    const uint64_t record = panel * w->records + (group >> w->record_shift);
    const uint8_t *factors = w->factors + 2 * (2 * record * PANEL + 16 * half);
    i16v           a = vi_load_u8(w->scales + at), b = a;
    if (w->affine == AFFINE_NIBBLES) {
        a = vi_bits(a, 0, 15);
        b = vi_bits(b, 4, 15);
    } else {
        b = vi_load_u8(w->minimums + at);
    }
    struct affine s = { v_mul(v_load_f16(factors), vi_cvt(a)),
                        v_neg(v_mul(v_load_f16(factors + 2 * PANEL), vi_cvt(b))) };
    return s;
}

/* The scale, and of tessera.int/2 the minimum. */
INLINE struct affine group_of(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group,
                              uint64_t half, const int affine)
{
    if (affine)
        return group_affine(w, panel, group, half);
    v16           scale = group_scale(w, (panel * w->groups + group) * PANEL + 16 * half);
    struct affine s = { scale, scale };
    return s;
}

#endif
