/* quant/quant.h - runs quantizer plugins over a model's linears and keeps the result.
 *
 * A scheme says which plugin with which options quantizes which linear.  The result is an
 * overlay: the model stays as it is, the engine takes packed weights where there are some.
 */
#ifndef TSR_QUANT_QUANT_H
#define TSR_QUANT_QUANT_H

#include "base/err.h"
#include "model/model.h"
#include "plugin/registry.h"

/* How a matrix was packed; NAN: not known. */
struct tsr_pack_report {
    double   seconds;
    double   loss, rtn_loss; /* e H e^T of the plugin, and of rounding to nearest */
    double   damping;        /* used, in units of the Hessian's mean diagonal */
    uint64_t retries;        /* of the damping */
};

/* One packed matrix, in the plain row-major layout of tessera/format.h.  If format.id is
 * none of ours, dense holds the plugin's own dequantization. */
struct tsr_packed {
    struct tsr_format      format;
    uint64_t               rows, cols;
    void                  *codes, *meta; /* rows * stride bytes each; owned */
    uint64_t               code_stride, meta_stride;
    float                 *dense;         /* [rows, cols] or NULL; owned */
    char                  *plugin;        /* "rtn", for reports; owned */
    char                  *format_id;     /* what format.id points to; owned */
    double                 squared_error; /* sum over (w - dequantized)^2 */
    uint32_t               source_dtype;  /* of the matrix that was packed */
    struct tsr_pack_report report;
};

/* Bytes of codes and meta; bits per weight is 8*bytes/(rows*cols). */
uint64_t tsr_packed_bytes(const struct tsr_packed *p);
void     tsr_packed_destroy(struct tsr_packed *p); /* frees p too; NULL is fine */

/* Norms of a layer that take a folded scale (quantizer_block.h). */
enum tsr_overlay_norm { TSR_OVERLAY_ATTN_IN, TSR_OVERLAY_FFN_IN, TSR_OVERLAY_NORMS };

/* Packed weights of a model: NULL where the original stays. */
struct tsr_overlay {
    uint64_t layers;
    struct tsr_packed *(*lin)[TSR_LINEARS]; /* [layers] */
    struct tsr_packed *head;
    struct tsr_norm (
        *norm)[TSR_OVERLAY_NORMS]; /* [layers]; arrays [hidden] owned, NULL: original */
};
tsr_status tsr_overlay_create(struct tsr_overlay **o, uint64_t layers, struct tsr_err *err);
void       tsr_overlay_destroy(struct tsr_overlay *o);
/* Sizes of the decoder linears (and head if packed) under the overlay (NULL: original):
 * weights counts elements, bytes what they take. */
void tsr_overlay_size(const struct tsr_model *m, const struct tsr_overlay *o, uint64_t *weights,
                      uint64_t *bytes);

/* A created quantizer. */
struct tsr_quantizer {
    const struct tsr_quantizer_v1 *iface;
    void                          *self;
    const char                    *name;
};

/* False: quantize() gets tensors of this dtype as F32. */
bool tsr_quantizer_reads(const struct tsr_quantizer *q, uint32_t dtype);
/* The plan for a tensor like w (its data is not read) as quantize() would get it.
 * TSR_E_UNSUPPORTED with the reason. */
tsr_status tsr_quantizer_plan(const struct tsr_quantizer *q, const struct tsr_matrix *w,
                              struct tsr_quant_plan *plan, struct tsr_err *err);
/* Quantizes one matrix: plan, allocate, prepare, quantize rows in parallel on the registry's
 * pool, dequantize for the error.  stats may be NULL if the plan needs none. */
tsr_status tsr_quantize_matrix(struct tsr_registry *r, const struct tsr_quantizer *q,
                               const struct tsr_matrix *w, const struct tsr_quant_stats *stats,
                               struct tsr_packed **out, struct tsr_err *err);
/* The same inside an open prepare(): prepared is what iface->prepare() gave for the linears that
 * share these stats, or NULL.  The caller checks the need. */
tsr_status tsr_quantize_prepared(struct tsr_registry *r, const struct tsr_quantizer *q,
                                 const struct tsr_matrix *w, const struct tsr_quant_stats *stats,
                                 const void *prepared, struct tsr_packed **out,
                                 struct tsr_err *err);
/* TSR_E_INPUT naming the first of `need` that stats (may be NULL) lacks or that was taken over
 * another number of columns.  name is the linear. */
tsr_status tsr_quant_need_check(uint64_t need, const struct tsr_quant_stats *stats, uint64_t cols,
                                const char *plugin, const char *name, struct tsr_err *err);
/* What to collect for a plan's need: of TSR_NEED_IF_THERE what calibration can give. */
uint64_t tsr_quant_need_collect(uint64_t need);
/* stats with everything that is not needed set to NULL, as a quantizer is to see it. */
struct tsr_quant_stats tsr_quant_stats_for(uint64_t need, const struct tsr_quant_stats *stats);

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
/* True where `act: a8` means int8 activations for rows of cols columns; where it does not, they run
 * as f32 (docs/decisions/numerics.md). */
bool tsr_format_a8(const struct tsr_format *f, uint64_t cols);
/* "tessera.mx/1 with fp4_e2m1": for people. */
void tsr_format_name(const struct tsr_format *f, char *buf, size_t cap);

/* Rows [first, first+rows) as F32, through the plugin or, for formats of ours, the core's
 * reference decoder. */
tsr_status tsr_packed_dequantize(const struct tsr_packed *p, const struct tsr_quantizer *q,
                                 uint64_t first, uint64_t rows, float *dst, struct tsr_err *err);

/* ---- calibration -------------------------------------------------------- */

/* Statistics of the inputs of every linear.  Linears that share an input (q,k,v; gate,up)
 * share an entry. */
enum tsr_site { TSR_SITE_ATTN_IN, TSR_SITE_O_IN, TSR_SITE_FFN_IN, TSR_SITE_DOWN_IN, TSR_SITES };
enum tsr_site tsr_linear_site(enum tsr_linear_id id);

/* The moments (absmax, mean, variance, mean |x|) of all layers are resident; Hessians and
 * recorded inputs, which are large, are asked for layer by layer (calibrate.h). */
struct tsr_calibration {
    uint64_t layers;
    struct tsr_quant_stats (*site)[TSR_SITES]; /* [layers]; moments only; arrays owned; NULL when
                                                * all was deferred */
    uint64_t                       sequences, seqlen, tokens;
    uint32_t                      *ids;      /* [sequences][seqlen]: what was run; owned */
    char                           hash[48]; /* over model, tokens and options */
    struct tsr_calibration_source *source;   /* calibrate.c's own; NULL: nothing but the moments */
    double run_seconds, hessian_seconds; /* spent so far: forward passes and moments, Hessians */
};
void tsr_calibration_destroy(struct tsr_calibration *c);

#endif
