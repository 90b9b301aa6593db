/* tessera/quantizer_block.h - block: a decoder block that a quantizer sees as a whole, in an
 * optional table of a quantizer.  Its id is "tessera.quantizer.block/1".
 *
 * The plugin implements struct tsr_quantizer_block_v1.  The host implements struct tsr_block, and
 * calls search() before it quantizes the linears of the block one by one.  The scale and clip
 * search of AWQ (arXiv 2306.00978) and the folding of SmoothQuant (arXiv 2211.10438) are of this
 * kind.
 *
 * The host shows the block as sites.  A site is the linears that read one input, with the producer
 * of that input.  The plugin answers with one vector per site.  The host divides the columns of the
 * input by it, in the producer, and multiplies the columns of the weights.  This changes nothing
 * before quantization.  The host then clamps the weights to the clips, and calls plan() and
 * quantize().
 *
 * Some sites take more: another order of the columns, an orthogonal matrix for each run of them
 * (QuaRot, arXiv 2404.00456, and SpinQuant, arXiv 2405.16406), or a Hadamard transform that runs
 * with the model.  `takes` of a site says which.  The input x becomes
 *
 *     x' = ((x / scale) in the new order) * matrices * Hadamard
 *
 * and the host multiplies the weights that read x by the same, and the rows that produce x by all
 * but the last.  Column k of x' is column order[k] of x; a run of columns, as a row, is multiplied
 * from the right: x'[j] is the sum of x[i] * matrix[i][j].
 *
 * Example: scales from the largest magnitude of each input channel.
 *
 *     static void scale_site(const struct tsr_block_site *site, struct tsr_block_choice *choice)
 *     {
 *         if (site->producer == TSR_PRODUCER_NONE)
 *             return;
 *         for (uint64_t k = 0; k < site->cols; k++)
 *             if (site->stats->absmax[k] > 0)
 *                 choice->scale[k] = site->stats->absmax[k];
 *     }
 */
#ifndef TSR_QUANTIZER_BLOCK_H
#define TSR_QUANTIZER_BLOCK_H

#include "tessera/quantizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_QUANTIZER_BLOCK "tessera.quantizer.block/1"

/* The producer of the input of a site.  Only a site with a producer can be scaled. */
#define TSR_PRODUCER_NONE   0u /* no producer takes a scale: leave scale at 1           */
#define TSR_PRODUCER_NORM   1u /* gain (and bias) of a norm that feeds nothing else     */
#define TSR_PRODUCER_LINEAR 2u /* rows of a linear of another site: v for o, up for down */

/* What a site takes in addition to a scale. */
#define TSR_TAKES_ORDER  1u /* columns in another order: down_in, whose producers are elementwise */
#define TSR_TAKES_MATRIX 2u /* orthogonal matrices: o_in, a run for each head                     */
#define TSR_TAKES_HADAMARD                                                                         \
    4u /* a transform of runs of columns of down_in, in every pass           */
#define TSR_TAKES_KEYS                                                                             \
    8u /* attn_in: a transform of queries and keys of each head after their
                               * positions, in every pass; no weight changes, the KV cache does    */

/* How far the product of a matrix with its transpose may be from one, in each entry.  Rounding an
 * orthogonal matrix to F32 moves an entry by 2^-23 at most; this is 8 times as much, for matrices
 * that were computed in F32.  What the block computes then moves by about this part. */
#define TSR_BLOCK_ORTHOGONAL 1e-6

/* The linears that read one input.  Borrowed for the call of search(). */
struct tsr_block_site {
    uint32_t                        struct_size;
    uint32_t                        producer; /* TSR_PRODUCER_*                             */
    const char                     *name;     /* "attn_in", "o_in", "ffn_in", "down_in",
                                               * "q_b_in", "kv_b_in", "shared.down_in",
                                               * "experts.3.down_in"; ffn_in of a layer with
                                               * experts has gate and up of all             */
    uint64_t                        cols;
    uint64_t                        n_linears;
    const struct tsr_matrix *const *linears; /* F32, original values, [rows, cols] each;
                                              * names end in the canonical "q_proj", ...     */
    const struct tsr_quant_stats   *stats;   /* those of block_need()                        */
    /* LINEAR: sites[producer_site]->linears[producer_linear] produces this input.  The host
     * multiplies its columns by the scale of its own site, and then divides its row k by scale[k]. */
    uint64_t producer_site, producer_linear;
    uint64_t takes;         /* TSR_TAKES_*                                                   */
    uint64_t matrix_cols;   /* MATRIX: rows and columns of a matrix, columns of a head       */
    uint64_t matrices;      /* MATRIX: run i of `runs` has matrix i * matrices / runs        */
    uint64_t hadamard_cols; /* HADAMARD, KEYS: the order divides this.  It is a power of two, or
                             * one times 12, 20, 28, 36, 44 or 60                            */
};

/* The plugin's answer for one site.  The host allocates it, and fills scale with 1, clip with
 * +infinity, order with 0, 1, 2, ..., and matrix with unit matrices.  A pointer is NULL where the
 * site takes none.  A plugin that also runs in hosts of 1.0 asks TSR_HAS(struct tsr_block_choice,
 * choice, hadamard) before it uses the last three.
 *
 * Where matrices or a Hadamard transform change inputs, absmax, variance and mean_abs for
 * quantize() are those of the recorded inputs: block_need() has TSR_NEED_INPUTS then. */
struct tsr_block_choice {
    uint32_t      struct_size;
    uint32_t      reserved;
    float        *scale;    /* [cols], positive and finite                                */
    float *const *clip;     /* [n_linears][rows * groups], a group of clip_group() columns:
                          * the host clamps |w| to clip after it applied all scales    */
    uint32_t     *order;    /* [cols], each column once                                   */
    double       *matrix;   /* [matrices, matrix_cols, matrix_cols], orthogonal within
                          * TSR_BLOCK_ORTHOGONAL                                        */
    uint64_t      hadamard; /* HADAMARD, KEYS: columns of a run; 0: no transform           */
};

struct tsr_block {
    uint32_t                            struct_size;
    uint32_t                            reserved;
    const char                         *name; /* "model.layers.3" */
    uint64_t                            n_sites;
    const struct tsr_block_site *const *sites;
    void                               *ctx; /* the host's */

    /* Replaces the linears of the site by these matrices (F32, one per linear, in order), with the
     * original input.  *mse is the mean squared change of an output over the recorded inputs.  The
     * output is that of the attention for attn_in, of the feed-forward for ffn_in, and of the
     * linear for the other sites.  The rest of the block is the original.  Call it only inside
     * search(). */
    tsr_status (*loss)(void *ctx, uint64_t site, const struct tsr_matrix *const *linears,
                       double *mse, struct tsr_err *err);
};

struct tsr_quantizer_block_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* The statistics of sites that search() needs: TSR_NEED_*.  loss() needs TSR_NEED_INPUTS.
     * [any] */
    uint64_t (*block_need)(const void *self);
    /* The number of columns that share a clip; 0: the whole row.  [any] */
    uint64_t (*clip_group)(const void *self, uint64_t cols);
    /* Fills choices[i] for sites[i].  The data of the block is valid only during the call.
     * Returns TSR_OK, TSR_E_NUMERIC, TSR_E_NOMEM, TSR_E_CANCELLED.  [setup] */
    tsr_status (*search)(const void *self, const struct tsr_block *block,
                         struct tsr_block_choice *const *choices, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
