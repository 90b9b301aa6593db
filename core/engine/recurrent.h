/* engine/recurrent.h - layers of the gated delta rule, and the gate of attention. */
#ifndef TSR_ENGINE_RECURRENT_H
#define TSR_ENGINE_RECURRENT_H

#include "engine/internal.h"

/* For a model with gated attention or with layers of the delta rule; after the activations. */
tsr_status tsr_engine_recurrent_create(struct tsr_engine *e, struct tsr_err *err);
void       tsr_engine_recurrent_destroy(struct tsr_engine *e);
/* From the normed input to the output of o, of a layer of the delta rule. */
tsr_status tsr_engine_recurrent_run(struct tsr_engine *e, uint64_t layer,
                                    const struct tsr_tensor *in, const struct tsr_tensor *out,
                                    struct tsr_err *err);
/* Where the gate's linear writes n rows; then x, what attention says, times sigmoid of them. */
struct tsr_tensor tsr_engine_gate_rows(const struct tsr_engine *e, uint64_t n);
tsr_status        tsr_engine_gate_attention(struct tsr_engine *e, const struct tsr_tensor *x,
                                            struct tsr_err *err);

#endif
