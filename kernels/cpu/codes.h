/* codes.h - packed codes of one row in a panel, for loading and for EMBED. */
#ifndef TSR_CPU_CODES_H
#define TSR_CPU_CODES_H

#include <string.h>

#include "kernels.h"

/* Where bits of the code at row r and column k lie: `low` in byte at[0] from bit shift[0] on, the
 * others in byte at[1] from bit shift[1] on. */
struct cpu_code_place {
    uint64_t at[2];
    uint32_t shift[2], low;
};

static inline struct cpu_code_place cpu_code_at(enum tsr_cpu_layout l, uint64_t r, uint64_t k)
{
    uint64_t step = cpu_step(l), unit = cpu_unit(l);
    uint64_t b = (k / step * 2 + r / 16) * unit + r % 16 * 4 + k % 4;
    uint32_t j = (uint32_t)(k % step / 4);
    switch (l) {
    case W_I4:
        return (struct cpu_code_place){ { b, b }, { 4 * j, 0 }, 4 };
    case W_I2:
        return (struct cpu_code_place){ { b, b }, { 2 * j, 0 }, 2 };
    case W_I3:
        if (j < 6) /* vector j / 2 has two whole codes and two bits left */
            return (struct cpu_code_place){ { b + 64 * (j / 2), b }, { j % 2 * 3, 0 }, 3 };
        return (struct cpu_code_place){ { b + 64 * (j - 6), b + 128 }, { 6, j }, 2 };
    default:
        return (struct cpu_code_place){ { b, b }, { 0, 0 }, 8 };
    }
}

static inline uint32_t cpu_code_get(enum tsr_cpu_layout l, const uint8_t *panel, uint64_t r,
                                    uint64_t k)
{
    struct cpu_code_place p = cpu_code_at(l, r, k);
    uint32_t              v = (uint32_t)panel[p.at[0]] >> p.shift[0] & ((1u << p.low) - 1u);
    if (l == W_I3 && p.low == 2)
        v |= ((uint32_t)panel[p.at[1]] >> p.shift[1] & 1u) << 2;
    return v;
}

static inline uint32_t cpu_word(const uint8_t *code, uint32_t mask)
{
    uint32_t v;
    memcpy(&v, code, 4);
    return v & mask * 0x01010101u;
}

/* One row's codes of a step, a byte each, to `dst`, the row's place in the first vector. */
static inline void cpu_codes_put(enum tsr_cpu_layout l, uint8_t *dst, const uint8_t *code)
{
    uint32_t v[3], n = 1;
    switch (l) {
    case W_I4:
        v[0] = cpu_word(code, 15) | cpu_word(code + 4, 15) << 4;
        break;
    case W_I2:
        v[0] = cpu_word(code, 3) | cpu_word(code + 4, 3) << 2 | cpu_word(code + 8, 3) << 4 |
               cpu_word(code + 12, 3) << 6;
        break;
    case W_I3:
        n = 3;
        v[0] = cpu_word(code, 7) | cpu_word(code + 4, 7) << 3 | cpu_word(code + 24, 3) << 6;
        v[1] = cpu_word(code + 8, 7) | cpu_word(code + 12, 7) << 3 | cpu_word(code + 28, 3) << 6;
        v[2] = cpu_word(code + 16, 7) | cpu_word(code + 20, 7) << 3 | cpu_word(code + 24, 4) << 4 |
               cpu_word(code + 28, 4) << 5;
        break;
    default:
        v[0] = cpu_word(code, 255);
        break;
    }
    for (uint32_t i = 0; i < n; i++)
        memcpy(dst + (size_t)64 * i, &v[i], 4);
}

#endif
