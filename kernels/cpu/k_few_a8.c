/* k_few_a8.c - LINEAR with int8 activations, a few tokens: each weight is read once and used for
 * all of them.  Exact integer sums per run, then one FMA by weight scale times activation
 * scale (docs/decisions/numerics.md). */
#include "k_few_a8.h"

/* One function per layout, so that each has only its own stack frame. */
#define FEW(l)                                                                                     \
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
    }
#define FEW_W_I8(i)  few(a, panel, t0, W_I8, 1, i, RUN_PLAIN)
#define FEW_W_I6(i)  few(a, panel, t0, W_I6, 1, i, RUN_PLAIN)
#define FEW_W_I5(i)  few(a, panel, t0, W_I5, 1, i, RUN_PLAIN)
#define FEW_W_I4(i)  few(a, panel, t0, W_I4, 1, i, RUN_PLAIN)
#define FEW_W_I3(i)  few(a, panel, t0, W_I3, 1, i, RUN_PLAIN)
#define FEW_W_I2(i)  few(a, panel, t0, W_I2, 1, i, RUN_PLAIN)
#define PAIR_W_I8(m) pair(a, i, apart, W_I8, m, RUN_PLAIN, 0)
#define PAIR_W_I6(m) pair(a, i, apart, W_I6, m, RUN_PLAIN, 0)
#define PAIR_W_I5(m) pair(a, i, apart, W_I5, m, RUN_PLAIN, 0)
#define PAIR_W_I4(m) pair(a, i, apart, W_I4, m, RUN_PLAIN, 0)
#define PAIR_W_I3(m) pair(a, i, apart, W_I3, m, RUN_PLAIN, 0)
#define PAIR_W_I2(m) pair(a, i, apart, W_I2, m, RUN_PLAIN, 0)
FEW(W_I8)
FEW(W_I6)
FEW(W_I5)
FEW(W_I4)
FEW(W_I3)
FEW(W_I2)

/* Layouts of more columns a step are taken only where groups end on steps. */
static void few_ragged(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t token)
{
    if (a->w->layout == W_I4)
        few(a, panel, token, W_I4, 0, 1, RUN_PLAIN);
    else
        few(a, panel, token, W_I8, 0, 1, RUN_PLAIN);
}

void K(pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n)
{
#if TSR_SIMD == 2 || TSR_SIMD == 512
#if defined(TSR_VNNI) /* runs of 16 columns have little to multiply */
    const int one = a->w->group == 16;
#else
    const int one = a->tokens == 1;
#endif
    if (one && K_BASE(one_pairs_a8)(a, panel, apart, n))
        return;
#endif
    if (a->w->affine) {
        K(affine_pairs_a8)(a, panel, apart, n);
        return;
    }
    if (a->w->mapped) {
        K(mapped_pairs_a8)(a, panel, apart, n);
        return;
    }
    switch (a->w->layout) {
    case W_I6:
        pairs_W_I6(a, panel, apart, n);
        break;
    case W_I5:
        pairs_W_I5(a, panel, apart, n);
        break;
    case W_I4:
        pairs_W_I4(a, panel, apart, n);
        break;
    case W_I3:
        pairs_W_I3(a, panel, apart, n);
        break;
    case W_I2:
        pairs_W_I2(a, panel, apart, n);
        break;
    default:
        pairs_W_I8(a, panel, apart, n);
        break;
    }
}

static void one_panel(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t t1)
{
    for (uint64_t t = t0; t < t1;) {
        uint64_t m = t1 - t < DIRECT_MAX ? t1 - t : DIRECT_MAX;
        if (!a->w->aligned) {
            few_ragged(a, panel, t++);
            continue;
        }
        switch (a->w->layout) {
        case W_I6:
            few_W_I6(a, panel, t, m);
            break;
        case W_I5:
            few_W_I5(a, panel, t, m);
            break;
        case W_I4:
            few_W_I4(a, panel, t, m);
            break;
        case W_I3:
            few_W_I3(a, panel, t, m);
            break;
        case W_I2:
            few_W_I2(a, panel, t, m);
            break;
        default:
            few_W_I8(a, panel, t, m);
            break;
        }
        t += m;
    }
}

void K(few_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
               uint64_t t1)
{
    for (uint64_t p = panel; p < panel + np; p++)
        one_panel(a, p, t0, t1);
}
