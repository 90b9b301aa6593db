/* model/own.h - rows in a plugin's own format: decoded by the plugin that packed them, whole units at a time.
 *
 * The bytes stay packed in memory.  Whoever needs values gets a block of rows; the engine multiplies with such
 * blocks (engine/device_own.c).  This folder knows no plugin: the registry's owner sets what decodes.
 */
#ifndef TSR_MODEL_OWN_H
#define TSR_MODEL_OWN_H

#include "model/packed.h"

/* Decodes units [unit, unit + n) of p, n > 0, into dst [rows, p->own.cols]; rows are those of the units, without
 * the rows that the last unit of the whole matrix lacks.  [any] */
typedef tsr_status tsr_model_own_decode(void *ctx, const struct tsr_model_packed *p, uint64_t unit,
                                        uint64_t n, uint64_t rows, float *dst, struct tsr_err *err);
/* Of this process; NULL: none.  ctx is borrowed.  [setup] */
void tsr_model_own_set_decoder(tsr_model_own_decode *decode, void *ctx);

/* Rows [first, first + rows) of p, which are there, into dst [rows, p->cols].  TSR_E_INPUT for a value that is not
 * finite.  [any] */
tsr_status tsr_model_own_rows(const struct tsr_model_packed *p, uint64_t first, uint64_t rows,
                              float *dst, struct tsr_err *err);
/* p, which is there, as dense values, for containers that have no such format: a copy of p that owns as->dense alone,
 * also after a failure. */
tsr_status tsr_model_own_decoded(const struct tsr_model_packed *p, struct tsr_model_packed *as,
                                 struct tsr_err *err);
/* Rows of cols columns that a product decodes together: about 1 MiB of them, which stays in a core's cache between
 * decoding and multiplying, in whole units of `unit` rows. */
uint64_t tsr_model_own_block(uint64_t unit, uint64_t cols);

#endif
