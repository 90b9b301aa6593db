/* quant/decoder_internal.h - a quantizer that was made again for weights in its own format, between decoder_list.c,
 * which keeps them, decoder.c, which decodes, and decoder_kernel.c, which multiplies. */
#ifndef TSR_QUANT_DECODER_INTERNAL_H
#define TSR_QUANT_DECODER_INTERNAL_H

#include "quant/decoder.h"
#include "quant/quant.h"
#include "tessera/kernel.h"

struct tsr_quant_decoder {
    struct tsr_quantizer                  q;
    const struct tsr_quantizer_kernel_v1 *kernel; /* NULL: it has none */
};

/* That of p, whose sizes were compared with its plan; lives until the decoders are closed.  scratch: of dequantize().
 * [any] */
tsr_status tsr_quant_decoder_of(const struct tsr_model_packed   *p,
                                const struct tsr_quant_decoder **out, uint64_t *scratch,
                                struct tsr_err *err);

/* The list: begin() before the first of it.  [setup] */
tsr_status tsr_quant_decoders_begin(struct tsr_registry *r, struct tsr_err *err);
void       tsr_quant_decoders_end(void);

/* Functions of model/own.h. */
tsr_status tsr_quant_own_kernel(const struct tsr_model_packed *p, enum tsr_model_own_kernel *how,
                                struct tsr_err *err);
tsr_status tsr_quant_own_multiply(const struct tsr_model_packed      *p,
                                  const struct tsr_model_own_product *x, struct tsr_err *err);

#endif
