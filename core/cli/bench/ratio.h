/* cli/bench/ratio.h - how many times as fast: the ratio of two samples, with an interval that assumes no distribution. */
#ifndef TSR_CLI_BENCH_RATIO_H
#define TSR_CLI_BENCH_RATIO_H

#include "base/err.h"

#define BENCH_MOST_ROUNDS 256u

struct bench_ratio {
    double mid, low, high; /* low 0 and high INFINITY: too few rounds for 95 % */
};
/* b over a: the median of all quotients of a round of b and one of a (Hodges and Lehmann, 1963, on logarithms), and the
 * quotients that the Mann-Whitney test does not reject at 5 %.  n, m: 1 to BENCH_MOST_ROUNDS, values above 0. Exact for
 * values without ties.  TSR_E_NOMEM.  [any] */
tsr_status bench_ratio_of(const double *a, uint64_t n, const double *b, uint64_t m,
                          struct bench_ratio *r, struct tsr_err *err);

#endif
