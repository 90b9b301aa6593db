/* model/packed_model.h - a quantized model as a folder: format tessera.packed/1,
 * docs/formats/packed-model.md.
 *
 *   fingerprint.json       what it is made of; first to be there
 *   layer-00000.safetensors ...   one file per decoder layer: packed linears, folded norms
 *   head.safetensors       the packed output head and embedding, if they are packed
 *   kept.safetensors       the stored tensors that stay as they were
 *   config.json, tokenizer.json, ...   as in the original
 *   packed.json            hashes of all of them; last to be there
 *
 * tsr_model_load() reads such a folder: what is packed becomes model.packed.
 */
#ifndef TSR_MODEL_PACKED_MODEL_H
#define TSR_MODEL_PACKED_MODEL_H

#include "base/hash.h"
#include "base/json.h"
#include "model/packed.h"

#define TSR_PACKED_FORMAT      "tessera.packed/1"
#define TSR_PACKED_INDEX       "packed.json"
#define TSR_PACKED_KEPT        "kept.safetensors"
#define TSR_PACKED_HEAD        "head.safetensors"
#define TSR_PACKED_FINGERPRINT "fingerprint.json"
#define TSR_PACKED_RESIDUALS   "compensation.json" /* compensate/compensation.h */
#define TSR_PACKED_LAYER_NAME  48                  /* "layer-00000.safetensors" */

/* ---- reading --------------------------------------------------------------------- */

/* Whether folder holds a packed model; one that is not finished is TSR_E_INPUT. */
tsr_status tsr_packed_model_find(const char *folder, bool *is, struct tsr_err *err);
/* Reads index and layers into m->packed; m has hparams and the names of its linears.  Checks the
 * hash of every file that it reads.  headers_only: shapes and formats alone.  kept: hash over
 * config.json and the kept tensors that the index has; hash: of the model as a whole.  Sets m->source. */
struct tsr_packed_stream;
tsr_status tsr_packed_model_read(const char *folder, struct tsr_model *m, bool headers_only,
                                 struct tsr_packed_stream *stream, char kept[TSR_HASH_TEXT],
                                 char hash[TSR_HASH_TEXT], struct tsr_err *err);

/* Layers that are in memory while they are open; else m->packed has their shapes and formats and
 * no folded norms.  The head stays.  stream NULL above: all is read. */
struct tsr_packed_stream {
    char (*hash)[TSR_HASH_TEXT]; /* [layers] of the files */
    uint64_t *opens;             /* [layers] */
};
tsr_status tsr_packed_stream_open(struct tsr_packed_stream *s, const char *folder,
                                  const struct tsr_model *m, uint64_t layer, struct tsr_err *err);
void       tsr_packed_stream_close(struct tsr_packed_stream *s, const struct tsr_model *m,
                                   uint64_t layer);
void       tsr_packed_stream_free(struct tsr_packed_stream *s);
/* One layer's file (layer == m->hp.layers: head and embedding) into an overlay.  hash: what the file must
 * have, or NULL.  fingerprint: what its metadata must say, or NULL. */
tsr_status tsr_packed_layer_read(const char *folder, const struct tsr_model *m, uint64_t layer,
                                 bool headers_only, const char *hash, const char *fingerprint,
                                 struct tsr_overlay *o, struct tsr_err *err);
/* What a layer's file says, of an open header alone: fills o's parts without their bytes.  Also
 * for the fuzzer. */
struct tsr_st;
tsr_status tsr_packed_layer_check(const struct tsr_st *st, const char *file,
                                  const struct tsr_model *m, uint64_t layer, struct tsr_overlay *o,
                                  struct tsr_err *err);
/* The index.  layers: [layers] hashes. */
struct tsr_packed_index {
    uint64_t layers;
    char (*layer)[TSR_HASH_TEXT];
    char head[TSR_HASH_TEXT]; /* "": neither head nor embedding is packed */
    char kept[TSR_HASH_TEXT];
    char source[TSR_HASH_TEXT]; /* of the original; "": not said */
};
tsr_status tsr_packed_index_parse(struct tsr_packed_index *x, const char *name, const char *text,
                                  uint64_t len, struct tsr_err *err);
void       tsr_packed_index_free(struct tsr_packed_index *x);

/* ---- writing --------------------------------------------------------------------- */

void tsr_packed_layer_name(uint64_t layer, uint64_t layers, char name[TSR_PACKED_LAYER_NAME]);
/* A layer's file (layer == m->hp.layers: head and embedding), under its name only when it is whole.  The
 * same overlay gives the same bytes. */
tsr_status tsr_packed_layer_write(const char *folder, const struct tsr_model *m, uint64_t layer,
                                  const struct tsr_overlay *o, const char *fingerprint,
                                  struct tsr_err *err);
/* What is left when all layers are written: kept tensors, config and tokenizer, the index.  Of o
 * only shapes are read. */
tsr_status tsr_packed_model_finish(const char *folder, const struct tsr_model *m,
                                   const struct tsr_overlay *o, struct tsr_err *err);

/* A packed matrix as one line of JSON (fresh memory) and back: format, columns, plugin, error.
 * Reading fills everything but rows and bytes.  name is for messages. */
tsr_status tsr_packed_describe(const struct tsr_packed *p, char **text, struct tsr_err *err);
tsr_status tsr_packed_understand(struct tsr_packed *p, const char *name, const char *text,
                                 struct tsr_err *err);
tsr_status tsr_packed_understand_json(struct tsr_packed *p, const char *name, const json_t *j,
                                      struct tsr_err *err);

#endif
