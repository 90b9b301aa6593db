/* quant/gram.h - X^T X in double and its largest eigenvalue, for the indicator 'hessian'.
 *
 * A product of two F32 numbers is exact in double, so every sum rounds once for each token and is
 * bit-identical for any choice of instructions.  Quantizers get the F32 Hessian of the service
 * tessera.linalg/1 instead: they need its factor, not 12 digits.
 */
#ifndef TSR_QUANT_GRAM_H
#define TSR_QUANT_GRAM_H

#include "base/err.h"
#include "base/pool.h"

#define TSR_GRAM_STEPS 300u /* most steps to an eigenvalue */

struct tsr_quant_gram {
    uint64_t cols;
    double  *g; /* [cols, cols], the lower triangle; owned */
};
/* 8 * cols^2 bytes, all 0; cols is not 0.  TSR_E_NOMEM. */
tsr_status tsr_quant_gram_create(struct tsr_quant_gram *g, uint64_t cols, struct tsr_err *err);
void       tsr_quant_gram_free(struct tsr_quant_gram *g);
/* Adds X^T X of n rows x [n, cols]: each element in the order of the rows, so that neither threads nor
 * how rows are cut into calls change it.  TSR_E_CANCELLED: the sums are garbage. */
tsr_status tsr_quant_gram_add(struct tsr_quant_gram *g, struct tsr_pool *pool, const float *x,
                              uint64_t n, struct tsr_err *err);
/* The largest eigenvalue, from below: the largest quotient v G v / v v in the span of the vectors of a power
 * iteration (Lanczos), until three steps raise it by no more than 1e-15 of itself.  After TSR_GRAM_STEPS
 * steps it ends too, *settled false.  Takes TSR_GRAM_STEPS vectors meanwhile; the upper triangle becomes the
 * mirror of the lower.  TSR_E_NUMERIC: a sum is not finite. */
tsr_status tsr_quant_gram_top(struct tsr_quant_gram *g, struct tsr_pool *pool, double *value,
                              bool *settled, struct tsr_err *err);

#endif
