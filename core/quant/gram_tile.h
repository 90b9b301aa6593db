/* quant/gram_tile.h - the inner loop of gram.c for the vectors that this CPU has. */
#ifndef TSR_QUANT_GRAM_TILE_H
#define TSR_QUANT_GRAM_TILE_H

#include <stdint.h>

struct tsr_quant_gram_tile {
    uint64_t rows, cols; /* divisors of 64 */
    /* c [rows, cols], rows ldc apart, += A B over n steps: a [n][rows], b [n][cols].  All variants are
     * bit-identical if a and b contain F32 numbers. */
    void (*run)(double *c, uint64_t ldc, const double *a, const double *b, uint64_t n);
};
/* The widest that this CPU runs and TSR_ISA allows. */
const struct tsr_quant_gram_tile *tsr_quant_gram_tile(void);

#endif
