/* k_linear_a8.c - LINEAR with int8 activations on packed integer weights, many tokens: tiles of
 * rows by tokens.  Exact integer sums per run, then one FMA by weight scale times activation
 * scale (docs/decisions/numerics.md). */
#include "k_tiles_a8.h"

#ifdef ISA_TILE_WORDS
tsr_cpu_pack_opposed *const K(pack_opposed) = pack_opposed;
#elif TSR_SIMD == 2 && !defined(TSR_VNNI)
tsr_cpu_pack_opposed *const K(pack_opposed) = NULL;
#endif

/* One function per layout, each with its own frame. */
#define TILES(l)                                                                                   \
    static void tiles_##l(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0,             \
                          uint64_t t1)                                                             \
    {                                                                                              \
        tiles(a, l, RUN_PLAIN, panel, t0, t1);                                                     \
    }
TILES(W_I8)
TILES(W_I6)
TILES(W_I5)
TILES(W_I4)
TILES(W_I3)
TILES(W_I2)

/* One function for each way to add, with a frame of its own. */
#define MANY(kind, low, wide)                                                                      \
    static __attribute__((noinline)) void kind##_##low##_##wide(const struct tsr_cpu_linear *a,    \
                                                                uint64_t panel, uint64_t np,       \
                                                                uint64_t t0, uint64_t t1)          \
    {                                                                                              \
        many(a, kind, low, wide, panel, np, t0, t1);                                               \
    }
MANY(RUN_PLAIN, 1, 0)
MANY(RUN_AFFINE, 1, 0)
#ifdef ISA_DOT_LOW
MANY(RUN_PLAIN, 0, 0)
MANY(RUN_AFFINE, 0, 0)
#else /* one product serves both */
#define RUN_PLAIN_0_0  RUN_PLAIN_1_0
#define RUN_AFFINE_0_0 RUN_AFFINE_1_0
#endif
#ifdef ISA_TILE_WORDS
MANY(RUN_PLAIN, 0, 1)
MANY(RUN_AFFINE, 0, 1)
#endif

static void all_tiles(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                      uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    const int                    low = is_low(kind_of(w), w->layout);
#ifdef ISA_TILE_WORDS
    if (cpu_wide(w, a->tokens)) {
        (w->affine ? RUN_AFFINE_0_1 : RUN_PLAIN_0_1)(a, panel, np, t0, t1);
        return;
    }
#endif
    if (w->affine)
        (low ? RUN_AFFINE_1_0 : RUN_AFFINE_0_0)(a, panel, np, t0, t1);
    else
        (low ? RUN_PLAIN_1_0 : RUN_PLAIN_0_0)(a, panel, np, t0, t1);
}

void K(linear_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1)
{
    if (a->qpack && a->tokens > cpu_tiles_few(ISA_TOKENS8, a->w)) {
        all_tiles(a, panel, np, t0, t1);
        return;
    }
    if (a->w->affine) {
        K(affine_a8)(a, panel, np, t0, t1);
        return;
    }
    if (a->w->mapped) {
        K(mapped_a8)(a, panel, np, t0, t1);
        return;
    }
    if (!a->qpack) {
        K(few_a8)(a, panel, np, t0, t1);
        return;
    }
    for (uint64_t p = panel; p < panel + np; p++)
        if (a->w->layout == W_I6)
            tiles_W_I6(a, p, t0, t1);
        else if (a->w->layout == W_I5)
            tiles_W_I5(a, p, t0, t1);
        else if (a->w->layout == W_I4)
            tiles_W_I4(a, p, t0, t1);
        else if (a->w->layout == W_I3)
            tiles_W_I3(a, p, t0, t1);
        else if (a->w->layout == W_I2)
            tiles_W_I2(a, p, t0, t1);
        else
            tiles_W_I8(a, p, t0, t1);
}
