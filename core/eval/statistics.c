#include "eval/statistics.h"

#include "base/rng.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POWER 0.8 /* of the smallest detectable difference */

/* ---- distributions ------------------------------------------------------------------ */

/* The continued fraction of the incomplete beta function, by Lentz's method. */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double       c = 1.0, d = 1.0 - (a + b) * x / (a + 1.0);
    d = 1.0 / (fabs(d) < tiny ? tiny : d);
    double h = d;
    for (int m = 1; m < 10000; m++) {
        for (int half = 0; half < 2; half++) {
            double k = m, up;
            if (half == 0)
                up = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k));
            else
                up = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1));
            d = 1.0 + up * d;
            c = 1.0 + up / c;
            d = 1.0 / (fabs(d) < tiny ? tiny : d);
            c = fabs(c) < tiny ? tiny : c;
            h *= d * c;
            if (half == 1 && fabs(d * c - 1.0) < 1e-16)
                return h;
        }
    }
    return h;
}

/* Regularized incomplete beta function; 1 - x is a separate argument, because it may be tiny. */
static double beta_inc(double a, double b, double x, double one_minus_x)
{
    if (x <= 0.0 || one_minus_x <= 0.0)
        return x <= 0.0 ? 0.0 : 1.0;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(one_minus_x));
    if (x < (a + 1.0) / (a + b + 2.0))
        return front * beta_fraction(a, b, x) / a;
    return 1.0 - front * beta_fraction(b, a, one_minus_x) / b;
}

double tsr_eval_t_two_sided(double t, double df)
{
    if (isnan(t) || isnan(df) || !(df > 0.0))
        return NAN;
    if (isinf(t))
        return 0.0;
    if (isinf(df))
        return erfc(fabs(t) * 0.70710678118654752440);
    double t2 = t * t;
    return beta_inc(0.5 * df, 0.5, df / (df + t2), t2 / (df + t2));
}

double tsr_eval_t_quantile(double p, double df)
{
    if (!(p > 0.0 && p < 1.0) || !(df > 0.0))
        return NAN;
    double tail = p < 0.5 ? 2 * p : 2 * (1 - p), low = 0.0, high = 1.0;
    while (tsr_eval_t_two_sided(high, df) > tail && high < 1e300)
        high *= 2;
    for (int i = 0; i < 200 && low < high; i++) { /* until the halves meet */
        double mid = low + 0.5 * (high - low);
        if (mid <= low || mid >= high)
            break;
        if (tsr_eval_t_two_sided(mid, df) > tail)
            low = mid;
        else
            high = mid;
    }
    return p < 0.5 ? -high : high;
}

/* ---- paired differences --------------------------------------------------------------- */

void tsr_eval_paired_difference(const double *d, const uint64_t *start, uint64_t clusters,
                                double alpha, struct tsr_eval_difference *out)
{
    double   sum = 0.0, squares = 0.0, between = 0.0;
    uint64_t n = 0, g = 0;
    for (uint64_t c = 0; c < clusters; c++) {
        for (uint64_t i = start[c]; i < start[c + 1]; i++)
            sum += d[i];
        n += start[c + 1] - start[c];
        g += start[c + 1] > start[c];
    }
    double mean = n ? sum / (double)n : NAN;
    for (uint64_t c = 0; c < clusters; c++) {
        double inside = 0.0;
        for (uint64_t i = start[c]; i < start[c + 1]; i++) {
            inside += d[i] - mean;
            squares += (d[i] - mean) * (d[i] - mean);
        }
        between += inside * inside;
    }
    double N = (double)n, G = (double)g, df = G - 1;
    *out = (struct tsr_eval_difference){ .mean = mean, .n = n, .clusters = g };
    out->naive_se = n > 1 ? sqrt(squares / (N - 1) / N) : NAN;
    out->se = g > 1 ? sqrt(between * G / (G - 1)) / N : NAN;
    if (g < 2) {
        out->low = out->high = out->p = out->detectable = NAN;
        return;
    }
    double t = tsr_eval_t_quantile(1 - alpha / 2, df);
    out->low = mean - t * out->se;
    out->high = mean + t * out->se;
    out->detectable = (t + tsr_eval_t_quantile(POWER, df)) * out->se;
    if (out->se > 0.0)
        out->p = tsr_eval_t_two_sided(mean / out->se, df);
    else /* no spread: the same everywhere, or another constant */
        out->p = mean == 0.0 ? 1.0 : 0.0;
}

/* ---- the bootstrap --------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double tsr_eval_median(double *v, uint64_t n)
{
    if (n == 0)
        return NAN;
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

double tsr_eval_percentile(const double *v, uint64_t n, double q)
{
    double at = ceil(q * (double)n);
    if (n == 0 || isnan(q))
        return NAN;
    return v[at < 1.0 ? 0 : at > (double)n ? n - 1 : (uint64_t)at - 1];
}

/* Four indices below n at a time: 32 random bits by n, without division. */
struct picker {
    uint64_t seed, draw, at;
    uint32_t bits[4];
};

static uint64_t pick(struct picker *p, uint64_t n)
{
    if (p->at % 4 == 0)
        tsr_philox(p->bits, p->at / 4, p->draw, p->seed);
    return (uint64_t)p->bits[p->at++ % 4] * n >> 32;
}

static void take_interval(double *sorted, uint64_t draws, double alpha, double *low, double *high)
{
    qsort(sorted, draws, sizeof *sorted, by_value);
    *low = tsr_eval_percentile(sorted, draws, alpha / 2);
    *high = tsr_eval_percentile(sorted, draws, 1 - alpha / 2);
}

