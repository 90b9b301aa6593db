/* engine/stream.h - the forward pass one decoder layer at a time, over many sequences.
 *
 *   h = embed(ids);  for every layer: open it, run every h through it;  logits = head(h)
 *
 * Calibration, layer-wise quantizers and block searches work this way: one layer's weights are
 * on the device at any time, hidden states are the caller's, in host memory.  The operations are
 * those of tsr_engine_forward(), so hidden states and logits are the same bytes.
 */
#ifndef TSR_ENGINE_STREAM_H
#define TSR_ENGINE_STREAM_H

#include "engine/engine.h"

struct tsr_stream;

/* longest: tokens of the longest sequence.  act as in the engine's options; the cache is F32.  on may be NULL;
 * its layers are ignored, because one layer is open at a time.  The model must outlive the stream.  All other
 * functions are [worker]: one thread at a time. */
tsr_status tsr_engine_stream_create(struct tsr_stream **s, struct tsr_registry *r,
                                    const struct tsr_model *m, uint64_t longest, uint32_t act,
                                    const struct tsr_plugin_run_on *on, struct tsr_err *err);
void       tsr_engine_stream_destroy(struct tsr_stream *s);

/* Hidden states [n, hidden] after the embedding of one sequence of ids. */
tsr_status tsr_engine_stream_embed(struct tsr_stream *s, const uint32_t *ids, uint64_t n, float *h,
                                   struct tsr_err *err);
/* Puts a layer on the device in place of the one before and of the embedding: packed linears and
 * norms of o (NULL: the original), else the model's.  Packed matrices of o must live as long as
 * the layer is open. */
tsr_status tsr_engine_stream_open_layer(struct tsr_stream *s, uint64_t layer,
                                        const struct tsr_model_overlay *o, struct tsr_err *err);
/* Replaces one linear of the open layer by a dense matrix of the same shape, which must live as
 * long as it is in use; NULL: restores the one of open_layer(), which stays on the device
 * meanwhile. */
tsr_status tsr_engine_stream_set_linear(struct tsr_stream *s, enum tsr_linear_id id,
                                        const struct tsr_matrix *w, struct tsr_err *err);
/* Runs the open layer over one sequence; out [n, hidden] may be h.  The tap of set_tap() observes
 * the input of every site, as in engine.h. */
tsr_status tsr_engine_stream_run(struct tsr_stream *s, const float *h, uint64_t n, float *out,
                                 struct tsr_err *err);
/* One half alone, without norm and residual: x [n, hidden], the input of q, k, v (attention) or
 * of gate and up (feed-forward), to the output of o or down. */
enum tsr_engine_stream_part { TSR_ENGINE_STREAM_ATTENTION, TSR_ENGINE_STREAM_FEED_FORWARD };
tsr_status tsr_engine_stream_run_part(struct tsr_stream *s, enum tsr_engine_stream_part part,
                                      const float *x, uint64_t n, float *out, struct tsr_err *err);
/* Lets the tap see every token through the experts with a 1 in experts [hparams.experts], which stays the caller's,
 * whether or not they take it; what the layer gives does not change.  NULL ends it. */
void tsr_engine_stream_show_experts(struct tsr_stream *s, const uint8_t *experts);
void tsr_engine_stream_set_tap(struct tsr_stream *s, tsr_engine_tap tap, void *ctx);
/* Logits [n, vocab] of hidden rows [n, hidden] after the last layer; logits that are not finite are
 * TSR_E_NUMERIC.  The first call puts the model's own head on the device, where it stays until the
 * next tsr_engine_stream_embed(). */
tsr_status tsr_engine_stream_head(struct tsr_stream *s, const float *h, uint64_t n, float *logits,
                                  struct tsr_err *err);
/* Of the layers and the head that ran last: for tsr_engine_device(), tsr_engine_acts() and tsr_engine_set_hidden_tap(). */
struct tsr_engine *tsr_engine_stream_engine(const struct tsr_stream *s);
/* Bytes on the device: the most so far. */
uint64_t tsr_engine_stream_memory(const struct tsr_stream *s);
/* Bytes on the device with the largest layer of the original open plus the head or the embedding, computed from
 * shapes before loading: an upper bound for backends that keep dense weights in their own dtype. */
tsr_status tsr_engine_stream_estimate(const struct tsr_model *m, uint64_t longest, uint64_t *bytes,
                                      struct tsr_err *err);

#endif
