/* tessera/quantizer_block.h - optional table of a quantizer, "tessera.quantizer.block/1":
 * choices that look at a whole decoder block before its linears are quantized one by one.
 * AWQ's scale and clip search and SmoothQuant's folding are of this kind.
 *
 * The host shows the block as sites: linears that read the same input, and what makes that
 * input.  The plugin answers with one vector per site: the input's columns are to be divided
 * by it and the weights' columns multiplied, which changes nothing before quantization.  The
 * host folds the division into the producer, scales the weights, clamps them to the clips, and
 * only then calls plan() and quantize().
 */
#ifndef TSR_QUANTIZER_BLOCK_H
#define TSR_QUANTIZER_BLOCK_H

#include "tessera/quantizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_QUANTIZER_BLOCK "tessera.quantizer.block/1"

/* What makes a site's input, and hence whether the site can be scaled. */
#define TSR_PRODUCER_NONE   0u /* nothing that could take a scale: leave scale at 1 */
#define TSR_PRODUCER_NORM   1u /* gain (and bias) of a norm that feeds nothing else   */
#define TSR_PRODUCER_LINEAR 2u /* rows of one linear of another site (v for o, up for down) */

/* Linears with one input. */
struct tsr_block_site {
    uint32_t                        struct_size;
    uint32_t                        producer; /* TSR_PRODUCER_*                             */
    const char                     *name;     /* "attn_in", "o_in", "ffn_in", "down_in"       */
    uint64_t                        cols;
    uint64_t                        n_linears;
    const struct tsr_matrix *const *linears; /* F32, original values, [rows, cols] each;
                                              * names end in the canonical "q_proj", ...     */
    const struct tsr_quant_stats   *stats;   /* what block_need() asked for                  */
    /* LINEAR: sites[producer_site]->linears[producer_linear] makes this input; row k of it is
     * divided by scale[k], after its columns were multiplied by its own site's scale. */
    uint64_t producer_site, producer_linear;
};

/* The plugin's answer for one site.  The host allocates; scale is filled with 1, clip with
 * +infinity. */
struct tsr_block_choice {
    uint32_t      struct_size;
    uint32_t      reserved;
    float        *scale; /* [cols], positive and finite                                */
    float *const *clip;  /* [n_linears][rows * groups]: |w| <= clip once all scales are
                          * applied, by group of clip_group() columns                  */
};

struct tsr_block {
    uint32_t                            struct_size;
    uint32_t                            reserved;
    const char                         *name; /* "model.layers.3" */
    uint64_t                            n_sites;
    const struct tsr_block_site *const *sites;
    void                               *ctx; /* host's */

    /* Mean squared change of the site's own part of the block over the recorded inputs, when
     * the site's linears become these matrices (F32, one per linear, in order) on the original
     * input: the attention's output for q, k and v, the feed-forward's for gate and up, the
     * linear's own for the others.  Everything else of the block is the original. */
    tsr_status (*loss)(void *ctx, uint64_t site, const struct tsr_matrix *const *linears,
                       double *mse, struct tsr_err *err);
};

struct tsr_quantizer_block_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* TSR_NEED_* of the sites' statistics; loss() works on TSR_NEED_INPUTS.  [any] */
    uint64_t (*block_need)(const void *self);
    /* Columns that share a clip, 0: the whole row.  [any] */
    uint64_t (*clip_group)(const void *self, uint64_t cols);
    /* Fills choices[i] for sites[i].  The block's data is valid during the call only.
     * Returns TSR_OK, TSR_E_NUMERIC, TSR_E_NOMEM, TSR_E_CANCELLED.  [setup] */
    tsr_status (*search)(const void *self, const struct tsr_block *block,
                         struct tsr_block_choice *const *choices, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
