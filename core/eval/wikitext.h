/* eval/wikitext.h - pages of WikiText as lm-evaluation-harness takes them. */
#ifndef TSR_EVAL_WIKITEXT_H
#define TSR_EVAL_WIKITEXT_H

#include "tokenizer/tokenizer.h"

/* lm-evaluation-harness's WikiText detokenizer on one page (UTF-8). */
tsr_status tsr_eval_wikitext_detokenize(const char *page, uint64_t len,
                                        struct tsr_tokenizer_text *out, struct tsr_err *err);

#endif
