/* quant/block_internal.h - shared by block.c (search), block_sites.c (what an instance sees), block_inputs.c (inputs
 * of experts), block_loss.c, block_fold.c and block_turn.c (transforms). */
#ifndef TSR_QUANT_BLOCK_INTERNAL_H
#define TSR_QUANT_BLOCK_INTERNAL_H

#include "quant/block.h"

/* Linears of one instance that read one input; of experts, gate and up of all.  Arrays [shown.n_linears], owned. */
struct block_site {
    enum tsr_site             id;
    char                      name[TSR_MODEL_SITE_TEXT];
    enum tsr_linear_id       *lin;
    const struct tsr_matrix **list; /* into wide */
    float                   **clip; /* owned each */
    struct tsr_block_site     shown;
    struct tsr_quant_stats    stats;  /* that are shown */
    struct tsr_block_choice   choice; /* scale, order and matrix owned */
};

/* The sites of a layer that one instance sees. */
struct block_view {
    const struct tsr_quant_block_job    *job;
    const struct tsr_quantizer          *q;
    const struct tsr_quantizer_block_v1 *table;
    struct tsr_matrix                   *wide; /* [linears]: F32 copies; owned */
    struct tsr_quant_stats       *in;       /* [sites]: the job's, and recorded inputs of experts */
    float                       **recorded; /* [sites]: those inputs; owned */
    uint64_t                      n;
    struct block_site            *site;    /* [n], room for all */
    const struct tsr_block_site **sites;   /* [n] */
    struct tsr_block_choice     **choices; /* [n] */
    float *original[2]; /* outputs of attention and feed-forward; owned, computed on demand */
};

/* block_sites.c */
tsr_status block_view_new(struct block_view *v, struct tsr_err *err);
void       block_view_free(struct block_view *v);
/* An F32 copy of w. */
tsr_status block_widen(const struct tsr_matrix *w, struct tsr_matrix *wide, struct tsr_err *err);
/* The view's site that a linear belongs to. */
enum tsr_site block_site_of(uint64_t id);
/* All present linears of the site are this instance's, or routers that can follow. */
bool block_owns_site(const struct block_view *v, enum tsr_site site);
/* A router that stays as it is: what its norm is divided by multiplies its columns. */
bool block_follows(const struct tsr_quant_block_job *job, enum tsr_linear_id id);

/* The linear whose rows are the columns of a site with one reader: v of o, up of down. */
enum tsr_linear_id block_from(const struct block_site *s);

/* block_turn.c: what a site takes in addition to a scale, and room for the answer. */
tsr_status block_offer(const struct block_view *v, struct block_site *s, struct tsr_err *err);
/* Whether the answer is a transform that the site takes. */
tsr_status block_check_turn(const struct block_view *v, uint64_t at, struct tsr_err *err);
/* The answer into f->turn and into the view's weights. */
tsr_status block_turn(struct block_view *v, uint64_t at, struct tsr_quant_block_fold *f,
                      struct tsr_err *err);

/* block_inputs.c: the inputs of the experts' downs, which calibration does not record. */
tsr_status block_inputs(struct block_view *v, struct tsr_err *err);

/* block_loss.c: tsr_block.loss, ctx is the view. */
tsr_status block_loss(void *ctx, uint64_t site, const struct tsr_matrix *const *linears,
                      double *mse, struct tsr_err *err);
/* block_fold.c: applies the view's choices, moving its matrices into f. */
tsr_status block_fold(struct block_view *v, struct tsr_quant_block_fold *f, struct tsr_err *err);

#endif
