/* quant/imatrix.h - an importance matrix of llama.cpp in the place of a calibration. */
#ifndef TSR_QUANT_IMATRIX_H
#define TSR_QUANT_IMATRIX_H

#include "quant/scheme.h"

/* A calibration that has TSR_NEED_MEAN and TSR_NEED_VARIANCE together and nothing else: the file has mean squares,
 * which are given as variances of means of 0.  Linears that share an input have the first one's.
 * tsr_quant_calibration_layer() refuses other needs.  TSR_E_INPUT: a file that cannot be read, of another model, with
 * another number of columns, or without a linear that the scheme quantizes by its inputs.  Nothing need outlive it.
 * [setup] */
tsr_status tsr_quant_imatrix_open(struct tsr_quant_calibration **c,
                                  const struct tsr_quant_scheme *s, struct tsr_registry *r,
                                  const struct tsr_model *m, const char *path, struct tsr_err *err);

#endif
