/* batch/prompt.h - "prompt" of a completion request: one or several, as texts or as token ids.
 *
 *   "text"   [5, 6]   ["text", "text"]   [[5, 6], [7]]
 */
#ifndef TSR_BATCH_PROMPT_H
#define TSR_BATCH_PROMPT_H

#include "tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>

#define TSR_BATCH_CHOICES_MOST 1024u /* of a request: prompts times "n" */
#define TSR_BATCH_N_MOST       128   /* "n" */

struct tsr_batch_prompts {
    struct tsr_tokenizer_ids ids;   /* of all prompts, one after the other */
    uint64_t                *start; /* [n + 1] where each begins in ids; owned */
    uint32_t                 n;
    bool                     listed; /* a list of prompts: messages number them */
};

/* flags: of tsr_tokenize(), for texts; t NULL: texts are refused.  TSR_E_INPUT: what is wrong with the value.  The
 * caller frees p in any case.  [any] */
tsr_status tsr_batch_prompts_read(struct tsr_batch_prompts *p, const json_t *value,
                                  const struct tsr_tokenizer *t, unsigned flags,
                                  struct tsr_err *err);
/* Room for one prompt, whose ids the caller puts into p->ids; end: they are there. */
tsr_status tsr_batch_prompts_one(struct tsr_batch_prompts *p, struct tsr_err *err);
void       tsr_batch_prompts_end(struct tsr_batch_prompts *p);
void       tsr_batch_prompts_free(struct tsr_batch_prompts *p);

/* Choices that the answer to a line has if the line is right: 1 to TSR_BATCH_CHOICES_MOST.  [any] */
uint32_t tsr_batch_prompts_choices(const json_t *line);

#endif
