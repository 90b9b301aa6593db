/* k_low.c - LINEAR on tessera.table/1 whose bytes are less than 64: on AVX2 their products take half as many
 * instructions. */
#define KIND RUN_LOW
#include "k_mapped.h"

#if TSR_SIMD == 2
LOOPS(W_I4)
LOOPS(W_I3)
LOOPS(W_I2)

static const struct loops loops[] = { LOOPS_OF(W_I4), LOOPS_OF(W_I3), LOOPS_OF(W_I2) };

void K(low_pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n)
{
    loops[a->w->layout].pairs(a, panel, apart, n);
}

void K(low_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
               uint64_t t1)
{
    loops_a8(&loops[a->w->layout], a, panel, np, t0, t1);
}
#endif
