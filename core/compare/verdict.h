/* compare/verdict.h - the words and sentences of a comparison's verdicts. */
#ifndef TSR_COMPARE_VERDICT_H
#define TSR_COMPARE_VERDICT_H

#include "eval/statistics.h"

#include <stddef.h>

/* "worse" or "better" by the sign of mean if p, corrected, is below alpha; else "indistinguishable", or "undecided" if there
 * is no p.  Less is better.  NaN decides nothing.  [any] */
const char *compare_word(double mean, double p, double alpha);
/* Appends to text what compare_word() says of a difference of log-perplexities, in percent of perplexity, with p corrected
 * over the others.  Where only the correction keeps an interval on one side of zero from being a verdict, it says so. */
void compare_say_perplexity(char *text, size_t cap, const struct tsr_eval_difference *d, double p,
                            double alpha);
/* The same of two divergences from one reference, in nats. */
void compare_say_kl(char *text, size_t cap, const struct tsr_eval_difference *d, double p,
                    double alpha);
/* Appends to text. */
void compare_add(char *text, size_t cap, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
