/* engine/candidates.h - the host's draw (engine/sampler.h) from the best tokens of a row of logits, which the device found
 * (tessera/backend_candidates.h): the token is the one that the whole row gives.
 *
 * Weights are exp() of the host in double, as those of the row.  Only the sum over the whole row is the device's, known
 * within TSR_ENGINE_SUM_ERROR; where a decision lies within it, or needs more tokens, there is no token.
 */
#ifndef TSR_ENGINE_CANDIDATES_H
#define TSR_ENGINE_CANDIDATES_H

#include "engine/engine.h"

#define TSR_ENGINE_SUM_ERROR 2e-4 /* twice what the table promises */

/* How many candidates a draw takes, and *inverse for its sum (0: it needs none).  0: it needs the logits: a repetition
 * penalty, more than TSR_CANDIDATES_MOST tokens, or a temperature whose reciprocal F32 cannot hold well.  [any] */
uint32_t tsr_engine_candidates(const struct tsr_engine_sampling *s, uint64_t vocab, float *inverse);
/* The token for the number u of the request's stream, from the n best of `vocab` tokens; false: the logits decide.  [any] */
bool tsr_engine_candidates_draw(const struct tsr_engine_sampling *s, uint64_t vocab, double u,
                                const struct tsr_candidate *best, uint32_t n, double sum,
                                uint32_t *id);

#endif
