/* model/shards.h - the safetensors files of a model folder as one sorted list of tensors.
 * Private to core/model.
 */
#ifndef TSR_MODEL_SHARDS_H
#define TSR_MODEL_SHARDS_H

#include "model/safetensors.h"

#define TSR_MAX_SHARDS 1000

struct tsr_stored {
    const struct tsr_st_tensor *t;
    uint32_t                    file;
    bool                        used;
    bool                        imported; /* became packed weights (import.h) */
};

struct tsr_shards {
    struct tsr_st     *files;
    uint32_t           n_files;
    struct tsr_stored *tensors; /* sorted by name, each name once */
    uint64_t           n;
};

/* Opens model.safetensors, or the shards of model.safetensors.index.json, and checks that index
 * and files name the same tensors. */
tsr_status tsr_shards_open(struct tsr_shards *s, const char *folder, struct tsr_err *err);
/* TSR_E_INPUT that says what the folder holds in place of safetensors. */
tsr_status tsr_shards_absent(const char *folder, struct tsr_err *err);
/* The one model that lies in a folder which is none itself, as in the folder of a job; NULL: there is
 * none, or there are several.  Fresh memory. */
char *tsr_shards_only_model(const char *folder);
/* One file of the folder. */
tsr_status         tsr_shards_open_file(struct tsr_shards *s, const char *folder, const char *name,
                                        struct tsr_err *err);
void               tsr_shards_close(struct tsr_shards *s);
struct tsr_stored *tsr_shards_find(const struct tsr_shards *s, const char *name);
const char        *tsr_shards_path(const struct tsr_shards *s, const struct tsr_stored *t);

#endif
