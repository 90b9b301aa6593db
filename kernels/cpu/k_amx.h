/* k_amx.h - the tile registers of AMX: their instructions, in assembly, with all of memory as an operand, since the
 * builtins of gcc 12 do not tell what a tile reads. Numbers of tiles are literals. */
#ifndef TSR_K_AMX_H
#define TSR_K_AMX_H

#include "amx.h"
#include "simd.h"

#define TILE_LOAD(tile, p, stride)                                                                 \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                                            \
                     :                                                                             \
                     : "r"(p), "r"((int64_t)(stride))                                              \
                     : "memory")
#define TILE_STORE(tile, p)                                                                        \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(p), "r"(64L) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : : :)
/* Signed activations x by weights w, signed or not. */
#define TILE_DOT(sum, w, x) __asm__ volatile("tdpbssd %%tmm" #w ", %%tmm" #x ", %%tmm" #sum : : :)
#define TILE_DOT_UNSIGNED(sum, w, x)                                                               \
    __asm__ volatile("tdpbsud %%tmm" #w ", %%tmm" #x ", %%tmm" #sum : : :)

struct tile_config {
    uint8_t  palette, start, reserved[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t  rows[16];
};

/* Tiles 0 to 2: sums [tokens][16 rows]; 3: activations [tokens][AMX_STEP]; 4 to 6: weights
 * [AMX_STEP/4][16 rows][4]. */
INLINE void tiles_begin(void)
{
    static const struct tile_config c = { .palette = 1,
                                          .bytes = { 64, 64, 64, AMX_STEP, 64, 64, 64 },
                                          .rows = { AMX_TOKENS, AMX_TOKENS, AMX_TOKENS, AMX_TOKENS,
                                                    AMX_STEP / 4, AMX_STEP / 4, AMX_STEP / 4 } };
    _Static_assert(sizeof c == 64, "what ldtilecfg reads");
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}
INLINE void tiles_end(void)
{
    __asm__ volatile("tilerelease" : : :);
}

#endif
