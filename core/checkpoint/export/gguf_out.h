/* checkpoint/export/gguf_out.h - the parts of a GGUF file as it is written: docs/formats/export.md.
 *
 *   header, metadata, list of tensors   a growing block of bytes (gguf_meta.c)
 *   tokens                              gguf_tokens.h
 *   names and order of rows             gguf_names.c
 *   types of tensors                    gguf_types.c
 *   kv_b of latent attention            gguf_halves.c
 *   blocks of 32 weights                gguf_blocks.c
 *   blocks by a search                  gguf_super.h
 *   mixes of types                      gguf_mix.c
 *   rows in any type                    gguf_rows.c
 *   statistics of the inputs            gguf_inputs.c
 *   keys that the family reads          gguf_family.c
 *   whether it would be read as it is   gguf_check.c
 */
#ifndef TSR_CHECKPOINT_EXPORT_GGUF_OUT_H
#define TSR_CHECKPOINT_EXPORT_GGUF_OUT_H

#include "base/output.h"
#include "checkpoint/export/internal.h"
#include "checkpoint/gguf/gguf.h"
#include "model/family.h"

/* Types of tensors; the numbers are the file's. */
#define TSR_GGUF_OUT_F32    0u
#define TSR_GGUF_OUT_F16    1u
#define TSR_GGUF_OUT_Q4_0   2u
#define TSR_GGUF_OUT_Q8_0   8u
#define TSR_GGUF_OUT_IQ4_NL 20u /* taken over alone: nothing is rounded to it */
#define TSR_GGUF_OUT_BF16   30u
#define TSR_GGUF_OUT_MXFP4  39u

#define TSR_GGUF_OUT_BLOCK 32u
#define TSR_GGUF_SUPER     256u /* elements of a block, at most */
#define TSR_GGUF_OUT_ALIGN 32u

/* ---- bytes ------------------------------------------------------------------------------ */

struct tsr_export_gguf_bytes {
    unsigned char *v;
    uint64_t       n, cap;
    uint64_t       keys;
    bool           failed; /* out of memory: sticky */
};
void tsr_export_gguf_add(struct tsr_export_gguf_bytes *b, const void *data, uint64_t n);
void tsr_export_gguf_add_u32(struct tsr_export_gguf_bytes *b, uint32_t v);
void tsr_export_gguf_add_u64(struct tsr_export_gguf_bytes *b, uint64_t v);
void tsr_export_gguf_add_text(struct tsr_export_gguf_bytes *b, const char *s, uint64_t n);
void tsr_export_gguf_key_f32(struct tsr_export_gguf_bytes *b, const char *key, double v);
/* A key whose value follows. */
void tsr_export_gguf_key_begin(struct tsr_export_gguf_bytes *b, const char *key, uint32_t type);
/* A key and its value. */
void tsr_export_gguf_key_u32(struct tsr_export_gguf_bytes *b, const char *key, uint64_t v);
void tsr_export_gguf_key_bool(struct tsr_export_gguf_bytes *b, const char *key, bool v);
void tsr_export_gguf_key_text(struct tsr_export_gguf_bytes *b, const char *key, const char *v);
/* A key whose n items of this type follow. */
void tsr_export_gguf_key_array(struct tsr_export_gguf_bytes *b, const char *key, uint32_t type,
                               uint64_t n);
#define TSR_GGUF_OUT_I32      5u
#define TSR_GGUF_OUT_STRING   8u
#define TSR_GGUF_OUT_TYPE_F32 6u

/* The architecture's numbers except the tokens.  TSR_E_INPUT if llama.cpp cannot run it. */
tsr_status tsr_export_gguf_put_model(struct tsr_export *x, struct tsr_export_gguf_bytes *b,
                                     const char *arch);
