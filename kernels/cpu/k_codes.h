/* k_codes.h - packed codes out of a panel, 16 rows by 4 columns at a time. */
#ifndef TSR_K_CODES_H
#define TSR_K_CODES_H

#include "kernels.h"
#include "simd.h"

/* Columns 4j to 4j+3 of the step whose 16 rows begin at c, one byte each. */
INLINE i16v code_four(const enum tsr_cpu_layout l, const uint8_t *c, const int j)
{
    switch (l) {
    case W_I4:
        return vi_bits(vi_load(c), 4 * j, 15);
    case W_I2:
        return vi_bits(vi_load(c), 2 * j, 3);
    case W_I3: /* three vectors of two whole codes each; 6 and 7 are in the bits left over */
        if (j < 6)
            return vi_bits(vi_load(c + 64 * (j / 2)), j % 2 * 3, 7);
        return vi_or(vi_bits(vi_load(c + 64 * (j - 6)), 6, 3), vi_bits(vi_load(c + 128), j - 2, 4));
    default:
        return vi_load(c);
    }
}

INLINE v16 group_scale(const struct tsr_cpu_weight *w, uint64_t at)
{
    return w->scale_f16 ? v_load_f16(w->scales + 2 * at)
                        : v_load((const float *)(const void *)w->scales + at);
}

#endif
