/* eval/paired.h - an arm of a comparison beside another on the same tokens: what experts ask for. */
#ifndef TSR_EVAL_PAIRED_H
#define TSR_EVAL_PAIRED_H

#include "eval/eval.h"
#include "eval/statistics.h"

#define TSR_PERCENTILES 8
extern const double      tsr_percentile_points[TSR_PERCENTILES]; /* 99.9 ... 1 */
extern const char *const tsr_percentile_names[TSR_PERCENTILES];

/* Divergences by decades: below 1e-8 first, then quarters of a decade up to 100, then the rest. */
#define TSR_HISTOGRAM_LOW        1e-8
#define TSR_HISTOGRAM_PER_DECADE 4
#define TSR_HISTOGRAM_BINS       42

/* One quantity over all tokens. */
struct tsr_spread {
    struct tsr_difference d; /* of its mean from 0 */
    double                min, max, rms, percentile[TSR_PERCENTILES];
    uint64_t              histogram[TSR_HISTOGRAM_BINS];
};

struct tsr_paired {
    struct tsr_difference delta;    /* of the negative log-likelihood: a's less b's */
    struct tsr_difference top1;     /* share of tokens with the same first choice */
    struct tsr_spread     delta_p;  /* of the text's token: a's less b's */
    struct tsr_spread     kl;       /* a's own; NaN without */
    struct tsr_difference kl_delta; /* a's less b's; NaN where one has none */
};

/* Offsets of each window's scored positions in a trace, [w->n + 1]; fresh memory. */
tsr_status tsr_window_offsets(const struct tsr_windows *w, uint64_t **start, struct tsr_err *err);

/* Both traces are over all windows of w. */
tsr_status tsr_paired_measure(struct tsr_paired *out, const struct tsr_windows *w,
                              const struct tsr_eval_trace *a, const struct tsr_eval_trace *b,
                              double alpha, struct tsr_err *err);

/* v [n] by windows; scratch [n] may be v. */
void tsr_spread_measure(struct tsr_spread *out, const double *v, const uint64_t *start,
                        uint64_t windows, double alpha, double *scratch);

#endif
