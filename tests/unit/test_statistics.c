/* Distributions and tests against values of 40-digit arithmetic, intervals by simulation. */
#include "eval/statistics.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N(a) (sizeof(a) / sizeof *(a))

/* Written so that NaN fails. */
static void close_to(const char *what, double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%s: %.17g, wanted %.17g", what, got, want);
}

/* mpmath, regularized incomplete beta function and erfc with 40 digits. */
static const double tails[][3] = {
    { 1, 0.1, 0.93654896513889286 },         { 1, 1, 0.5 },
    { 1, 12, 0.052929352119179751 },         { 2, 1.96, 0.18905730960173226 },
    { 2, 40, 0.00062441467218474064 },       { 4, 0.1, 0.92515584093945329 },
    { 4, 3.5, 0.024896163460222752 },        { 4, 40, 2.3340163226012686e-6 },
    { 7, 1.96, 0.090819695368181203 },       { 19, 0.1, 0.92139194976525449 },
    { 19, 1.96, 0.06482897928896923 },       { 19, 3.5, 0.0023953466896828113 },
    { 19, 12, 2.5908946372221993e-10 },      { 19, 40, 8.30775719933843e-20 },
    { 63, 3.5, 0.00086014384050722346 },     { 199, 0.1, 0.9204449955339109 },
    { 199, 1.96, 0.051391833904160142 },     { 199, 12, 2.579960674793125e-25 },
    { 1000, 1, 0.31755241808467231 },        { 1000, 12, 4.3240573867745275e-31 },
    { INFINITY, 0.1, 0.92034432544594204 },  { INFINITY, 1.96, 0.049995790296440868 },
    { INFINITY, 12, 3.552964224155358e-33 },
};
static const double quantiles[][3] = {
    { 1, 0.8, 1.3763819204711735 },          { 1, 0.975, 12.706204736174705 },
    { 4, 0.975, 2.7764451051977944 },        { 4, 0.995, 4.6040948713499932 },
    { 19, 0.8, 0.86095055026892879 },        { 19, 0.975, 2.0930240544083098 },
    { 19, 0.995, 2.8609346064649792 },       { 199, 0.8, 0.84343119993729691 },
    { 199, 0.975, 1.9719565442517538 },      { INFINITY, 0.8, 0.84162123357291421 },
    { INFINITY, 0.975, 1.9599639845400542 }, { INFINITY, 0.995, 2.5758293035489008 },
};

static void distributions(void **state)
{
    (void)state;
    /* the exponent of a tail of 1e-31 is 71: lgamma's last bit alone is 1e-14 of it */
    for (size_t i = 0; i < N(tails); i++) {
        close_to("tail", tsr_eval_t_two_sided(tails[i][1], tails[i][0]), tails[i][2], 2e-12);
        close_to("of -t", tsr_eval_t_two_sided(-tails[i][1], tails[i][0]), tails[i][2], 2e-12);
    }
    for (size_t i = 0; i < N(quantiles); i++) {
        close_to("quantile", tsr_eval_t_quantile(quantiles[i][1], quantiles[i][0]), quantiles[i][2],
                 1e-11);
        close_to("lower", tsr_eval_t_quantile(1 - quantiles[i][1], quantiles[i][0]),
                 -quantiles[i][2], 1e-11);
    }
    assert_true(isnan(tsr_eval_t_two_sided(NAN, 3)) && isnan(tsr_eval_t_two_sided(1, 0)));
    assert_true(isnan(tsr_eval_t_quantile(0, 3)) && isnan(tsr_eval_t_quantile(1, 3)));
    assert_true(tsr_eval_t_two_sided(INFINITY, 3) == 0 && tsr_eval_t_two_sided(0, 3) == 1);
}

