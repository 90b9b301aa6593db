/* draw.h - one draw through the table of the engine's own sampler. */
#ifndef TSR_TESTS_DRAW_H
#define TSR_TESTS_DRAW_H

#include "base/rng.h"
#include "engine/sampler.h"

#include <stdlib.h>

/* scratch: sizes().scratch_bytes, or NULL to allocate. */
static inline tsr_status draw_one(const float *logits, uint64_t vocab,
                                  const struct tsr_engine_sampling *s, const uint32_t *history,
                                  uint64_t n_history, uint64_t record, uint64_t index,
                                  void *scratch, uint32_t *id, struct tsr_err *err)
{
    struct tsr_sampler_sizes z = { .struct_size = sizeof z };
    struct tsr_sampler_job   job = { .struct_size = sizeof job,
                                     .vocab = vocab,
                                     .logits = (float *)(uintptr_t)logits,
                                     .history = history,
                                     .n_history = n_history,
                                     .seed = s->seed,
                                     .record = record,
                                     .uniform = tsr_uniform(s->seed, record, index) };
    void                    *self = NULL;
    TSR_TRY(tsr_engine_draw.create(NULL, s, &self, err));
    TSR_TRY(tsr_engine_draw.sizes(self, vocab, &z, err));
    job.scratch = scratch ? scratch : malloc(z.scratch_bytes);
    tsr_status st = job.scratch ? tsr_engine_draw.sample(self, &job, id, err) : TSR_E_NOMEM;
    if (!scratch)
        free(job.scratch);
    tsr_engine_draw.destroy(self);
    return st;
}

#endif