/* tokenizer.ggml.*; a tokenizer that llama.cpp does not have is TSR_E_INPUT. */
tsr_status tsr_export_gguf_put_tokens(struct tsr_export *x, struct tsr_export_gguf_bytes *b);
/* tokenizer.chat_template, and the same with .NAME and tokenizer.chat_templates for further ones. */
tsr_status tsr_export_gguf_put_templates(struct tsr_export *x, struct tsr_export_gguf_bytes *b);
/* How many tensors of F32 [dim/2] hold divisors of the frequencies, and their names: one for llama3's scaling and for
 * long rope whose lists are equal, two for other long rope, else none. */
unsigned tsr_export_gguf_rope_tensors(const struct tsr_model_rope *rope, const char *const **names);
/* The values of one of them. */
void tsr_export_gguf_rope_factors(const struct tsr_model_rope *rope, unsigned tensor, float *v);

/* The keys that the family's section `gguf` reads, from config.json. */
tsr_status tsr_export_gguf_put_family(struct tsr_export *x, struct tsr_export_gguf_bytes *b,
                                      const char *arch);
/* Those of the gated delta rule, and sections of rope; TSR_E_INPUT if llama.cpp has no word for its sizes. */
tsr_status tsr_export_gguf_put_delta(struct tsr_export *x, struct tsr_export_gguf_bytes *b,
                                     const char *arch);
/* Whether the family reads a key of the architecture. */
bool tsr_export_gguf_takes(const struct tsr_model_family *f, const char *key);
/* TSR_E_INPUT unless a file with this header, before data_bytes of data, would be read as the model that it is. */
tsr_status tsr_export_gguf_check(struct tsr_export *x, const struct tsr_export_gguf_bytes *head,
                                 uint64_t data_bytes);

/* ---- types ---------------------------------------------------------------------------------- */

enum tsr_export_gguf_choice {
    TSR_EXPORT_GGUF_AUTO,
    TSR_EXPORT_GGUF_F16,
    TSR_EXPORT_GGUF_Q8_0,
    TSR_EXPORT_GGUF_Q4_0,
    TSR_EXPORT_GGUF_MXFP4,
    TSR_EXPORT_GGUF_Q3_K_M, /* from here on mixes of types, as llama.cpp has them */
    TSR_EXPORT_GGUF_Q4_K_M,
    TSR_EXPORT_GGUF_Q5_K_M,
    TSR_EXPORT_GGUF_Q6_K,
    TSR_EXPORT_GGUF_MXFP4_MOE
};
/* What the option `type` asks for, in any case; NULL and "": auto.  TSR_E_INPUT with the types that there are. */
tsr_status tsr_export_gguf_choose(const char *type, enum tsr_export_gguf_choice *choice,
                                  struct tsr_err *err);
uint32_t   tsr_export_gguf_dense_type(uint32_t dtype);
bool       tsr_export_gguf_is_float(uint32_t type);
/* n numbers of a row in a type of floats; TSR_E_INPUT for one that it does not hold. */
tsr_status tsr_export_gguf_put_floats(struct tsr_export *x, const char *name, uint32_t type,
                                      uint64_t row, const float *v, uint64_t n, unsigned char *dst);
tsr_status tsr_export_gguf_not_held(struct tsr_export *x, const char *name, uint64_t row);
/* One tensor of the file. */
struct tsr_export_gguf_entry {
    char                name[64];
    uint32_t            type, rank;
    struct tsr_gguf_map map;
    uint64_t            dims[3]; /* dims[0] is a row's length */
    uint64_t            bytes, offset;
    bool                exact;  /* codes are taken over */
    bool                raw;    /* so are all bytes, from another GGUF file */
    bool                turned; /* columns are packed in the file's order */
    bool                fit;    /* blocks are the result of a search */
};
/* general.file_type of the choice; for auto, of the type that most weights of the n tensors' matrices have. */
uint32_t tsr_export_gguf_ftype(enum tsr_export_gguf_choice         choice,
                               const struct tsr_export_gguf_entry *v, uint64_t n);
bool     tsr_export_gguf_is_mix(enum tsr_export_gguf_choice choice);
/* The type of a tensor in a mix; tied: the embedding is the head, too. */
uint32_t tsr_export_gguf_mix_type(const struct tsr_export *x, enum tsr_export_gguf_choice mix,
                                  const char *name, uint64_t layer, uint64_t cols, bool tied);
