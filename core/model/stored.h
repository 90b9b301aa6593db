/* model/stored.h - a model's tensors as a Hugging Face checkpoint of its family has them: the way
 * back from the canonical parts to names, fused tensors and order of rows.
 */
#ifndef TSR_MODEL_STORED_H
#define TSR_MODEL_STORED_H

#include "base/json.h"
#include "model/packed.h"

#define TSR_STORED_MODULE 128

struct tsr_model_role;

/* One tensor: its name is module and suffix, one after the other. */
struct tsr_model_stored_view {
    const struct tsr_model_role *role;                      /* valid during the visit */
    char                         module[TSR_STORED_MODULE]; /* "model.layers.3.self_attn.q_proj" */
    const char                  *suffix;                    /* ".weight", ".bias"; of a few "" */
    uint64_t                     layer;                     /* the model's number of layers: none */
    unsigned                     n; /* pieces; 3 for a fused query-key-value */
    uint32_t
        stack; /* the tensor is [stack, rows / stack, cols], each with as many pieces; 0: [rows, cols] */
    bool transposed; /* of such a tensor: it is [stack, cols, rows / stack] */
    enum tsr_stored_kind {
        TSR_MODEL_STORED_VECTOR, /* norms and biases */
        TSR_MODEL_STORED_MATRIX, /* embeddings and projections */
        TSR_MODEL_STORED_LINEAR, /* of a decoder layer */
        TSR_MODEL_STORED_HEAD
    } kind;
    enum tsr_linear_id id;   /* of the first piece, TSR_MODEL_STORED_LINEAR and biases of linears */
    bool               norm; /* a vector that is a norm's */
    uint64_t           groups; /* rows of the pieces take turns, as many times; 0: they do not */
    uint64_t           dim;    /* of a vector that is stored as a matrix: its columns */
    uint64_t           rows, cols; /* of the whole; a vector has cols 1 */
    /* [n] each, valid for the visit */
    uint64_t                       *piece_rows;
    const struct tsr_matrix       **w;      /* data NULL while the layer is not open */
    const struct tsr_model_packed **packed; /* or NULL */
    const float                   **values; /* of a vector */
};

/* Piece and row in it of row r of the whole. */
void tsr_model_stored_row(const struct tsr_model_stored_view *v, uint64_t r, unsigned *piece,
                          uint64_t *row);

typedef tsr_status (*tsr_model_stored_visit)(void *ctx, const struct tsr_model_stored_view *v,
                                             struct tsr_err *err);
/* Calls visit for every tensor: those outside the layers first, then layer by layer.  o: packed
 * weights, NULL: the model's own.  open: each layer's weights are in memory only while its tensors
 * are visited.  A packed output head of a tied model is visited as "lm_head.weight". */
tsr_status tsr_model_visit(const struct tsr_model *m, const struct tsr_model_overlay *o, bool open,
                           tsr_model_stored_visit visit, void *ctx, struct tsr_err *err);
/* The same in the form of containers that have no families' forms: the experts' linears as gate, up and down, each of all
 * experts in one tensor [experts, out, in], and every name with .weight and .bias. */
tsr_status tsr_model_visit_stacked(const struct tsr_model *m, const struct tsr_model_overlay *o,
                                   bool open, tsr_model_stored_visit visit, void *ctx,
                                   struct tsr_err *err);

/* The config.json that the model was read with; new reference. */
tsr_status tsr_model_config_json(const struct tsr_model *m, json_t **config, struct tsr_err *err);
/* Copies tokenizer and generation settings into folder, unchanged; missing files are skipped.
 * *tokenizer: whether there is a tokenizer.json. */
tsr_status tsr_model_copy_texts(const struct tsr_model *m, const char *folder, bool *tokenizer,
                                struct tsr_err *err);
/* Its part for the further chat templates. */
tsr_status tsr_model_copy_templates(const struct tsr_model *m, const char *folder,
                                    struct tsr_err *err);

#endif
