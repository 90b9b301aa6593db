/* k_tile_lines.h - instructions that tiles on AVX2 share (k_tile_words.h, k_tile_opposed.h). They are in assembly, since
 * gcc 12 moves what is in twelve of sixteen registers to memory. ymm0 to 11 are the sums of 6 tokens by 16 rows: of token t
 * those of the first eight rows in 2 t. ymm12 and 13 have what rows share, ymm14 what a token has. */
#ifndef TSR_K_TILE_LINES_H
#define TSR_K_TILE_LINES_H

#include "k_part.h"

#define LINE(x) x "\n\t"
/* X(four times the token, 64 times it, 128 times it, its words) */
#define EACH_TOKEN(X)                                                                              \
    X(0, 0, 0, 0, 1)                                                                               \
    X(4, 64, 128, 2, 3)                                                                            \
    X(8, 128, 256, 4, 5)                                                                           \
    X(12, 192, 384, 6, 7)                                                                          \
    X(16, 256, 512, 8, 9)                                                                          \
    X(20, 320, 640, 10, 11)
#define TOKEN_BYTES "24" /* of a number of each token */

static const _Alignas(32) int16_t one[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

#define ADD(op, a, b, c, d)                                                                        \
    LINE(op " %%ymm" #a ", %%ymm" #c ", %%ymm" #c) LINE(op " %%ymm" #b ", %%ymm" #d ", %%ymm" #d)

/* Sums in lanes plus those in memory. */
#define ADD_LANES(t, at, a, b)                                                                     \
    LINE("vpaddd " #at "(%[lanes]), %%ymm" #a ", %%ymm" #a)                                        \
    LINE("vpaddd 32+" #at "(%[lanes]), %%ymm" #b ", %%ymm" #b)
#define TO_F32(a, b) LINE("vcvtdq2ps %%ymm" #a ", %%ymm" #a) LINE("vcvtdq2ps %%ymm" #b ", %%ymm" #b)
#define SCALES       LINE("vmovaps (%[scale]), %%ymm12") LINE("vmovaps 32(%[scale]), %%ymm13")

/* The second one stays in memory. */
#define MINIMUM LINE("vmovaps %c[minimum](%[scale]), %%ymm15")

/* A run of plain weights enters the chain acc. */
#define CHAIN(t, row, a, b)                                                                        \
    TO_F32(a, b)                                                                                   \
    LINE("vbroadcastss " #t "(%[sa]), %%ymm14")                                                    \
    LINE("vmulps %%ymm12, %%ymm14, %%ymm15")                                                       \
    LINE("vmulps %%ymm13, %%ymm14, %%ymm14")                                                       \
    LINE("vfmadd213ps " #row "(%[acc]), %%ymm15, %%ymm" #a)                                        \
    LINE("vfmadd213ps 32+" #row "(%[acc]), %%ymm14, %%ymm" #b)                                     \
    LINE("vmovaps %%ymm" #a ", " #row "(%[acc])") LINE("vmovaps %%ymm" #b ", 32+" #row "(%[acc])")

#endif
