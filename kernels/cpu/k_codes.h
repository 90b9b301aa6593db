/* k_codes.h - packed codes out of a panel, 16 rows by 4 columns at a time. */
#ifndef TSR_K_CODES_H
#define TSR_K_CODES_H

#include "kernels.h"
#include "simd.h"

/* The vectors of 16 rows of a step; only W_I3 and W_I6 have b and c. */
struct code_step {
    i16v a, b, c;
};

INLINE struct code_step code_load(const enum tsr_cpu_layout l, const uint8_t *p)
{
    struct code_step s;
    s.a = s.b = s.c = vi_load(p);
    if (l == W_I3 || l == W_I6) {
        s.b = vi_load(p + 64);
        s.c = vi_load(p + 128);
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
    case W_I6: /* three vectors of a whole code each; the fourth is in the bits left over */
        if (j < 3)
            return vi_bits(j == 0 ? s->a : j == 1 ? s->b : s->c, 0, 63);
        return vi_or(vi_bits(s->a, 6, 3), vi_or(vi_bits(s->b, 4, 12), vi_bits(s->c, 2, 48)));
    default:
        return s->a;
    }
}

INLINE v16 group_scale(const struct tsr_cpu_weight *w, uint64_t at)
{
    return w->scale_f16 ? v_load_f16(w->scales + 2 * at)
                        : v_load((const float *)(const void *)w->scales + at);
}

#endif
