/* eval/statistics.h - statistics to decide whether two arms of a comparison differ.
 *
 * Tokens of one window depend on each other, so a standard error that assumes independence is too
 * small; intervals and tests use the one clustered by window.  Sources: Miller, "Adding Error Bars
 * to Evals", 2024 (paired and clustered errors, power); Efron and Tibshirani, "An Introduction to
 * the Bootstrap", 1993; Holm, 1979; McNemar, 1947; Wilson, 1927.  Everything is double and the same
 * on every machine and thread count.  [any]
 */
#ifndef TSR_EVAL_STATISTICS_H
#define TSR_EVAL_STATISTICS_H

#include <stdint.h>

/* Student's t with df degrees of freedom (df > 0, INFINITY is the normal distribution). */
double tsr_eval_t_two_sided(double t, double df); /* P(|T| >= |t|) */
double tsr_eval_t_quantile(double p, double df);  /* 0 < p < 1 */

/* The mean of paired differences d, clustered. */
struct tsr_eval_difference {
    double   mean;
    double   naive_se;   /* as if all n were independent */
    double   se;         /* by clusters; NaN with fewer than two */
    double   low, high;  /* interval for the mean at confidence 1 - alpha, t with clusters - 1 */
    double   p;          /* two-sided, of no difference */
    double   detectable; /* the smallest |mean| that is found with 80 % probability at alpha */
    uint64_t n, clusters;
};
/* start: [clusters + 1] offsets into d; empty clusters do not count.  The mean is over all n. */
void tsr_eval_paired_difference(const double *d, const uint64_t *start, uint64_t clusters,
                                double alpha, struct tsr_eval_difference *out);

/* Percentile interval of the median of v[n] at confidence 1 - alpha by resampling with
 * replacement, `draws` times; sorted: scratch of draws doubles, picked: scratch of n.  n of 1 gives [v, v].  Draw d takes v[w n / 2^32] for each word w of tsr_philox(i, d, seed),
 * i = 0, 1, ...; the ends are tsr_eval_percentile() at alpha / 2 and 1 - alpha / 2. */
void   tsr_eval_bootstrap_median(const double *v, uint64_t n, uint64_t draws, uint64_t seed,
                                 double alpha, double *sorted, double *picked, double *low,
                                 double *high);
double tsr_eval_median(double *v, uint64_t n); /* sorts v; NaN for n of 0 */
/* The smallest of sorted v that at least the share q of v does not exceed (0 < q <= 1). */
double tsr_eval_percentile(const double *v, uint64_t n, double q);

/* Holm's step-down correction: adjusted[i] >= p[i]; order: scratch of n indices. */
void tsr_eval_holm(const double *p, uint64_t n, double *adjusted, uint64_t *order);

/* Exact two-sided McNemar test of b against c, the pairs of which only one is right. */
double tsr_eval_mcnemar(uint64_t b, uint64_t c);

/* Wilson's score interval of k out of n. */
void tsr_eval_wilson(uint64_t k, uint64_t n, double alpha, double *low, double *high);

#endif
