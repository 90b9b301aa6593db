/* checkpoint/gguf/gguf.h - GGUF version 3, the container of llama.cpp, read strictly: docs/formats/gguf.md.
 *
 *   header, metadata, tensor list   parse.c, open.c
 *   block types                     types.c, dequant.c, pack.c
 *   metadata -> config.json         config.c, by the section `gguf` of the family's file
 *   metadata -> tokenizer.json      tokenizer.c, spm.c, bpe.c, merges.c
 *   tensors -> a model's            names.c, source.c, halves.c, model.c
 *
 * Private to the folders of checkpoint and to tests.
 */
#ifndef TSR_CHECKPOINT_GGUF_GGUF_H
#define TSR_CHECKPOINT_GGUF_GGUF_H

#include "base/err.h"
#include "base/file.h"
#include "model/family.h"
#include "model/packed.h"

#include <stdbool.h>

#define TSR_GGUF_TOKENIZER "tokenizer.ggml.model"
#define TSR_GGUF_CHAT      "tokenizer.chat_template" /* .NAME: further ones */

#define TSR_GGUF_MAX_RANK    4u
#define TSR_GGUF_MAX_TENSORS 262144u /* more tensors or keys are TSR_E_NOMEM */
#define TSR_GGUF_MAX_KEYS    65536u
#define TSR_GGUF_MAX_KEY     65535u /* bytes */
#define TSR_GGUF_MAX_NAME    64u
#define TSR_GGUF_MAX_HEADER  (UINT64_C(1) << 30)
#define TSR_GGUF_MAX_STRING  (UINT64_C(64) << 20)

enum tsr_gguf_value {
    TSR_GGUF_U8,
    TSR_GGUF_I8,
    TSR_GGUF_U16,
    TSR_GGUF_I16,
    TSR_GGUF_U32,
    TSR_GGUF_I32,
    TSR_GGUF_F32,
    TSR_GGUF_BOOL,
    TSR_GGUF_STRING,
    TSR_GGUF_ARRAY,
    TSR_GGUF_U64,
    TSR_GGUF_I64,
    TSR_GGUF_F64,
    TSR_GGUF_VALUES
};

/* Types of tensors that are read; the numbers are the file's. */
enum tsr_gguf_type {
    TSR_GGUF_T_F32 = 0,
    TSR_GGUF_T_F16 = 1,
    TSR_GGUF_T_Q4_0 = 2,
    TSR_GGUF_T_Q4_1 = 3,
    TSR_GGUF_T_Q5_0 = 6,
    TSR_GGUF_T_Q5_1 = 7,
    TSR_GGUF_T_Q8_0 = 8,
    TSR_GGUF_T_Q2_K = 10,
    TSR_GGUF_T_Q3_K = 11,
    TSR_GGUF_T_Q4_K = 12,
    TSR_GGUF_T_Q5_K = 13,
    TSR_GGUF_T_Q6_K = 14,
    TSR_GGUF_T_IQ2_XXS = 16,
    TSR_GGUF_T_IQ2_XS = 17,
    TSR_GGUF_T_IQ3_XXS = 18,
    TSR_GGUF_T_IQ1_S = 19,
    TSR_GGUF_T_IQ4_NL = 20,
    TSR_GGUF_T_IQ3_S = 21,
    TSR_GGUF_T_IQ2_S = 22,
    TSR_GGUF_T_IQ4_XS = 23,
    TSR_GGUF_T_IQ1_M = 29,
    TSR_GGUF_T_BF16 = 30,
    TSR_GGUF_T_TQ1_0 = 34,
    TSR_GGUF_T_TQ2_0 = 35,
    TSR_GGUF_T_MXFP4 = 39
};

struct tsr_gguf_key {
    const char *name;
    uint32_t    type, item; /* enum tsr_gguf_value; item: of an array */
    uint64_t    n;          /* items of an array, else 1 */
    uint64_t    at, bytes;  /* of the values in the header */
};

struct tsr_gguf_tensor {
    const char *name;
    uint32_t    type, rank;              /* enum tsr_gguf_type */
    uint64_t    dims[TSR_GGUF_MAX_RANK]; /* dims[0] is a row's length */
    uint64_t    at, bytes;               /* in the file */
};

struct tsr_gguf {
    struct tsr_file          file;
    char                    *path;   /* for messages; owned */
    const unsigned char     *header; /* metadata and list of tensors */
    void                    *owned;  /* the header if the file was opened */
    uint64_t                 header_bytes;
    struct tsr_gguf_key     *keys;
    uint64_t                 n_keys;
    struct tsr_gguf_tensor  *tensors; /* as in the file */
    struct tsr_gguf_tensor **by_name;
    struct tsr_gguf_key    **key_by_name;
    uint64_t                 n;
    char                    *text; /* names live here */
};

/* True for a regular file that starts with "GGUF", in either byte order. */
bool tsr_gguf_is(const char *path);
/* Opens and checks header and list; tensor data is not read.  [setup] */
tsr_status tsr_gguf_open(struct tsr_gguf *g, const char *path, struct tsr_err *err);
void       tsr_gguf_close(struct tsr_gguf *g);
/* Only the parser, also for the fuzzer: data is the file's first bytes, owned by the caller.  *more
 * is set, with TSR_OK, if they end before the list of tensors and the file has more.
 * tsr_gguf_close() frees everything else. */
