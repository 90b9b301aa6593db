/* engine/delta.h - the gated delta rule over rows in host memory: what a layer has in place of attention over a
 * cache of keys and values.
 *
 * A sequence's state does not depend on how its tokens come in chunks: every token is taken on its own, in order.
 */
#ifndef TSR_ENGINE_DELTA_H
#define TSR_ENGINE_DELTA_H

#include "base/pool.h"
#include "model/model.h"

/* A layer's numbers; conv [kernel][channels], rate [value_heads]: e^decay. */
struct tsr_delta_weights {
    const float *conv, *rate, *step, *norm;
};
/* Tokens that follow on each other in a sequence: order[first .. first + n), rows of the inputs. */
struct tsr_delta_run {
    uint64_t first, n;
    float   *state; /* tsr_delta_state_floats() of them; zeros before the first token */
};
/* Rows of a chunk: what the linears say, one row for each token, and room. */
struct tsr_delta_rows {
    float *q, *k, *v, *z, *b, *a;
    float *mixed;       /* [rows, channels] */
    float *beta, *keep; /* [rows, value_heads] */
    float *out;         /* [rows, value_heads value_dim] */
};

uint64_t tsr_delta_channels(const struct tsr_model_delta *d); /* that the convolution sees */
uint64_t tsr_delta_state_floats(const struct tsr_model_delta *d);

/* Runs that share no state; n: rows in all.  out gets the rows for the output projection. */
tsr_status tsr_delta_run_rows(struct tsr_pool *pool, const struct tsr_model_delta *d, float eps,
                              const struct tsr_delta_weights *w, const struct tsr_delta_rows *rows,
                              const uint32_t *order, uint64_t n, const struct tsr_delta_run *runs,
                              uint64_t n_runs);

/* x[i] *= sigmoid(gate[i]) */
tsr_status tsr_delta_gate(struct tsr_pool *pool, float *x, const float *gate, uint64_t n);

#endif
