/* quant/calibrate.h - runs a model over text and keeps statistics of every linear's inputs. */
#ifndef TSR_QUANT_CALIBRATE_H
#define TSR_QUANT_CALIBRATE_H

#include "engine/engine.h"
#include "model/tokenizer.h"
#include "quant/quant.h"

struct tsr_calibrate_options {
    const char *text; /* path */
    uint64_t    samples, seqlen, seed;
};

/* The file is tokenized as a whole (with the tokenizer's special tokens); `samples` runs of
 * `seqlen` tokens are taken from it at places that the seed draws, and run through the model in
 * F32.  Keeps absmax, mean, variance and mean |x| per column, summed in double in token order, so
 * that the result is a function of model, text and options alone.  A text with fewer than
 * seqlen tokens is TSR_E_INPUT. */
tsr_status tsr_calibrate(struct tsr_calibration **c, struct tsr_registry *r,
                         const struct tsr_model *m, const struct tsr_tokenizer *t,
                         const struct tsr_calibrate_options *opt, struct tsr_err *err);

/* The sums behind the statistics of one site; for tests and for other ways to feed them. */
struct tsr_moments {
    uint64_t cols, rows;
    double  *sum, *square, *magnitude;
    float   *absmax;
};
tsr_status tsr_moments_create(struct tsr_moments *s, uint64_t cols, struct tsr_err *err);
/* Adds n rows; columns in parallel.  A value that is not finite is TSR_E_NUMERIC with its place. */
tsr_status tsr_moments_add(struct tsr_moments *s, struct tsr_pool *pool, const float *x, uint64_t n,
                           struct tsr_err *err);
/* Fills stats with fresh arrays.  s->rows must not be 0. */
tsr_status tsr_moments_finish(const struct tsr_moments *s, struct tsr_quant_stats *stats,
                              struct tsr_err *err);
void       tsr_moments_free(struct tsr_moments *s);

#endif
