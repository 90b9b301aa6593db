/* batch/part.h - a choice of an answer, in parts as it grows.
 *
 *   {"index", "text" or "delta": {"role", "content"}, "logprobs", "finish_reason"}
 *
 * Texts and lists of the parts, one after the other, are those of tsr_batch_answer_choice(), which is the one part of
 * a choice that is over.
 */
#ifndef TSR_BATCH_PART_H
#define TSR_BATCH_PART_H

#include "batch/request.h"

/* How much of a choice was given; zero at the start. */
struct tsr_batch_part {
    bool              begun;
    uint64_t          bytes, characters; /* of the text */
    uint64_t          tokens;            /* with logprobs */
    uint64_t          ids;               /* where there is no tokenizer */
    struct tsr_detok *detok;             /* the text of those tokens */
    uint64_t          offset;            /* its characters */
};

/* What is new in a choice; *delta NULL: nothing.  r: of the server's grown event, or with `over` of its done event.
 * t: as of the request, may be NULL.  TSR_E_NOMEM, or as tsr_tokenizer_detok_push().  [any] */
tsr_status tsr_batch_part_next(struct tsr_batch_part *p, const struct tsr_batch_request *q,
                               uint32_t choice, const struct tsr_engine_served *r, bool over,
                               const struct tsr_tokenizer *t, json_t **delta, struct tsr_err *err);
void       tsr_batch_part_free(struct tsr_batch_part *p);

#endif
