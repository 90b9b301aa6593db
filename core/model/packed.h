/* model/packed.h - packed weights: matrices in the layouts of tessera/format.h, and the overlay that
 * holds those of a model.
 *
 * The model's tensors stay as they are; the engine takes packed weights where there are some.
 */
#ifndef TSR_MODEL_PACKED_H
#define TSR_MODEL_PACKED_H

#include "base/err.h"
#include "model/model.h"
#include "tessera/format.h"

/* How a matrix was packed; NAN: not known. */
struct tsr_pack_report {
    double   seconds;
    double   loss, rtn_loss; /* e H e^T of the plugin, and of rounding to nearest */
    double   damping;        /* used, in units of the Hessian's mean diagonal */
    uint64_t retries;        /* of the damping */
};

/* One packed matrix, in the plain row-major layout of tessera/format.h.  If format.id is
 * none of ours, dense holds the plugin's own dequantization, codes and meta are NULL and the strides are what
 * a row took in the plugin's layout.  If it is ordered (GPTQ's act-order), the layout's column j is the matrix's column order[j]: x is put into that order before the product. */
struct tsr_packed {
    struct tsr_format      format;
    uint64_t               rows, cols;
    void                  *codes, *meta; /* rows * stride bytes each; owned */
    uint64_t               code_stride, meta_stride;
    float                 *dense;         /* [rows, cols] or NULL; owned */
    bool                   ordered;       /* columns are in an order of their own */
    uint32_t              *order;         /* [cols] or NULL while the bytes are not there; owned */
    char                  *plugin;        /* "rtn", for reports; owned */
    char                  *format_id;     /* what format.id points to; owned */
    double                 squared_error; /* sum over (w - dequantized)^2 */
    uint32_t               source_dtype;  /* of the matrix that was packed */
    struct tsr_pack_report report;
    uint64_t               segment; /* slice.h: columns of a segment of the whole; 0: it is whole */
};

/* Bytes as they are stored, in memory and in files: codes, meta and order, or F32 for a format that is none of
 * ours; bits per weight is 8*bytes/(rows*cols). */
uint64_t tsr_packed_bytes(const struct tsr_packed *p);
/* Bytes as the quantizer wrote them; others than those that are stored for a plugin's own format. */
uint64_t tsr_packed_layout_bytes(const struct tsr_packed *p);
void     tsr_packed_drop(struct tsr_packed *p);    /* frees the weights; shape and format stay */
void     tsr_packed_destroy(struct tsr_packed *p); /* frees p too; NULL is fine */

/* Norms of a layer that take a folded scale (quantizer_block.h). */
enum tsr_overlay_norm { TSR_OVERLAY_ATTN_IN, TSR_OVERLAY_FFN_IN, TSR_OVERLAY_NORMS };
#define TSR_OVERLAY_SITES 4 /* enum tsr_site */

/* Packed weights of a model: NULL where the original stays. */
struct tsr_overlay {
    uint64_t layers;
    struct tsr_packed *(*lin)[TSR_LINEARS]; /* [layers] */
    struct tsr_packed *head;
    struct tsr_packed *embed; /* of a tied model only beside a packed head */
    struct tsr_norm (
        *norm)[TSR_OVERLAY_NORMS]; /* [layers]; arrays [hidden] owned, NULL: original */
    /* [layers]; by site, what the columns of its linears were multiplied by before they were packed, and
     * the rows of the linear that makes its input divided by; [cols], owned; NULL: 1 */
    float *(*scale)[TSR_OVERLAY_SITES];
};
/* Frees folded norms and scales of a layer. */
void       tsr_overlay_drop_folds(struct tsr_overlay *o, uint64_t layer);
tsr_status tsr_overlay_create(struct tsr_overlay **o, uint64_t layers, struct tsr_err *err);
void       tsr_overlay_destroy(struct tsr_overlay *o);
/* Sizes of the decoder linears (head and embedding if packed) under the overlay (NULL: original):
 * weights counts elements, bytes what they take. */
void tsr_overlay_size(const struct tsr_model *m, const struct tsr_overlay *o, uint64_t *weights,
                      uint64_t *bytes);
/* The same, with head and embedding also where `like` packs them, so that sizes of two models are those of the same
 * matrices.  A tied head that is not packed has no bytes beside the embedding's. */
void tsr_overlay_size_like(const struct tsr_model *m, const struct tsr_overlay *o,
                           const struct tsr_overlay *like, uint64_t *weights, uint64_t *bytes);

/* True for a format of tessera/format.h whose parameters are allowed.  The functions below take
 * known formats only. */
bool tsr_format_known(const struct tsr_format *f);
/* False where rows of cols columns cannot have it: more outliers than columns. */
bool tsr_format_fits(const struct tsr_format *f, uint64_t cols);
/* Bytes of one row; the format fits cols. */
uint64_t tsr_format_code_bytes(const struct tsr_format *f, uint64_t cols);
uint64_t tsr_format_meta_bytes(const struct tsr_format *f, uint64_t cols);
/* What is wrong with a row's meta, or NULL. */
const char *tsr_format_row_check(const struct tsr_format *f, uint64_t cols, const void *meta);
/* Decoder of one row. */
void tsr_format_decode_row(const struct tsr_format *f, uint64_t cols, const void *codes,
                           const void *meta, float *dst);
/* True where `act: a8` means int8 activations for rows of cols columns: but for float and for LLM.int8 of
 * rows too long for its sums, which run as f32 (docs/decisions/numerics.md). */
bool tsr_format_a8(const struct tsr_format *f, uint64_t cols);
/* "tessera.mx/1 with fp4_e2m1": for people. */
void tsr_format_name(const struct tsr_format *f, char *buf, size_t cap);

/* What is wrong with p->order as an order of its columns, or NULL; scratch: cols zero bytes. */
const char *tsr_packed_order_check(const struct tsr_packed *p, unsigned char *scratch);
/* Rows [first, first+rows) as F32, columns as the matrix has them: p->dense, or a format of ours by the core's
 * reference decoder. */
tsr_status tsr_packed_dequantize(const struct tsr_packed *p, uint64_t first, uint64_t rows,
                                 float *dst, struct tsr_err *err);

#endif
