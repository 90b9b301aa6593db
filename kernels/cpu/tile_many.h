/* tile_many.h - how many tokens share a tile of packed codes. */
#ifndef TSR_CPU_TILE_MANY_H
#define TSR_CPU_TILE_MANY_H

#include "kernels.h"

/* Where there are more than the tokens of one tile (tile8 in kernels.h). All sums of 7 tokens by 32 rows stay in the
 * registers of AVX-512, those of 8 do not (k_tile_vnni.h). */
#define CPU_TILE_MANY(tile8) ((tile8) == 8 ? 7 : (tile8))

/* Up to so many tokens their tiles take codes as they are stored: a pass to unpack them costs more than four tiles of
 * VNNI save by it, or two where each tile makes its scales by divisions. */
static inline uint64_t cpu_tiles_few(uint64_t tile8, const struct tsr_cpu_weight *w)
{
    return tile8 != 8 ? tile8 : w->mapped == MAPPED_ELEMENTS ? 16 : 32;
}

#endif