tsr_status tsr_gguf_parse(struct tsr_gguf *g, const char *name, const unsigned char *data,
                          uint64_t bytes, uint64_t file_size, bool *more, struct tsr_err *err);

const struct tsr_gguf_tensor *tsr_gguf_find(const struct tsr_gguf *g, const char *name);
const struct tsr_gguf_key    *tsr_gguf_key(const struct tsr_gguf *g, const char *name);

/* Values.  A key that is absent leaves *v alone and is TSR_OK unless required; one of another type
 * or out of [lo,hi] is TSR_E_INPUT. */
tsr_status tsr_gguf_int(const struct tsr_gguf *g, const char *key, bool required, int64_t lo,
                        int64_t hi, int64_t *v, struct tsr_err *err);
tsr_status tsr_gguf_real(const struct tsr_gguf *g, const char *key, bool required, double lo,
                         double hi, double *v, struct tsr_err *err);
tsr_status tsr_gguf_bool(const struct tsr_gguf *g, const char *key, bool *v, struct tsr_err *err);
/* Fresh memory; rejects text that is not UTF-8 or contains NUL. */
tsr_status tsr_gguf_str(const struct tsr_gguf *g, const char *key, bool required, char **v,
                        struct tsr_err *err);
/* An array of that item type, or NULL if it is absent and not required. */
tsr_status tsr_gguf_array(const struct tsr_gguf *g, const char *key, bool required, uint32_t item,
                          const struct tsr_gguf_key **k, struct tsr_err *err);
/* Walks an array of strings: *at starts at 0; the string is not NUL-terminated. */
void tsr_gguf_next(const struct tsr_gguf *g, const struct tsr_gguf_key *k, uint64_t *at,
                   const char **s, uint64_t *len);
/* Item i of an array of 32-bit items. */
uint32_t tsr_gguf_item32(const struct tsr_gguf *g, const struct tsr_gguf_key *k, uint64_t i);

/* ---- block types --------------------------------------------------------------- */

/* "Q4_K", also for types that are not read; "type 77" is what buf gets else. */
const char *tsr_gguf_type_name(uint32_t type, char buf[16]);
/* Elements and bytes of a block; false for a type that is not read. */
bool tsr_gguf_block(uint32_t type, uint32_t *elements, uint32_t *bytes);
/* TSR_F32, TSR_F16 or TSR_BF16 for the types that are one, else 0. */
uint32_t tsr_gguf_dtype(uint32_t type);
/* n elements, a whole number of blocks, widened as the format defines it. */
void tsr_gguf_widen(uint32_t type, const unsigned char *src, uint64_t n, float *dst);
/* A layout of tessera/format.h that holds the type to the last bit; false: there is none. */
bool tsr_gguf_format(uint32_t type, struct tsr_format *f);
/* Checks one row in that layout.  Returns the problem (for example a NaN scale), or NULL. */
const char *tsr_gguf_pack_row(uint32_t type, const unsigned char *src, uint64_t cols,
                              unsigned char *codes, unsigned char *meta);

/* ---- as a model -------------------------------------------------------------------- */

/* config.json and tokenizer.json with the content of the metadata.  Fresh memory. */
tsr_status tsr_gguf_config(const struct tsr_gguf *g, char **text, uint64_t *len,
                           struct tsr_err *err);
tsr_status tsr_gguf_tokenizer(const struct tsr_gguf *g, char **text, uint64_t *len,
                              struct tsr_err *err);
/* Whether it has a tokenizer, known or not: files for token ids say that they have none. */
bool tsr_gguf_has_tokenizer(const struct tsr_gguf *g);
/* Special tokens and chat templates as the text of a tokenizer_config.json, or NULL if there are none.
 * Template bytes are unchanged. */
tsr_status tsr_gguf_tokenizer_config(const struct tsr_gguf *g, char **text, uint64_t *len,
                                     struct tsr_err *err);

/* How the file orders the rows of a Hugging Face tensor. */
enum tsr_gguf_order {
    TSR_GGUF_PLAIN,
    TSR_GGUF_PAIRS, /* [head][dim/2][2] for [head][2][dim/2]: rotary pairs side by side */
    TSR_GGUF_PARTS, /* [3][head][dim] for [head][3][dim]: query, key, value in one tensor */
    TSR_GGUF_TILED, /* [heads / keys][keys][dim] for [keys][heads / keys][dim], after `first` that are plain */
    TSR_GGUF_HALVES /* kv_b in two tensors: [head][rank][nope], transposed, and [head][v][rank] */
};
/* The two tensors that newer files have in place of kv_b, attn_kv_b. */
#define TSR_GGUF_KEYS_OF_ROW   "blk.#.attn_k_b"
#define TSR_GGUF_VALUES_OF_ROW "blk.#.attn_v_b"
struct tsr_gguf_map {
    char                name[256]; /* the Hugging Face name */
    enum tsr_gguf_order order;
    uint32_t            heads, keys; /* keys: of TILED, of which each has as many heads */
    uint64_t            first;
    bool                columns; /* they are tiled, not the rows */
    bool                deep;    /* [rows, 1, cols] for [rows, cols] */
    bool                decay;   /* stored as -e^x */
    float               offset;  /* stored with it added: gains of norms */
    bool                stacked; /* a linear of all experts: [experts, out, in] */
};
/* The name of a tensor in a Hugging Face checkpoint.  false: not a tensor of the model (rope
 * factors, which the config contains).  TSR_E_INPUT for a name that the family does not have. */
