/* quant/indicator_internal.h - between the passes over the layers (indicator_run.c) and the loss
 * with one layer quantized (indicator_measure.c). */
#ifndef TSR_QUANT_INDICATOR_INTERNAL_H
#define TSR_QUANT_INDICATOR_INTERNAL_H

#include "quant/indicator.h"

struct tsr_measure;

/* The first `sequences` of c before layer 0; room for n_bits copies of their hidden states. */
tsr_status tsr_quant_measure_create(struct tsr_measure **m, struct tsr_registry *r,
                                    const struct tsr_model             *model,
                                    const struct tsr_quant_calibration *c, uint64_t sequences,
                                    uint32_t n_bits, struct tsr_err *err);
void       tsr_quant_measure_destroy(struct tsr_measure *m);
/* Mean loss with only the current layer replaced, by overlays[b] (NULL: loss[b] is unchanged).
 * Then advances through the original of that layer. */
tsr_status tsr_quant_measure_layer(struct tsr_measure *m, uint64_t layer,
                                   struct tsr_model_overlay *const *overlays, double *loss,
                                   struct tsr_err *err);
/* Mean loss of the original model; tokens: number of predictions in the mean. */
tsr_status tsr_quant_measure_original(struct tsr_measure *m, double *loss, uint64_t *tokens,
                                      struct tsr_err *err);

#endif
