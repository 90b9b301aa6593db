/* quant/tune_internal.h - one call of a plugin's tune(): tune.c makes the block and takes the result, tune_run.c
 * computes trials. */
#ifndef TSR_QUANT_TUNE_INTERNAL_H
#define TSR_QUANT_TUNE_INTERNAL_H

#include "gradient/gradient.h"
#include "quant/tune.h"

struct tune {
    const struct tsr_quant_tune_job    *job;
    const struct tsr_quantizer         *q;
    const struct tsr_quantizer_tune_v1 *table;
    struct tsr_matrix                  *wide; /* [hparams.linears]: F32 copies; owned */
    uint64_t                            n;    /* linears of the instance */
    enum tsr_linear_id                 *id;   /* [n] */
    const struct tsr_matrix           **list; /* [n]: into wide */
    struct tsr_tune_block               block;
    uint64_t                            used;         /* trials */
    char                                refusal[160]; /* block.no_gradients */
    float *in, *target, *out; /* of the sequences of a call, and of a trial; owned */
};

/* tsr_tune_block.run; ctx is the tune. */
tsr_status tune_run(void *ctx, const uint64_t *sequence, uint64_t n_sequences,
                    struct tsr_tune_trial *const *trials, uint64_t n_trials, struct tsr_err *err);

#endif
