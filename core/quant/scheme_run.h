/* quant/scheme_run.h - applies a scheme to a model, one decoder layer at a time.
 *
 *   open -> for every layer: need -> (statistics) -> layer;  ends -> close
 *
 * Plugin instances live from open to close.  Only the overlay keeps results of a layer.
 */
#ifndef TSR_QUANT_SCHEME_RUN_H
#define TSR_QUANT_SCHEME_RUN_H

#include "model/pieces.h"
#include "quant/calibrate.h"
#include "quant/scheme.h"

struct tsr_scheme_run;

/* A rule that matches no linear is TSR_E_INPUT with its place.  All must outlive the run.  [setup] */
tsr_status tsr_quant_scheme_open(struct tsr_scheme_run **run, const struct tsr_quant_scheme *s,
                                 struct tsr_registry *r, const struct tsr_model *m,
                                 struct tsr_err *err);
void       tsr_quant_scheme_close(struct tsr_scheme_run *run);

/* TSR_NEED_* that the plugins of a layer ask for. */
tsr_status tsr_quant_scheme_need(struct tsr_scheme_run *run, uint64_t layer, uint64_t *need,
                                 struct tsr_err *err);
/* Ids of matrices outside the layers, where a linear's id is expected. */
enum { TSR_QUANT_END_HEAD, TSR_QUANT_END_EMBED, TSR_QUANT_ENDS };
/* The quantizer of a linear and its layout; *q is NULL if the linear is not quantized.  layer ==
 * m->hp.layers: the head, or with TSR_QUANT_END_EMBED the embedding.  Borrowed from the run. */
tsr_status tsr_quant_scheme_plan(struct tsr_scheme_run *run, uint64_t layer, enum tsr_linear_id id,
                                 const struct tsr_quantizer **q, struct tsr_quant_plan *plan,
                                 struct tsr_err *err);
/* Packs the linears of a layer into o, which has none of it yet.  Block searches (block.h) of
 * quantizers that have one run first, and their norms go into o as well.  stats may be NULL if need
 * is 0; c, which made them, runs the layer for a search's loss and may be NULL otherwise.  The
 * model's layer is open while this runs.  After an error o contains the finished part. */
tsr_status tsr_quant_scheme_layer(struct tsr_scheme_run *run, uint64_t layer,
                                  struct tsr_quant_calibration       *c,
                                  const struct tsr_quant_layer_stats *stats,
                                  struct tsr_model_overlay *o, struct tsr_err *err);
/* Packs the n listed linears of a layer into o: of each w, the part of it that `part` says, all of it or one that
 * tsr_quantizer_alone() allows.  Each becomes what
 * tsr_quant_scheme_layer() makes of it where need is 0.  TSR_E_INPUT where a quantizer searches scales of the
 * whole layer first.  Once tsr_quant_scheme_need() was asked of every layer, which makes all quantizers,
 * several threads may pack different linears at once. */
tsr_status tsr_quant_scheme_linears(struct tsr_scheme_run *run, uint64_t layer,
                                    const struct tsr_model_piece_linear *list, uint64_t n,
                                    struct tsr_model_overlay *o, struct tsr_err *err);
/* The output head and the embedding, if rules name them. */
bool       tsr_quant_scheme_takes_ends(struct tsr_scheme_run *run);
tsr_status tsr_quant_scheme_ends(struct tsr_scheme_run *run, struct tsr_model_overlay *o,
                                 struct tsr_err *err);

#endif