static void counts(void **state)
{
    (void)state;
    static const double mcnemar[][3] = {
        { 0, 0, 1 },
        { 1, 0, 1 },
        { 5, 1, 0.21875 },
        { 10, 25, 0.016673847800120711 },
        { 40, 60, 0.056887933640980792 },
        { 500, 600, 0.0028195449914364277 },
        { 3, 300, 5.6903855084867903e-85 },
        { 7, 7, 1 },
        /* statsmodels 0.15.0, mcnemar(exact=True), and scipy 1.17.1, binomtest, which agree */
        { 5, 15, 0.04138946533203125 },
        { 59, 6, 4.964650327128616e-12 },
        { 1500, 1700, 0.00043334035939974455 },
        { 12000, 12345, 0.027471663212771995 },
    };
    static const double wilson[][4] = {
        { 0, 10, 0, 0.27753279986288925 },
        { 1, 10, 0.017876213095072904, 0.4041500267952385 },
        { 7, 10, 0.39677814746114532, 0.89220873259369898 },
        { 10, 10, 0.72246720013711075, 1 },
        { 50, 1000, 0.038130262392748808, 0.065313820244250804 },
        { 12345, 20000, 0.61049179573606577, 0.6239631718087777 },
    };
    for (size_t i = 0; i < N(mcnemar); i++) {
        uint64_t b = (uint64_t)mcnemar[i][0], c = (uint64_t)mcnemar[i][1];
        close_to("McNemar", tsr_eval_mcnemar(b, c), mcnemar[i][2], 1e-11);
        close_to("turned", tsr_eval_mcnemar(c, b), mcnemar[i][2], 1e-11);
    }
    for (size_t i = 0; i < N(wilson); i++) {
        double low, high;
        tsr_eval_wilson((uint64_t)wilson[i][0], (uint64_t)wilson[i][1], 0.05, &low, &high);
        close_to("Wilson, low", low, wilson[i][2], 1e-11);
        close_to("Wilson, high", high, wilson[i][3], 1e-11);
    }
}

/* Written so that NaN fails. */
static void equals(const char *what, double got, double want)
{
    if (!(got == want))
        fail_msg("%s: %.17g, wanted %.17g", what, got, want);
}

static void sizes(void **state)
{
    (void)state;
    /* published: 23 pairs for 0.45 and 0.05 (powerandsamplesize.com, "Compare Paired Proportions: McNemar's Z-test,
     * 2-Sided Equality", after Connor, 1987); 59 for 0.5 and 0.2 (Chow, Shao and Wang, "Sample Size Calculations in
     * Clinical Research", McNemar's test) */
    equals("0.45 and 0.05", tsr_eval_mcnemar_questions(0.5, 0.4, 0.05), 23);
    equals("0.5 and 0.2", tsr_eval_mcnemar_questions(0.7, 0.3, 0.05), 59);
    /* Connor's formula with the quantiles of scipy 1.17.1: 3922.08, 7846.52, 15695.40, 5836.61, 782.53 */
    equals("1 % of 5 %", tsr_eval_mcnemar_questions(0.05, 0.01, 0.05), 3923);
    equals("1 % of 10 %", tsr_eval_mcnemar_questions(0.1, 0.01, 0.05), 7847);
    equals("1 % of 20 %", tsr_eval_mcnemar_questions(0.2, 0.01, 0.05), 15696);
    equals("at 0.01", tsr_eval_mcnemar_questions(0.05, 0.01, 0.01), 5837);
    equals("1 % of 1 %", tsr_eval_mcnemar_questions(0.01, 0.01, 0.05), 783);
    equals("of nothing", tsr_eval_mcnemar_questions(0, 0.01, 0.05), 783);
    assert_true(isnan(tsr_eval_mcnemar_questions(NAN, 0.01, 0.05)));
    /* ((z + z) s / d)^2 there: 784.89, 7134.69, 1167.90 */
    equals("a tenth of s", tsr_eval_paired_units(1, 0.1, 0.05), 785);
    equals("1 % of a perplexity", tsr_eval_paired_units(0.3, 0.00995033085, 0.05), 7135);
    equals("at 0.01", tsr_eval_paired_units(1, 0.1, 0.01), 1168);
    assert_true(isnan(tsr_eval_paired_units(NAN, 0.1, 0.05)));
}

static double as_it_is(double mean)
{
    return mean;
}

static double perplexity(double mean)
{
    return exp(-mean);
}

#define DRAWS 100000u

/* All n^n resamples, by numpy and scipy 1.17.1: ends at norm.cdf(-sqrt(n / (n - 1)) t.ppf(1 - alpha / 2, n - 1)), p
 * back from the share of differences on the other side of 0. */
