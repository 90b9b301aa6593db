/* Draws from the best tokens of a row: they are those of the whole row, or are not made. */
#include "draw.h"
#include "engine/candidates.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VOCAB 700

struct row {
    float                logits[VOCAB];
    struct tsr_candidate sorted[VOCAB];
};

static int by_logit(const void *x, const void *y)
{
    const struct tsr_candidate *a = x, *b = y;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* sharp: how far apart the logits are; every third one is a whole number, so that there are ties. */
static void make_row(struct row *r, uint64_t seed, double sharp)
{
    for (uint32_t i = 0; i < VOCAB; i++) {
        double u = tsr_uniform(seed, 1, i), v = sharp * log(u / (1 - u));
        r->logits[i] = (float)(i % 3 ? v : round(v));
        r->sorted[i] = (struct tsr_candidate){ i, r->logits[i] };
    }
    qsort(r->sorted, VOCAB, sizeof *r->sorted, by_logit);
}

static double sum_of(const struct row *r, float inverse)
{
    double sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp(((double)r->logits[i] - r->sorted[0].logit) * inverse);
    return sum;
}

/* A draw from the row and one from its best tokens, with a sum as wrong as a device may give it. */
static int agrees(const struct row *r, const struct tsr_engine_sampling *s, uint64_t record,
                  double off)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint32_t          want, got;
    float             inverse;
    const uint32_t    n = tsr_engine_candidates(s, VOCAB, &inverse);
    assert_int_equal(draw_one(r->logits, VOCAB, s, NULL, 0, record, record, NULL, &want, &e.err),
                     TSR_OK);
    assert_in_range(n, 1, TSR_CANDIDATES_MOST);
    if (!tsr_engine_candidates_draw(s, VOCAB, tsr_uniform(s->seed, record, record), r->sorted, n,
                                    inverse > 0 ? sum_of(r, inverse) * (1 + off) : 0, &got))
        return 0;
    assert_int_equal(got, want);
    return 1;
}

/* How many of a thousand draws are made without the logits. */
static int made(const struct tsr_engine_sampling *s, double sharp)
{
    static struct row r;
    int               n = 0;
    for (uint64_t k = 0; k < 1000; k++) {
        if (k % 50 == 0)
            make_row(&r, 1000 + k, sharp);
        n += agrees(&r, s, k, (k % 3 ? k % 3 == 1 ? 1 : -1 : 0) * 1e-4);
    }
    return n;
}

static void decided_draws_are_those_of_the_row(void **state)
{
    static const struct {
        struct tsr_engine_sampling s;
        double                     sharp;
        int                        least; /* of 1000 */
    } all[] = {
        { { .temperature = 0, .top_p = 1, .repetition_penalty = 1 }, 2, 1000 },
        { { .temperature = 0.8, .top_k = 40, .top_p = 1, .repetition_penalty = 1 }, 2, 1000 },
        { { .temperature = 1.5, .top_k = 256, .top_p = 0.7, .repetition_penalty = 1 }, 1, 1000 },
        { { .temperature = 1, .top_k = 1, .top_p = 1, .repetition_penalty = 1 }, 1, 1000 },
        { { .temperature = 1, .top_k = 9, .top_p = 1, .min_p = 0.3, .repetition_penalty = 1 },
          1,
          1000 },
        { { .temperature = 0.7, .top_p = 0.9, .repetition_penalty = 1 }, 2, 900 },
        { { .temperature = 1, .top_p = 1, .min_p = 0.05, .repetition_penalty = 1 }, 2, 900 },
        { { .temperature = 1, .top_p = 1, .repetition_penalty = 1 }, 2, 900 },
        { { .temperature = 1, .top_p = 0.3, .repetition_penalty = 1 }, 0.01, 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct tsr_engine_sampling s = all[i].s;
        s.seed = 77 + i;
        assert_in_range(made(&s, all[i].sharp), all[i].least, 1000);
    }
}

/* Where all 256 hold less than top-p of the mass, or the mass is at the border, the logits decide. */
static void undecided_draws_are_not_made(void **state)
{
    static struct row          r;
    struct tsr_engine_sampling s = { .temperature = 1, .top_p = 0.9, .repetition_penalty = 1 };
    uint32_t                   id;
    (void)state;
    make_row(&r, 5, 0.01);
    assert_false(tsr_engine_candidates_draw(&s, VOCAB, 0.5, r.sorted, TSR_CANDIDATES_MOST,
                                            sum_of(&r, 1), &id));
    static const struct tsr_candidate even[] = { { 3, 0 }, { 4, 0 }, { 5, 0 }, { 9, 0 } };
    s.top_p = 0.5; /* of 4: the second reaches it to the bit */
    assert_false(tsr_engine_candidates_draw(&s, VOCAB, 0.5, even, 4, 4, &id));
    s.top_p = 0.49;
    assert_true(tsr_engine_candidates_draw(&s, VOCAB, 0.51, even, 4, 4, &id));
    assert_int_equal(id, 4);
    s.top_p = 1; /* a border between two tokens */
    assert_false(tsr_engine_candidates_draw(&s, VOCAB, 0.25, even, 4, 4, &id));
    assert_true(tsr_engine_candidates_draw(&s, VOCAB, 0.26, even, 4, 4, &id));
    assert_int_equal(id, 4);
    s.top_k = 5; /* more than there are */
    assert_false(tsr_engine_candidates_draw(&s, VOCAB, 0.1, even, 4, 4, &id));
}

static void some_settings_take_the_logits(void **state)
{
    static const struct {
        struct tsr_engine_sampling s;
        uint32_t                   n;
        float                      inverse;
    } all[] = {
        { { .temperature = 0, .top_p = 1, .repetition_penalty = 1 }, 1, 0 },
        { { .temperature = 0, .top_p = 1, .repetition_penalty = 1.1 }, 0, 0 },
        { { .temperature = 0.5, .top_p = 1, .repetition_penalty = 1 }, 256, 2 },
        { { .temperature = 0.5, .top_k = 50, .top_p = 1, .repetition_penalty = 1 }, 50, 0 },
        { { .temperature = 0.5, .top_k = 257, .top_p = 1, .repetition_penalty = 1 }, 0, 0 },
        { { .temperature = 0.5, .top_k = VOCAB, .top_p = 1, .repetition_penalty = 1 }, 256, 2 },
        { { .temperature = 1e-30, .top_p = 1, .repetition_penalty = 1 }, 0, 0 },
        { { .temperature = 1e-30, .top_k = 7, .top_p = 1, .repetition_penalty = 1 }, 7, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        float inverse = -1;
        assert_int_equal(tsr_engine_candidates(&all[i].s, VOCAB, &inverse), all[i].n);
        assert_true(inverse == all[i].inverse);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decided_draws_are_those_of_the_row),
        cmocka_unit_test(undecided_draws_are_not_made),
        cmocka_unit_test(some_settings_take_the_logits),
    };
    return cmocka_run_group_tests_name("candidates", tests, NULL, NULL);
}
