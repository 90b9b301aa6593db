/* quant/matrix.h - what isolate_pack.c needs of matrix.c: room for a packed matrix, and its check. */
#ifndef TSR_QUANT_MATRIX_H
#define TSR_QUANT_MATRIX_H

#include "quant/quant.h"

/* The packed form of w, of the shape of `whole` or a part of it, by q's plan, which is checked; dense is 0
 * for a known layout. */
struct quant_bytes {
    uint64_t codes, meta, dense, scratch; /* scratch: of its dequantize() */
};
tsr_status quant_bytes(const struct tsr_quantizer *q, const struct tsr_matrix *whole,
                       const struct tsr_matrix *w, struct quant_bytes *b, struct tsr_err *err);
/* The same with room for it: fresh, its bytes not set.  row: of the whole, the first of w. */
tsr_status quant_room(const struct tsr_quantizer *q, const struct tsr_matrix *whole,
                      const struct tsr_matrix *w, uint64_t row, struct tsr_model_packed **p,
                      struct tsr_err *err);
/* Whether p is a packed w: its rows can be decoded and are finite.  Fills p->squared_error.  row: of the
 * whole, the first of w, for messages.  theirs: of a plugin's own format, its rows decoded; else NULL. */
tsr_status quant_verify(struct tsr_registry *r, const struct tsr_quantizer *q,
                        const struct tsr_matrix *w, uint64_t row, const float *theirs,
                        struct tsr_model_packed *p, struct tsr_err *err);
/* All rows of a fresh p, packed by q: into dst [rows, cols]. */
tsr_status quant_decode(const struct tsr_quantizer *q, const struct tsr_model_packed *p,
                        uint64_t scratch, float *dst, struct tsr_err *err);

#endif
