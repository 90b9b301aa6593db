/* eval/likelihood.h - log-likelihoods of continuations and texts, with the tokens that lm-evaluation-harness takes.
 *
 *   struct tsr_eval_scorer *s;
 *   TSR_TRY(tsr_eval_scorer_create(&s, engine, tokenizer, false, err));
 *   tsr_status st = tsr_eval_scorer_pair(s, &context, &continuation, &value, err);
 *   tsr_eval_scorer_destroy(s);
 *
 * Tokens that a request shares with the start of the one before are not computed again where the model can go
 * back (tsr_engine_rewind()); log-likelihoods are the same bits either way.
 */
#ifndef TSR_EVAL_LIKELIHOOD_H
#define TSR_EVAL_LIKELIHOOD_H

#include "engine/engine.h"
#include "eval/encode.h"

struct tsr_eval_likelihood {
    double   sum; /* natural logarithm, over all tokens of the continuation */
    bool     is_greedy;
    uint64_t tokens;  /* scored */
    uint64_t context; /* tokens before them; of a text 1 */
    uint64_t cut;     /* tokens that the context of the engine had no room for, from the front */
};

struct tsr_eval_scorer;
tsr_status tsr_eval_scorer_create(struct tsr_eval_scorer **s, struct tsr_engine *e,
                                  const struct tsr_tokenizer *t, bool no_bos, struct tsr_err *err);
void       tsr_eval_scorer_destroy(struct tsr_eval_scorer *s); /* empties slot 0 */
/* TSR_E_INPUT: the continuation has no token, nothing precedes it, or it has more tokens than the engine has
 * positions. */
tsr_status tsr_eval_scorer_pair(struct tsr_eval_scorer *s, const struct tsr_tokenizer_text *context,
                                const struct tsr_tokenizer_text *continuation,
                                struct tsr_eval_likelihood *out, struct tsr_err *err);
tsr_status tsr_eval_scorer_text(struct tsr_eval_scorer *s, const struct tsr_tokenizer_text *text,
                                struct tsr_eval_likelihood *out, struct tsr_err *err);
/* Tokens that were run, and that were taken over from the request before. */
void tsr_eval_scorer_counts(const struct tsr_eval_scorer *s, uint64_t *ran, uint64_t *shared);

#endif
