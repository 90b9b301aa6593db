/* gradient/gradient.h - one decoder layer forward and backward in F32: how the error of its output changes with
 * each weight.
 *
 *   x1 = norm(h)    q, k, v = x1 W^T    a = softmax(rope(q) rope(k)^T) v    h2 = h + a Wo^T
 *   x2 = norm(h2)   g, u = x2 W^T       y = func(g) * u                     out = h2 + y Wd^T
 *
 * The error is the mean squared difference of `out` to a target.  The forward pass keeps what the backward pass
 * reads; scores of attention are computed twice instead.  Products are those of tessera.linalg/1 and every sum has
 * one order, so that results are bit-identical for any number of threads.
 */
#ifndef TSR_GRADIENT_GRADIENT_H
#define TSR_GRADIENT_GRADIENT_H

#include "base/err.h"
#include "model/model.h"
#include "tessera/host.h"
#include "tessera/linalg.h"

/* Why the layer has no backward pass here, as the rest of a sentence ("it has experts"); NULL: it has one.
 * Refused are experts, latent attention, the delta rule, norms that are not before the sub-layers, gates on attention,
 * ALiBi, sinks, capped scores, norms of queries that are not of each head with one gain, the clamped function, and
 * angles that depend on the length of the sequence. */
const char *tsr_gradient_refusal(const struct tsr_model *m, uint64_t layer);

struct tsr_gradient_job {
    const struct tsr_host      *host; /* its threads, and whether the user stopped */
    const struct tsr_linalg_v1 *linalg;
    const struct tsr_model     *model;
    uint64_t                    layer;
    const float
          *w[TSR_MODEL_LINEARS];  /* [rows, cols] of each linear that the layer has; absent: NULL */
    float *dw[TSR_MODEL_LINEARS]; /* likewise, written: d mse / d w; NULL: not wanted */
    uint64_t     sequences, tokens; /* each sequence attends to itself only */
    const float *in, *target;       /* [sequences * tokens, hidden] */
    float       *out;               /* likewise, written; NULL: not wanted */
};

/* Runs the job; *mse is the error.  A layer with a refusal is TSR_E_UNSUPPORTED, an error that is not finite
 * TSR_E_NUMERIC.  Takes tsr_gradient_bytes().  [worker] */
tsr_status tsr_gradient_run(const struct tsr_gradient_job *job, double *mse, struct tsr_err *err);

/* Bytes of memory that a run over so many tokens takes, gradients not included; UINT64_MAX: too many. */
uint64_t tsr_gradient_bytes(const struct tsr_model *m, uint64_t sequences, uint64_t tokens,
                            uint64_t threads);

#endif
