/* eval/encode.h - texts into tokens as lm-evaluation-harness's backend for Hugging Face models does it. */
#ifndef TSR_EVAL_ENCODE_H
#define TSR_EVAL_ENCODE_H

#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* How texts become tokens. */
struct tsr_eval_encoding {
    const struct tsr_tokenizer *tokenizer;
    const struct tsr_model     *model;
    bool                        no_bos; /* the tokenizer's template is not applied */
};
/* Appends the ids of context and continuation as one text; *from is the first of the continuation.  White space that
 * ends the context belongs to the continuation, a text that begins with the BOS string gets no second BOS, and an empty
 * context is the prefix token: BOS, else EOS; TSR_E_INPUT if the model names neither. */
tsr_status tsr_eval_encode_pair(const struct tsr_eval_encoding  *c,
                                const struct tsr_tokenizer_text *context,
                                const struct tsr_tokenizer_text *continuation,
                                struct tsr_tokenizer_ids *ids, uint64_t *from, struct tsr_err *err);
/* Appends the prefix token and the ids of a text, which are scored from the second on. */
tsr_status tsr_eval_encode_rolling(const struct tsr_eval_encoding  *c,
                                   const struct tsr_tokenizer_text *text,
                                   struct tsr_tokenizer_ids *ids, struct tsr_err *err);
/* The window of at most `max` tokens whose first new token is ids[done + 1]: tokens [*begin, *end] with the last one as
 * a label alone; the new ones are those after `done`.  The last window begins earlier, so that it is full too. */
void tsr_eval_rolling_window(uint64_t n, uint64_t max, uint64_t done, uint64_t *begin,
                             uint64_t *end);

#endif
