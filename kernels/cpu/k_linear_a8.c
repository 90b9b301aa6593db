/* k_linear_a8.c - LINEAR with int8 activations on packed integer weights, many tokens: tiles of
 * rows by tokens.  Exact integer sums per run, then one FMA by weight scale times activation
 * scale (docs/decisions/numerics.md). */
#include "k_tile_a8.h"

/* One function per layout, each with its own frame. */
#define TILES(l)                                                                                   \
    static void tiles_##l(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0,             \
                          uint64_t t1)                                                             \
    {                                                                                              \
        tiles(a, l, RUN_PLAIN, panel, t0, t1);                                                     \
    }
TILES(W_I8)
TILES(W_I6)
TILES(W_I4)
TILES(W_I3)
TILES(W_I2)

void K(linear_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1)
{
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
        else if (a->w->layout == W_I4)
            tiles_W_I4(a, p, t0, t1);
        else if (a->w->layout == W_I3)
            tiles_W_I3(a, p, t0, t1);
        else if (a->w->layout == W_I2)
            tiles_W_I2(a, p, t0, t1);
        else
            tiles_W_I8(a, p, t0, t1);
}
