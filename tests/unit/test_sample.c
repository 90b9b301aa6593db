/* Sampling against cases worked out by hand: which ids can come out, and with what share. */
#include "engine/engine.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "draw.h"
static uint32_t one(const float *logits, uint64_t n, const struct tsr_engine_sampling *s,
                    const uint32_t *history, uint64_t n_history, uint64_t record, uint64_t index)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint32_t          id = UINT32_MAX;
    if (draw_one(logits, n, s, history, n_history, record, index, NULL, &id, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return id;
}

static void greedy_takes_the_lowest_of_ties(void **state)
{
    const float                logits[] = { -1, 3, 0, 3, 2 };
    struct tsr_engine_sampling s = { .top_p = 1, .repetition_penalty = 1 };
    (void)state;
    assert_int_equal(one(logits, 5, &s, NULL, 0, 0, 0), 1);
    const float flat[] = { 0, 0, 0 };
    assert_int_equal(one(flat, 3, &s, NULL, 0, 0, 0), 0);
}

/* 4 / 2 = 2 < 3, once however often the id was seen; a negative logit is multiplied. */
static void penalty(void **state)
{
    const float                logits[] = { 4, 3, -1, 1.9f };
    const uint32_t             history[] = { 0, 0, 0, 99 }; /* 99 is no id here */
    struct tsr_engine_sampling s = { .top_p = 1, .repetition_penalty = 2 };
    (void)state;
    assert_int_equal(one(logits, 4, &s, NULL, 0, 0, 0), 0);
    assert_int_equal(one(logits, 4, &s, history, 4, 0, 0), 1);
    const uint32_t first_two[] = { 0, 1, 0 };
    /* 2, 1.5, -1, 1.9 */
    assert_int_equal(one(logits, 4, &s, first_two, 3, 0, 0), 0);
    const float    negative[] = { -1, -1.5f };
    const uint32_t zero[] = { 0 };
    assert_int_equal(one(negative, 2, &s, zero, 1, 0, 0), 1); /* -2 < -1.5 */
    s.repetition_penalty = 0.5;                               /* below 1 it rewards */
    const uint32_t last[] = { 3 };
    assert_int_equal(one(logits, 4, &s, last, 1, 0, 0), 0); /* 3.8 < 4 */
    s.repetition_penalty = 0.4;
    assert_int_equal(one(logits, 4, &s, last, 1, 0, 0), 3); /* 4.75 > 4 */
}

/* Counts of n draws. */
static void count(const float *logits, uint64_t vocab, const struct tsr_engine_sampling *s, int n,
                  int *counts)
{
    memset(counts, 0, vocab * sizeof *counts);
    for (int i = 0; i < n; i++) {
        uint32_t id = one(logits, vocab, s, NULL, 0, 3, (uint64_t)i);
        assert_true(id < vocab);
        counts[id]++;
    }
}

#define DRAWS 20000

/* Five standard deviations of a share p of DRAWS, with a fixed seed: never by chance. */
static void share(int got, double p)
{
    double off = fabs((double)got / DRAWS - p), sd = sqrt(p * (1 - p) / DRAWS);
    if (!(off <= 5 * sd + 1e-12))
        fail_msg("%d of %d draws, wanted a share of %g", got, DRAWS, p);
}

/* Probabilities 0.1, 0.4, 0.2, 0.3 in id order. */
static const double probability[] = { 0.1, 0.4, 0.2, 0.3 };
static void         four(float *logits)
{
    for (int i = 0; i < 4; i++)
        logits[i] = (float)log(probability[i]);
}

static void shares(void **state)
{
    float                      l[4];
    int                        c[4];
    struct tsr_engine_sampling s = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 7
    };
    (void)state;
    four(l);
    count(l, 4, &s, DRAWS, c);
    for (int i = 0; i < 4; i++)
        share(c[i], probability[i]);
    s.top_k = 2; /* 0.4 and 0.3 of 0.7 */
    count(l, 4, &s, DRAWS, c);
    assert_int_equal(c[0] + c[2], 0);
    share(c[1], 4.0 / 7);
    s.top_k = 0;
    s.top_p = 0.75; /* 0.4 + 0.3 < 0.75, so the third comes along: shares of 0.9 */
    count(l, 4, &s, DRAWS, c);
    assert_int_equal(c[0], 0);
    share(c[1], 4.0 / 9);
    share(c[2], 2.0 / 9);
    share(c[3], 3.0 / 9);
    s.top_p = 1e-9; /* at least one */
    count(l, 4, &s, 100, c);
    assert_int_equal(c[1], 100);
    s.top_k = 3; /* 4/9, 3/9, 2/9: two hold 0.7 of it, though not of the whole */
    s.top_p = 0.7;
    count(l, 4, &s, DRAWS, c);
    assert_int_equal(c[0] + c[2], 0);
    share(c[1], 4.0 / 7);
    s.top_k = 0;
    s.top_p = 1;
    s.temperature = 0.5; /* squares: 0.01 0.16 0.04 0.09 of 0.3 */
    count(l, 4, &s, DRAWS, c);
    share(c[1], 0.16 / 0.3);
    share(c[0], 0.01 / 0.3);
    s.temperature = 1e-6; /* no overflow, and the best always */
    count(l, 4, &s, 100, c);
    assert_int_equal(c[1], 100);
}

