/* k_mapped.h - a column of tessera.table/1 as F32, and the loops on it (k_loops.h) for the file that includes this.
 * It defines KIND. */
#ifndef TSR_K_MAPPED_H
#define TSR_K_MAPPED_H

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

#endif
