/* eval/statistics.h - statistics to decide whether two arms of a comparison differ.
 *
 * Tokens of one window depend on each other, so a standard error that assumes independence is too
 * small; intervals and tests use the one clustered by window.  Sources: Miller, "Adding Error Bars
 * to Evals", 2024 (paired and clustered errors, power); Efron and Tibshirani, "An Introduction to
 * the Bootstrap", 1993; Hesterberg, "What Teachers Should Know About the Bootstrap", 2015 (expanded
 * percentile interval); Davison and Hinkley, "Bootstrap Methods and their Application", 1997, 4.2 (the
 * added draw); Holm, 1979; McNemar, 1947; Connor, "Sample size for testing differences in proportions
 * for the paired-sample design", 1987; Wilson, 1927.  Everything is double and the same on every machine
 * and thread count.  [any]
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

/* A difference of two arms on the same units: documents of a task, or clusters of them. */
struct tsr_eval_resampled {
    double   low, high; /* interval at confidence 1 - alpha */
    double   p;         /* two-sided, of no difference */
    uint64_t units;
};
/* Paired bootstrap of of(sum a / sum w) - of(sum b / sum w): a, b, w [n] are the sums of each unit, of its marks by
 * either arm and of its weights.  Draws as above.  The interval is the expanded percentile interval, whose tails
 * are those of t with n - 1 degrees of freedom, widened by n / (n - 1), so that few units do not pass for many; p
 * inverts it, with one draw added to each tail.  NaN with fewer than two units, or if a draw is not finite.
 * sorted: scratch of draws doubles. */
void tsr_eval_bootstrap_difference(const double *a, const double *b, const double *w, uint64_t n,
                                   double (*of)(double), uint64_t draws, uint64_t seed,
                                   double alpha, double *sorted, struct tsr_eval_resampled *out);

/* Holm's step-down correction: adjusted[i] >= p[i]; order: scratch of n indices. */
void tsr_eval_holm(const double *p, uint64_t n, double *adjusted, uint64_t *order);

/* Exact two-sided McNemar test of b against c, the pairs of which only one is right.  Exact for any counts: no
 * approximation takes over for large ones. */
double tsr_eval_mcnemar(uint64_t b, uint64_t c);

/* Questions that McNemar's test needs to find a difference of two accuracies with 80 % probability at alpha, where
 * `discordant` is the share of questions that only one of the two has right.  A share below the difference cannot
 * hold it, and the difference takes its place. */
double tsr_eval_mcnemar_questions(double discordant, double difference, double alpha);
/* Units that a paired test of means needs for the same, `deviation` being that of the differences. */
double tsr_eval_paired_units(double deviation, double difference, double alpha);

/* Wilson's score interval of k out of n. */
void tsr_eval_wilson(uint64_t k, uint64_t n, double alpha, double *low, double *high);

#endif
