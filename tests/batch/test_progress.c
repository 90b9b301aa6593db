/* The line of progress: rates by counted tokens and what is left by counted records, on a clock that the
 * test sets. */
#include "batch/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static uint64_t now;

static uint64_t now_us(void *ctx)
{
    (void)ctx;
    return now;
}

static const struct tsr_clock test_clock = { .now_us = now_us };

static void says(const struct tsr_batch_progress *p, struct tsr_batch_state s, const char *want)
{
    char text[200];
    tsr_batch_progress_text(p, &s, text, sizeof text);
    assert_string_equal(text, want);
}

static void rates_and_what_is_left(void **state)
{
    struct tsr_batch_progress p;
    struct tsr_batch_state    s = { .records = 100 };
    (void)state;
    now = 7000000; /* a clock does not begin at 0 */
    tsr_batch_progress_begin(&p, &test_clock, 0);
    says(&p, s, "0 of 100 records, ? tokens/s, ETA ?, 0 errors");
    /* tokens of records that are not done count, what is left is not known yet */
    now += 2000000;
    s.tokens = 31;
    says(&p, s, "0 of 100 records, 15.5 tokens/s, ETA ?, 0 errors");
    /* 20 records in 10 s: 80 more in 40 s */
    now += 8000000;
    s.tokens = 400;
    s.done = 20;
    s.errors = 3;
    says(&p, s, "20 of 100 records, 40.0 tokens/s, ETA 40 s, 3 errors");
    s.tokens = 5004;
    says(&p, s, "20 of 100 records, 500 tokens/s, ETA 40 s, 3 errors");
    s.done = 100;
    says(&p, s, "100 of 100 records, 500 tokens/s, ETA 0 s, 3 errors");
}

/* A run that goes on knows nothing of how long the records before it took. */
static void of_this_run_alone(void **state)
{
    struct tsr_batch_progress p;
    (void)state;
    now = 1;
    tsr_batch_progress_begin(&p, &test_clock, 90);
    now += 3000000;
    says(&p, (struct tsr_batch_state){ .records = 100, .done = 90, .tokens = 6 },
         "90 of 100 records, 2.0 tokens/s, ETA ?, 0 errors");
    says(&p, (struct tsr_batch_state){ .records = 100, .done = 91, .tokens = 6 },
         "91 of 100 records, 2.0 tokens/s, ETA 27 s, 0 errors");
    /* error lines that are run again are less than there were */
    says(&p, (struct tsr_batch_state){ .records = 100, .done = 80, .tokens = 6 },
         "80 of 100 records, 2.0 tokens/s, ETA ?, 0 errors");
}

static void units_of_time(void **state)
{
    static const struct {
        uint64_t    left; /* records of a second each */
        const char *want;
    } cases[] = { { 119, "119 s" },         { 120, "2 min" },
                  { 149, "2 min" },         { 150, "3 min" },
                  { 7199, "120 min" },      { 7200, "2 h 0 min" },
                  { 86399, "23 h 59 min" }, { UINT64_C(360000), "100 h 0 min" },
                  { UINT64_MAX - 1, "?" } };
    struct tsr_batch_progress p;
    (void)state;
    now = 0;
    tsr_batch_progress_begin(&p, &test_clock, 0);
    now = 1000000;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200], want[200];
        tsr_batch_progress_text(&p,
                                &(struct tsr_batch_state){
                                    .records = cases[i].left + 1, .done = 1, .tokens = 1 },
                                text, sizeof text);
        (void)snprintf(want, sizeof want, "1 of %llu records, 1.0 tokens/s, ETA %s, 0 errors",
                       (unsigned long long)cases[i].left + 1, cases[i].want);
        assert_string_equal(text, want);
    }
}

static void one_line_in_a_while(void **state)
{
    struct tsr_batch_progress p;
    unsigned                  lines = 0;
    (void)state;
    now = 50;
    tsr_batch_progress_begin(&p, &test_clock, 0);
    assert_false(tsr_batch_progress_due(&p, 5000000));
    for (int i = 0; i < 100; i++) { /* 21 s in steps of 210 ms */
        now += 210000;
        lines += tsr_batch_progress_due(&p, 5000000);
    }
    assert_int_equal(lines, 4);
    now += 5000000;
    assert_true(tsr_batch_progress_due(&p, 5000000));
    assert_false(tsr_batch_progress_due(&p, 5000000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_and_what_is_left),
        cmocka_unit_test(of_this_run_alone),
        cmocka_unit_test(units_of_time),
        cmocka_unit_test(one_line_in_a_while),
    };
    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
