/* codes.h - one packed code of a panel, for EMBED. */
#ifndef TSR_CPU_CODES_H
#define TSR_CPU_CODES_H

#include "kernels.h"

/* The code at row r and column k of a panel. */
static inline uint32_t cpu_code_get(enum tsr_cpu_layout l, const uint8_t *panel, uint64_t r,
                                    uint64_t k)
{
    uint64_t       step = cpu_step(l), unit = cpu_unit(l);
    uint32_t       j = (uint32_t)(k % step / 4);
    const uint8_t *b = panel + (k / step * 2 + r / 16) * unit + r % 16 * 4 + k % 4;
    switch (l) {
    case W_I6: /* a vector has one whole code and two bits of the fourth */
        return j < 3 ? b[64 * j] & 63u : b[0] >> 6 | (b[64] >> 4 & 12u) | (b[128] >> 2 & 48u);
    case W_I5: /* nibbles, and a vector of fifth bits */
        return (b[64 * (j / 2)] >> j % 2 * 4 & 15u) | (b[256] >> j & 1u) << 4;
    case W_I4:
        return b[0] >> 4 * j & 15u;
    case W_I3: /* vector j / 2 has two whole codes and two bits left */
        return j < 6 ? (uint32_t)b[64 * (j / 2)] >> j % 2 * 3 & 7u
                     : b[64 * (j - 6)] >> 6 | (uint32_t)(b[128] >> j & 1) << 2;
    case W_I2:
        return b[0] >> 2 * j & 3u;
    default:
        return b[0];
    }
}

#endif
