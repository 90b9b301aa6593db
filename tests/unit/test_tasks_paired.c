/* A task by two models: marks as they are kept, the test that decides, units of the bootstrap, sizes. */
#include "tasks/paired.h"

#include "eval/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DRAWS 2000u

static const struct tsr_tasks_task questions = { .name = "questions",
                                                 .by = "",
                                                 .kind = TSR_TASKS_CHOICES,
                                                 .metrics = { TSR_TASKS_ACC, TSR_TASKS_ACC_NORM },
                                                 .n_metrics = 2 };
static const struct tsr_tasks_task subjects = { .name = "subjects",
                                                .by = "subject",
                                                .kind = TSR_TASKS_CHOICES,
                                                .metrics = { TSR_TASKS_ACC },
                                                .n_metrics = 1 };
static const struct tsr_tasks_task last = { .name = "last",
                                            .by = "",
                                            .kind = TSR_TASKS_CONTINUATION,
                                            .metrics = { TSR_TASKS_PERPLEXITY },
                                            .n_metrics = 1 };
static const struct tsr_tasks_task pages = { .name = "pages",
                                             .by = "",
                                             .kind = TSR_TASKS_TEXT,
                                             .metrics = { TSR_TASKS_WORD_PERPLEXITY,
                                                          TSR_TASKS_BITS_PER_BYTE },
                                             .n_metrics = 2 };

static struct tsr_tasks_marks *marks(const struct tsr_tasks_task *t, uint64_t n, const double *mark,
                                     const double *weight, const uint64_t *group)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_tasks_marks *m;
    assert_int_equal(tsr_tasks_marks_create(&m, t, n, &e.err), TSR_OK);
    m->n = n;
    for (uint64_t i = 0; i < n * t->n_metrics; i++) {
        m->mark[i] = mark[i];
        m->weight[i] = weight ? weight[i] : 1;
    }
    for (uint64_t i = 0; group && i < n; i++)
        m->group[i] = group[i];
    return m;
}

static struct tsr_tasks_paired pair(const struct tsr_tasks_marks *a,
                                    const struct tsr_tasks_marks *b, uint64_t k)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_tasks_paired p;
    assert_int_equal(tsr_tasks_paired_measure(&p, a, b, k, 0.05, 7, DRAWS, &e.err), TSR_OK);
    return p;
}

static void shares(void **state)
{
    (void)state;
    /* acc: only a right in 6 of 8, only b in 1; acc_norm: the same answers */
    const double            a[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1 };
    const double            b[] = { 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1 };
    struct tsr_tasks_marks *x = marks(&questions, 8, a, NULL, NULL),
                           *y = marks(&questions, 8, b, NULL, NULL);
    struct tsr_tasks_paired p = pair(x, y, 0);
    assert_true(p.value == 0.625 && p.only_a == 6 && p.only_b == 1 && p.documents == 8 &&
                p.units == 8);
    /* 2 (1 + 7) / 2^7 */
    assert_true(p.is_mcnemar && fabs(p.p - 0.125) <= 1e-12 && p.p == p.mcnemar);
    assert_true(p.low < 0.625 && p.high > 0.625 && p.bootstrap > 0);
    assert_true(p.needed == tsr_eval_mcnemar_questions(7.0 / 8, 0.01, 0.05));
    p = pair(x, y, 1);
    assert_true(p.value == 0 && p.p == 1 && p.low == 0 && p.high == 0 && p.needed == 783);
    p = pair(y, x, 0);
    assert_true(p.value == -0.625 && p.only_a == 1 && p.only_b == 6 && fabs(p.p - 0.125) <= 1e-12);
    tsr_tasks_marks_destroy(x);
    tsr_tasks_marks_destroy(y);
}

static void groups(void **state)
{
    (void)state;
    /* 20 questions of one subject that only a has right, and 20 of another without a difference: McNemar's test takes
     * them for independent, two subjects are no proof */
    double   a[40], b[40];
    uint64_t of[40], one[40] = { 0 };
    for (int i = 0; i < 40; i++) {
        a[i] = 1;
        b[i] = i >= 20;
        of[i] = i >= 20;
    }
    struct tsr_tasks_marks *x = marks(&subjects, 40, a, NULL, of),
                           *y = marks(&subjects, 40, b, NULL, of);
    struct tsr_tasks_paired p = pair(x, y, 0);
    assert_true(p.units == 2 && !p.is_mcnemar && p.p == p.bootstrap && p.p > 0.2);
    assert_true(p.mcnemar < 1e-5 && p.only_a == 20 && p.value == 0.5);
    /* ends of two units: both of one subject, or both of the other */
    assert_true(p.low == 0 && p.high == 1);
    tsr_tasks_marks_destroy(x);
    tsr_tasks_marks_destroy(y);
    /* one subject alone: its questions are the units */
    x = marks(&subjects, 40, a, NULL, one);
    y = marks(&subjects, 40, b, NULL, one);
    p = pair(x, y, 0);
    assert_true(p.units == 40 && p.is_mcnemar && p.p < 1e-5 && p.low > 0);
    tsr_tasks_marks_destroy(x);
    tsr_tasks_marks_destroy(y);
}

