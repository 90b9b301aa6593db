/* tessera/backend_candidates.h - backend candidates: an optional table of a backend that finds the
 * best tokens of rows of logits on the device.  Its id is "tessera.backend.candidates/1".
 *
 * A backend implements it.  The core calls it after the head of a model where a request needs no
 * more than the best tokens, so that logits stay on the device.  The host draws from what comes
 * back, with its own arithmetic; where it cannot decide, it downloads the row.
 *
 * Example: the greedy token of one row of logits.
 *
 *     static tsr_status greedy(const struct tsr_backend_candidates_v1 *c, void *self,
 *                              const struct tsr_tensor *logits, uint32_t *id, struct tsr_err *err)
 *     {
 *         const float              none = 0;
 *         struct tsr_candidate     best;
 *         struct tsr_candidate_row row;
 *         tsr_status st = c->find(self, logits, 1, &none, &best, &row, err);
 *         *id = best.id;
 *         return st;
 *     }
 */
#ifndef TSR_BACKEND_CANDIDATES_H
#define TSR_BACKEND_CANDIDATES_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_BACKEND_CANDIDATES "tessera.backend.candidates/1"

#define TSR_CANDIDATES_MOST 256u /* of a row */

struct tsr_candidate {
    uint32_t id;
    float    logit;
};

/* sum: exp((logit - best logit) * inverse) over the row, within a factor of 1 +- 1e-4; 0 where
 * inverse is 0.  not_finite: how many logits of the row are infinite or NaN; if any, the rest of
 * the row's results is unspecified. */
struct tsr_candidate_row {
    float    sum;
    uint32_t not_finite;
};

struct tsr_backend_candidates_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* Takes the memory that find() needs for `rows` rows of `vocab` logits and TSR_CANDIDATES_MOST
     * candidates each.  TSR_E_UNSUPPORTED with the reason: the device has no find() for this
     * vocabulary.  [setup] */
    tsr_status (*reserve)(void *self, uint64_t rows, uint64_t vocab, struct tsr_err *err);

    /* The `most` (1 to TSR_CANDIDATES_MOST, at most the vocabulary) best tokens of each row of
     * logits, F32 [rows, vocab], in descending order, equal ones by ascending id; -0 equals 0.
     * inverse [rows]: 1 / temperature, finite; 0: the sum is not needed.  best [rows][most] and
     * row [rows] are host memory of the caller's and complete on return; operations queued before
     * on the default stream are waited for.  The logits stay as they are.  More rows or a larger
     * vocabulary than reserved is TSR_E_INVAL if the memory is not enough for them.  [worker] */
    tsr_status (*find)(void *self, const struct tsr_tensor *logits, uint32_t most,
                       const float *inverse, struct tsr_candidate *best,
                       struct tsr_candidate_row *row, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
