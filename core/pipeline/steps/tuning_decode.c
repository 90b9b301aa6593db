/* What compensation adds to a whole decode step: single tokens of one sequence, with and without, in turn. */
#include "pipeline/steps/tuning.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Seconds of `tokens` single tokens from an empty slot on. */
static tsr_status pass(struct tsr_engine *e, uint32_t tokens, float *logits, double *seconds,
                       struct tsr_err *err)
{
    struct tsr_engine_token t = { .id = 1, .logits = true };
    double                  t0 = 0;
    tsr_engine_reset(e, 0);
    for (uint32_t i = 0; i <= tokens; i++) {
        if (i == 1)
            t0 = tsr_now_s();
        TSR_TRY(tsr_engine_forward(e, &t, 1, logits, err));
        t.decode = true;
    }
    *seconds = tsr_now_s() - t0;
    return TSR_OK;
}

static tsr_status measure(struct tsr_engine *e, const uint32_t (*k)[TSR_MODEL_SITES],
                          uint32_t tokens, uint32_t repeats, float *logits,
                          struct tsr_step_tuning_decoded *d, struct tsr_err *err)
{
    *d = (struct tsr_step_tuning_decoded){ .bare = INFINITY, .with = INFINITY };
    for (uint32_t i = 0; i <= repeats; i++) { /* the first warms caches up */
        double bare, with;
        TSR_TRY(tsr_engine_compensate_k(e, NULL, 0, err));
        TSR_TRY(pass(e, tokens, logits, &bare, err));
        TSR_TRY(tsr_engine_compensate_k(e, k, 0, err));
        TSR_TRY(pass(e, tokens, logits, &with, err));
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        if (i > 0) {
            d->bare = fmin(d->bare, bare / tokens);
            d->with = fmin(d->with, with / tokens);
        }
    }
    return TSR_OK;
}

tsr_status tsr_step_tuning_decode(struct tsr_engine *e, uint64_t                 vocab,
                                  const uint32_t (*k)[TSR_MODEL_SITES], uint32_t tokens,
                                  uint32_t repeats, struct tsr_step_tuning_decoded *d,
                                  struct tsr_err *err)
{
    float *logits = tsr_new(vocab, sizeof *logits);
    if (!logits)
        return tsr_fail_nomem(err, vocab * sizeof *logits, "logits");
    tsr_status st = measure(e, k, tokens, repeats, logits, d, err);
    free(logits);
    return st;
}
