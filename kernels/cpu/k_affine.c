/* k_affine.c - LINEAR on tessera.int/2: the loops of the integer kernels, with a minimum for each run
 * (docs/decisions/numerics.md). */
#include "k_few_a8.h"
#include "k_tile_a8.h"

/* ---- columns [k0,k1) of a panel as F32 ---------------------------------------------- */

/* One column of 16 rows: code j of four.  The product is rounded, then the sum. */
INLINE void widen_one(i16v four, uint32_t j, const struct affine *g, float *dst)
{
    v_store(dst, v_add(v_mul(vi_cvt(vi_byte(four, j)), g->scale), g->minimum));
}

INLINE void widen_half(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t half, uint64_t k0,
                       uint64_t k1, const enum tsr_cpu_layout l, float *dst)
{
    const uint8_t *codes = w->codes + panel * w->panel_bytes + cpu_unit(l) * half;
    dst += 16 * half;
    for (uint64_t k = k0; k < k1;) {
        uint64_t      g = k / w->group, end = (g + 1) * w->group < k1 ? (g + 1) * w->group : k1;
        struct affine group = group_affine(w, panel, g, half);
        for (; k + 4 <= end; k += 4, dst += 4 * PANEL) {
            i16v v = four_at(l, codes, k);
            UNROLL
            for (uint32_t j = 0; j < 4; j++)
                widen_one(v, j, &group, dst + j * PANEL);
        }
        for (; k < end; k++, dst += PANEL)
            widen_one(four_at(l, codes, k), (uint32_t)(k % 4), &group, dst);
    }
}

/* One function per layout, each with its own frame. */
#define LAYOUT(l)                                                                                  \
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
        tiles(a, l, 1, panel, t0, t1);                                                             \
    }
#define FEW_W_I8(i)  few(a, panel, t0, W_I8, 1, i, 1)
#define FEW_W_I6(i)  few(a, panel, t0, W_I6, 1, i, 1)
#define FEW_W_I5(i)  few(a, panel, t0, W_I5, 1, i, 1)
#define FEW_W_I4(i)  few(a, panel, t0, W_I4, 1, i, 1)
#define FEW_W_I3(i)  few(a, panel, t0, W_I3, 1, i, 1)
#define FEW_W_I2(i)  few(a, panel, t0, W_I2, 1, i, 1)
#define PAIR_W_I8(m) pair(a, i, apart, W_I8, m, 1)
#define PAIR_W_I6(m) pair(a, i, apart, W_I6, m, 1)
#define PAIR_W_I5(m) pair(a, i, apart, W_I5, m, 1)
#define PAIR_W_I4(m) pair(a, i, apart, W_I4, m, 1)
#define PAIR_W_I3(m) pair(a, i, apart, W_I3, m, 1)
#define PAIR_W_I2(m) pair(a, i, apart, W_I2, m, 1)
LAYOUT(W_I8)
LAYOUT(W_I6)
LAYOUT(W_I5)
LAYOUT(W_I4)
LAYOUT(W_I3)
LAYOUT(W_I2)

/* The functions of a layout. */
struct loops {
    void (*widen)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                  float *dst);
    void (*few)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t m);
    void (*pairs)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n);
    void (*tiles)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t t1);
};

static const struct loops loops[] = {
    [W_I8] = { widen_W_I8, few_W_I8, pairs_W_I8, tiles_W_I8 },
    [W_I6] = { widen_W_I6, few_W_I6, pairs_W_I6, tiles_W_I6 },
    [W_I5] = { widen_W_I5, few_W_I5, pairs_W_I5, tiles_W_I5 },
    [W_I4] = { widen_W_I4, few_W_I4, pairs_W_I4, tiles_W_I4 },
    [W_I3] = { widen_W_I3, few_W_I3, pairs_W_I3, tiles_W_I3 },
    [W_I2] = { widen_W_I2, few_W_I2, pairs_W_I2, tiles_W_I2 },
};

void K(widen_affine)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                     float *dst)
{
    loops[w->layout].widen(w, panel, k0, k1, dst);
}

void K(affine_pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n)
{
    loops[a->w->layout].pairs(a, panel, apart, n);
}

/* Groups are whole steps of the codes, so that each run begins on one. */
void K(affine_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1)
{
    const struct loops *l = &loops[a->w->layout];
    for (uint64_t p = panel; p < panel + np; p++) {
        if (a->qpack) {
            l->tiles(a, p, t0, t1);
            continue;
        }
        for (uint64_t t = t0; t < t1; t += DIRECT_MAX)
            l->few(a, p, t, t1 - t < DIRECT_MAX ? t1 - t : DIRECT_MAX);
    }
}
