/* Drafts: what the ids so far say, against a search of all places; how many run, by a clock that is made up. */
#include "base/rng.h"
#include "engine/drafter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define N 200u

/* The longest end of at least 2 ids, up to 32, that was there before; of two as long the later one. */
static uint64_t search(const uint32_t *ids, uint64_t n, uint64_t *length)
{
    for (*length = 32; *length >= 2; --*length)
        for (uint64_t at = n - 1; at >= *length; at--) {
            uint64_t same = 0;
            while (same < *length && ids[at - *length + same] == ids[n - *length + same])
                same++;
            if (same == *length)
                return at;
        }
    *length = 0;
    return 0;
}

static void the_longest_end_is_found(void **state)
{
    uint64_t found = 0;
    (void)state;
    for (uint64_t trial = 0; trial < 200; trial++) {
        uint32_t                     ids[N], out[40];
        struct tsr_engine_draft_pace p;
        struct tsr_engine_draft      d = { 0 };
        tsr_engine_draft_pace_start(&p);
        for (uint64_t i = 0; i < N; i++) /* pieces of before, and new ids */
            ids[i] = i > 20 && tsr_uniform(trial, i / 9, 1) < 0.6
                         ? ids[i - 9 - (uint64_t)(tsr_uniform(trial, i / 9, 2) * 10)]
                         : (uint32_t)(tsr_uniform(trial, i, 3) * (double)(2 + trial % 7));
        for (uint64_t n = 1; n <= N; n++) {
            uint64_t length, at = search(ids, n, &length);
            d = (struct tsr_engine_draft){ 0 };
            tsr_engine_draft_see(&d, &p, ids, n);
            assert_int_equal(d.from, at);
            assert_int_equal(d.run, length);
            uint32_t k = tsr_engine_draft_take(&d, ids, n, 40, out);
            assert_int_equal(k, at ? 40 : 0);
            for (uint64_t i = 0; i < k; i++)
                assert_int_equal(out[i], at + i < n ? ids[at + i] : out[at + i - n]);
            found += at > 0;
        }
        assert_true(p.hit[0] == 0.3); /* the ids of a first call do not count */
    }
    assert_true(found > 200 * N / 2);
}

/* Where an id comes as drafted the same place goes on; else it is searched again. */
static void a_place_goes_on(void **state)
{
    static const uint32_t        ids[] = { 5, 6, 7, 8, 9, 1, 5, 6, 7, 8, 3, 1, 5 };
    struct tsr_engine_draft_pace p;
    struct tsr_engine_draft      d = { 0 };
    (void)state;
    tsr_engine_draft_pace_start(&p);
    tsr_engine_draft_see(&d, &p, ids, 8); /* 5 6, then 7 */
    assert_true(d.from == 2 && d.run == 2);
    tsr_engine_draft_see(&d, &p, ids, 10);
    assert_true(d.from == 4 && d.run == 4 && p.hit[0] > 0.3 && p.hit[1] == 0.5);
    tsr_engine_draft_see(&d, &p, ids, 11); /* 9 was expected */
    assert_true(d.from == 0 && p.hit[1] < 0.5);
    tsr_engine_draft_see(&d, &p, ids, 13);
    assert_true(d.from == 7 && d.run == 2);
}

/* ---- how many ------------------------------------------------------------------ */

/* Passes of a text in which an id of a draft is right with probability `right`, where a pass of n tokens takes
 * 1 + slope * (n - 1); the time of all beside that without drafts. */
