/* engine/weights.h - one linear of the model, or a rank's part of it, onto the device that runs it. */
#ifndef TSR_ENGINE_WEIGHTS_H
#define TSR_ENGINE_WEIGHTS_H

#include "engine/internal.h"

#define TSR_ENGINE_NO_LAYER                                                                        \
    ((enum tsr_linear_id)UINT32_MAX) /* a weight outside the layers, which is never split */

/* The activation type of a packed weight if `act` is requested.  A plugin's own format is decoded to F32. */
uint32_t tsr_engine_packed_act(struct tsr_engine *e, const struct tsr_model_packed *p,
                               uint32_t act);
/* Onto out->dev.  act: for a packed weight; a dense one is F32 by definition.  m: its place in a prepacked file, or
 * NULL. */
tsr_status tsr_engine_linear_load(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                                  const struct tsr_model_linear            *l,
                                  const struct tsr_model_packed            *p,
                                  const struct tsr_prepacked_mapped_weight *m, uint32_t act,
                                  struct tsr_engine_linear_dev *out, struct tsr_err *err);
/* The same of a rank's part that a source has cut out. */
tsr_status tsr_engine_linear_load_cut(struct tsr_engine *e, enum tsr_linear_id id,
                                      const struct tsr_model_linear   *l,
                                      const struct tsr_engine_fetched *f, uint32_t act,
                                      struct tsr_engine_linear_dev *out, struct tsr_err *err);
/* From the prepacked file if m has a place in one, else from the model's memory. */
tsr_status tsr_engine_linear_load_matrix(struct tsr_engine *e, struct tsr_engine_device *dev,
                                         const struct tsr_matrix                  *w,
                                         const struct tsr_prepacked_mapped_weight *m,
                                         struct tsr_engine_weight **out, struct tsr_err *err);
/* The device has it: the host's copy is no longer read. */
void tsr_engine_linear_release(struct tsr_engine_linear_dev *l);
void tsr_engine_linear_drop(struct tsr_engine *e, struct tsr_engine_linear_dev *l);

#endif
