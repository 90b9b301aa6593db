/* half.cu - LINEAR under numerics: fast and auto on matrix units of F16 and BF16: k_half.h.
 *
 * Reference: tests/gpu/fast.c, in double from the rows that EMBED gives, within its bound.
 * Bytes moved: the packed weight once for each block of tokens, activations in 16 bits once for each block of rows.
 */
#include "k_half.h"

#define HALF_RUN(kind, bits, fast4, bf16)                                                          \
    half_linear(&a, s, (int)(kind), bits, fast4, bf16, (uint8_t *)shared)

#define HALF_OF_TYPE(kind, bits)                                                                   \
    do {                                                                                           \
        if (a.bf16)                                                                                \
            HALF_RUN(kind, bits, 0, 1);                                                            \
        else                                                                                       \
            HALF_RUN(kind, bits, 0, 0);                                                            \
    } while (0)

/* Integers of 4 bits with scales of F16; other integers; tables; F16 and BF16. */
#define HALF_INT4 HALF_RUN(K_INT, 4, 1, 0)
#define HALF_INT                                                                                   \
    do {                                                                                           \
        if (a.w.bits == 8)                                                                         \
            HALF_RUN(K_INT, 8, 0, 0);                                                              \
        else                                                                                       \
            HALF_RUN(K_INT, K_ANY, 0, 0);                                                          \
    } while (0)
#define HALF_TABLE_OF                                                                              \
    do {                                                                                           \
        if (a.w.kind == K_LUT)                                                                     \
            HALF_RUN(K_LUT, K_ANY, 0, 0);                                                          \
        else if (a.w.bits == 4)                                                                    \
            HALF_OF_TYPE(K_MX, 4);                                                                 \
        else if (a.w.bits == 8)                                                                    \
            HALF_OF_TYPE(K_MX, 8);                                                                 \
        else                                                                                       \
            HALF_OF_TYPE(K_MX, K_ANY);                                                             \
    } while (0)
#define HALF_FLOAT HALF_OF_TYPE(K_FLOAT, 16)

/* Tiles of tokens of a warp; panels, parts of the tokens and parts of the steps of a block; steps and number of
 * stages, and blocks of a multiprocessor. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800 /* no mma.m16n8k16: none is launched */
#define HALF_KERNEL(name, formats, nt, wm, wn, wk, ks, stages, blocks)                             \
    TSR_KERNEL(name, struct k_half_linear, 32)                                                     \
    {                                                                                              \
    }
#else
#define HALF_KERNEL(name, formats, nt, wm, wn, wk, ks, stages, blocks)                             \
    TSR_KERNEL(name, struct k_half_linear, (wm) * (wn) * (wk)*32, blocks)                          \
    {                                                                                              \
        SHARED_LARGE(uint4, shared, K_HALF_SHARED / 16);                                           \
        const struct half_shape s = { nt, wm, wn, wk, ks, stages };                                \
        formats;                                                                                   \
    }
#endif
HALF_KERNEL(k_half16_int4, HALF_INT4, 2, 2, 1, 4, 8, 4, 3)
HALF_KERNEL(k_half16_int, HALF_INT, 2, 2, 1, 4, 4, 4, 2)
HALF_KERNEL(k_half16_table, HALF_TABLE_OF, 2, 2, 1, 4, 4, 4, 2)
HALF_KERNEL(k_half16_float, HALF_FLOAT, 2, 2, 1, 4, 4, 3, 3)
HALF_KERNEL(k_half64_int4, HALF_INT4, 8, 2, 1, 4, 4, 3, 2)
HALF_KERNEL(k_half64_int, HALF_INT, 8, 2, 1, 2, 2, 4, 2)
HALF_KERNEL(k_half64_table, HALF_TABLE_OF, 8, 2, 1, 2, 2, 4, 2)
HALF_KERNEL(k_half64_float, HALF_FLOAT, 8, 2, 1, 2, 2, 4, 3)
HALF_KERNEL(k_half128_int4, HALF_INT4, 16, 4, 1, 1, 2, 3, 2)
HALF_KERNEL(k_half128_int, HALF_INT, 16, 4, 1, 1, 1, 4, 2)
HALF_KERNEL(k_half128_table, HALF_TABLE_OF, 16, 4, 1, 1, 1, 4, 2)
HALF_KERNEL(k_half128_float, HALF_FLOAT, 16, 4, 1, 1, 1, 4, 2)