/* Type, exact and fit of a decoder layer's matrix or of the head, in a mix also of the embedding. */
tsr_status tsr_export_gguf_matrix_type(struct tsr_export *x, enum tsr_export_gguf_choice choice,
                                       const struct tsr_export_module *m, const char *name,
                                       bool tied, struct tsr_export_gguf_entry *e);
/* Row of the model's tensor that row r of the file's is. */
uint64_t tsr_export_gguf_row_of(const struct tsr_export_gguf_entry *e, uint64_t rows, uint64_t r);
/* The rows of a matrix, in the file's order. */
tsr_status tsr_export_gguf_put_rows(struct tsr_export *x, struct tsr_writer *to,
                                    const struct tsr_export_module     *m,
                                    const struct tsr_export_gguf_entry *e);

/* ---- what the search minimises ------------------------------------------------------------- */

struct tsr_export_gguf_inputs;
/* Whether the export has statistics of the inputs. */
bool tsr_export_gguf_has_inputs(const struct tsr_export *x);
/* Those of a matrix, of one expert where it is a stack; square: room for a row, which the result borrows. */
tsr_status tsr_export_gguf_inputs_of(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                     const char *name, uint64_t expert, float *square,
                                     struct tsr_export_gguf_inputs *in);

/* ---- names -------------------------------------------------------------------------------- */

/* What llama.cpp calls the family; TSR_E_INPUT for one that it is not written for. */
tsr_status tsr_export_gguf_arch(struct tsr_export *x, const char **arch);
/* The tensor's name, and how the file orders its rows or columns and stores its numbers. */
tsr_status tsr_export_gguf_name(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                char name[64], struct tsr_gguf_map *map);
/* A number of a vector as the file has it. */
float tsr_export_gguf_number(const struct tsr_gguf_map *map, float v);
/* Columns of a row into the file's order, `each` in `bytes` bytes at a time; room: the row's bytes. */
void tsr_export_gguf_turn_columns(const struct tsr_gguf_map *map, uint64_t cols, void *row,
                                  void *room, uint64_t each, uint64_t bytes);
/* Whether packed columns are in the file's order already. */
bool tsr_export_gguf_is_turned(const struct tsr_gguf_map *map, const struct tsr_export_module *m);

/* kv_b of latent attention, which is written as two tensors: of each head the transposed rows of its keys, and the rows
 * of its values. */
bool tsr_export_gguf_is_halves(const struct tsr_model_stored_view *v);
/* The name of the one or the other. */
tsr_status tsr_export_gguf_half_name(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                     bool keys, char name[64]);
/* Its bytes, in a type of floats. */
tsr_status tsr_export_gguf_put_half(struct tsr_export *x, struct tsr_writer *w,
                                    const struct tsr_export_module *m, bool keys, const char *name,
                                    uint32_t type);

/* ---- blocks ------------------------------------------------------------------------------- */

/* Elements of a block, 32 if the type has none; bytes of a row, which is whole blocks. */
unsigned tsr_export_gguf_elements(uint32_t type);
uint64_t tsr_export_gguf_row_bytes(uint32_t type, uint64_t cols);
/* Rounds a row to Q8_0, Q4_0 or MXFP4 as ggml's reference does; false if a value is not finite or a
 * scale too large for F16. */
bool tsr_export_gguf_quantize_row(uint32_t type, const float *x, uint64_t cols, unsigned char *dst);
/* Whether the codes and scales of a packed matrix are the same numbers in that type; by the layout that it is read into. */
bool tsr_export_gguf_holds(uint32_t type, const struct tsr_export_module *m);
bool tsr_export_gguf_is_super_type(uint32_t type, const struct tsr_export_module *m);
/* One row of this matrix, in a type of blocks of 32. */
void tsr_export_gguf_repack_row(uint32_t type, const struct tsr_export_module *m, uint64_t r,
                                unsigned char *dst);

#endif
