/* model/bind.h - assigns every part of a model its stored tensor, checked by name, dtype and shape,
 * and a place in memory.  Private to model and the folders of checkpoint.
 *
 * Two kinds of memory: sealed bytes for matrices as stored, floats for norms and biases.  Binding
 * only plans; weights.c reads and then sets the pointers of the parts.
 */
#ifndef TSR_MODEL_BIND_H
#define TSR_MODEL_BIND_H

#include "base/hash.h"
#include "checkpoint/safetensors/shards.h"
#include "model/config.h"
#include "model/packed.h"
#include "model/text_stamps.h"

#include <stdatomic.h>

/* Rows of several matrices that take turns in a stored tensor: in each of n groups rows[0] of the first, rows[1] of
 * the second, and so on. */
struct tsr_model_row_groups {
    uint32_t n, parts; /* n 0: they do not */
    uint32_t rows[TSR_MODEL_FUSED];
};

/* One stored tensor to read. */
struct tsr_model_tensor_load {
    struct tsr_checkpoint_stored *src;
    uint64_t                      at;     /* byte in the sealed memory, or index of a float */
    bool                          widen;  /* to floats */
    struct tsr_model_row_groups   groups; /* n > 0: rows [n][part][rows] go to [part][n][rows] */
    bool                          interleaved; /* rows [experts][row][2] go to [experts][2][row] */
    bool                          transposed;  /* [experts, in, out] goes to [experts, out, in] */
    bool                          compare;     /* not kept: must equal the tensor at `at` */
    bool                          layered;     /* at counts from the start of layer's own memory */
    uint64_t                      layer;
};

/* One pointer to set when memory exists. */
struct tsr_model_patch {
    void        **data; /* of a matrix, or NULL */
    const float **floats;
    uint64_t      at;
    bool          layered;
    uint64_t      layer;
};

struct tsr_model_binding {
    const struct tsr_model_config *config;
    struct tsr_checkpoint_shards  *shards;
    struct tsr_model              *model;
    const char                    *folder, *prefix;
    const char                    *says; /* what asks for shapes: "config.json" or "its metadata" */
    struct tsr_model_tensor_load  *loads;
    uint64_t                       n_loads, cap_loads;
    struct tsr_model_patch        *patches;
    uint64_t                       n_patches, cap_patches;
    uint64_t                       bytes, floats;
    uint64_t *layer_bytes;                  /* [layers]: matrices of a layer are stored separately;
                                             * or NULL */
    const struct tsr_model_overlay *packed; /* these linears need no stored tensor; may be NULL */
    bool                            spare;  /* a stored tensor of a packed linear is left alone */
    uint64_t                        ones, zeros; /* floats [hidden] for norms without gains */
    struct tsr_err                 *err;
};

#define TSR_BIND_NAME (TSR_ST_MAX_NAME + 1)

/* Queries of importers before anything is bound: the prefix of the names, the tensor name of a
 * role, whether this config has it, the shape of a linear. */
void       tsr_model_bind_prefix(struct tsr_model_binding *b);
tsr_status tsr_model_bind_name(struct tsr_model_binding *b, const struct tsr_model_role *r,
                               uint64_t layer, const char *suffix, char name[TSR_BIND_NAME]);
/* Whether a stored tensor is one that the model does not run; after tsr_model_bind_prefix(). */
bool tsr_model_bind_ignores(const struct tsr_model_binding *b, const char *name);
bool tsr_model_bind_holds(const struct tsr_model_binding *b, uint64_t needs);
void tsr_model_bind_shape(const struct tsr_model_hparams *hp, uint64_t layer, enum tsr_linear_id id,
                          uint64_t *rows, uint64_t *cols);
/* A vector of the delta rule: its numbers, and where a layer has them; *row as below.  NULL: the part is none. */
const float **tsr_model_delta_vector(const struct tsr_model_hparams *hp, enum tsr_model_part part,
                                     struct tsr_model_layer *l, uint64_t *n, uint64_t *row);

/* Numbers of a norm; *row: the width of its rows where it is stored as a matrix, else 0. */
uint64_t tsr_model_norm_width(const struct tsr_model_hparams *hp, enum tsr_model_part part,
                              uint64_t *row);

