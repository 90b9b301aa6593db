/* checkpoint/safetensors/shards.h - the safetensors files of a model folder as one sorted list of tensors.
 * Private to the folders that read models.
 */
#ifndef TSR_CHECKPOINT_SAFETENSORS_SHARDS_H
#define TSR_CHECKPOINT_SAFETENSORS_SHARDS_H

#include "checkpoint/safetensors/safetensors.h"

#define TSR_MAX_SHARDS   1000
#define TSR_SHARDS_INDEX "model.safetensors.index.json"

struct tsr_checkpoint_stored {
    const struct tsr_safetensors_tensor *t;
    uint32_t                             file;
    bool                                 used;
    bool                                 imported; /* imported as packed weights (import.h) */
};

struct tsr_checkpoint_shards {
    struct tsr_safetensors       *files;
    uint32_t                      n_files;
    struct tsr_checkpoint_stored *tensors; /* sorted by name, each name once */
    uint64_t                      n;
};

/* Opens model.safetensors, or the shards of model.safetensors.index.json, and checks that index
 * and files name the same tensors. */
tsr_status tsr_checkpoint_shards_open(struct tsr_checkpoint_shards *s, const char *folder,
                                      struct tsr_err *err);
/* One file of the folder. */
tsr_status tsr_checkpoint_shards_open_file(struct tsr_checkpoint_shards *s, const char *folder,
                                           const char *name, struct tsr_err *err);
void       tsr_checkpoint_shards_close(struct tsr_checkpoint_shards *s);
struct tsr_checkpoint_stored *tsr_checkpoint_shards_find(const struct tsr_checkpoint_shards *s,
                                                         const char                         *name);
const char                   *tsr_checkpoint_shards_path(const struct tsr_checkpoint_shards *s,
                                                         const struct tsr_checkpoint_stored *t);

#endif
