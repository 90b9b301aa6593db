/* checkpoint/import/import.h - imports checkpoints quantized by other programs as packed weights.  Private
 * to the folders of checkpoint.
 *
 *   quantization_config --tsr_import_open--> a row of the table of importers
 *   PREFIX.qweight, ... --tsr_import_linear--> tsr_model_packed: tessera.int/1, table/1, mx/1 or lut/1 if
 *                                              one of them holds the same values, else F32, with a log line
 *
 * Each importer is one file of this folder.  Codes are bit streams, processed one row of the matrix at a
 * time; besides the result, one stored tensor of a linear is in memory.  model.c walks over a model.
 */
#ifndef TSR_CHECKPOINT_IMPORT_IMPORT_H
#define TSR_CHECKPOINT_IMPORT_IMPORT_H

#include "base/json.h"
#include "model/bind.h"
#include "model/packed.h"

#define TSR_IMPORT_REASONS 8 /* why something was widened, or is worth a line */

struct tsr_import;

/* What one writer's checkpoints are read by. */
struct tsr_importer {
    const char *method;  /* quant_method */
    const char *summary; /* for messages */
    /* Reads the configuration into im->own (freed by close, which may be NULL). */
    tsr_status (*open)(struct tsr_import *im);
    void (*close)(void *own);
    /* The linear `name` of rows x cols; *out stays NULL if it is stored unquantized. */
    tsr_status (*read)(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                       struct tsr_model_packed **out);
};

struct tsr_import {
    const struct tsr_importer    *kind;
    const json_t                 *config; /* quantization_config */
    char                         *where;  /* the file and what in it, for messages; owned */
    struct tsr_checkpoint_shards *shards;
    struct tsr_hasher            *hash;         /* hash of the bytes read; may be NULL */
    bool                          headers_only; /* codes are not read, formats are known */
    bool                          again;        /* read before: nothing is logged or counted */
    void                         *own;          /* the writer's options */
    uint64_t                      linears, packed;
    struct {
        const char *text;
        uint64_t    n;
    } reason[TSR_IMPORT_REASONS];
    struct tsr_err *err;
};

/* config: a quantization_config; file: the file that contains it, for messages; both outlive im. */
tsr_status tsr_import_open(struct tsr_import *im, const json_t *config, const char *file,
                           struct tsr_checkpoint_shards *shards, struct tsr_err *err);
/* One linear; marks its tensors as imported. */
tsr_status tsr_import_linear(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                             struct tsr_model_packed **out);
/* Says what was widened and why, in a line each. */
void tsr_import_say(struct tsr_import *im);
void tsr_import_close(struct tsr_import *im);

/* Reads the quantized linears of a folder into m->packed, which stays NULL if there is no
 * quantization_config in c or quantize_config.json in the folder.  b has config, shards, model,
 * folder, err.  reader: every linear is read, checked and hashed, but linears of layers keep their
 * bytes only while their layer is open; NULL: all stay. */
tsr_status tsr_import_model(struct tsr_model_binding *b, struct tsr_hasher *hash, bool headers_only,
                            struct tsr_model_layer_reader *reader);

/* ---- tensors (tensor.c) ------------------------------------------------------ */

/* NAME.SUFFIX (NAMESUFFIX if suffix starts with '_'), or NULL. */
struct tsr_checkpoint_stored *tsr_import_find(const struct tsr_import *im, const char *name,
                                              const char *suffix);
/* The same, which must be there with one of the dtypes ("F16 BF16") and this shape.  It counts as
 * used from then on. */
tsr_status tsr_import_need(struct tsr_import *im, const char *name, const char *suffix,
                           const char *dtypes, uint32_t rank, const uint64_t *shape,
                           struct tsr_checkpoint_stored **out);