/* Whether the files hold a head of their own although the configuration ties it to the embedding: it is stored, and its
 * dtype or a byte is another.  Reads both tensors up to the first difference.  A head of another shape is
 * none: binding refuses it. */
tsr_status tsr_model_bind_own_head(struct tsr_model_binding *b, bool *own);
/* Plans the whole model; m->layers exists.  Free with tsr_model_binding_free(). */
tsr_status tsr_model_bind(struct tsr_model_binding *b);
void       tsr_model_binding_free(struct tsr_model_binding *b);

/* What of a layer is read when the layer is opened. */
struct tsr_model_layer_storage {
    void    *data; /* NULL: closed */
    uint64_t bytes, opens;
    uint64_t first_load, n_loads, first_patch, n_patches;
};

/* Packed weights of a layer, read each time the layer is opened; while it is closed, m->packed
 * keeps only shapes and formats. */
struct tsr_model_layer_reader {
    tsr_status (*read)(void *self, uint64_t layer, struct tsr_err *err);
    void (*free)(void *self);
    void     *self;  /* NULL: packed weights are in memory whole */
    uint64_t *opens; /* [layers] */
};
/* Takes self over, also on error. */
tsr_status tsr_model_layer_reader_set(struct tsr_model_layer_reader *r, const struct tsr_model *m,
                                      void *self,
                                      tsr_status (*read)(void *, uint64_t, struct tsr_err *),
                                      void (*free)(void *), struct tsr_err *err);

/* Memory of a loaded model, and the files that it came from. */
struct tsr_model_storage {
    struct tsr_sealed               sealed;
    float                          *floats;
    char                           *names, *path, *folder;
    uint64_t                        stored; /* bytes of the tensors in the model's files */
    char                           *config; /* of a GGUF file: what its metadata say; else NULL */
    uint64_t                        config_len;
    struct tsr_model_text_stamps    stamps; /* except for a prepacked file, which is mapped */
    const struct tsr_model_family  *family;
    uint64_t                        has;
    struct tsr_checkpoint_shards    shards; /* open unless headers_only */
    struct tsr_model_layer_storage *layers; /* [layers], or NULL: all in memory */
    struct tsr_model_tensor_load   *loads;  /* of layers, sorted by layer and place */
    struct tsr_model_patch         *patches;
    bool                            is_packed;    /* a tessera.packed/1 folder */
    atomic_bool                     context_said; /* tsr_model_context() has warned */
    atomic_bool                     unused_said;  /* so has tsr_model_visit_unused() */
    struct tsr_model_layer_reader reader; /* of packed layers that are read when they are opened */
    char                          kept[TSR_HASH_TEXT], index[TSR_HASH_TEXT];
};

/* Reads one tensor to dst and hashes it (hash may be NULL), through a buffer if it is converted;
 * floats is the destination of a widened one. */
tsr_status tsr_model_load_tensor(const struct tsr_checkpoint_shards *s,
                                 const struct tsr_model_tensor_load *l, void *dst, float *floats,
                                 struct tsr_hasher *hash, struct tsr_err *err);
void       tsr_model_load_label(struct tsr_hasher *hash, const struct tsr_safetensors_tensor *t);
/* Bytes of a tensor to the hash and to a file, if there are such. */
tsr_status tsr_model_load_pass(const struct tsr_safetensors        *st,
                               const struct tsr_safetensors_tensor *t, struct tsr_hasher *hash,
                               struct tsr_st_out *to, struct tsr_err *err);

/* Layers without weights, with room for their linears.  layered.c */
tsr_status tsr_model_layers_new(const struct tsr_model_hparams *hp, struct tsr_model_layer **layers,
                                struct tsr_err *err);
void       tsr_model_layers_destroy(struct tsr_model_layer *layers); /* NULL is allowed */

/* Hands what was planned for layers to the storage.  layered.c */
tsr_status tsr_model_layers_take(struct tsr_model_binding *b, struct tsr_model_storage *s);
void       tsr_model_layers_free(struct tsr_model_storage *s, uint64_t layers);

/* Reads every planned tensor, hashes, seals, and sets the pointers; with headers_only hashes
 * names, dtypes and shapes and reads nothing. */
tsr_status tsr_model_weights_read(struct tsr_model_binding *b, struct tsr_model_storage *s,
                                  struct tsr_hasher *hash, bool headers_only);

#endif
