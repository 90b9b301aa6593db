/* engine/online.h - Hadamard transforms that run with a rotated model, or with a layer whose packed weights need them. */
#ifndef TSR_ENGINE_ONLINE_H
#define TSR_ENGINE_ONLINE_H

#include "engine/internal.h"

enum tsr_engine_online_site {
    TSR_ENGINE_ONLINE_KEYS,   /* queries and keys, before keys go into the cache */
    TSR_ENGINE_ONLINE_DOWN,   /* inputs of a dense feed-forward's down */
    TSR_ENGINE_ONLINE_EXPERT, /* of an expert's */
    TSR_ENGINE_ONLINE_SHARED, /* of the shared expert's */
    TSR_ENGINE_ONLINE
};

/* The transforms of the model, before its layers are loaded. */
tsr_status tsr_engine_online_create(struct tsr_engine *e, struct tsr_err *err);
void       tsr_engine_online_destroy(struct tsr_engine *e);
/* Those of a layer from now on: the model's, and `packed`, of its packed weights (NULL: none).  TSR_E_INPUT if both have one. */
tsr_status tsr_engine_online_set(struct tsr_engine *e, uint64_t layer,
                                 const struct tsr_model_online *packed, struct tsr_err *err);
bool       tsr_engine_online_has(const struct tsr_engine *e, uint64_t layer,
                                 enum tsr_engine_online_site site);
/* t [tokens, columns of this rank] on `dev`, in place; nothing where the layer has no such transform. */
tsr_status tsr_engine_online_run(struct tsr_engine *e, struct tsr_engine_device *dev,
                                 uint64_t layer, enum tsr_engine_online_site site,
                                 const struct tsr_tensor *t, struct tsr_err *err);

#endif
