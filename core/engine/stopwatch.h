/* engine/stopwatch.h - a stopwatch for parts of a model: single decoder layers, the embedding, the
 * head, run by the real engine as it would run them.
 *
 * Several layers are on the device and are run in turn, so that no cache holds the weights of the
 * next one.  What caches hold behind a past length is zeros: times do not depend on values, but for
 * LLM.int8, whose outliers are those of the embedding of the ids at hand.
 */
#ifndef TSR_ENGINE_STOPWATCH_H
#define TSR_ENGINE_STOPWATCH_H

#include "engine/engine.h"

struct tsr_stopwatch;

/* layers: of the model, from the first.  o: their packed weights, or NULL.  slots and context: most
 * sequences and positions that will be measured.  The model and overlay must outlive it.  [setup] */
tsr_status tsr_stopwatch_open(struct tsr_stopwatch **out, struct tsr_registry *r,
                              const struct tsr_model *m, const struct tsr_overlay *o,
                              uint64_t layers, uint32_t slots, uint64_t context, uint64_t chunk,
                              struct tsr_err *err);
void       tsr_stopwatch_close(struct tsr_stopwatch *m);
/* Bytes of one layer's weights on the device. */
uint64_t tsr_stopwatch_layer_bytes(const struct tsr_stopwatch *m);

/* Seconds that one layer takes for v sequences of s tokens behind t others (decode: s is 1), in
 * forwards of at most `chunk` tokens.  One token for each sequence runs through all layers, and the
 * mean is returned; longer ones run through the next layer.  [worker] */
tsr_status tsr_stopwatch_layer(struct tsr_stopwatch *m, uint64_t v, uint64_t s, uint64_t t,
                               double *seconds, struct tsr_err *err);
/* The embedding of n tokens; the head over n rows.  At most chunk, and 64 for the head. */
tsr_status tsr_stopwatch_embed(struct tsr_stopwatch *m, uint64_t n, double *seconds,
                               struct tsr_err *err);
tsr_status tsr_stopwatch_head(struct tsr_stopwatch *m, uint64_t n, double *seconds,
                              struct tsr_err *err);

#endif
