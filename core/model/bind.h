/* model/bind.h - gives every part of a model its stored tensor, checked by name, dtype and
 * shape, and a place in memory.  Private to core/model.
 *
 * Two kinds of memory: sealed bytes for matrices as they are stored, floats for norms and
 * biases.  Binding only plans; weights.c reads and then points the parts at their places.
 */
#ifndef TSR_MODEL_BIND_H
#define TSR_MODEL_BIND_H

#include "base/hash.h"
#include "model/arch.h"
#include "model/shards.h"

/* One stored tensor to read. */
struct tsr_load {
    struct tsr_stored *src;
    uint64_t           at;      /* byte in the sealed memory, or index of a float */
    bool               widen;   /* to floats */
    bool               by_head; /* rows [head][3][head_dim] go to [3][head][head_dim] */
    bool               compare; /* not kept: must equal what stands at `at` */
};

/* One pointer to set when memory exists. */
struct tsr_patch {
    void        **data; /* of a matrix, or NULL */
    const float **floats;
    uint64_t      at;
};

struct tsr_binding {
    const struct tsr_config *config;
    struct tsr_shards       *shards;
    struct tsr_model        *model;
    const char              *folder, *prefix;
    struct tsr_load         *loads;
    uint64_t                 n_loads, cap_loads;
    struct tsr_patch        *patches;
    uint64_t                 n_patches, cap_patches;
    uint64_t                 bytes, floats;
    uint64_t                 ones, zeros; /* floats [hidden] for norms without gains */
    struct tsr_err          *err;
};

/* Plans the whole model; m->layers exists.  Free with tsr_binding_free(). */
tsr_status tsr_bind(struct tsr_binding *b);
void       tsr_binding_free(struct tsr_binding *b);

/* Memory of a loaded model. */
struct tsr_model_storage {
    struct tsr_sealed sealed;
    float            *floats;
    char             *names, *path;
};

/* Reads every planned tensor, hashes, seals, and sets the pointers; with headers_only hashes
 * names, dtypes and shapes and reads nothing. */
tsr_status tsr_weights_read(struct tsr_binding *b, struct tsr_model_storage *s,
                            struct tsr_hasher *hash, bool headers_only);

#endif
