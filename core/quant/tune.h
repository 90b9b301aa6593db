/* quant/tune.h - the host's side of tessera/quantizer_tune.h: runs a decoder layer with the weights that a quantizer
 * tries, and takes what it packs.
 *
 * A trial without gradients goes through the engine, so every family has those.  A trial with gradients goes through
 * core/gradient; its error is that of the engine within the rounding of F32.  Trials run one after the other, each on
 * all threads.
 */
#ifndef TSR_QUANT_TUNE_H
#define TSR_QUANT_TUNE_H

#include "quant/calibrate.h"
#include "tessera/quantizer_tune.h"

/* One layer as the scheme quantizes it. */
struct tsr_quant_tune_job {
    struct tsr_registry               *registry;
    const struct tsr_model            *model; /* the layer is open */
    uint64_t                           layer;
    const struct tsr_quantizer *const *q; /* [linears], NULL: stays */
    const struct tsr_quant_recording  *recording;
    struct tsr_stream                 *stream; /* the original layer is open in it */
};

/* True for a quantizer that packs blocks. */
bool tsr_quant_tunes(const struct tsr_quantizer *q);

/* Packs the linears that `one` has among job->q into out [linears].  What the plugin writes is decoded and checked.
 * Errors name the quantizer; after one, out contains the finished part.  [setup] */
tsr_status tsr_quant_tune(const struct tsr_quant_tune_job *job, const struct tsr_quantizer *one,
                          struct tsr_model_packed **out, struct tsr_err *err);

/* Most bytes that tuning a layer of m takes next to its recording, if the plugin keeps five numbers of F32 for each
 * weight. */
uint64_t tsr_quant_tune_bytes(const struct tsr_model *m, uint64_t sequences, uint64_t tokens,
                              uint64_t threads);

#endif
