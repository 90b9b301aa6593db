/* eval/paired.h - paired differences between two arms on the same tokens. */
#ifndef TSR_EVAL_PAIRED_H
#define TSR_EVAL_PAIRED_H

#include "eval/eval.h"
#include "eval/statistics.h"

#define TSR_EVAL_PERCENTILES 8
/* "99.9" ... "1" */
extern const char *const tsr_percentile_names[TSR_EVAL_PERCENTILES];

/* Divergences by decades: below 1e-8 first, then quarters of a decade up to 100, then the rest. */
#define TSR_EVAL_HISTOGRAM_LOW        1e-8
#define TSR_EVAL_HISTOGRAM_PER_DECADE 4
#define TSR_EVAL_HISTOGRAM_BINS       42

/* One quantity over all tokens. */
struct tsr_eval_spread {
    struct tsr_eval_difference d; /* of its mean from 0 */
    double                     min, max, rms, percentile[TSR_EVAL_PERCENTILES];
    uint64_t                   histogram[TSR_EVAL_HISTOGRAM_BINS];
};

struct tsr_eval_paired {
    struct tsr_eval_difference delta;    /* of the negative log-likelihood: a's less b's */
    struct tsr_eval_difference top1;     /* share of tokens with the same first choice */
    struct tsr_eval_spread     delta_p;  /* of the text's token: a's less b's */
    struct tsr_eval_spread     kl;       /* a's own; NaN without */
    struct tsr_eval_difference kl_delta; /* a's minus b's; NaN if one has none */
};

/* Offsets of each window's scored positions in a trace, [w->n + 1]; fresh memory. */
tsr_status tsr_eval_window_offsets(const struct tsr_eval_windows *w, uint64_t **start,
                                   struct tsr_err *err);

/* Both traces are over all windows of w. */
tsr_status tsr_eval_paired_measure(struct tsr_eval_paired *out, const struct tsr_eval_windows *w,
                                   const struct tsr_eval_trace *a, const struct tsr_eval_trace *b,
                                   double alpha, struct tsr_err *err);

#endif