/* Takes a tensor into the model's hash, as used. */
void tsr_import_take(struct tsr_import *im, struct tsr_checkpoint_stored *e);
/* "FILE: tensor "X" ..." and TSR_E_INPUT. */
tsr_status tsr_import_fail(struct tsr_import *im, const struct tsr_checkpoint_stored *e,
                           const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* All bytes of a tensor, fresh memory. */
tsr_status tsr_import_bytes(struct tsr_import *im, const struct tsr_checkpoint_stored *e,
                            void **out);
/* All elements of a tensor of F32, F16, BF16, F8_E4M3 or U8 as floats, fresh memory; one that is
 * not finite is TSR_E_INPUT. */
tsr_status tsr_import_floats(struct tsr_import *im, const struct tsr_checkpoint_stored *e,
                             float **out);
/* The biased scales of an E8M0 tensor; NaN is TSR_E_INPUT.  *out is set on error too. */
tsr_status tsr_import_e8m0(struct tsr_import *im, const struct tsr_checkpoint_stored *e,
                           uint8_t **out);
uint64_t   tsr_import_elements(const struct tsr_checkpoint_stored *e);
float      tsr_import_fp8(unsigned code); /* E4M3 without infinities: 0x7f and 0xff are NaN */
/* Counts a reason to report when the import is done; text is a literal. */
void tsr_import_note(struct tsr_import *im, const char *text);

/* ---- packing (pack.c) -------------------------------------------------------- */

/* Codes of rows [first, first+n) as bit streams, `stride` bytes a row, from the stored form. */
typedef void (*tsr_import_rows)(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                                uint64_t stride);
#define TSR_IMPORT_ROWS 16u /* at most so many at once: a line of cache of 32-bit columns */

/* A matrix w = (code - zero) * scale as the writer stores it. */
struct tsr_import_int {
    uint32_t        bits;
    uint64_t        group;  /* columns that share a scale; 0: all */
    const float    *scales; /* [rows, groups] */
    bool            f16;    /* the scales are F16 values */
    const uint8_t  *zeros;  /* [rows, groups]; NULL: 2^(bits-1) everywhere */
    const uint32_t *order;  /* [cols] group of each column, if it is not k / group; or NULL */
    uint64_t        act8;
    double          act8_threshold;
    tsr_import_rows rows;
    const void     *source;
};
/* s->source may be NULL with headers_only. */
tsr_status tsr_import_put_int(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                              const struct tsr_import_int *s, struct tsr_model_packed **out);
/* Elements with power-of-two scales; scales: [rows, groups] biased bytes. */
tsr_status tsr_import_put_mx(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                             uint32_t element, uint64_t group, const uint8_t *scales,
                             tsr_import_rows codes, const void *source,
                             struct tsr_model_packed **out);
/* FP8 (E4M3) codes, times a scale for each group; 0: the row.  scales: [rows, groups]. */
tsr_status tsr_import_put_fp8(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                              uint64_t group, const float *scales, tsr_import_rows codes,
                              const void *source, struct tsr_model_packed **out);
/* w = table[code] * scale: a table of 2^bits values for all rows, and a scale for each group. */
struct tsr_import_table {
    uint32_t        bits;
    uint64_t        group; /* columns that share a scale, as tessera.table/1 has them; 0: all */
    const float    *table;
    const float    *scales;   /* [rows, groups] */
    const uint8_t  *elements; /* instead of them: E4M3 codes [rows, groups], over the divisor */
    float           divisor;
    tsr_import_rows rows;
    const void     *source;
};
tsr_status tsr_import_put_table(struct tsr_import *im, const char *name, uint64_t rows,
                                uint64_t cols, const struct tsr_import_table *t,
                                struct tsr_model_packed **out);
/* The values: rows() writes floats, stride bytes a row.  why goes to the log. */
tsr_status tsr_import_put_wide(struct tsr_import *im, const char *name, uint64_t rows,
                               uint64_t cols, tsr_import_rows values, const void *source,
                               const char *why, struct tsr_model_packed **out);
/* Codes of a bit stream from bit `at` on, one a byte, and back; streams end in zero bits. */
void tsr_import_unpack(const void *stream, uint64_t at, uint32_t bits, uint64_t n, uint8_t *codes);
void tsr_import_pack(const uint8_t *codes, uint32_t bits, uint64_t n, void *stream);

/* ---- names and rules (rules.c) ----------------------------------------------- */

/* A list of patterns of module names, each anchored at its start as Python's re.match(). */
struct tsr_import_rule {
    void *code; /* compiled, or NULL for an exact name */
    char *text;
};
tsr_status tsr_import_rule_init(struct tsr_import *im, struct tsr_import_rule *r, const char *text,
                                bool regex);
tsr_status tsr_import_rule_match(struct tsr_import *im, const struct tsr_import_rule *r,
                                 const char *name, bool *yes);
void       tsr_import_rule_free(struct tsr_import_rule *r);

/* ---- writers ------------------------------------------------------------------------ */

extern const struct tsr_importer tsr_importer_gptq, tsr_importer_awq, tsr_importer_ct,
    tsr_importer_bnb, tsr_importer_mxfp4, tsr_importer_fp8;

#endif
