/* quant/residuals_internal.h - computing residuals: residuals.c computes them, residuals_write.c writes the
 * file. */
#ifndef TSR_QUANT_RESIDUALS_INTERNAL_H
#define TSR_QUANT_RESIDUALS_INTERNAL_H

#include "quant/residuals.h"

#include "checkpoint/packed/packed_model.h"
#include "engine/stream.h"

/* Data of a layer that is kept until the codes of all layers are written. */
struct tsr_quant_residuals_layer {
    uint16_t **scales;  /* [linears] */
    float    **profile; /* [sites][3 * cols]: top, meansq, lost */
};

struct tsr_quant_residuals_work {
    struct tsr_registry                         *r;
    const struct tsr_model                      *m;
    const struct tsr_quant_compensation_options *opt;
    struct tsr_quant_compensation_report        *report;
    struct tsr_packed_index                      index;
    char                                         packed[TSR_HASH_TEXT]; /* of the index */
    struct tsr_model_overlay                    *o;   /* one layer's bytes, all layers' shapes */
    struct tsr_quant_residuals_layer            *out; /* [layers] */
    struct tsr_st_out                           *file;
    struct tsr_stream                           *stream;
    float                                       *h;    /* [sequences][seqlen][hidden] */
    struct tsr_compensate_profile_sums          *sums; /* [sites], of the layer */
    uint8_t        *borrowing; /* [experts] that no token took, while the tap sees all
                                                             * tokens through them; else NULL */
    uint64_t        layer;
    struct tsr_err *err;
};

/* Routers keep their error. */
static inline bool tsr_quant_residuals_covers(enum tsr_linear_id id)
{
    return id != TSR_MODEL_ROUTER && id != TSR_MODEL_SHARED_ROUTER;
}
bool       tsr_quant_residuals_has_site(const struct tsr_quant_residuals_work *w, uint64_t layer,
                                        enum tsr_site site);
tsr_status tsr_quant_residuals_begin_file(struct tsr_quant_residuals_work *w);
tsr_status tsr_quant_residuals_end_file(struct tsr_quant_residuals_work *w);
tsr_status tsr_quant_residuals_forget_index(const struct tsr_quant_residuals_work *w);
tsr_status tsr_quant_residuals_write_index(const struct tsr_quant_residuals_work *w);
/* Several linears of a site, all packed: their rows are concatenated.  Bytes of one joined row. */
bool tsr_quant_residuals_is_joined(const struct tsr_quant_residuals_work *w, uint64_t layer,
                                   enum tsr_site site, uint64_t *bytes);

#endif
