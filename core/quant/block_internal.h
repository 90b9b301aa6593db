/* quant/block_internal.h - shared by block.c (search), block_loss.c and block_fold.c. */
#ifndef TSR_QUANT_BLOCK_INTERNAL_H
#define TSR_QUANT_BLOCK_INTERNAL_H

#include "quant/block.h"

/* The sites of a layer that one instance sees. */
struct block_view {
    const struct tsr_quant_block_job    *job;
    const struct tsr_quantizer          *q;
    const struct tsr_quantizer_block_v1 *table;
    struct tsr_matrix                    wide[TSR_MODEL_LINEARS]; /* F32 copies; owned */
    uint64_t                             n;
    enum tsr_site                        id[TSR_MODEL_SITES];
    char                                 name[TSR_MODEL_SITES][TSR_MODEL_SITE_TEXT];
    enum tsr_linear_id                   lin[TSR_MODEL_SITES][TSR_MODEL_LINEARS];
    struct tsr_block_site                site[TSR_MODEL_SITES];
    const struct tsr_block_site         *sites[TSR_MODEL_SITES];
    const struct tsr_matrix             *list[TSR_MODEL_SITES][TSR_MODEL_LINEARS];
    struct tsr_quant_stats               stats[TSR_MODEL_SITES];
    struct tsr_block_choice              choice[TSR_MODEL_SITES];
    struct tsr_block_choice             *choices[TSR_MODEL_SITES];
    float                               *clip[TSR_MODEL_SITES][TSR_MODEL_LINEARS]; /* owned */
    float *original[2]; /* outputs of attention and feed-forward; owned, computed on demand */
};

/* block_loss.c: tsr_block.loss, ctx is the view. */
tsr_status block_loss(void *ctx, uint64_t site, const struct tsr_matrix *const *linears,
                      double *mse, struct tsr_err *err);
/* block_fold.c: applies the view's choices, moving its matrices into f. */
tsr_status block_fold(struct block_view *v, struct tsr_quant_block_fold *f, struct tsr_err *err);

#endif