static void resampled(void **state)
{
    (void)state;
    static const double a[] = { 3, 1, 2, 4, 0, 5 }, b[] = { 1, 1, 3, 1, 1, 2 },
                        w[] = { 5, 4, 5, 6, 3, 6 };
    static const double la[] = { -3.1, -2.5, -4.0, -1.2, -2.2 },
                        lb[] = { -2.9, -2.6, -3.1, -1.0, -2.3 }, one[] = { 1, 1, 1, 1, 1 };
    static double             sorted[DRAWS];
    struct tsr_eval_resampled r;
    /* 100,000 of 46,656 equally likely resamples: an end lies within 0.003 of its rank, steps there are below 0.01; the
     * share of 0.1000 has a standard error of 0.00095, p one of 0.0026 */
    tsr_eval_bootstrap_difference(a, b, w, 6, as_it_is, DRAWS, 7, 0.2, sorted, &r);
    assert_true(fabs(r.low + 0.038461538461538464) <= 0.01 && fabs(r.high - 0.40625) <= 0.01);
    assert_true(fabs(r.p - 0.29474590298243526) <= 0.009);
    tsr_eval_bootstrap_difference(a, b, w, 6, as_it_is, DRAWS, 7, 0.05, sorted, &r);
    assert_true(fabs(r.low + 0.21739130434782608) <= 0.03 &&
                fabs(r.high - 0.48571428571428577) <= 0.03);
    assert_int_equal(r.units, 6);
    tsr_eval_bootstrap_difference(la, lb, one, 5, perplexity, DRAWS, 7, 0.2, sorted, &r);
    assert_true(fabs(r.low + 0.3610246071613652) <= 0.05 &&
                fabs(r.high - 10.456751751846404) <= 0.5);
    assert_true(fabs(r.p - 0.23972388545161744) <= 0.009);
}

/* The same draws, one at a time, by the rule of the header. */
static void same_draws(void **state)
{
    (void)state;
    static const double a[] = { 1, 0, 1, 1, 0, 1, 0 }, b[] = { 0, 0, 1, 0, 0, 1, 1 },
                        w[] = { 1, 1, 1, 1, 1, 1, 1 };
    double                    sorted[40], slow[40], swap;
    struct tsr_eval_resampled r;
    for (uint64_t d = 0; d < 40; d++) {
        double sum = 0;
        for (uint64_t i = 0; i < 7; i++) {
            uint32_t words[4];
            tsr_philox(words, i / 4, d, 99);
            uint64_t at = (uint64_t)words[i % 4] * 7 >> 32;
            sum += a[at] - b[at];
        }
        slow[d] = sum / 7;
    }
    for (int i = 0; i < 40; i++)
        for (int j = i + 1; j < 40; j++)
            if (slow[j] < slow[i]) {
                swap = slow[i];
                slow[i] = slow[j];
                slow[j] = swap;
            }
    tsr_eval_bootstrap_difference(a, b, w, 7, as_it_is, 40, 99, 0.5, sorted, &r);
    for (int i = 0; i < 40; i++)
        assert_true(fabs(sorted[i] - slow[i]) <= 1e-15);
    /* scipy 1.17.1: norm.cdf(-sqrt(7 / 6) t.ppf(0.75, 6)) is 0.2192, so ranks 9 and 32 of 40 */
    assert_true(r.low == sorted[8] && r.high == sorted[31]);
}

