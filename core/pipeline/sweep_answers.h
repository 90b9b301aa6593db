/* pipeline/sweep_answers.h - what a model writes, judged by another: prompts from a text are continued with the
 * likeliest token each time, and the judge reads the answers.  In the manner of arXiv 2412.20185, Figure 14, whose
 * judge is a service; here it is the model before it was quantized. */
#ifndef TSR_PIPELINE_SWEEP_ANSWERS_H
#define TSR_PIPELINE_SWEEP_ANSWERS_H

#include "engine/engine.h"
#include "eval/eval.h"
#include "eval/statistics.h"

#define TSR_ANSWER_PROMPT  32u /* tokens */
#define TSR_ANSWER_TOKENS  32u
#define TSR_ANSWER_CONTEXT (TSR_ANSWER_PROMPT + TSR_ANSWER_TOKENS)

/* Of n prompts, which tokens of their answers the judge, reading prompt and answer, ranks first as well:
 * same[n * TSR_ANSWER_TOKENS], 0 or 1.  Prompts begin at even distances in the windows' tokens; a text of fewer than a
 * prompt is TSR_E_INPUT.  Tokens that e writes are marked as generated.  Slots 0 are empty afterwards.  [worker] */
tsr_status tsr_sweep_answers(struct tsr_engine *e, struct tsr_engine *judge,
                             const struct tsr_windows *w, uint64_t n, unsigned char *same,
                             struct tsr_err *err);
/* Share of a's tokens that are the same, and its difference from b's by prompts (b may be NULL). */
tsr_status tsr_sweep_answers_compare(const unsigned char *a, const unsigned char *b, uint64_t n,
                                     double alpha, double *share, struct tsr_difference *d,
                                     struct tsr_err *err);

#endif
