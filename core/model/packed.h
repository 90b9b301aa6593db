/* model/packed.h - packed weights: matrices in the layouts of tessera/format.h, and the overlay that
 * holds those of a model.
 *
 * The model's tensors stay unchanged; the engine uses packed weights where they exist.
 */
#ifndef TSR_MODEL_PACKED_H
#define TSR_MODEL_PACKED_H

#include "base/err.h"
#include "model/model.h"
#include "tessera/format.h"

/* How a matrix was packed; NAN: not known. */
struct tsr_model_pack_report {
    double   seconds;
    double   loss, rtn_loss; /* e H e^T of the plugin, and of rounding to nearest */
    double   damping;        /* used, in units of the Hessian's mean diagonal */
    uint64_t retries;        /* of the damping */
};

/* Where rows lie in a format that is not one of ours: in units that the plugin alone can take apart (own.h). */
struct tsr_model_own {
    uint64_t unit;                   /* rows of a unit; 0: one of our formats, or dense values */
    uint64_t code_bytes, meta_bytes; /* of a unit */
    uint64_t units;                  /* that are here, in codes and meta */
    uint64_t first;      /* the row of the whole matrix that the first unit starts with */
    uint64_t skip;       /* rows of the first unit before row 0 */
    uint64_t col;        /* the column of the whole matrix that is column 0 */
    uint64_t rows, cols; /* of the whole matrix */
    char    *use;        /* "org.example.trellis/trellis:bits=2": what packed them; owned */
    void    *prepared;   /* by its kernel (own.h), or NULL; owned */
    uint64_t prepared_bytes;
};

/* One packed matrix, in the plain row-major layout of tessera/format.h.  If format.id is not one of ours, own says
 * where its rows lie, or dense holds what the plugin decoded (files before November 2026, and quantizers that no
 * registry has).  If it is ordered (GPTQ's act-order), the layout's column j is the matrix's column order[j]:
 * x is permuted to that order before the product. */
struct tsr_model_packed {
    struct tsr_format            format;
    uint64_t                     rows, cols;
    void                        *codes, *meta; /* rows * stride bytes each, or own's units; owned */
    uint64_t                     code_stride, meta_stride; /* own: 0 */
    struct tsr_model_own         own;
    float                       *dense;   /* [rows, cols] or NULL; owned */
    bool                         ordered; /* columns are permuted */
    uint32_t                    *order;   /* [cols] or NULL while the bytes are not there; owned */
    char                        *plugin;  /* "rtn", for reports; owned */
    char                        *format_id;     /* what format.id points to; owned */
    double                       squared_error; /* sum over (w - dequantized)^2 */
    uint32_t                     source_dtype;  /* of the matrix that was packed */
    struct tsr_model_pack_report report;
    uint64_t segment; /* slice.h: columns of a segment of the whole; 0: it is whole */
};

/* Stored bytes, in memory and in files: codes, meta and order, or dense values; bits per weight is
 * 8*bytes/(rows*cols).  Once they are prepared, those in memory. */
uint64_t tsr_model_packed_bytes(const struct tsr_model_packed *p);
/* Of codes and of meta alone. */
uint64_t tsr_model_packed_codes(const struct tsr_model_packed *p);
uint64_t tsr_model_packed_meta(const struct tsr_model_packed *p);
void     tsr_model_packed_drop(
        struct tsr_model_packed *p); /* frees the weights; shape and format stay */
void tsr_model_packed_destroy(struct tsr_model_packed *p); /* frees p too; NULL is allowed */

/* Norms of a layer that take a folded scale (quantizer_block.h); the last two are of latent attention's rows. */
enum tsr_overlay_norm {
    TSR_MODEL_OVERLAY_ATTN_IN,
    TSR_MODEL_OVERLAY_FFN_IN,
    TSR_MODEL_OVERLAY_Q_B_IN,
    TSR_MODEL_OVERLAY_KV_B_IN,
    TSR_MODEL_OVERLAY_NORMS
};
/* The site whose input the norm is, and the model's own norm. */
enum tsr_site                tsr_model_overlay_norm_site(enum tsr_overlay_norm which);
const struct tsr_model_norm *tsr_model_overlay_norm_of(const struct tsr_model_layer *l,
                                                       enum tsr_overlay_norm         which);

