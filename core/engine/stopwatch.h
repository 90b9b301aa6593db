/* engine/stopwatch.h - times parts of a model: single decoder layers, the embedding, the head, as
 * the real engine runs them.
 *
 * Several layers are on the device and run in turn, so that no cache holds the weights of the next
 * one.  KV caches are zero for positions before the timed tokens, and states are what other tokens left.  Times do not depend on values,
 * except for LLM.int8, whose outliers are those of the embedding of the given ids.
 */
#ifndef TSR_ENGINE_STOPWATCH_H
#define TSR_ENGINE_STOPWATCH_H

#include "engine/engine.h"

struct tsr_stopwatch;

/* layer: n layers of the model.  o: their packed weights, or NULL.  slots and context: most
 * sequences and positions that will be measured.  The model and overlay must outlive it.  [setup] */
tsr_status tsr_engine_stopwatch_open(struct tsr_stopwatch **out, struct tsr_registry *r,
                                     const struct tsr_model *m, const struct tsr_model_overlay *o,
                                     const uint64_t *layer, uint64_t n, uint32_t slots,
                                     uint64_t context, uint64_t chunk, struct tsr_err *err);
void       tsr_engine_stopwatch_close(struct tsr_stopwatch *m);
/* Bytes of one layer's weights on the device. */
uint64_t tsr_engine_stopwatch_layer_bytes(const struct tsr_stopwatch *m);

/* Seconds that one layer takes for v sequences of s tokens after t others (decode: s is 1), in
 * forwards of at most `chunk` tokens.  For one token per sequence, runs all layers and returns the
 * mean; longer inputs run through the next layer.  [worker] */
tsr_status tsr_engine_stopwatch_layer(struct tsr_stopwatch *m, uint64_t v, uint64_t s, uint64_t t,
                                      double *seconds, struct tsr_err *err);
/* The embedding of n tokens; the head over n rows.  At most chunk, and 64 for the head. */
tsr_status tsr_engine_stopwatch_embed(struct tsr_stopwatch *m, uint64_t n, double *seconds,
                                      struct tsr_err *err);
tsr_status tsr_engine_stopwatch_head(struct tsr_stopwatch *m, uint64_t n, double *seconds,
                                     struct tsr_err *err);

#endif
