/* tile_many.h - how many tokens share a tile of packed codes. */
#ifndef TSR_CPU_TILE_MANY_H
#define TSR_CPU_TILE_MANY_H

/* Where there are more than the tokens of one tile (tile8 in kernels.h). All sums of 7 tokens by 32 rows stay in the
 * registers of AVX-512, those of 8 do not (k_tile_vnni.h). */
#define CPU_TILE_MANY(tile8) ((tile8) == 8 ? 7 : (tile8))

/* Up to so many tokens their tiles take codes as they are stored: a pass to unpack them costs more than two tiles of
 * VNNI save by it. */
#define CPU_TILES_FEW(tile8) ((tile8) == 8 ? 16 : (tile8))

#endif