void tsr_eval_bootstrap_median(const double *v, uint64_t n, uint64_t draws, uint64_t seed,
                               double alpha, double *sorted, double *picked, double *low,
                               double *high)
{
    for (uint64_t b = 0; b < draws; b++) {
        struct picker p = { .seed = seed, .draw = b };
        for (uint64_t i = 0; i < n; i++)
            picked[i] = v[pick(&p, n)];
        sorted[b] = tsr_eval_median(picked, n);
    }
    take_interval(sorted, draws, alpha, low, high);
}

/* P(|Z| >= z) / 2 that stands for the tail alpha / 2 of t with n - 1 degrees of freedom. */
static double expanded_tail(double alpha, double n)
{
    double t = tsr_eval_t_quantile(1 - alpha / 2, n - 1);
    return 0.5 * tsr_eval_t_two_sided(t * sqrt(n / (n - 1)), INFINITY);
}

/* The alpha at which the expanded tail is `tail`. */
static double inverted_tail(double tail, double n)
{
    if (tail >= 0.5)
        return 1.0;
    double z = tsr_eval_t_quantile(1 - tail, INFINITY);
    return tsr_eval_t_two_sided(z / sqrt(n / (n - 1)), n - 1);
}

static double draw_difference(const double *a, const double *b, const double *w, uint64_t n,
                              double (*of)(double), struct picker *p)
{
    double sa = 0.0, sb = 0.0, sw = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = pick(p, n);
        sa += a[at];
        sb += b[at];
        sw += w[at];
    }
    return of(sa / sw) - of(sb / sw);
}

void tsr_eval_bootstrap_difference(const double *a, const double *b, const double *w, uint64_t n,
                                   double (*of)(double), uint64_t draws, uint64_t seed,
                                   double alpha, double *sorted, struct tsr_eval_resampled *out)
{
    uint64_t below = 0, above = 0;
    *out = (struct tsr_eval_resampled){ .low = NAN, .high = NAN, .p = NAN, .units = n };
    if (n < 2 || draws == 0)
        return;
    for (uint64_t d = 0; d < draws; d++) {
        struct picker p = { .seed = seed, .draw = d };
        sorted[d] = draw_difference(a, b, w, n, of, &p);
        if (!isfinite(sorted[d]))
            return;
        below += sorted[d] <= 0.0;
        above += sorted[d] >= 0.0;
    }
    double tail = expanded_tail(alpha, (double)n);
    qsort(sorted, draws, sizeof *sorted, by_value);
    out->low = tsr_eval_percentile(sorted, draws, tail);
    out->high = tsr_eval_percentile(sorted, draws, 1 - tail);
    out->p = inverted_tail((1.0 + (double)(below < above ? below : above)) / (1.0 + (double)draws),
                           (double)n);
}

/* ---- tests and proportions --------------------------------------------------------------- */

void tsr_eval_holm(const double *p, uint64_t n, double *adjusted, uint64_t *order)
{
    for (uint64_t i = 0; i < n; i++) { /* insertion sort: arms are few; a NaN goes to the end */
        uint64_t at = i;
        for (; at > 0 && (p[i] < p[order[at - 1]] || isnan(p[order[at - 1]])); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    double most = 0.0;
    for (uint64_t k = 0; k < n; k++) {
        double v = p[order[k]] * (double)(n - k);
        most = v > most ? v : most;
        adjusted[order[k]] = isnan(v) ? NAN : most < 1.0 ? most : 1.0;
    }
}

/* By products alone: differences of logarithms of factorials would lose as many digits as these have before the
 * point, and C libraries differ in the last one.  A separate exponent keeps all products in range. */
double tsr_eval_mcnemar(uint64_t b, uint64_t c)
{
    uint64_t n = b + c, few = b < c ? b : c;
    double sum = 1.0, term = 1.0; /* binomials up to the one of `few`, as multiples of it; and it */
    int    power = 0, step;
    if (2 * few == n)
        return 1.0;
    for (uint64_t i = 1; i <= few; i++) {
        sum = 1.0 + sum * ((double)i / (double)(n - i + 1));
        term = frexp(term * (double)(n - i + 1) / (double)i, &step);
        power += step;
    }
    sum = ldexp(sum * term, power - (int)(n < INT_MAX / 2 ? n : INT_MAX / 2));
    return sum < 0.5 ? 2 * sum : 1.0;
}

double tsr_eval_mcnemar_questions(double discordant, double difference, double alpha)
{
    double psi = discordant < difference ? difference : discordant;
    double z = tsr_eval_t_quantile(1 - alpha / 2, INFINITY);
    double power = tsr_eval_t_quantile(POWER, INFINITY);
    double root = (z * sqrt(psi) + power * sqrt(psi - difference * difference)) / difference;
    return ceil(root * root);
}

double tsr_eval_paired_units(double deviation, double difference, double alpha)
{
    double z = tsr_eval_t_quantile(1 - alpha / 2, INFINITY);
    double root = (z + tsr_eval_t_quantile(POWER, INFINITY)) * deviation / difference;
    return ceil(root * root);
}

void tsr_eval_wilson(uint64_t k, uint64_t n, double alpha, double *low, double *high)
{
    if (n == 0) {
        *low = 0.0;
        *high = 1.0;
        return;
    }
    double z = tsr_eval_t_quantile(1 - alpha / 2, INFINITY), N = (double)n, share = (double)k / N;
    double middle = share + z * z / (2 * N), down = 1 + z * z / N;
    double half = z * sqrt(share * (1 - share) / N + z * z / (4 * N * N));
    *low = k == 0 ? 0.0 : (middle - half) / down;
    *high = k == n ? 1.0 : (middle + half) / down;
}