tsr_status tsr_gguf_map(const struct tsr_gguf *g, const struct tsr_model_family *f,
                        const struct tsr_model_hparams *hp, const struct tsr_gguf_tensor *t,
                        struct tsr_gguf_map *map, bool *is, struct tsr_err *err);
/* The family's role for a part, and the matrix of a role in the file; NULL: there is none. */
const struct tsr_model_role  *tsr_gguf_role(const struct tsr_model_family *f,
                                            enum tsr_model_part            part);
const struct tsr_gguf_tensor *tsr_gguf_of_role(const struct tsr_gguf       *g,
                                               const struct tsr_model_role *r, uint64_t layer);
/* kv_b of latent attention in two tensors, as one matrix: the rows of a head's keys, then those of its values. */
struct tsr_gguf_halves {
    const struct tsr_gguf_tensor *keys, *values;
    uint64_t                      heads, nope, v, rank;
    uint32_t                      dtype; /* that of both, else F32 */
};
/* Checks the shapes against the model's.  [setup] */
tsr_status tsr_gguf_halves_find(const struct tsr_gguf *g, const struct tsr_model_hparams *hp,
                                const struct tsr_gguf_tensor *keys, struct tsr_gguf_halves *h,
                                struct tsr_err *err);
/* Rows [first, first + n) in that dtype; path is for messages.  [setup] */
tsr_status tsr_gguf_halves_read(const struct tsr_gguf_halves *h, const struct tsr_file *file,
                                uint64_t first, uint64_t n, unsigned char *dst, const char *path,
                                struct tsr_err *err);
/* The matrix of one expert, in the form of files that have a tensor for each: blk.0.ffn_gate.7. */
const struct tsr_gguf_tensor *tsr_gguf_of_expert(const struct tsr_gguf       *g,
                                                 const struct tsr_model_role *r, uint64_t layer,
                                                 uint64_t expert);
/* Rows of a tensor, the last dimension but one and those before it. */
uint64_t tsr_gguf_rows(const struct tsr_gguf_tensor *t);
/* The order of a role's rows or columns, and how its numbers are stored; the rest of map stays. */
void tsr_gguf_order_of(const struct tsr_model_family *f, const struct tsr_model_hparams *hp,
                       const struct tsr_model_role *r, struct tsr_gguf_map *map);
/* The name of a stored tensor in a GGUF file, and its order there; false: it has none. */
struct tsr_model_stored_view;
bool tsr_gguf_name_of(const struct tsr_model *m, const struct tsr_model_stored_view *v,
                      char name[64], struct tsr_gguf_map *map);
/* Row of the file's tensor that row r of the other one is, and back; of TILED and columns, the same of columns. */
uint64_t tsr_gguf_row(const struct tsr_gguf_map *map, uint64_t rows, uint64_t r);
uint64_t tsr_gguf_row_back(const struct tsr_gguf_map *map, uint64_t rows, uint64_t r);

/* The file as a set of tensors under their Hugging Face names, for tsr_model_bind(); takes g over, also
 * on error. */
struct tsr_checkpoint_shards;
tsr_status tsr_gguf_shards(struct tsr_checkpoint_shards *s, struct tsr_gguf *g,
                           const struct tsr_model_family *f, const struct tsr_model_hparams *hp,
                           struct tsr_err *err);
/* The GGUF file of this tensor set, NULL for other sets; its `file` is closed; s holds the open
 * file. */
const struct tsr_gguf *tsr_gguf_of(const struct tsr_checkpoint_shards *s);
/* A tensor of the file that a model was read from, NULL if the name does not exist or the model is
 * a folder; and n of its stored bytes. */
const struct tsr_gguf_tensor *tsr_gguf_part(const struct tsr_model *m, const char *name);
tsr_status tsr_gguf_part_read(const struct tsr_model *m, const struct tsr_gguf_tensor *t,
                              uint64_t at, void *dst, uint64_t n, struct tsr_err *err);
/* Reads the matrices that fit one of our layouts into m->packed, a few rows at a time; m has
 * hparams and names.  hash gets their bytes.  m->packed stays NULL if there are none.  Logs if
 * the embedding is widened.  reader: as in import.h. */
struct tsr_hasher;
struct tsr_model_layer_reader;
tsr_status tsr_gguf_overlay(const struct tsr_checkpoint_shards *s, struct tsr_model *m,
                            bool headers_only, struct tsr_hasher *hash,
                            struct tsr_model_layer_reader *reader, struct tsr_err *err);

#endif
