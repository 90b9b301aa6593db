/* checkpoint/prepacked/prepacked.h - a model as one file, with weights in a backend's memory layout
 * (tessera/backend_layout.h): format tessera.prepacked/2, docs/formats/prepacked.md.
 *
 *   head     128 bytes: magic, length, offset of the index, hash of both
 *   weights  each in the backend's layout, page-aligned
 *   vectors  norms and biases, F32
 *   texts    config.json, tokenizer.json, ...
 *   details  JSON: hash and errors of every weight, which a start does not need
 *   index    JSON: name, offset and size of every part; formats, layout, sources; hashes of all but weights
 *
 * The file is mapped and the weights are used in place.
 */
#ifndef TSR_CHECKPOINT_PREPACKED_PREPACKED_H
#define TSR_CHECKPOINT_PREPACKED_PREPACKED_H

#include "base/hash.h"
#include "base/json.h"
#include "base/map.h"
#include "base/pool.h"
#include "model/config.h"
#include "model/packed.h"

#define TSR_PREPACKED_FORMAT "tessera.prepacked/2"
#define TSR_PREPACKED_MAGIC  "TSRPREP1"
#define TSR_PREPACKED_HEAD   128u
#define TSR_PREPACKED_PAGE   4096u /* weights, vectors and texts begin on one */

/* ---- the file ------------------------------------------------------------------------- */

/* A weight in the file. */
struct tsr_prepacked_mapped_weight {
    const unsigned char *data; /* NULL: there is none */
    uint64_t             bytes, rows, cols;
    struct tsr_format    format; /* that the backend was given */
};

struct tsr_prepacked {
    struct tsr_map       map;
    const unsigned char *data;
    uint64_t             bytes;
    char                *path;
    json_t              *index;
    json_t              *weights, *vectors, *texts; /* of the index: entries by name */
    json_t              *kinds;                     /* of weights: their formats */
    json_t              *details;                   /* place of the hashes of weights */
    json_t              *compensation;              /* place of a tessera.compensation/1; or NULL */
    bool                 check;                     /* hashes are compared */
    char                 hash[TSR_HASH_TEXT]; /* of head and index, which lead to all others */
    const char          *layout, *target;     /* target: NULL, or some devices alone */
    uint32_t             revision;
    const char          *source, *packed_as; /* hash of the model that it was made of; as there */
    /* of the model that was read from it */
    uint64_t                             layers;
    struct tsr_prepacked_mapped_weight   embed, positions, project_in, project_out, head;
    struct tsr_prepacked_mapped_weight **lin; /* [layers][linears] */
};

/* A part's place; hash is of the index, NULL of a weight. */
struct tsr_prepacked_place {
    uint64_t    at, bytes;
    const char *hash;
};

/* What the head says. */
struct tsr_prepacked_head {
    uint64_t file_bytes, index_at, index_bytes;
    char     hash[TSR_HASH_TEXT];
};
void tsr_prepacked_head_write(const struct tsr_prepacked_head *h,
                              unsigned char                    to[TSR_PREPACKED_HEAD]);
/* Over the head except its hash, and the index. */
tsr_status tsr_prepacked_head_hash(const struct tsr_prepacked_head *h, const void *index,
                                   char text[TSR_HASH_TEXT], struct tsr_err *err);

/* True for a regular file that starts with the magic. */
bool tsr_prepacked_is(const char *path);
/* Maps the file and reads head and index, whose hash it checks; no weight is touched.  [setup] */
tsr_status tsr_prepacked_open(struct tsr_prepacked *p, const char *path, struct tsr_err *err);
/* The parser alone, also for the fuzzer: data is the whole file, which the caller keeps.  check:
 * the hash must hold, and later those of its parts. */
tsr_status tsr_prepacked_parse(struct tsr_prepacked *p, const char *path, const unsigned char *data,
                               uint64_t bytes, bool check, struct tsr_err *err);
void       tsr_prepacked_close(struct tsr_prepacked *p);
/* A text, in fresh memory, its hash checked; NULL: there is none of that name. */
tsr_status tsr_prepacked_text(const struct tsr_prepacked *p, const char *name, char **text,
                              uint64_t *len, struct tsr_err *err);
/* The place of an entry of weights, texts or (the whole) vectors; parsed, so it is there. */
struct tsr_prepacked_place tsr_prepacked_place(const json_t *entry);
/* Which of kinds an entry of weights is. */
uint64_t tsr_prepacked_kind(const json_t *weight);
/* The hash of norms and biases. */
tsr_status tsr_prepacked_check_vectors(const struct tsr_prepacked *p, struct tsr_err *err);
/* Reads every part once and compares its hash, the parts in parallel; TSR_E_INPUT names the first that is damaged.  The
 * index is the tree: its own hash, which is the model's, covers the hashes of the parts.  progress, or
 * NULL: called after every piece by any thread, with bytes.  [setup] */
typedef void (*tsr_prepacked_progress)(uint64_t done, uint64_t of);
tsr_status tsr_prepacked_verify(const struct tsr_prepacked *p, struct tsr_pool *pool,
                                tsr_prepacked_progress progress, struct tsr_err *err);

/* ---- the model ------------------------------------------------------------------------- */

/* What a model of a family consists of, by the names of the index. */
#define TSR_MODEL_PART_NAME 96
struct tsr_prepacked_model_part {
    char                name[TSR_MODEL_PART_NAME]; /* "model.layers.3.mlp.down_proj" */
    enum tsr_model_part part;
    uint64_t            layer; /* the model's number of layers: none */
    enum tsr_linear_id  lin;   /* TSR_MODEL_PART_LINEAR */
    bool                optional;
    /* a matrix: its place in the model and the required shape */
    struct tsr_matrix *w;
    uint64_t           rows, cols;
    /* a vector of n floats (w NULL); bias: of a norm or linear, else a norm's gain */
    const float **values;
    uint64_t      n;
    bool          bias;
};
typedef tsr_status (*tsr_prepacked_part_visit)(void *ctx, const struct tsr_prepacked_model_part *p,
                                               struct tsr_err *err);
/* The parts of one layer, or (layer == m->hp.layers) of none; m->layers, arch and has are set. */
tsr_status tsr_prepacked_model_parts(struct tsr_model *m, uint64_t layer,
                                     tsr_prepacked_part_visit visit, void *ctx,
                                     struct tsr_err *err);

/* Whether p holds a head that is not packed, as of a model whose head is its own. */
bool tsr_prepacked_own_head(const struct tsr_prepacked *p);
/* Fills m, whose hparams, names and layers are set, from p: m->packed, views on vectors, shapes.
 * headers_only: no vector is read. */
tsr_status tsr_prepacked_bind(struct tsr_prepacked *p, struct tsr_model *m, bool headers_only,
                              struct tsr_err *err);
/* The whole of it, of a zeroed m with its storage: also for the fuzzer.  p is not taken over.
 * checkpoint/open.c */
tsr_status tsr_prepacked_model_from_prepacked(struct tsr_model *m, struct tsr_prepacked *p,
                                              bool headers_only, struct tsr_err *err);

#endif
