/* pipeline/steps/sweep_answers.h - judges a model's output by another model: greedy decoding continues
 * prompts from a text, and the judge reads the answers. Follows arXiv 2412.20185, Figure 14, whose judge
 * is a service; here it is the model before quantization. */
#ifndef TSR_PIPELINE_STEPS_SWEEP_ANSWERS_H
#define TSR_PIPELINE_STEPS_SWEEP_ANSWERS_H

#include "engine/engine.h"
#include "eval/eval.h"
#include "eval/statistics.h"

#define TSR_ANSWER_PROMPT  32u /* tokens */
#define TSR_ANSWER_TOKENS  32u
#define TSR_ANSWER_CONTEXT (TSR_ANSWER_PROMPT + TSR_ANSWER_TOKENS)

/* Of n prompts, which tokens of their answers the judge, reading prompt and answer, ranks first as well:
 * same[n * TSR_ANSWER_TOKENS], 0 or 1.  Prompts begin at even distances in the windows' tokens; a text of fewer than a
 * prompt is TSR_E_INPUT.  Tokens that e writes are marked as generated.  Slots 0 are empty afterwards.  [worker] */
tsr_status tsr_step_sweep_answers(struct tsr_engine *e, struct tsr_engine *judge,
                                  const struct tsr_eval_windows *w, uint64_t n, unsigned char *same,
                                  struct tsr_err *err);
/* Share of a's tokens that are the same, and its difference from b's by prompts (b may be NULL). */
tsr_status tsr_step_sweep_answers_compare(const unsigned char *a, const unsigned char *b,
                                          uint64_t n, double alpha, double *share,
                                          struct tsr_eval_difference *d, struct tsr_err *err);

#endif