static double play(double right, double slope, uint64_t sequences, double *mean)
{
    struct tsr_engine_draft_pace    p;
    struct tsr_engine_draft         d = { .from = 1, .run = 20 };
    struct tsr_engine_draft_lookup  l;
    struct tsr_engine_draft_ask     a[TSR_ENGINE_DRAFT_ROWS];
    struct tsr_engine_draft_account c = { 0 };
    double                          time = 0, drafts = 0, loss;
    uint64_t                        tokens = 0, passes = 0, draw = 0;
    tsr_engine_draft_pace_start(&p);
    struct tsr_engine_drafter *by = tsr_engine_draft_lookup_start(&l, &p);
    for (uint64_t i = 0; i < sequences; i++)
        a[i] = (struct tsr_engine_draft_ask){ .text = &d, .most = TSR_ENGINE_DRAFT_MOST };
    for (; tokens < 4000 * sequences; passes++) {
        uint32_t k =
            tsr_engine_draft_choose(&p, by, a, sequences, TSR_ENGINE_DRAFT_MOST, &c, &loss);
        uint64_t was = tokens, rows = sequences * (1 + k);
        double   took = 1 + slope * (double)(rows - 1);
        drafts += k;
        time += took;
        tsr_engine_draft_took(&p, rows, took);
        for (uint64_t i = 0; i < sequences; i++) {
            bool on = true;
            tokens++;
            for (uint32_t j = 0; on && (j < k || j == 0);
                 j++) { /* the first is seen without a draft too */
                on = tsr_uniform(17, draw++, 0) < right;
                p.hit[3] += ((on ? 1.0 : 0.0) - p.hit[3]) * 0.06;
                tokens += on && j < k;
            }
        }
        tsr_engine_draft_settle(&c, &p, sequences, tokens - was, took, loss);
    }
    *mean = drafts / (double)passes;
    print_message("right %.2f slope %.3f x%llu: mean %.2f, time %.3f\n", right, slope,
                  (unsigned long long)sequences, *mean,
                  time / (1 + slope * (double)(sequences - 1)) /
                      ((double)tokens / (double)sequences));
    return time / (1 + slope * (double)(sequences - 1)) / ((double)tokens / (double)sequences);
}

static void as_many_as_gain_time(void **state)
{
    double mean;
    (void)state;
    /* a pass costs the same however many tokens it has: as many as there are */
    assert_true(play(0.98, 0, 1, &mean) < 0.15 && mean > 13);
    /* each token costs as much as a pass: none, but for those that find it out */
    assert_true(play(0.98, 1, 1, &mean) < 1.03 && mean < 0.1);
    /* never right */
    assert_true(play(0, 0.05, 1, &mean) < 1.03 && mean < 0.1);
    /* between: a text that is right half of the time wants few, one that is nearly always right many */
    double few, many, half = play(0.5, 0.1, 1, &few), most = play(0.95, 0.1, 1, &many);
    assert_true(half < 0.85 && few > 0.5 && few < 4);
    assert_true(most < 0.45 && many > few + 2);
    /* many sequences fill a pass by themselves */
    assert_true(play(0.9, 0.5, 32, &mean) < 1.03 && mean < 0.5);
    assert_true(play(0.9, 0.001, 32, &mean) < 0.9);
}

/* Of a drafter that is right with 0.9 for each id and takes `each` for one. */
static double each;
static double nearly_right(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_ask *a,
                           uint32_t k)
{
    (void)d;
    (void)a;
    return 9 * (1 - pow(0.9, k));
}
static double by_ids(const struct tsr_engine_drafter *d, const struct tsr_engine_draft_pace *p,
                     const struct tsr_engine_draft_ask *a, uint64_t n, uint32_t k, bool most)
{
    (void)d;
    (void)p;
    (void)a;
    (void)n;
    (void)most;
    return each * k;
}

static void the_time_of_a_drafter_counts(void **state)
{
    static const struct tsr_engine_drafter by = { .right = nearly_right, .seconds = by_ids };
    struct tsr_engine_draft_ask            a = { .most = TSR_ENGINE_DRAFT_MOST };
    struct tsr_engine_draft_pace           p;
    struct tsr_engine_draft_account        rich = { .plain = 1e6 };
    double                                 loss;
    (void)state;
    tsr_engine_draft_pace_start(&p);
    for (uint64_t rows = 1; rows <= TSR_ENGINE_DRAFT_ROWS; rows++)
        for (int i = 0; i < 2; i++) /* what was measured once is taken for less */
            tsr_engine_draft_took(&p, rows, 1);
    for (each = 0; each < 2; each += 0.05) { /* the best of all lengths, to 10 % and 3 % */
        uint32_t k = tsr_engine_draft_choose(&p, &by, &a, 1, TSR_ENGINE_DRAFT_MOST, &rich, &loss);
        double   best = 1, rate = k ? (1 + nearly_right(NULL, NULL, k)) / (1 + each * k) : 1;
        for (uint32_t i = 1; i <= TSR_ENGINE_DRAFT_MOST; i++)
            best = fmax(best, (1 + nearly_right(NULL, NULL, i)) / (1 + each * i));
        if (!(rate >= best * 0.97))
            fail_msg("%.2f: %u ids give %.3f, and %.3f is possible", each, k, rate, best);
        assert_true(each > 0.9 ? k == 0 : each < 0.8 ? k > 0 : true);
    }
}

