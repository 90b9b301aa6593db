/* k_mapped.c - LINEAR on tessera.table/1: codes of at most four bits are looked up in a register, as bytes for
 * the products of a8 and as F32 else; wider ones are integers (docs/decisions/numerics.md). */
#define KIND RUN_MAPPED
#include "k_loops.h"

INLINE struct affine widen_group(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group,
                                 uint64_t half)
{
    v16           scale = group_mapped(w, panel, group, half);
    struct affine g = { scale, scale };
    return g;
}

INLINE void widen_one(const struct tsr_cpu_weight *w, const enum tsr_cpu_layout l, i16v four,
                      uint32_t j, const struct affine *g, float *dst)
{
    i16v code = vi_byte(four, j);
    v16  value = cpu_looked_up(l) ? v_pick16(w->table, code)
                                  : vi_cvt(vi_sub(code, vi_set1((int32_t)w->mid)));
    v_store(dst, v_mul(value, g->scale));
}

LOOPS(W_I8)
LOOPS(W_I6)
LOOPS(W_I4)
LOOPS(W_I3)
LOOPS(W_I2)

static const struct loops loops[] = { LOOPS_OF(W_I8), LOOPS_OF(W_I6), LOOPS_OF(W_I4),
                                      LOOPS_OF(W_I3), LOOPS_OF(W_I2) };

void K(widen_mapped)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                     float *dst)
{
    loops[w->layout].widen(w, panel, k0, k1, dst);
}

void K(mapped_pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n)
{
    loops[a->w->layout].pairs(a, panel, apart, n);
}

void K(mapped_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1)
{
    loops_a8(&loops[a->w->layout], a, panel, np, t0, t1);
}
