/* tile_words.h - activations of wide codes, for instruction sets whose sum of two products of bytes has 16 bits.
 *
 * Two products of a code (0 to 255) and an activation (-127 to 127) stay within 255 * 127 if the activations have opposite
 * signs. So where both of a pair of columns have the same sign, the second is negated, and meets 255 - code: c q =
 * (255 - c) (-q) + 255 q. What is added depends on activations alone. */
#ifndef TSR_CPU_TILE_WORDS_H
#define TSR_CPU_TILE_WORDS_H

#include "kernels.h"

/* A token's four columns. */
struct tsr_cpu_opposed {
    int8_t q[4]; /* of columns 0 and 1, and of 2 and 3, not both above or both below 0 */
    uint32_t
        at; /* where their codes are: CPU_OPPOSED_CODES, twice that if the last column is negated, or both added */
};

#define CPU_OPPOSED_CODES (2 * PANEL) /* bytes of four columns of half a panel */

/* m tokens of q, ldq apart, of the columns [k0, k0 + n) of a segment (n a multiple of 4), to [n/4][CPU_TILE_MANY], zeros for
 * the tokens from m on. q may be read 32 columns at a time. starts, sums: [nruns][m]; of the segment's runs, starts becomes
 * what the products of codes lack: 255 times the negated activations, and sums where those are integers for all rows. */
typedef void tsr_cpu_pack_opposed(const struct tsr_cpu_weight *w, struct tsr_cpu_opposed *dst,
                                  const int8_t *q, uint64_t ldq, uint64_t k0, uint64_t n,
                                  uint64_t m, const int32_t *sums, int32_t *starts);

/* Whether those of `tokens` are opposed, where an instruction set takes such: products of two bytes of w and two codes of
 * activations may need more than 16 bits. For fewer tokens the pass over the weights, and the room of the last tile, cost
 * more than they save. */
static inline int cpu_wide(const struct tsr_cpu_weight *w, uint64_t tokens)
{
    const int table = w->mapped && cpu_looked_up(w->layout) && w->mid >= CPU_LOW_BYTE;
    return tokens >= 20 && (w->layout == W_I8 || table);
}

/* isa_*.c of the processor that the program is built for. How linear_a8 of k takes those activations, each tile with the
 * room of a whole one; NULL: as all others. */
tsr_cpu_pack_opposed *tsr_cpu_packs_opposed(const struct tsr_cpu_kernels *k);

/* k_linear_a8.c */
extern tsr_cpu_pack_opposed *const tsr_k_pack_opposed_avx2;

#endif