static void perplexities(void **state)
{
    (void)state;
    const double            a[] = { -2, -3, -1.5, -2.5 }, b[] = { -1.8, -2.7, -1.6, -2.2 };
    struct tsr_tasks_marks *x = marks(&last, 4, a, NULL, NULL), *y = marks(&last, 4, b, NULL, NULL);
    struct tsr_tasks_paired p = pair(x, y, 0);
    assert_true(fabs(p.value - (exp(2.25) - exp(2.075))) <= 1e-12 && isnan(p.mcnemar) &&
                !p.is_mcnemar);
    assert_true(p.p == p.bootstrap && p.only_a == 0 && p.only_b == 0);
    /* differences -0.2 -0.3 0.1 -0.3, mean -0.175, squares from it 0.1075: deviation sqrt(0.1075 / 3); scipy 1.17.1:
     * 2840.66 */
    assert_true(p.needed == 2841);
    tsr_tasks_marks_destroy(x);
    /* a number that is none decides nothing */
    const double bad[] = { -2, NAN, -1.5, -2.5 };
    x = marks(&last, 4, bad, NULL, NULL);
    p = pair(x, y, 0);
    assert_true(isnan(p.value) && isnan(p.p) && isnan(p.low) && isnan(p.needed));
    tsr_tasks_marks_destroy(x);
    tsr_tasks_marks_destroy(y);
    /* nor does a single document */
    x = marks(&last, 1, a, NULL, NULL);
    y = marks(&last, 1, b, NULL, NULL);
    p = pair(x, y, 0);
    assert_true(isfinite(p.value) && isnan(p.p) && isnan(p.low) && isnan(p.needed));
    tsr_tasks_marks_destroy(x);
    tsr_tasks_marks_destroy(y);
}

static void weights(void **state)
{
    (void)state;
    /* by words and by bytes: 12 nats over 4 words and 24 bytes against 10 */
    const double a[] = { -8, -8, -4, -4 }, b[] = { -7, -7, -3, -3 }, w[] = { 3, 18, 1, 6 };
    struct tsr_tasks_marks *x = marks(&pages, 2, a, w, NULL), *y = marks(&pages, 2, b, w, NULL);
    assert_true(fabs(pair(x, y, 0).value - (exp(3.0) - exp(2.5))) <= 1e-12);
    assert_true(fabs(pair(x, y, 1).value - 2.0 / 24 / log(2)) <= 1e-12);
    tsr_tasks_marks_destroy(x);
    tsr_tasks_marks_destroy(y);
}

static bool same(const double *a, const double *b, uint64_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* Through text, as an arm's file has it. */
static struct tsr_tasks_marks *kept(const struct tsr_tasks_marks *m)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_tasks_marks *back;
    json_t                 *j = tsr_tasks_marks_json(m);
    char                   *text = json_dumps(j, JSON_REAL_PRECISION(17));
    assert_non_null(text);
    json_t *again = json_loads(text, 0, NULL);
    if (tsr_tasks_marks_load(&back, m->t, again, "a.json", &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    free(text);
    json_decref(j);
    json_decref(again);
    return back;
}

static void keeps(void **state)
{
    (void)state;
    const double   p[] = { -8.123456789012345, -8.1, -1.0 / 3, -4e-17 }, w[] = { 3, 18, 1, 6 };
    const double   s[] = { 1, 0, 0, 1, 1 };
    const uint64_t of[] = { 0, 1, 0, 2, 1 };
    struct tsr_tasks_marks *m = marks(&pages, 2, p, w, NULL), *n = marks(&subjects, 5, s, NULL, of);
    struct tsr_tasks_marks *a = kept(m), *b = kept(n);
    assert_true(a->n == 2 && same(a->mark, p, 4) && same(a->weight, w, 4));
    assert_true(b->n == 5 && same(b->mark, s, 5) && b->weight[4] == 1);
    assert_memory_equal(b->group, of, sizeof of);
    tsr_tasks_marks_destroy(a);
    tsr_tasks_marks_destroy(b);
    tsr_tasks_marks_destroy(m);
    tsr_tasks_marks_destroy(n);
}

static void damaged(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}",
        "{\"documents\": 0, \"groups\": [], \"acc\": {\"marks\": \"\"}}",
        "{\"documents\": 3, \"groups\": [0, 0, 1], \"acc\": {\"marks\": \"01\"}}",
        "{\"documents\": 3, \"groups\": [0, 0, 1], \"acc\": {\"marks\": \"012\"}}",
        "{\"documents\": 3, \"groups\": [0, 0, 1], \"acc\": {\"marks\": \"01\\u0000\"}}",
        "{\"documents\": 3, \"groups\": [0, 0, 1], \"acc\": {\"marks\": [0, 1, 1]}}",
        "{\"documents\": 3, \"groups\": [0, 0], \"acc\": {\"marks\": \"011\"}}",
        "{\"documents\": 3, \"groups\": [0, 0, -1], \"acc\": {\"marks\": \"011\"}}",
        "{\"documents\": 3, \"groups\": [0, 0, 2], \"acc\": {\"marks\": \"011\"}}",
        "{\"documents\": 3, \"groups\": [0, 0, 1]}",
        "{\"documents\": 1e300, \"groups\": [0, 0, 1], \"acc\": {\"marks\": \"011\"}}",
        "{\"documents\": 9007199254740993, \"groups\": [0], \"acc\": {\"marks\": \"0\"}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tsr_errbuf       e = TSR_ERRBUF(e);
        struct tsr_tasks_marks *m = NULL;
        json_t                 *j = json_loads(bad[i], JSON_ALLOW_NUL, NULL);
        assert_non_null(j);
        if (tsr_tasks_marks_load(&m, &subjects, j, "a.json", &e.err) != TSR_E_INPUT || m)
            fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(e.text, "a.json"));
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares),  cmocka_unit_test(groups), cmocka_unit_test(perplexities),
        cmocka_unit_test(weights), cmocka_unit_test(keeps),  cmocka_unit_test(damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
