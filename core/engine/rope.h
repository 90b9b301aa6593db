/* engine/rope.h - angles of rotary positions and slopes of ALiBi, in double. */
#ifndef TSR_ENGINE_ROPE_H
#define TSR_ENGINE_ROPE_H

#include "base/err.h"
#include "model/model.h"

/* Inverse frequencies [dim/2] for a sequence that is `length` tokens long when the token is
 * computed.  length matters to TSR_MODEL_ROPE_LONG and TSR_MODEL_ROPE_DYNAMIC_NTK only. */
void tsr_engine_rope_frequencies(const struct tsr_model_rope *r, uint64_t length, double *inv);
/* True when tsr_engine_rope_frequencies() depends on length. */
bool tsr_engine_rope_varies(const struct tsr_model_rope *r);
/* cos and sin [dim/2] of one position, times the attention factor, rounded to F32 once.  length: as that of inv. */
void tsr_engine_rope_angles(const struct tsr_model_rope *r, const double *inv, uint64_t length,
                            uint64_t position, float *cosine, float *sine);

/* ALiBi slopes [heads] as in BLOOM, also if heads is not a power of two. */
void tsr_engine_alibi_slopes(uint32_t heads, float *slopes);

#endif
