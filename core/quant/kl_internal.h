/* quant/kl_internal.h - between the pass over the layers (kl_run.c) and hidden states on their way to a KL
 * (kl_states.c). */
#ifndef TSR_QUANT_KL_INTERNAL_H
#define TSR_QUANT_KL_INTERNAL_H

#include "engine/stream.h"
#include "quant/kl.h"

/* Hidden states of the sequences that KL is measured on. */
struct tsr_kl_states {
    const struct tsr_model             *model;
    const struct tsr_quant_calibration *c;
    struct tsr_registry                *registry;
    struct tsr_pool                    *pool;
    struct tsr_stream                  *stream;
    uint64_t                            sequences, step; /* step: floats of a sequence */
    float                              *end;           /* [sequences][step] of the original, last */
    float                              *base, *logits; /* [TSR_KL_ROWS, vocab] */
    double                             *kl;            /* [TSR_KL_ROWS] */
    double                             *mean;          /* [sequences] */
};
#define TSR_KL_ROWS 64u

/* Runs the original once, which fills `end`.  Closed by the caller, also after an error.  [setup] */
tsr_status tsr_kl_states_open(struct tsr_kl_states *s, struct tsr_registry *r,
                              const struct tsr_model *m, const struct tsr_quant_calibration *c,
                              uint64_t sequences, struct tsr_err *err);
void       tsr_kl_states_close(struct tsr_kl_states *s); /* zeroed or filled */
/* A set [sequences][step] after the embedding. */
tsr_status tsr_kl_states_embed(struct tsr_kl_states *s, float *h, struct tsr_err *err);
/* One layer, of o or the original, over a set. */
tsr_status tsr_kl_states_layer(struct tsr_kl_states *s, uint64_t layer,
                               const struct tsr_model_overlay *o, const float *in, float *out,
                               struct tsr_err *err);
/* The originals of layers [first, L), in place. */
tsr_status tsr_kl_states_rest(struct tsr_kl_states *s, uint64_t first, float *h,
                              struct tsr_err *err);
/* KL of the original's predictions to those after h, rows after the last layer. */
tsr_status tsr_kl_states_score(struct tsr_kl_states *s, const float *h, struct tsr_kl_figure *f,
                               struct tsr_err *err);
/* The same where a head other than the original's predicts; NULL: the original's. */
tsr_status tsr_kl_states_score_by(struct tsr_kl_states *s, struct tsr_engine *head, const float *h,
                                  struct tsr_kl_figure *f, struct tsr_err *err);
/* All sequences through an engine of one slot, to a set of hidden states. */
tsr_status tsr_kl_states_run(struct tsr_kl_states *s, struct tsr_engine *e, float *h,
                             struct tsr_err *err);
/* The whole original with embedding and head packed by a quantizer (kl_ends.c); h: room for a set. TSR_E_INPUT where it
 * packs only with statistics of inputs, which the ends have none of. */
tsr_status tsr_kl_states_ends(struct tsr_kl_states *s, const char *quantizer, float *h,
                              struct tsr_kl_figure *f, struct tsr_err *err);
/* The whole original packed by a scheme of opt, with each of opt->k channels compensated: left[n_k], the share of its KL that
 * is left; h: room for a set (kl_kept.c). */
tsr_status tsr_kl_states_kept(struct tsr_kl_states *s, struct tsr_quant_calibration *c,
                              const struct tsr_quant_kl_options *opt, uint32_t scheme, float *h,
                              struct tsr_kl_figure *left, struct tsr_err *err);
/* A set as a codec brings it to the next stage, in place. */
tsr_status tsr_kl_states_send(struct tsr_kl_states *s, const char *codec, uint64_t layer, float *h,
                              struct tsr_err *err);
/* The whole original with a type of cache, or with its sums through a codec; h: room for a set. */
tsr_status tsr_kl_states_engine(struct tsr_kl_states *s, uint32_t kv, const char *sum,
                                uint32_t ranks, float *h, struct tsr_kl_figure *f,
                                struct tsr_err *err);

#endif
