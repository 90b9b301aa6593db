/* tessera/quantizer_tune.h - tuning: a quantizer packs the linears of a decoder block together, and
 * the host runs the block for it, in an optional table of a quantizer.  Its id is
 * "tessera.quantizer.tune/1".
 *
 * The plugin implements struct tsr_quantizer_tune_v1.  The host implements struct tsr_tune_block,
 * and calls tune() once for each block, in place of quantize() for the linears of this instance.
 * AutoRound (arXiv 2309.05516), which learns roundings and ranges by the sign of a gradient, is of
 * this kind.
 *
 * The block has recorded inputs, and the outputs that the original block gives for the same tokens.
 * A trial is one run of the block with other weights: the host computes the error of its output,
 * and on request the gradient of that error with respect to each weight.  The plugin says with
 * budget() how many trials it needs.  The host counts them and refuses any more.
 *
 * Example: the error of the block with the weights in w, over its first sequence.
 *
 *     static tsr_status error_of(const struct tsr_tune_block *b, const struct tsr_matrix *const *w,
 *                                double *mse, struct tsr_err *err)
 *     {
 *         struct tsr_tune_trial        t;
 *         struct tsr_tune_trial *const list[] = { &t };
 *         const uint64_t               first = 0;
 *         memset(&t, 0, sizeof t);
 *         t.struct_size = sizeof t;
 *         t.linears = w;
 *         tsr_status st = b->run(b->ctx, &first, 1, list, 1, err);
 *         *mse = t.mse;
 *         return st;
 *     }
 */
#ifndef TSR_QUANTIZER_TUNE_H
#define TSR_QUANTIZER_TUNE_H

#include "tessera/quantizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_QUANTIZER_TUNE "tessera.quantizer.tune/1"

/* One run of the block.  The plugin sets all members but mse. */
struct tsr_tune_trial {
    uint32_t struct_size;
    uint32_t reserved; /* zero */
    /* [n_linears]: F32 matrices of the shapes of the block's linears, which take their place.  An
     * entry may be NULL: the original. */
    const struct tsr_matrix *const *linears;
    /* [n_linears], or NULL: no gradients.  Each entry is [rows, cols] without gaps, or NULL.  The
     * host writes the derivatives of mse with respect to the weights of that linear. */
    float *const *gradients;
    /* [n_sequences * tokens, hidden], or NULL.  The host writes the output of the block. */
    float *output;
    double mse; /* the host writes it: mean squared difference to the outputs that are recorded */
};

/* A decoder block and its recordings.  Borrowed for the call of tune(). */
struct tsr_tune_block {
    uint32_t    struct_size;
    uint32_t    reserved;
    const char *name; /* "model.layers.3" */
    uint64_t    n_linears;
    /* Those that this instance packs: F32, original values.  Names end in the canonical "q_proj",
     * ...  All other linears of the block stay the original ones in every trial. */
    const struct tsr_matrix *const *linears;
    uint64_t     sequences;    /* that are recorded                                      */
    uint64_t     tokens;       /* of each sequence                                       */
    uint64_t     hidden;       /* numbers of a token                                     */
    const float *inputs;       /* [sequences * tokens, hidden]                           */
    const float *outputs;      /* of the original block, likewise                        */
    uint64_t     budget;       /* trials that run() computes, all calls together         */
    const char  *no_gradients; /* NULL: trials may have gradients; else why not, one sentence */
    void        *ctx;          /* the host's                                          */

    /* Computes n_trials trials over the sequences listed in `sequence`, n_sequences indices from 0;
     * NULL: all.  The host uses all its threads, for one trial after the other or for several at
     * once.  Call it only inside tune(), from the thread that tune() was called on.  The results of
     * a trial do not depend on the number of threads and on the other trials of the call.  TSR_E_INVAL: a
     * sequence or a shape does not exist, or more than `budget` trials in total; nothing was
     * computed.  TSR_E_UNSUPPORTED: gradients that there are none of.  Returns TSR_OK,
     * TSR_E_INVAL, TSR_E_UNSUPPORTED, TSR_E_NUMERIC, TSR_E_NOMEM, TSR_E_CANCELLED. */
    tsr_status (*run)(void *ctx, const uint64_t *sequence, uint64_t n_sequences,
                      struct tsr_tune_trial *const *trials, uint64_t n_trials, struct tsr_err *err);
};

/* The packed form of one linear.  The host allocates both, of the sizes that plan() gives for the
 * whole matrix, and the plugin writes every byte. */
struct tsr_tune_packed {
    uint32_t struct_size;
    uint32_t reserved;
    void    *codes; /* units * code_bytes */
    void    *meta;  /* units * meta_bytes */
};

struct tsr_quantizer_tune_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* The most trials that tune() runs for one block.  A function of the options.  [any] */
    uint64_t (*budget)(const void *self);
    /* Packs block->linears[i] into packed[i].  dequantize() decodes the result.  The data of the
     * block is valid only during the call.  Returns TSR_OK, TSR_E_UNSUPPORTED with the reason,
     * TSR_E_NUMERIC, TSR_E_NOMEM, TSR_E_CANCELLED, or what run() returned.  [setup] */
    tsr_status (*tune)(const void *self, const struct tsr_tune_block *block,
                       struct tsr_tune_packed *const *packed, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