static void few_units(void **state)
{
    (void)state;
    static const double a[] = { 9, 8, 7, 9, 8, 9 }, b[] = { 1, 2, 1, 2, 1, 1 },
                        w[] = { 10, 10, 10, 10, 10, 10 };
    double                    bad[] = { 9, 8, NAN, 9, 8, 9 }, none[6] = { 0 };
    static double             sorted[10000];
    struct tsr_eval_resampled r;
    tsr_eval_bootstrap_difference(a, b, w, 1, as_it_is, 10000, 7, 0.05, sorted, &r);
    assert_true(isnan(r.low) && isnan(r.high) && isnan(r.p) && r.units == 1);
    /* two units that agree are no proof; six are */
    tsr_eval_bootstrap_difference(a, b, w, 2, as_it_is, 10000, 7, 0.05, sorted, &r);
    assert_true(r.p > 0.2 && r.p < 0.3 && r.low > 0);
    tsr_eval_bootstrap_difference(a, b, w, 6, as_it_is, 10000, 7, 0.05, sorted, &r);
    assert_true(r.p < 0.05 && r.p > 0 && r.low > 0);
    tsr_eval_bootstrap_difference(a, a, w, 6, as_it_is, 10000, 7, 0.05, sorted, &r);
    assert_true(r.p == 1 && r.low == 0 && r.high == 0);
    tsr_eval_bootstrap_difference(bad, b, w, 6, as_it_is, 10000, 7, 0.05, sorted, &r);
    assert_true(isnan(r.low) && isnan(r.high) && isnan(r.p));
    tsr_eval_bootstrap_difference(a, b, none, 6, as_it_is, 10000, 7, 0.05, sorted, &r);
    assert_true(isnan(r.low) && isnan(r.high) && isnan(r.p));
}

/* No difference, clusters of unequal spread: how often is one found at 0.05?  4,000 runs put the share within 0.7
 * points (2 sigma). */
