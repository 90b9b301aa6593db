/* checkpoint/random_model.h - a Llama-shaped checkpoint with random weights and any shape, to
 * measure speed without a real checkpoint.
 */
#ifndef TSR_CHECKPOINT_RANDOM_MODEL_H
#define TSR_CHECKPOINT_RANDOM_MODEL_H

#include "base/err.h"
#include "base/pool.h"

#include <stdbool.h>

struct tsr_checkpoint_random_shape {
    uint64_t vocab, hidden, layers, ffn, max_positions;
    uint64_t heads, kv_heads;
    uint64_t head_dim; /* 0: hidden / heads */
    uint32_t dtype;    /* TSR_F32, TSR_F16 or TSR_BF16, of the matrices; norms are F32 */
    bool     tied;
    uint64_t seed;
};

/* Writes config.json and model.safetensors into folder, which is created if necessary.  Matrices
 * have mean 0 and standard deviation 0.02 (the sum of four uniform numbers, so at most 3.46
 * deviations from 0), norms are 1.  The same shape and seed give the same bytes with any pool,
 * which may be NULL.  Memory does not grow with the model.  An impossible shape is TSR_E_INPUT. */
tsr_status tsr_checkpoint_random_model_write(const char                               *folder,
                                             const struct tsr_checkpoint_random_shape *shape,
                                             struct tsr_pool *pool, struct tsr_err *err);

#endif
