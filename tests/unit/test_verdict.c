/* Words and sentences of verdicts, for intervals on either side of zero, across it, corrected away, and absent. */
#include "compare/verdict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ALPHA 0.05

static struct tsr_eval_difference of(double mean, double half, double p)
{
    return (struct tsr_eval_difference){ .mean = mean,
                                         .se = half / 2,
                                         .low = mean - half,
                                         .high = mean + half,
                                         .p = p,
                                         .detectable = 1.4 * half,
                                         .n = 1000,
                                         .clusters = 10 };
}

static void words(void **state)
{
    (void)state;
    assert_string_equal(compare_word(0.1, 0.049, ALPHA), "worse");
    assert_string_equal(compare_word(-0.1, 0.049, ALPHA), "better");
    assert_string_equal(compare_word(0.1, 0.05, ALPHA), "indistinguishable");
    assert_string_equal(compare_word(-0.1, 1, ALPHA), "indistinguishable");
    assert_string_equal(compare_word(0.1, NAN, ALPHA), "undecided");
    assert_string_equal(compare_word(NAN, 0.01, ALPHA), "undecided");
    assert_string_equal(compare_word(0, 0.01, ALPHA), "undecided");
}

static void sentences_of_perplexity(void **state)
{
    static const struct {
        double      mean, half, p, corrected;
        const char *text;
    } cases[] = {
        /* above zero, below zero: in percent, exp of the ends */
        { 0.02, 0.01, 0.001, 0.004, "worse: perplexity +2.02 % [+1.01, +3.05], p 0.004" },
        { -0.02, 0.01, 0.001, 0.004, "better: perplexity -1.98 % [-2.96, -1.00], p 0.004" },
        { 0.02, 0.01, 0, 0, "worse: perplexity +2.02 % [+1.01, +3.05], p < 1e-300" },
        /* across zero */
        { 0.005, 0.01, 0.3, 0.6, "indistinguishable: a change of 1.41 % would have been found" },
        { -0.005, 0.01, 0.3, 0.6, "indistinguishable: a change of 1.41 % would have been found" },
        /* on one side, but not beyond what so many arms show by chance */
        { 0.02, 0.01, 0.03, 0.09,
          "indistinguishable once corrected: perplexity +2.02 % [+1.01, +3.05], p 0.09; a change "
          "of "
          "1.41 % would have been found" },
        { -0.02, 0.01, 0.03, 0.09,
          "indistinguishable once corrected: perplexity -1.98 % [-2.96, -1.00], p 0.09; a change "
          "of "
          "1.41 % would have been found" },
        /* one window */
        { 0.02, NAN, NAN, NAN, "undecided: one window is too few for an interval" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char                       text[300] = "";
        struct tsr_eval_difference d = of(cases[i].mean, cases[i].half, cases[i].p);
        compare_say_perplexity(text, sizeof text, &d, cases[i].corrected, ALPHA);
        assert_string_equal(text, cases[i].text);
    }
}

/* A pair that perplexity cannot tell apart and KL can. */
static void both_are_said(void **state)
{
    char                       text[400] = "";
    struct tsr_eval_difference p = of(0.001, 0.01, 0.8), kl = of(-0.004, 0.001, 6e-5);
    (void)state;
    compare_say_perplexity(text, sizeof text, &p, 0.8, ALPHA);
    compare_say_kl(text, sizeof text, &kl, 6e-5, ALPHA);
    assert_string_equal(text, "indistinguishable: a change of 1.41 % would have been found; by KL "
                              "better: -0.004 nats [-0.005, -0.003], p 6e-05");
    text[0] = '\0';
    kl = of(0.0004, 0.001, 0.4);
    compare_say_kl(text, sizeof text, &kl, 0.4, ALPHA);
    assert_string_equal(
        text, "; by KL indistinguishable: a difference of 0.0014 nats would have been found");
    text[0] = '\0';
    kl = of(0.004, 0.001, 0.01);
    compare_say_kl(text, sizeof text, &kl, 0.07, ALPHA);
    assert_string_equal(text, "; by KL indistinguishable once corrected: +0.004 nats [+0.003, "
                              "+0.005], p 0.07; a difference of 0.0014 nats would have been found");
    text[0] = '\0';
    kl = of(0.004, NAN, NAN);
    compare_say_kl(text, sizeof text, &kl, NAN, ALPHA);
    assert_string_equal(text, "");
}

/* Longer than the room: what fits, with an end. */
static void cut_texts_end(void **state)
{
    char                       text[16];
    struct tsr_eval_difference d = of(0.02, 0.01, 0.001);
    (void)state;
    text[0] = '\0';
    compare_say_perplexity(text, sizeof text, &d, 0.004, ALPHA);
    assert_string_equal(text, "worse: perplexi");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(sentences_of_perplexity),
        cmocka_unit_test(both_are_said),
        cmocka_unit_test(cut_texts_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
