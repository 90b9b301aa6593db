/* quant/decoder.h - decodes weights in plugins' own formats: makes the quantizers that packed them again, by the
 * text that is stored with the weights (model/own.h), and keeps them.
 *
 * Quantizers run in this process here, also under `isolate: true`: a model that runs calls them for every block of
 * rows, as it calls a backend.
 */
#ifndef TSR_QUANT_DECODER_H
#define TSR_QUANT_DECODER_H

#include "model/own.h"
#include "plugin/registry.h"

/* Quantizers of r decode in this process from now on.  r outlives the decoders.  [setup] */
tsr_status tsr_quant_decoders_open(struct tsr_registry *r, struct tsr_err *err);
void       tsr_quant_decoders_close(void); /* without an open(): nothing  [setup] */

#endif
