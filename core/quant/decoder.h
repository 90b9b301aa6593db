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

/* The quantizer of p, a plugin's own format, which lives until close(), and its plan for the whole matrix.
 * TSR_E_INPUT: the plugin is not there, or its plan is not that of the stored bytes.  [any] */
tsr_status tsr_quant_decoder_of(const struct tsr_model_packed  *p,
                                const struct tsr_quantizer_v1 **iface, const void **self,
                                uint64_t *scratch, struct tsr_err *err);

#endif
