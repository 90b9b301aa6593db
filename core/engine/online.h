/* engine/online.h - Hadamard transforms that run with a rotated model. */
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

/* For a model that has some. */
tsr_status tsr_engine_online_create(struct tsr_engine *e, struct tsr_err *err);
void       tsr_engine_online_destroy(struct tsr_engine *e);
bool       tsr_engine_online_has(const struct tsr_engine *e, enum tsr_engine_online_site site);
/* t [tokens, columns of this rank] on `dev`, in place; nothing where the model has no such transform. */
tsr_status tsr_engine_online_run(struct tsr_engine *e, struct tsr_engine_device *dev,
                                 enum tsr_engine_online_site site, const struct tsr_tensor *t,
                                 struct tsr_err *err);

#endif
