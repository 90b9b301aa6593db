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
        cmocka_unit_test(distributions), cmocka_unit_test(counts),  cmocka_unit_test(holm),
        cmocka_unit_test(differences),   cmocka_unit_test(medians), cmocka_unit_test(coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