/* Packed weights of a model: NULL for unpacked ones. */
struct tsr_model_overlay {
    uint64_t                   layers, linears, sites;
    struct tsr_model_packed ***lin; /* [layers][linears] */
    struct tsr_model_packed   *head;
    struct tsr_model_packed   *embed; /* of a tied model, only if the head is packed; may be it */
    struct tsr_model_norm (
        *norm)[TSR_MODEL_OVERLAY_NORMS]; /* [layers]; arrays [cols] owned, NULL: original */
    /* [layers][sites]: the factors that multiplied the columns of the site's linears before packing, and
     * divided the rows of the linear that produces its input; [cols], owned; NULL: 1.  Experts' FFN_IN have
     * those of the layer's. */
    float ***scale;
    /* [layers][sites]: 1: the columns of the site's linears were reordered or multiplied by orthogonal matrices
     * before packing, and the rows of what produces its input */
    uint8_t **turned;
    /* [layers]: transforms that run with a layer because of its packed weights, in addition to those of hp.online;
     * keys and down alone */
    struct tsr_model_online *online;
};
/* What the packed weights of a layer transform, "keys" or "inputs of ..."; NULL: nothing. */
const char *tsr_model_overlay_turned(const struct tsr_model_overlay *o, uint64_t layer);
/* Whether transforms run with a layer because of its packed weights. */
bool tsr_model_overlay_is_online(const struct tsr_model_overlay *o);
/* The factors of a site, or NULL: 1. */
static inline const float *tsr_model_overlay_scale(const struct tsr_model_overlay *o,
                                                   uint64_t layer, enum tsr_site site)
{
    return o->scale[layer][tsr_model_site_columns(site)];
}
/* Frees folded norms and scales of a layer. */
void tsr_model_overlay_drop_folds(struct tsr_model_overlay *o, uint64_t layer);
/* linears: of a layer, as in struct tsr_model_hparams. */
tsr_status tsr_model_overlay_create(struct tsr_model_overlay **o, uint64_t layers, uint64_t linears,
                                    struct tsr_err *err);
void       tsr_model_overlay_destroy(struct tsr_model_overlay *o);
/* Sizes of the decoder linears (head and embedding if packed) under the overlay (NULL: original):
 * weights counts elements, bytes their storage. */
void tsr_model_overlay_size(const struct tsr_model *m, const struct tsr_model_overlay *o,
                            uint64_t *weights, uint64_t *bytes);
/* Where the bytes of a model's matrices go. */
struct tsr_model_sizes {
    uint64_t weights; /* elements */
    uint64_t codes;
    uint64_t scales; /* with zero points */
    uint64_t tables; /* of tessera.lut/1, a table for each row, with its outliers */
    uint64_t order;  /* of permuted columns */
    uint64_t
        unpacked; /* matrices in their own dtype, and those of plugins' formats that are stored as F32 */
};
/* Of the matrices that tsr_model_overlay_size_like() counts; the parts add up to its bytes. */
void tsr_model_overlay_sizes_like(const struct tsr_model *m, const struct tsr_model_overlay *o,
                                  const struct tsr_model_overlay *like, struct tsr_model_sizes *s);
/* Counts head and embedding also where `like` packs them, so that sizes of two models cover the same matrices.
 * A tied head that is not packed adds no bytes: they are the embedding's. */
void tsr_model_overlay_size_like(const struct tsr_model *m, const struct tsr_model_overlay *o,
                                 const struct tsr_model_overlay *like, uint64_t *weights,
                                 uint64_t *bytes);

/* True for a format of tessera/format.h whose parameters are allowed.  The functions below take
 * known formats only. */
bool tsr_model_format_known(const struct tsr_format *f);
/* False if rows of cols columns cannot have it: more outliers than columns. */
bool tsr_model_format_fits(const struct tsr_format *f, uint64_t cols);
/* Bytes of one row; the format fits cols. */
uint64_t tsr_model_format_code_bytes(const struct tsr_format *f, uint64_t cols);
uint64_t tsr_model_format_meta_bytes(const struct tsr_format *f, uint64_t cols);
/* What is wrong with a row's meta, or NULL. */
const char *tsr_model_format_row_check(const struct tsr_format *f, uint64_t cols, const void *meta);
/* Decoder of one row. */
void tsr_model_format_decode_row(const struct tsr_format *f, uint64_t cols, const void *codes,
                                 const void *meta, float *dst);
/* True if `act: a8` means int8 activations for rows of cols columns.  False for float, and for LLM.int8
 * if rows are too long for its sums; these run as f32 (docs/decisions/numerics.md). */
bool tsr_model_format_a8(const struct tsr_format *f, uint64_t cols);
/* "tessera.mx/1 with fp4_e2m1": for messages. */
void tsr_model_format_name(const struct tsr_format *f, char *buf, size_t cap);

/* What is wrong with p->order as an order of its columns, or NULL; scratch: cols zero bytes. */
const char *tsr_model_packed_order_check(const struct tsr_model_packed *p, unsigned char *scratch);
/* Rows [first, first+rows) as F32, columns in matrix order: p->dense, one of our formats through the core's
 * reference decoder, or a plugin's own through its dequantize() (own.h).  [any] */
tsr_status tsr_model_packed_dequantize(const struct tsr_model_packed *p, uint64_t first,
                                       uint64_t rows, float *dst, struct tsr_err *err);

#endif