/* Times of passes that were not measured lie on the lines through those that were. */
static void times_between(void **state)
{
    struct tsr_engine_draft_pace p;
    (void)state;
    tsr_engine_draft_pace_start(&p);
    assert_true(tsr_engine_draft_pass(&p, 3) == 0);
    for (int i = 0; i < 3; i++)
        tsr_engine_draft_took(&p, 5, 0.9);
    assert_true(fabs(tsr_engine_draft_pass(&p, 5) - 0.9) < 1e-12);
    assert_true(fabs(tsr_engine_draft_pass(&p, 2) - 0.9) < 1e-12); /* none below is known */
    for (int i = 0; i < 3; i++)
        tsr_engine_draft_took(&p, 1, 0.5);
    assert_true(fabs(tsr_engine_draft_pass(&p, 3) - 0.7) < 1e-12);
    assert_true(fabs(tsr_engine_draft_pass(&p, 200) - (0.5 + 0.1 * 63)) < 1e-9);
    tsr_engine_draft_prompt_took(&p, 0, 1);
    tsr_engine_draft_prompt_took(&p, 4, (double)NAN);
    assert_true(p.prompt == 0);
    tsr_engine_draft_prompt_took(&p, 4, 2);
    assert_true(p.prompt == 0.5);
    tsr_engine_draft_prompt_took(&p, 1, 1.5);
    assert_true(fabs(p.prompt - 0.8) < 1e-12);
}

/* A time that is not one, a pass without tokens and more sequences than a pass has drafts for. */
static void odd_passes(void **state)
{
    struct tsr_engine_draft_pace    p;
    struct tsr_engine_draft         d = { .from = 1, .run = 40 };
    struct tsr_engine_draft_lookup  l;
    struct tsr_engine_draft_account c = { 0 };
    double                          loss;
    struct tsr_engine_draft_ask     a[TSR_ENGINE_DRAFT_ROWS + 1];
    (void)state;
    for (uint32_t i = 0; i <= TSR_ENGINE_DRAFT_ROWS; i++)
        a[i] = (struct tsr_engine_draft_ask){ .text = &d, .most = 1 };
    tsr_engine_draft_pace_start(&p);
    struct tsr_engine_drafter *by = tsr_engine_draft_lookup_start(&l, &p);
    tsr_engine_draft_took(&p, 1, -1);
    tsr_engine_draft_took(&p, 1, (double)NAN);
    tsr_engine_draft_took(&p, TSR_ENGINE_DRAFT_ROWS + 1, 1);
    assert_int_equal(p.pass[1].times, 0);
    assert_int_equal(tsr_engine_draft_choose(&p, by, a, 1, 16, &c, &loss),
                     0); /* a pass without drafts comes first */
    tsr_engine_draft_took(&p, 1, 0.01);
    assert_int_equal(tsr_engine_draft_choose(&p, by, a, 0, 16, &c, &loss), 0);
    assert_int_equal(tsr_engine_draft_choose(&p, by, a, TSR_ENGINE_DRAFT_ROWS, 16, &c, &loss), 0);
    assert_int_equal(tsr_engine_draft_choose(&p, by, a, TSR_ENGINE_DRAFT_ROWS + 1, 16, &c, &loss),
                     0);
    assert_int_equal(tsr_engine_draft_choose(&p, by, a, 1, 0, &c, &loss), 0);
    assert_int_equal(tsr_engine_draft_choose(&p, by, a, 1, 16, &c, &loss), 1);
    d.from = 0;
    assert_int_equal(tsr_engine_draft_choose(&p, by, a, 1, 16, &c, &loss), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_end_is_found),
        cmocka_unit_test(a_place_goes_on),
        cmocka_unit_test(as_many_as_gain_time),
        cmocka_unit_test(the_time_of_a_drafter_counts),
        cmocka_unit_test(times_between),
        cmocka_unit_test(odd_passes),
    };
    return cmocka_run_group_tests_name("draft", tests, NULL, NULL);
}
