/* k_affine.c - LINEAR on tessera.int/2: a minimum for each run (docs/decisions/numerics.md). */
#define KIND RUN_AFFINE
#include "k_loops.h"

INLINE struct affine widen_group(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group,
                                 uint64_t half)
{
    return group_affine(w, panel, group, half);
}

/* The product is rounded, then the sum. */
INLINE void widen_one(const struct tsr_cpu_weight *w, const enum tsr_cpu_layout l, i16v four,
                      uint32_t j, const struct affine *g, float *dst)
{
    (void)w;
    (void)l;
    v_store(dst, v_add(v_mul(vi_cvt(vi_byte(four, j)), g->scale), g->minimum));
}

LOOPS(W_I8)
LOOPS(W_I6)
LOOPS(W_I5)
LOOPS(W_I4)
LOOPS(W_I3)
LOOPS(W_I2)

static const struct loops loops[] = { LOOPS_OF(W_I8), LOOPS_OF(W_I6), LOOPS_OF(W_I5),
                                      LOOPS_OF(W_I4), LOOPS_OF(W_I3), LOOPS_OF(W_I2) };

void K(widen_affine)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                     float *dst)
{
    loops[w->layout].widen(w, panel, k0, k1, dst);
}

void K(affine_pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n)
{
    loops[a->w->layout].pairs(a, panel, apart, n);
}

void K(affine_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1)
{
    loops_a8(&loops[a->w->layout], a, panel, np, t0, t1);
}