static void top_k_cuts_ties_by_id(void **state)
{
    const float                l[] = { 1, 1, 1, 1, 0 };
    int                        c[5];
    struct tsr_engine_sampling s = {
        .temperature = 1, .top_k = 2, .top_p = 1, .repetition_penalty = 1
    };
    (void)state;
    count(l, 5, &s, DRAWS, c);
    share(c[0], 0.5);
    assert_int_equal(c[0] + c[1], DRAWS);
}

/* The weights are 1, 1/2 and 1/8 of the best one's. */
static void min_p_cuts_the_unlikely(void **state)
{
    const float                l[] = { 0, -0.69314718f, -2.0794415f };
    int                        c[3];
    struct tsr_engine_sampling s = {
        .temperature = 1, .top_p = 1, .min_p = 0.2, .repetition_penalty = 1
    };
    (void)state;
    count(l, 3, &s, DRAWS, c);
    share(c[0], 2.0 / 3);
    share(c[1], 1.0 / 3);
    assert_int_equal(c[2], 0);
    s.min_p = 1; /* the best stays */
    count(l, 3, &s, 100, c);
    assert_int_equal(c[0], 100);
    s.min_p = 0.05; /* top-k is before it, and its part is of the best one */
    s.top_k = 2;
    count(l, 3, &s, DRAWS, c);
    share(c[0], 2.0 / 3);
    assert_int_equal(c[2], 0);
    s.top_k = 0;
    count(l, 3, &s, DRAWS, c);
    share(c[2], 1.0 / 13);
}

/* The draw is the documented one: candidates by descending logit, u of (seed, record, index). */
static void draws_follow_the_counter(void **state)
{
    float                      l[4];
    const uint32_t             order[] = { 1, 3, 2, 0 };
    struct tsr_engine_sampling s = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 42
    };
    (void)state;
    four(l);
    for (uint64_t record = 0; record < 5; record++)
        for (uint64_t i = 0; i < 50; i++) {
            double   u = tsr_uniform(42, record, i), mass = 0;
            uint32_t want = 0;
            for (int k = 0; k < 4; k++) {
                want = order[k];
                mass += probability[want];
                if (mass > u)
                    break;
            }
            assert_int_equal(one(l, 4, &s, NULL, 0, record, i), want);
            assert_int_equal(one(l, 4, &s, NULL, 0, record, i), want);
        }
}

/* Against a plain sort, over a vocabulary large enough for the heap to have shape. */
static void agrees_with_a_sort(void **state)
{
    enum { N = 997 };
    float  l[N];
    double scratch[2 * N];
    (void)state;
    for (uint64_t i = 0; i < N; i++)
        l[i] = (float)floor(8 * tsr_normal(3, 0, i)) / 8; /* with many ties */
    struct tsr_engine_sampling s = {
        .temperature = 0.7, .top_k = 50, .top_p = 0.9, .repetition_penalty = 1, .seed = 9
    };
    for (uint64_t i = 0; i < 200; i++) {
        uint32_t order[50];
        bool     used[N] = { false };
        double   w[50], sum = 0, kept = 0, mass = 0;
        for (int k = 0; k < 50; k++) {
            uint32_t best = N;
            for (uint32_t v = 0; v < N; v++)
                if (!used[v] && (best == N || l[v] > l[best]))
                    best = v;
            used[best] = true;
            order[k] = best;
            w[k] = exp(((double)l[best] - (double)l[order[0]]) / 0.7);
            sum += w[k];
        }
        int n = 0;
        while (n < 50 && kept < 0.9 * sum)
            kept += w[n++];
        uint32_t want = 0, got = N;
        for (int k = 0; k < n; k++) {
            want = order[k];
            mass += w[k];
            if (mass > tsr_uniform(9, 1, i) * kept)
                break;
        }
        assert_int_equal(draw_one(l, N, &s, NULL, 0, 1, i, scratch, &got, NULL), TSR_OK);
        assert_int_equal(got, want);
    }
}

static void bad_settings_are_refused(void **state)
{
    const float                             l[] = { 0, 1 };
    uint32_t                                id;
    static const struct tsr_engine_sampling bad[] = {
        { .temperature = -1, .top_p = 1, .repetition_penalty = 1 },
        { .temperature = 1, .top_p = 0, .repetition_penalty = 1 },
        { .temperature = 1, .top_p = 1.5, .repetition_penalty = 1 },
        { .temperature = 1, .top_p = 1, .repetition_penalty = 0 },
        { .temperature = 1, .top_p = 1, .min_p = -0.1, .repetition_penalty = 1 },
        { .temperature = 1, .top_p = 1, .min_p = (double)NAN, .repetition_penalty = 1 },
        { .temperature = (double)NAN, .top_p = 1, .repetition_penalty = 1 },
        { .temperature = 1, .top_p = (double)NAN, .repetition_penalty = 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(draw_one(l, 2, &bad[i], NULL, 0, 0, 0, NULL, &id, NULL), TSR_E_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_lowest_of_ties),
        cmocka_unit_test(penalty),
        cmocka_unit_test(shares),
        cmocka_unit_test(top_k_cuts_ties_by_id),
        cmocka_unit_test(min_p_cuts_the_unlikely),
        cmocka_unit_test(draws_follow_the_counter),
        cmocka_unit_test(agrees_with_a_sort),
        cmocka_unit_test(bad_settings_are_refused),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
