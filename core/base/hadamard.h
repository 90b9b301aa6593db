/* base/hadamard.h - Hadamard matrices, scaled to be orthogonal, and their product with a row.
 *
 * A matrix of 2^k * b rows is the Kronecker product of one of b rows and one of 2^k rows (Sylvester).  That of b rows is
 * Paley's: b = q + 1 for a prime q = 3 mod 4, or b = 2 (q + 1) for a prime q = 1 mod 4: 12, 20, 28, 36, 44, 60, ...  The smallest b
 * counts; b^2 operations for each 2^k numbers make a large one slow.
 */
#ifndef TSR_BASE_HADAMARD_H
#define TSR_BASE_HADAMARD_H

#include "base/err.h"

struct tsr_hadamard {
    uint64_t n;    /* rows and columns */
    uint64_t base; /* b; 1: n is a power of two */
    int8_t  *sign; /* [base, base], 1 or -1; owned */
};

/* TSR_E_INPUT if n has no such form. */
tsr_status tsr_hadamard_create(struct tsr_hadamard *h, uint64_t n, struct tsr_err *err);
void       tsr_hadamard_free(struct tsr_hadamard *h);
/* The base of n rows, 0: no such form. */
uint64_t tsr_hadamard_base(uint64_t n);
/* The most rows of a form with a base of at most `most` that divide n; 1 if none does. */
uint64_t tsr_hadamard_divisor(uint64_t n, uint64_t most);
/* x becomes x H / sqrt(n); x [n], scratch [2 * base].  [any] */
void tsr_hadamard_apply(const struct tsr_hadamard *h, double *x, double *scratch);

#endif
