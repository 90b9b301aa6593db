/* tile_words.h - activations as words, for instruction sets that have no product of any two bytes. */
#ifndef TSR_CPU_TILE_WORDS_H
#define TSR_CPU_TILE_WORDS_H

#include "kernels.h"

/* m tokens of q, ldq apart, n columns (a multiple of 4), as words to [n/4][2][CPU_TILE_MANY][2]: of the first and third
 * column of four, then of the others; zeros for the tokens from m on. */
typedef void tsr_cpu_pack_words(int16_t *dst, const int8_t *q, uint64_t ldq, uint64_t n,
                                uint64_t m);

/* Whether those of `tokens` are words, where an instruction set takes words: products of two bytes of w and two codes of
 * activations may need more than 16 bits. For fewer tokens the pass that makes words of the weights, and the room of the
 * last tile, cost more than they save. */
static inline int cpu_wide(const struct tsr_cpu_weight *w, uint64_t tokens)
{
    const int table = w->mapped && cpu_looked_up(w->layout) && w->mid >= CPU_LOW_BYTE;
    return tokens >= 20 && (w->layout == W_I8 || table);
}

/* isa_*.c of the processor that the program is built for. How linear_a8 of k takes those activations, each tile with the
 * room of a whole one; NULL: as all others. */
tsr_cpu_pack_words *tsr_cpu_packs_words(const struct tsr_cpu_kernels *k);

/* k_linear_a8.c */
extern tsr_cpu_pack_words *const tsr_k_pack_words_avx2;

#endif
