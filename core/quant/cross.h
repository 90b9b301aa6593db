/* quant/cross.h - sums of D^T X of one site: X [tokens, cols] is what its linears see after the
 * layers that are quantized so far, D the input of the original model for the same tokens minus X.
 * With X^T X they give the least squares of the original outputs: W X_original against Q X. */
#ifndef TSR_QUANT_CROSS_H
#define TSR_QUANT_CROSS_H

#include "quant/held.h"
#include "tessera/linalg.h"

#include <stdint.h>

struct tsr_quant_cross {
    uint64_t              cols, rows;      /* rows: room of `original` */
    uint64_t              recorded, added; /* rows of the sequence that runs */
    float                *original;        /* [rows, cols] inputs of the original model */
    float                *sums;            /* [cols, cols]; owned until it is taken */
    struct tsr_quant_held held;            /* sums, while they are summed */
};

/* Room for sequences of at most `rows` tokens; the sums are 0.  TSR_E_NOMEM, TSR_E_DEVICE; free it
 * after a failure too. */
tsr_status tsr_quant_cross_create(struct tsr_quant_cross *x, const struct tsr_host *host,
                                  uint64_t cols, uint64_t rows, struct tsr_err *err);
void       tsr_quant_cross_free(struct tsr_quant_cross *x);
/* The next sequence: nothing is recorded of it, and nothing added. */
void tsr_quant_cross_begin(struct tsr_quant_cross *x);
/* The next n inputs v [n, cols] of the original model. */
tsr_status tsr_quant_cross_record(struct tsr_quant_cross *x, const float *v, uint64_t n,
                                  struct tsr_err *err);
/* Adds alpha * D^T X for the next n inputs v [n, cols], in F32 as the Hessian.  They must be recorded
 * of the original model: TSR_E_BUG. */
tsr_status tsr_quant_cross_add(struct tsr_quant_cross *x, const struct tsr_linalg_v1 *la,
                               float alpha, const float *v, uint64_t n, struct tsr_err *err);
/* Ends the hold and gives the sums [cols, cols] away, for free(). */
tsr_status tsr_quant_cross_take(struct tsr_quant_cross *x, float **sums, struct tsr_err *err);

#endif
