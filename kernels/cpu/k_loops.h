/* k_loops.h - LINEAR on codes whose groups are whole steps of them, so that each run begins on one: the loops
 * of the integer kernels for another kind of runs.  The file that includes it defines
 *
 *   KIND           enum run_kind
 *   widen_group()  what widen_one() needs of a group
 *   widen_one()    one column of 16 rows as F32
 */
#ifndef TSR_K_LOOPS_H
#define TSR_K_LOOPS_H

#include "k_few_a8.h"
#include "k_tile_a8.h"

INLINE struct affine widen_group(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group,
                                 uint64_t half);
/* Code j of four. */
INLINE void widen_one(const struct tsr_cpu_weight *w, const enum tsr_cpu_layout l, i16v four,
                      uint32_t j, const struct affine *g, float *dst);

/* Columns [k0,k1) of half a panel. */
INLINE void widen_half(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t half, uint64_t k0,
                       uint64_t k1, const enum tsr_cpu_layout l, float *dst)
{
    const uint8_t *codes = w->codes + panel * w->panel_bytes + cpu_unit(l) * half;
    dst += 16 * half;
    for (uint64_t k = k0; k < k1;) {
        uint64_t      g = k / w->group, end = (g + 1) * w->group < k1 ? (g + 1) * w->group : k1;
        struct affine group = widen_group(w, panel, g, half);
        for (; k + 4 <= end; k += 4, dst += 4 * PANEL) {
            i16v v = four_at(l, codes, k);
            UNROLL
            for (uint32_t j = 0; j < 4; j++)
                widen_one(w, l, v, j, &group, dst + j * PANEL);
        }
        for (; k < end; k++, dst += PANEL)
            widen_one(w, l, four_at(l, codes, k), (uint32_t)(k % 4), &group, dst);
    }
}

/* The functions of a layout. */
struct loops {
    void (*widen)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                  float *dst);
    void (*few)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t m);
    void (*pairs)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n);
    void (*tiles)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t t1);
};

/* One function per layout, each with its own frame. */
#define LOOPS(l)                                                                                   \
    static void widen_##l(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0,             \
                          uint64_t k1, float *dst)                                                 \
    {                                                                                              \
        for (uint64_t half = 0; half < 2; half++)                                                  \
            widen_half(w, panel, half, k0, k1, l, dst);                                            \
    }                                                                                              \
    static void few_##l(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t m)   \
    {                                                                                              \
        FEW_SWITCH(m, FEW_##l)                                                                     \
    }                                                                                              \
    static void pairs_##l(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart,          \
                          uint64_t n)                                                              \
    {                                                                                              \
        for (uint64_t i = panel; i < panel + n; i++) {                                             \
            PAIR_SWITCH(l < W_I4 ? 1 : a->tokens, PAIR_##l)                                        \
        }                                                                                          \
    }                                                                                              \
    static void tiles_##l(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0,             \
                          uint64_t t1)                                                             \
    {                                                                                              \
        tiles(a, l, KIND, panel, t0, t1);                                                          \
    }
#define LOOPS_OF(l)  [l] = { widen_##l, few_##l, pairs_##l, tiles_##l }
#define FEW_W_I8(i)  few(a, panel, t0, W_I8, 1, i, KIND)
#define FEW_W_I6(i)  few(a, panel, t0, W_I6, 1, i, KIND)
#define FEW_W_I5(i)  few(a, panel, t0, W_I5, 1, i, KIND)
#define FEW_W_I4(i)  few(a, panel, t0, W_I4, 1, i, KIND)
#define FEW_W_I3(i)  few(a, panel, t0, W_I3, 1, i, KIND)
#define FEW_W_I2(i)  few(a, panel, t0, W_I2, 1, i, KIND)
#define PAIR_W_I8(m) pair(a, i, apart, W_I8, m, KIND, 0)
#define PAIR_W_I6(m) pair(a, i, apart, W_I6, m, KIND, 0)
#define PAIR_W_I5(m) pair(a, i, apart, W_I5, m, KIND, 0)
#define PAIR_W_I4(m) pair(a, i, apart, W_I4, m, KIND, 0)
#define PAIR_W_I3(m) pair(a, i, apart, W_I3, m, KIND, 0)
#define PAIR_W_I2(m)                                                                               \
    if (KIND == RUN_AFFINE && is_coded(a->w))                                                      \
        pair(a, i, apart, W_I2, m, KIND, KIND == RUN_AFFINE);                                      \
    else                                                                                           \
        pair(a, i, apart, W_I2, m, KIND, 0)

/* Panels [panel, panel + np) of a8: tiles of many tokens, or a few at a time. */
static inline void loops_a8(const struct loops *l, const struct tsr_cpu_linear *a, uint64_t panel,
                            uint64_t np, uint64_t t0, uint64_t t1)
{
    for (uint64_t p = panel; p < panel + np; p++) {
        if (a->qpack) {
            l->tiles(a, p, t0, t1);
            continue;
        }
        for (uint64_t t = t0; t < t1; t += DIRECT_MAX)
            l->few(a, p, t, t1 - t < DIRECT_MAX ? t1 - t : DIRECT_MAX);
    }
}

#endif
