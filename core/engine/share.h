/* engine/share.h - what one of several ranks has of every layer (tensor parallelism).
 *
 *   q k v      whole heads, with their KV heads: rows; of latent attention q_b and kv_b
 *   q_a kv_a   all
 *   z b a      of these heads' values; the channels of a convolution that they read, and a state for each
 *   gate up    some of the feed-forward, or of each expert: rows
 *   an expert  all of it, where experts are whole: of some experts; its gate, up and down
 *   router     all, and the score of the shared expert
 *   o down     the columns that take these: the ranks' products are added
 *
 * The cuts of o and down (model/packed_slice.h) decide; rows follow them.
 */
#ifndef TSR_ENGINE_SHARE_H
#define TSR_ENGINE_SHARE_H

#include "model/packed_slice.h"

struct tsr_engine_share {
    uint32_t               rank, ranks;
    uint32_t               head, heads;          /* first, and how many */
    uint32_t               kv_head, kv_heads;    /* first, and how many */
    uint32_t               key_head, value_head; /* the first of the delta rule's heads ... */
    struct tsr_model_delta delta;                /* ... and the sizes of what is here */
    uint64_t               ffn_at, ffn;          /* first row of gate and up, and how many */
    uint64_t               expert_at, expert;    /* the same of each expert's */
    uint64_t               shared_at, shared;    /* the same of the expert that every token takes */
    bool                   whole_experts;
    uint32_t first_expert, n_experts; /* whose weights it has: all, unless experts are whole */
};

/* Columns of gate and up for each of `chunk` tokens, so that all experts of one token, `used` of width `expert`, fit into
 * the rows together.  [any] */
static inline uint64_t tsr_engine_expert_columns(uint64_t used, uint64_t expert, uint64_t chunk)
{
    uint64_t each = (used * expert + chunk - 1) / chunk;
    return each > expert ? each : expert;
}

/* True for o and down, also of an expert: ranks share their columns. */
static inline bool tsr_engine_is_row_parallel(enum tsr_linear_id id)
{
    enum tsr_linear_id kind = tsr_model_linear_kind(id);
    return kind == TSR_MODEL_O || kind == TSR_MODEL_DOWN;
}

/* The share of rank `rank` of `ranks`; whole_experts: as in struct tsr_engine_tp.  TSR_E_CONFIG, with the reason and the rank counts that
 * work, if the ranks cannot share a layer.  [any] */
tsr_status tsr_engine_share_of(const struct tsr_model_hparams *hp, uint32_t rank, uint32_t ranks,
                               bool whole_experts, struct tsr_engine_share *s, struct tsr_err *err);

/* A rank's part of a linear of a layer, without rows where it has nothing of it; p: its packed weights, or NULL.
 * TSR_E_CONFIG if their format does not
 * allow the split.  [any] */
tsr_status tsr_engine_share_linear(const struct tsr_engine_share  *s,
                                   const struct tsr_model_hparams *hp, uint64_t layer,
                                   enum tsr_linear_id id, const struct tsr_matrix *w,
                                   const struct tsr_model_packed *p, struct tsr_model_slice *part,
                                   struct tsr_err *err);

#endif
