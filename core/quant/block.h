/* quant/block.h - the host's side of tessera/quantizer_block.h: passes a decoder layer to a
 * quantizer's block search and folds the results into weights and norms.
 *
 * A site takes a scale when all its linears are quantized by the searching instance and its
 * producer can absorb the inverse scale:
 *
 *   attn_in, ffn_in  the norm before the sub-layer, if nothing else reads its output (not
 *                    after the residual, not if the residual is taken from the norm)
 *   q_b_in, kv_b_in  the norm of latent attention's row
 *   o_in             v, of the same instance, with one head per query head and no bias; not in
 *                    latent attention, and not after the gated delta rule
 *   down_in          up, of the same instance, without bias; with ReLU if there is no gate, and
 *                    not where the function adds to what up says or a transform follows it
 *
 * Some sites take more (TSR_TAKES_*), if all their linears are of the searching instance:
 *
 *   order     down_in, if gate and up are of the same instance, without biases
 *   matrices  o_in, if v is, without bias; where rotate can rotate the values of heads
 *   Hadamard  down_in of a layer without experts, in runs of at least 16 columns; queries and keys where
 *             rotate can rotate keys.  Not on top of the transforms of a rotated model
 *
 * attn_in has all linears that read the norm.  In a layer with experts, ffn_in has gate and up of
 * all experts, and each expert's down is a site.  A router reads the norm of ffn_in, too: one that is not
 * quantized becomes a matrix of F32 with scaled columns.
 */
#ifndef TSR_QUANT_BLOCK_H
#define TSR_QUANT_BLOCK_H

#include "quant/calibrate.h"
#include "rotate/transform.h"
#include "tessera/quantizer_block.h"

/* One layer as the scheme quantizes it. */
struct tsr_quant_block_job {
    struct tsr_registry               *registry;
    const struct tsr_model            *model;
    uint64_t                           layer;
    const struct tsr_quantizer *const *q; /* [linears], NULL: stays; one instance, one pointer */
    const struct tsr_quant_stats *
        stats; /* [sites], all that tsr_quant_block_need() names; inputs of experts are not needed */
    uint64_t           sequence; /* rows of recorded inputs that are one sequence */
    struct tsr_stream *stream;   /* the original layer is open in it */
};

/* The changed layer.  Its linears must be quantized from `lin`, with `stats` of tsr_quant_block_stats(),
 * and its norms go into the overlay. */
struct tsr_quant_block_fold {
    uint64_t           linears, sites;
    struct tsr_matrix *lin; /* [linears]: F32, scaled and clamped; data NULL: the model's.  One that
                             * is not quantized is a router whose input is divided */
    struct tsr_model_norm norm[TSR_MODEL_OVERLAY_NORMS]; /* arrays [cols]; gain NULL: the model's */
    float               **scale;       /* [sites]: [cols], what divides the inputs; NULL: 1 */
    struct tsr_rotate_transform *turn; /* [sites]: of the divided inputs; owned */
    uint32_t                     keys; /* columns of a run of queries and keys; 0: no transform */
};
void tsr_quant_block_fold_free(struct tsr_quant_block_fold *f);

/* True for a quantizer with a block search. */
bool tsr_quant_block_searches(const struct tsr_quantizer *q);

/* TSR_NEED_* of all block tables among q [linears]; any: whether a block table exists. */
uint64_t tsr_quant_block_need(const struct tsr_quantizer *const *q, uint64_t linears, bool *any);

/* Runs the search of every instance that has a table and fills f, which is empty if no instance
 * changes anything.  Missing statistics are TSR_E_INPUT; an invalid scale or clip is
 * TSR_E_UNSUPPORTED with its place.  [setup] */
tsr_status tsr_quant_block_search(const struct tsr_quant_block_job *job,
                                  struct tsr_quant_block_fold *f, struct tsr_err *err);

/* Whether a site's inputs are scaled or transformed. */
bool tsr_quant_block_changes(const struct tsr_quant_block_fold *f, enum tsr_site site);

/* The statistics of a site's inputs, scaled and transformed: fresh arrays for those in `in` (except
 * sensitivity, which is of the weights), freed by tsr_quant_block_stats_free(); if the site's inputs stay,
 * `in` itself.  After matrices or a Hadamard transform the largest, mean |x| and variance are those of the
 * recorded inputs; without any there are none. */
tsr_status tsr_quant_block_stats(const struct tsr_quant_block_fold *f, enum tsr_site site,
                                 const struct tsr_quant_stats *in, struct tsr_pool *pool,
                                 struct tsr_quant_stats *out, struct tsr_err *err);
void       tsr_quant_block_stats_free(struct tsr_quant_stats *s);

#endif
