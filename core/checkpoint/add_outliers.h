/* checkpoint/add_outliers.h - a model whose outliers vary from token to token, to measure outlier selection.
 *
 * Every layer's feed-forward gets triples of neurons.  The three of a triple have the same gate and up rows
 * along a random direction, so that they are large together, for the few tokens along that direction.  Their
 * down columns add up to zero, so in exact arithmetic they change nothing.  Columns that are rounded
 * individually no longer add up to zero: the outlier multiplies the rounding error.
 */
#ifndef TSR_CHECKPOINT_ADD_OUTLIERS_H
#define TSR_CHECKPOINT_ADD_OUTLIERS_H

#include "base/err.h"

struct tsr_checkpoint_outliers {
    uint64_t triples;  /* in each layer */
    double   strength; /* an activation is strength * z^2 for z > 0, z standard normal */
    uint64_t seed;
};

/* Writes model.safetensors, config.json and the tokenizer into folder, which is made; of a Hugging Face folder of
 * a gated family with mlp.gate_proj, up_proj and down_proj, in its dtypes.  Others are TSR_E_INPUT.  The same
 * arguments give the same bytes.  [setup] */
tsr_status tsr_checkpoint_add_outliers(const char *model, const char *folder,
                                       const struct tsr_checkpoint_outliers *how,
                                       struct tsr_err                       *err);

#endif
