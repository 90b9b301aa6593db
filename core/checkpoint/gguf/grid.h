/* checkpoint/gguf/grid.h - types whose codes name vectors of 8 or 4 weights in a grid: IQ2, IQ3 and IQ1.
 *
 * An entry of a grid has the weights of its vector from the low bits on: IQ2 eight magnitudes of 2 bits, IQ3 four
 * of 3 bits, IQ1 eight of -1, 0 and 1 plus one in 2 bits.
 */
#ifndef TSR_CHECKPOINT_GGUF_GRID_H
#define TSR_CHECKPOINT_GGUF_GRID_H

#include <stdbool.h>
#include <stdint.h>

extern const uint16_t tsr_gguf_grid_iq2_xxs[256], tsr_gguf_grid_iq2_xs[512],
    tsr_gguf_grid_iq2_s[1024], tsr_gguf_grid_iq3_xxs[256], tsr_gguf_grid_iq3_s[512],
    tsr_gguf_grid_iq1[2048];

/* Whether a type is one of them. */
bool tsr_gguf_is_vectors(uint32_t type);
/* A block of 256: its F16 factor, and the odd numbers that multiply it, 8 or 16; returns how many. */
uint16_t tsr_gguf_vectors_factor(uint32_t type, const unsigned char *b);
unsigned tsr_gguf_vectors_scales(uint32_t type, const unsigned char *b, unsigned char scale[16]);
/* A code for each weight, as types.c has them in a table: the magnitude or the ternary value, and above it the
 * sign, or the sign of the shift. */
void tsr_gguf_vectors_codes(uint32_t type, const unsigned char *b, unsigned char codes[256]);

#endif
