/* checkpoint/export/internal.h - declarations shared by the files of this folder. */
#ifndef TSR_CHECKPOINT_EXPORT_INTERNAL_H
#define TSR_CHECKPOINT_EXPORT_INTERNAL_H

#include "checkpoint/export/export.h"
#include "checkpoint/safetensors/safetensors.h"
#include "model/stored.h"

/* ---- a matrix in any stored form (module.c) ----------------------------------- */

enum tsr_module_form {
    TSR_EXPORT_FORM_DENSE, /* F32, F16 or BF16 */
    TSR_EXPORT_FORM_INT,   /* every piece tessera.int/1 of one kind, columns in one order */
    TSR_EXPORT_FORM_MX,    /* every piece tessera.mx/1 of one kind */
    TSR_EXPORT_FORM_TABLE, /* every piece tessera.table/1 of one kind */
    TSR_EXPORT_FORM_FP8,   /* every piece tessera.fp8/1 of one kind */
    TSR_EXPORT_FORM_OTHER  /* packed otherwise, or pieces of several kinds */
};
struct tsr_export_module {
    const struct tsr_model_stored_view *v;
    enum tsr_module_form                form;
    struct tsr_format                   f;      /* int, mx; group 0 if one group is a whole row */
    uint64_t                            groups; /* of a row */
    const uint32_t *order; /* [cols] as in tsr_model_packed; NULL: columns in natural order */
    uint32_t        dtype; /* dense: of every piece; F32 if they differ */
};
void tsr_export_module_of(struct tsr_export_module *m, const struct tsr_model_stored_view *v);
/* E4M3 codes with scales of rows or of groups of columns: tessera.fp8/1, or tessera.mx/1 of 8 bits. */
bool tsr_export_is_fp8(const struct tsr_export_module *m);
/* E2M1 codes in blocks of 32 with E8M0 scales. */
bool tsr_export_is_mxfp4(const struct tsr_export_module *m);
/* Codes (a bit stream) and meta of row r; int, mx, table and FP8. */
const unsigned char *tsr_export_module_codes(const struct tsr_export_module *m, uint64_t r);
const unsigned char *tsr_export_module_meta(const struct tsr_export_module *m, uint64_t r);
/* Scale of a group and its zero point, 2^(bits-1) if none is stored; int. */
float    tsr_export_module_scale(const struct tsr_export_module *m, uint64_t r, uint64_t g);
unsigned tsr_export_module_zero(const struct tsr_export_module *m, uint64_t r, uint64_t g);
/* Row r as F32, [cols]. */
void tsr_export_module_row(const struct tsr_export_module *m, uint64_t r, float *dst);
/* A dtype that holds every scale: their own if that is F16, else `first` (F16 or BF16), the other of
 * the two, or F32. */
uint32_t tsr_export_module_scale_dtype(const struct tsr_export_module *m, uint32_t first);
/* All scales as [groups][rows] of F16 or BF16, which tsr_export_module_scale_dtype() said. */
void tsr_export_module_scales_down(const struct tsr_export_module *m, uint32_t dtype,
                                   unsigned char *dst);
/* A field of a little-endian bit stream. */
unsigned tsr_export_bits_get(const unsigned char *stream, uint64_t at, unsigned bits);
void     tsr_export_bits_put(unsigned char *stream, uint64_t at, unsigned bits, unsigned value);
/* One value to F32, F16 or BF16 at dst; false if it is finite and became infinite. *inexact counts
 * values that changed. */
bool tsr_export_put(void *dst, uint32_t dtype, float value, uint64_t *inexact);

/* ---- a folder of safetensors (shards.c) ---------------------------------------------- */

#define TSR_EXPORT_OUTS 5

/* One tensor that a module becomes. */
struct tsr_export_out {
    const char *suffix; /* of the name, after the module: ".qweight" */
    const char *dtype;  /* "I32" */
    uint32_t    size;   /* of an element */
    uint32_t    rank;
    uint64_t    shape[TSR_ST_MAX_RANK];
};

struct tsr_export;
struct tsr_export_kind {
    const char *name;
    bool        experts; /* it has the experts of a layer as one parameter */
    size_t      own;     /* bytes of x->own, which begins as zeros */
    /* Before anything else; may be NULL. */
    tsr_status (*open)(struct tsr_export *x);
    /* Checks every tensor, with its layer in memory, before anything is written; may be NULL. */
    tsr_status (*look)(struct tsr_export *x, const struct tsr_model_stored_view *v);
    /* Fails if a checked tensor cannot be written; may be NULL. */
    tsr_status (*decide)(struct tsr_export *x);
    /* The matrix of a linear or the head as tensors; n = 0: unchanged. */
    tsr_status (*plan)(struct tsr_export *x, const struct tsr_export_module *m,
                       struct tsr_export_out out[TSR_EXPORT_OUTS], unsigned *n);
    /* Bytes of one of them. */
    tsr_status (*fill)(struct tsr_export *x, const struct tsr_export_module *m,
                       const struct tsr_export_out *out, unsigned char *dst);
    /* quantization_config; NULL: none. */
    tsr_status (*config)(struct tsr_export *x, json_t **config);
    /* Further files of the folder; may be NULL. */
    tsr_status (*files)(struct tsr_export *x, const json_t *config, const char *folder);
};
extern const struct tsr_export_kind tsr_export_hf, tsr_export_gptq, tsr_export_ct, tsr_export_awq,
    tsr_export_fp8, tsr_export_mxfp4;