static void false_findings(void **state)
{
    (void)state;
    static const double w[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    double              a[8], b[8] = { 0 }, sorted[1000];
    uint64_t            found = 0;
    for (uint64_t run = 0; run < 4000; run++) {
        struct tsr_eval_resampled r;
        for (uint64_t i = 0; i < 8; i++) { /* a sum of 12 uniform numbers, nearly normal */
            a[i] = -6;
            for (uint64_t k = 0; k < 12; k++)
                a[i] += tsr_uniform(20261127, run, 12 * i + k);
        }
        tsr_eval_bootstrap_difference(a, b, w, 8, as_it_is, 1000, run, 0.05, sorted, &r);
        found += r.p < 0.05;
    }
    print_message("8 units, no difference: found in %.2f %%\n", 100.0 * (double)found / 4000);
    assert_true(found >= 120 && found <= 280); /* 3 % to 7 % */
}

static void holm(void **state)
{
    (void)state;
    /* the example of the method: R's p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") */
    const double p[] = { 0.01, 0.04, 0.03, 0.005, NAN, 0.9 };
    double       adjusted[6];
    uint64_t     order[6];
    tsr_eval_holm(p, 4, adjusted, order);
    close_to("0.01", adjusted[0], 0.03, 1e-15);
    close_to("0.04", adjusted[1], 0.06, 1e-15);
    close_to("0.03", adjusted[2], 0.06, 1e-15);
    close_to("0.005", adjusted[3], 0.02, 1e-15);
    tsr_eval_holm(p, 6, adjusted, order);
    assert_true(isnan(adjusted[4]));
    close_to("0.005 of 6", adjusted[3], 0.03, 1e-15);
    assert_true(adjusted[5] == 1);
}

static void differences(void **state)
{
    (void)state;
    /* By hand: clusters {1, 2}, {}, {4}, {3, 6}: mean 16/5; sums of d - mean -3.4, 0.8, 2.6. */
    const double               d[] = { 1, 2, 4, 3, 6 };
    const uint64_t             start[] = { 0, 2, 2, 3, 5 };
    struct tsr_eval_difference r;
    tsr_eval_paired_difference(d, start, 4, 0.05, &r);
    assert_int_equal(r.n, 5);
    assert_int_equal(r.clusters, 3);
    close_to("mean", r.mean, 3.2, 1e-15);
    close_to("naive", r.naive_se, sqrt(14.8 / 4 / 5), 1e-15);
    double se = sqrt((3.4 * 3.4 + 0.8 * 0.8 + 2.6 * 2.6) * 1.5) / 5;
    close_to("clustered", r.se, se, 1e-15);
    close_to("low", r.low, 3.2 - 4.3026527297494639 * se, 1e-12);
    close_to("high", r.high, 3.2 + 4.3026527297494639 * se, 1e-12);
    close_to("p", r.p, tsr_eval_t_two_sided(3.2 / se, 2), 1e-12);
    close_to("detectable", r.detectable, (4.3026527297494639 + 1.0606601717798212) * se, 1e-12);
    /* one window gives no error, equal arms no difference */
    tsr_eval_paired_difference(d, start + 3, 1, 0.05, &r);
    assert_true(isnan(r.se) && isnan(r.low) && isnan(r.p) && r.mean == 4.5);
    const double zero[5] = { 0 };
    tsr_eval_paired_difference(zero, start, 4, 0.05, &r);
    assert_true(r.mean == 0 && r.se == 0 && r.p == 1 && r.low == 0 && r.high == 0);
}

/* Windows of tokens with a part in common, and a skewed part of their own: how often does the
 * interval hold the true mean?  10,000 runs put the share within 0.4 points (2 sigma). */
#define RUNS   10000
#define TOKENS 8
#define TRUE   0.013

static void draw(uint64_t seed, uint64_t run, uint64_t windows, double *d)
{
    for (uint64_t w = 0; w < windows; w++) {
        double shared = 0.05 * tsr_normal(seed, run, w);
        for (uint64_t i = 0; i < TOKENS; i++) {
            double u = tsr_uniform(seed + 1, run, w * TOKENS + i);
            d[w * TOKENS + i] = TRUE + shared + 0.1 * (-log1p(-u) - 1);
        }
    }
}

static void coverage_of(uint64_t windows, double *t, double *naive)
{
    double        *d = malloc(windows * TOKENS * sizeof *d);
    uint64_t      *start = malloc((windows + 1) * sizeof *start), hits = 0, plain = 0;
    const uint64_t seed = 20261121; /* fixed: a share at a limit must not depend on the day */
    assert_true(d && start);
    for (uint64_t w = 0; w <= windows; w++)
        start[w] = w * TOKENS;
    for (uint64_t run = 0; run < RUNS; run++) {
        struct tsr_eval_difference r;
        draw(seed, run, windows, d);
        tsr_eval_paired_difference(d, start, windows, 0.05, &r);
        hits += r.low <= TRUE && TRUE <= r.high;
        plain += fabs(r.mean - TRUE) <= 1.96 * r.naive_se;
    }
    *t = 100.0 * (double)hits / RUNS;
    *naive = 100.0 * (double)plain / RUNS;
    free(d);
    free(start);
}

static void coverage(void **state)
{
    (void)state;
    for (uint64_t windows = 20; windows <= 200; windows += 180) {
        double t, naive;
        coverage_of(windows, &t, &naive);
        print_message("%3llu windows: t %.2f %%, as if independent %.2f %%\n",
                      (unsigned long long)windows, t, naive);
        assert_true(t >= 94 && t <= 96);
        assert_true(naive < 90); /* why clusters are taken */
    }
}

static void medians(void **state)
{
    (void)state;
    double v[] = { 3, 1, 2, 10 }, sorted[500], picked[4], low, high;
    assert_true(tsr_eval_median(v, 4) == 2.5);
    assert_true(tsr_eval_median(v, 3) == 2);
    assert_true(isnan(tsr_eval_median(v, 0)));
    assert_true(tsr_eval_percentile(v, 4, 1) == 10 && tsr_eval_percentile(v, 4, 0.25) == 1);
    assert_true(tsr_eval_percentile(v, 4, 0.26) == 2 && tsr_eval_percentile(v, 4, 0.001) == 1);
    tsr_eval_bootstrap_median(v, 4, 500, 7, 0.05, sorted, picked, &low, &high);
    assert_true(low >= 1 && low <= 2.5 && high >= 2.5 && high <= 10 && low < high);
    tsr_eval_bootstrap_median(v, 1, 500, 7, 0.05, sorted, picked, &low, &high);
    assert_true(low == 1 && high == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions),  cmocka_unit_test(counts),
        cmocka_unit_test(holm),           cmocka_unit_test(differences),
        cmocka_unit_test(medians),        cmocka_unit_test(coverage),
        cmocka_unit_test(sizes),          cmocka_unit_test(resampled),
        cmocka_unit_test(same_draws),     cmocka_unit_test(few_units),
        cmocka_unit_test(false_findings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
