/* eval/text.h - texts as Python sees them: white space and characters. */
#ifndef TSR_EVAL_TEXT_H
#define TSR_EVAL_TEXT_H

#include <stdint.h>

/* len(text.rstrip().encode()) of UTF-8. */
uint64_t tsr_eval_stripped(const char *text, uint64_t n);
/* len(re.split(r"\s+", text)). */
uint64_t tsr_eval_count_words(const char *text, uint64_t n);
/* len(text) of UTF-8. */
uint64_t tsr_eval_count_characters(const char *text, uint64_t n);

#endif