/* A list of module names with the configuration of each. */
struct tsr_export_rule {
    char     module[TSR_STORED_MODULE];
    bool     packed, mx, nvfp4, fp8, head;
    uint32_t bits, zero;
    uint64_t group; /* 0: row */
    uint64_t block; /* fp8: rows that share scales, as many as columns do; 0: each has its own */
    uint64_t cols;
};
struct tsr_export_rules {
    struct tsr_export_rule *v;
    uint64_t                n, cap;
};

struct tsr_export {
    const struct tsr_model          *m;
    const struct tsr_model_overlay  *o;
    const struct tsr_export_options *opt;
    const struct tsr_export_kind    *kind;
    struct tsr_export_report        *report;
    const char                      *path;  /* the final name, for messages */
    uint32_t                         dtype; /* of weights that stay 16-bit, or F32 */
    void                            *own;
    struct tsr_export_rules          rules;   /* of the linears that look() saw */
    const struct tsr_gguf_imatrix   *imatrix; /* gguf */
    struct tsr_err                  *err;
};

/* What the kind has of its own, from here until it is closed, also if that fails. */
tsr_status tsr_export_kind_open(struct tsr_export *x);
void       tsr_export_kind_close(struct tsr_export *x);
/* Writes the tensors into folder. */
tsr_status tsr_export_tensors(struct tsr_export *x, const char *folder);
/* An unquantized linear of a model whose other linears are quantized. */
bool tsr_export_is_linear(const struct tsr_model_stored_view *v);

/* The whole of a gguf export. */
tsr_status tsr_export_gguf(struct tsr_export *x);

/* The whole of an importance matrix. */
tsr_status tsr_export_imatrix(struct tsr_export *x);

/* The whole of a prepacked file. */
tsr_status tsr_export_prepacked(struct tsr_export *x);

/* ---- FP8 (fp8.c) ------------------------------------------------------------------------ */

/* Whether each run of so many rows has the scales of its first; *first: the first row that has not. */
bool tsr_export_fp8_alike(const struct tsr_export_module *m, uint64_t rows, uint64_t *first);
/* The tensor of the scales, one row for so many: in their dtype, powers of two in `powers`; and its bytes. */
struct tsr_export_out tsr_export_fp8_out(const struct tsr_export_module *m, const char *suffix,
                                         uint64_t rows, uint32_t powers);
void tsr_export_fp8_scales(const struct tsr_export_module *m, const struct tsr_export_out *out,
                           uint64_t rows, unsigned char *dst);
/* The codes as [rows, cols]. */
void tsr_export_fp8_codes(const struct tsr_export_module *m, unsigned char *dst);

/* ---- rules (rules.c) -------------------------------------------------------------------- */

tsr_status tsr_export_rule_add(struct tsr_export *x, const struct tsr_export_module *m,
                               bool packed);
/* A kind's look() that takes every linear: adds the rule of v, after check() if it is packed. */
tsr_status tsr_export_rule_look(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                tsr_status (*check)(struct tsr_export              *x,
                                                    const struct tsr_export_module *m));
/* Per-row scales of `cols` columns are stored as groups of `cols` if other linears have this group
 * size, so that one rule covers both; for 8 bits only if eight is set. */
void tsr_export_rules_merge(struct tsr_export_rules *r, bool eight);
/* Fails if no module of the rules is packed. */
tsr_status tsr_export_rules_need_packed(struct tsr_export *x);
bool       tsr_export_rule_same(const struct tsr_export_rule *a, const struct tsr_export_rule *b);
/* The kind of rule that most packed modules have, or NULL if none is packed. */
const struct tsr_export_rule *tsr_export_rule_common(const struct tsr_export_rules *r);
/* A list of the modules that are not packed, with or without the head, and of what the family ignores; NULL when out of
 * memory. */
json_t *tsr_export_rules_kept(const struct tsr_export *x, bool head);
/* Appends the modules that the family ignores, as "vision_tower" or, as a pattern, "re:.*vision_tower.*".  False: out of
 * memory. */
bool tsr_export_ignored(const struct tsr_export *x, bool pattern, json_t *list);

/* ---- files (folder.c) ---------------------------------------------------------------- */

/* A JSON file; takes no reference. */
tsr_status tsr_export_put_json(const char *folder, const char *name, const json_t *j,
                               struct tsr_err *err);
/* config.json, tokenizer and the rest of the folder. */
tsr_status tsr_export_put_texts(struct tsr_export *x, const char *folder);

#endif
