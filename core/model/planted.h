/* model/planted.h - a model with outliers that come and go from token to token, for measuring what selects them.
 *
 * Every layer's feed-forward gets triples of neurons.  The three of a triple have the same gate and up rows
 * along a random direction, so that they are large together, and for the few tokens that lie along it; their down
 * columns add up to zero, so that in exact arithmetic they change nothing.  Rounded one by one the columns do not
 * add up to zero any more: what is lost is multiplied by the outlier.
 */
#ifndef TSR_MODEL_PLANTED_H
#define TSR_MODEL_PLANTED_H

#include "base/err.h"

struct tsr_planting {
    uint64_t triples;  /* in each layer */
    double   strength; /* an activation is strength * z^2 for z > 0, z standard normal */
    uint64_t seed;
};

/* Writes model.safetensors, config.json and the tokenizer into folder, which is made; of a Hugging Face folder of
 * a gated family with mlp.gate_proj, up_proj and down_proj, in its dtypes.  Others are TSR_E_INPUT.  The same
 * arguments give the same bytes.  [setup] */
tsr_status tsr_planted_write(const char *model, const char *folder, const struct tsr_planting *how,
                             struct tsr_err *err);

#endif
