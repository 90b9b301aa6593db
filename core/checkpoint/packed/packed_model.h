/* checkpoint/packed/packed_model.h - a quantized model as a folder: format tessera.packed/1,
 * docs/formats/packed-model.md.
 *
 *   fingerprint.json       what it is made of; written first
 *   layer-00000.safetensors ...   one file per decoder layer: packed linears, folded norms
 *   head.safetensors       the packed output head and embedding, if they are packed
 *   kept.safetensors       the stored tensors, unchanged
 *   config.json, tokenizer.json, ...   as in the original
 *   packed.json            hashes of all of them; written last
 *
 * tsr_model_load() reads this folder; packed weights become model.packed.
 */
#ifndef TSR_CHECKPOINT_PACKED_PACKED_MODEL_H
#define TSR_CHECKPOINT_PACKED_PACKED_MODEL_H

#include "base/hash.h"
#include "base/json.h"
#include "model/packed.h"

#define TSR_PACKED_FORMAT      "tessera.packed/1"
#define TSR_PACKED_INDEX       "packed.json"
#define TSR_PACKED_KEPT        "kept.safetensors"
#define TSR_PACKED_HEAD        "head.safetensors"
#define TSR_PACKED_FINGERPRINT "fingerprint.json"
#define TSR_PACKED_RESIDUALS   "compensation.json" /* compensate/compensation.h */
#define TSR_PACKED_TRANSFORMS  "transforms"
#define TSR_PACKED_LAYER_NAME  48 /* "layer-00000.safetensors" */

/* ---- reading --------------------------------------------------------------------- */

/* Whether folder holds a packed model; one that is not finished is TSR_E_INPUT. */
tsr_status tsr_packed_model_find(const char *folder, bool *is, struct tsr_err *err);
/* Reads index and layers into m->packed; m has hparams and the names of its linears.  Checks the
 * hash of every file that it reads.  headers_only: shapes and formats alone.  kept: hash over
 * config.json and the kept tensors that the index has; hash: of the model as a whole.  Sets m->source.
 * reader: gets what reads a layer when it is opened; until then m->packed has the layer's shapes and formats
 * alone, but the head is read.  NULL: all layers are read now. */
struct tsr_model_layer_reader; /* model/bind.h */
tsr_status tsr_packed_model_read(const char *folder, struct tsr_model *m, bool headers_only,
                                 struct tsr_model_layer_reader *reader, char kept[TSR_HASH_TEXT],
                                 char hash[TSR_HASH_TEXT], struct tsr_err *err);

/* Reads one layer's file (layer == m->hp.layers: head and embedding) into an overlay.  hash: the expected
 * hash of the file, or NULL.  fingerprint: the expected value in its metadata, or NULL. */
tsr_status tsr_packed_layer_read(const char *folder, const struct tsr_model *m, uint64_t layer,
                                 bool headers_only, const char *hash, const char *fingerprint,
                                 struct tsr_model_overlay *o, struct tsr_err *err);
/* Parses the header of a layer's file: fills o's parts without their bytes.  Also for the fuzzer. */
struct tsr_safetensors;
tsr_status tsr_packed_layer_check(const struct tsr_safetensors *st, const char *file,
                                  const struct tsr_model *m, uint64_t layer,
                                  const char *fingerprint, struct tsr_model_overlay *o,
                                  struct tsr_err *err);
/* The index.  layers: [layers] hashes. */
struct tsr_packed_index {
    uint64_t layers;
    char (*layer)[TSR_HASH_TEXT];
    char head[TSR_HASH_TEXT]; /* "": neither head nor embedding is packed */
    char kept[TSR_HASH_TEXT];
    char source[TSR_HASH_TEXT]; /* of the original; "": not given */
};
tsr_status tsr_packed_index_parse(struct tsr_packed_index *x, const char *name, const char *text,
                                  uint64_t len, struct tsr_err *err);
void       tsr_packed_index_free(struct tsr_packed_index *x);

/* ---- writing --------------------------------------------------------------------- */

void tsr_packed_layer_name(uint64_t layer, uint64_t layers, char name[TSR_PACKED_LAYER_NAME]);
/* Writes a layer's file (layer == m->hp.layers: head and embedding) atomically.  The same overlay gives
 * the same bytes. */
tsr_status tsr_packed_layer_write(const char *folder, const struct tsr_model *m, uint64_t layer,
                                  const struct tsr_model_overlay *o, const char *fingerprint,
                                  struct tsr_err *err);
/* Writes the rest after all layers: kept tensors, config and tokenizer, the index.  Reads only
 * shapes of o. */
tsr_status tsr_packed_model_finish(const char *folder, const struct tsr_model *m,
                                   const struct tsr_model_overlay *o, struct tsr_err *err);

/* A packed matrix as one line of JSON (fresh memory) and back: format, columns, plugin, error.
 * Reading fills everything but rows and bytes.  name is for messages. */
tsr_status tsr_packed_describe(const struct tsr_model_packed *p, char **text, struct tsr_err *err);
tsr_status tsr_packed_understand(struct tsr_model_packed *p, const char *name, const char *text,
                                 struct tsr_err *err);
/* The transforms of a layer's inputs, likewise; *text NULL: there are none. */
tsr_status tsr_packed_transforms_describe(const struct tsr_model_overlay *o, uint64_t layer,
                                          char **text, struct tsr_err *err);
tsr_status tsr_packed_transforms_understand(const struct tsr_model *m, uint64_t layer,
                                            const char *name, const char *text,
                                            struct tsr_model_overlay *o, struct tsr_err *err);
/* The format, columns and plugin alone: errors and report become NAN. */
tsr_status tsr_packed_understand_json(struct tsr_model_packed *p, const char *name, const json_t *j,
                                      struct tsr_err *err);

#endif
