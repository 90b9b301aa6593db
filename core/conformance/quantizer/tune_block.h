/* conformance/quantizer/tune_block.h - a made-up block of two linears, out = x up^T down^T, of one token. */
#ifndef TSR_CONFORMANCE_QUANTIZER_TUNE_BLOCK_H
#define TSR_CONFORMANCE_QUANTIZER_TUNE_BLOCK_H

#include <stdint.h>

#define HIDDEN    UINT64_C(64)
#define INNER     UINT64_C(96)
#define SEQUENCES UINT64_C(4)
#define TOKENS    UINT64_C(6)
#define ROWS      (SEQUENCES * TOKENS)
#define LINEARS   2

enum { UP, DOWN };

/* x [HIDDEN], inner [INNER], out [HIDDEN]; w[UP] [INNER, HIDDEN], w[DOWN] [HIDDEN, INNER].  [any] */
void tune_block_forward(const float *const w[LINEARS], const float *x, float *inner, double *out);
/* d [HIDDEN]: the derivatives with respect to out; adds to the gradients that are not NULL.  [any] */
void tune_block_backward(const float *const w[LINEARS], const float *x, const float *inner,
                         const double *d, float *const *gradients);

#endif
