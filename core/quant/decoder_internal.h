/* quant/decoder_internal.h - a quantizer that was made again for weights in its own format, between decoder_list.c,
 * which keeps them, decoder.c, which decodes, and decoder_kernel.c, which multiplies. */
#ifndef TSR_QUANT_DECODER_INTERNAL_H
#define TSR_QUANT_DECODER_INTERNAL_H

#include "quant/decoder.h"
#include "quant/quant.h"
#include "tessera/draft/kernel_device.h"
#include "tessera/kernel.h"

struct tsr_quant_decoder {
    struct tsr_quantizer                         q;
    const struct tsr_quantizer_kernel_v1        *kernel; /* NULL: it has none */
    const struct tsr_quantizer_kernel_device_v1 *device; /* the same; not without kernel */
};

/* That of p, whose sizes were compared with its plan; lives until the decoders are closed.  scratch: of dequantize().
 * [any] */
tsr_status tsr_quant_decoder_of(const struct tsr_model_packed   *p,
                                const struct tsr_quant_decoder **out, uint64_t *scratch,
                                struct tsr_err *err);

/* The list: begin() before the first of it.  [setup] */
tsr_status tsr_quant_decoders_begin(struct tsr_registry *r, struct tsr_err *err);
void       tsr_quant_decoders_end(void);

/* Of p's columns, or of all; with the bytes of p's units from `unit` on. */
struct tsr_kernel_weight tsr_quant_own_weight(const struct tsr_model_packed *p,
                                              enum tsr_model_own_kernel how, uint64_t unit,
                                              uint64_t rows);
/* st with the quantizer's name. */
tsr_status tsr_quant_own_named(const struct tsr_model_packed *p, tsr_status st,
                               struct tsr_err *err);

/* Functions of model/own.h. */
tsr_status tsr_quant_own_kernel(const struct tsr_model_packed *p, enum tsr_model_own_kernel *how,
                                struct tsr_err *err);
tsr_status tsr_quant_own_prepare(const struct tsr_model_packed *p, enum tsr_model_own_kernel how,
                                 void **made, uint64_t *bytes, struct tsr_err *err);
tsr_status tsr_quant_own_inputs(const struct tsr_model_packed      *p,
                                const struct tsr_model_own_product *x, void **made,
                                struct tsr_err *err);
tsr_status tsr_quant_own_multiply(const struct tsr_model_packed      *p,
                                  const struct tsr_model_own_product *x, struct tsr_err *err);
tsr_status tsr_quant_own_device_code(const struct tsr_model_packed *p, const char *target,
                                     const struct tsr_device_code **code, struct tsr_err *err);
tsr_status tsr_quant_own_device_scratch(const struct tsr_model_packed *p,
                                        enum tsr_model_own_kernel how, uint64_t n, uint64_t *bytes,
                                        struct tsr_err *err);
tsr_status tsr_quant_own_device_launch(const struct tsr_model_packed     *p,
                                       const struct tsr_model_own_launch *x,
                                       struct tsr_device_launch *l, struct tsr_err *err);

#endif
