/* eval/choices.h - multiple-choice questions, scored by the likelihood of each choice after the
 * context, as in lm-evaluation-harness.
 *
 * JSON Lines: {"context": "The sky is", "choices": ["blue", "green"], "answer": 0}.  The context may
 * also be called question, query, ctx or prompt; the answer gold or label, and it may be a letter
 * from A.  Context and choice are joined by a space unless one of them has white space there.
 */
#ifndef TSR_EVAL_CHOICES_H
#define TSR_EVAL_CHOICES_H

#include "eval/eval.h"

struct tsr_eval_question {
    struct tsr_tokenizer_text  context;
    struct tsr_tokenizer_text *choice; /* [n], including the joining space if there is one */
    uint64_t                   n, answer;
};
struct tsr_eval_choices {
    struct tsr_eval_question *q;
    uint64_t                  n;
    char                      hash[48]; /* of the file */
};
tsr_status tsr_eval_choices_load(struct tsr_eval_choices **c, const char *path,
                                 struct tsr_err *err);
/* The same from memory; name is for messages. */
tsr_status tsr_eval_choices_parse(struct tsr_eval_choices **c, const char *name, const char *text,
                                  uint64_t bytes, struct tsr_err *err);
void       tsr_eval_choices_destroy(struct tsr_eval_choices *c);

/* marks [n + 1]: '1' if the likeliest choice is the answer, else '0'; normalized: the same with
 * likelihoods divided by the characters of the choice.  Ties go to the first. */
struct tsr_eval_choice_marks {
    char    *marks, *normalized; /* owned */
    uint64_t n, right, right_normalized;
    uint64_t cut; /* questions that the context could not hold, in this run */
};
/* The tokens are those of likelihood.h.  A question that the context of the engine cannot hold loses tokens from its
 * front, and a warning counts them; a choice that alone is too long is TSR_E_INPUT.  Slot 0 is empty afterwards. */
tsr_status tsr_eval_choices_score(struct tsr_engine *e, const struct tsr_tokenizer *t,
                                  const struct tsr_eval_choices *c,
                                  struct tsr_eval_choice_marks *out, struct tsr_err *err);
void       tsr_eval_choice_marks_free(struct tsr_eval_choice_marks *m);
/* Tokens that the longest question takes, for the context of an engine; at most the model's maximum. */
tsr_status tsr_eval_choices_context(const struct tsr_eval_choices *c, const struct tsr_tokenizer *t,
                                    const struct tsr_model *m, uint64_t *context,
                                    struct tsr_err *err);

/* Questions that only a, or only b, has right; both of the same n. */
void tsr_eval_marks_discordant(const char *a, const char *b, uint64_t *only_a, uint64_t *only_b);

#endif
