/* Sums over ranks in one launch (window.cu): ranks are launches of the emulation that take turns in drawn orders, at
 * every look at a flag.  All leave with the sum of the tree, to the bit, in every order; a kernel without a wait, with
 * flags that come too early, or with one buffer for all sums does not.  With hooks, what ranks see of each other is in a
 * weak order too, and a kernel without one of its fences does not either. */
#include "window_ranks.h"

#define EXTERN(name) extern const struct simt_kernel name##_simt;
EXTERN(k_window_sum)
EXTERN(window_no_wait)
EXTERN(window_early)
EXTERN(window_unordered)
#ifdef WEAK /* the other ranks' memory is in a weak order: simt_weak.c */
EXTERN(window_unfenced)
EXTERN(window_unreleased)
EXTERN(window_unseen)
#endif

static const struct shape shapes[] = {
    { 2, TSR_F32, 1, 4096, false, LONG },
    { 3, TSR_BF16, 3, 328, false, LONG },
    { 4, TSR_F16, 5, 204, false, LONG },
    { 5, TSR_F32, 2, 37, false, LONG },
    { 8, TSR_BF16, 1, 64, false, LONG },
    { 7, TSR_F16, 3, 5, false, LONG },
    { 2, TSR_F32, 2, 2056, false, LONG },
    { 2, MX(0), 1, 4096, false, LONG },
    { 3, MX(1), 3, 332, false, LONG },
    { 4, MX(2), 5, 204, false, LONG },
    { 8, MX(0), 2, 37, false, LONG },
    { 2, MX(3), 3, 4604, false, LONG },
    { 2, MX(2), 35, 12, false, LONG },
    { 2, TWO + MX(0), 1, 4096, false, LONG },
    { 3, TWO + TSR_BF16, 3, 328, false, LONG },
    { 4, TWO + MX(2), 5, 204, false, LONG },
    { 3, TWO + TSR_F16, 2, 37, false, LONG },
    { 2, TWO + MX(1), 17, 600, false, LONG },
    { 8, TWO + TSR_F32, 1, 1300, false, LONG },
    { 3, TWO + MX(0), 1, 2600, false, LONG },
    { 2, SCALED(4), 1, 4096, false, LONG },
    { 3, SCALED(5), 3, 332, false, LONG },
    { 5, SCALED(2), 2, 204, false, LONG },
    { 8, SCALED(4), 2, 37, false, LONG },
    { 7, SCALED(8), 1, 90, false, LONG },
    { 2, TWO + SCALED(4), 1, 4096, false, LONG },
    { 3, TWO + SCALED(8), 3, 330, false, LONG },
    { 4, TWO + SCALED(4), 5, 204, false, LONG },
    { 8, TWO + SCALED(3), 1, 1300, false, LONG },
    { 6, TWO + SCALED(6), 2, 37, false, LONG },
};

static bool run(const struct shape *s, const struct simt_kernel *kernel, uint32_t alive,
                uint64_t seed)
{
    return run_within(s, kernel, alive, seed, MOST);
}

static void test_sums(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint64_t k = 0; k < schedules(); k++) {
            const struct shape *s = &shapes[i];
            const uint64_t      seed = schedule(k);
            open_ranks(s);
            assert_true(run(s, &k_window_sum_simt, s->ranks, seed));
            if (wrong(s))
                fail_msg("%u ranks, %llu x %llu, schedule %llu: %llu numbers differ", s->ranks,
                         (unsigned long long)s->rows, (unsigned long long)s->cols,
                         (unsigned long long)seed, (unsigned long long)wrong(s));
            for (uint32_t r = 0; r < s->ranks; r++)
                assert_int_equal(state_of(r), 0);
            close_ranks(s);
        }
}

/* More runs than the blocks have threads. */
static void test_rounds(void **state)
{
    const struct shape all[] = { { 2, TSR_BF16, 9, 3640, false, LONG },
                                 { 2, MX(0), 9, 7272, false, LONG } };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct shape *s = &all[i];
        open_ranks(s);
        assert_true(run(s, &k_window_sum_simt, s->ranks, 11));
        assert_int_equal(wrong(s), 0);
        close_ranks(s);
    }
}

/* Schedules of ten in which a kernel is found to be faulty, the first alone unless TSR_TEST_ALL is set: by its numbers, or by
 * ranks that get nowhere. */
static uint32_t found(const struct simt_kernel *kernel, uint32_t dtype, bool one_half)
{
    uint32_t n = 0;
    for (uint64_t seed = 1; looks_on(seed, n); seed++) {
        const struct shape s = { 2, dtype, 1, 700, one_half, LONG };
        open_ranks(&s);
        n += !run_within(&s, kernel, s.ranks, seed, 64) || wrong(&s);
        close_ranks(&s);
    }
    return n;
}

static const struct {
    const char *name;
    uint32_t    dtype;
} codes[] = { { "F32", TSR_F32 },
              { "mx", MX(0) },
              { "mx in two steps", TWO + MX(0) },
              { "int4_bf16", SCALED(4) },
              { "int4_bf16 in two steps", TWO + SCALED(4) },
              { "BF16 in two steps", TWO + TSR_BF16 } };

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const uint32_t dtype = codes[i].dtype, no_wait = found(&window_no_wait_simt, dtype, false);
        const uint32_t early = found(&window_early_simt, dtype, false);
        const uint32_t unordered = found(&window_unordered_simt, dtype, false);
        const uint32_t one_half = found(&k_window_sum_simt, dtype, true);
        print_message(
            "%s: schedules of 10 that find: no wait %u, a flag of the sum before %u, flags "
            "before the numbers %u, one half %u\n",
            codes[i].name, no_wait, early, unordered, one_half);
        assert_true(no_wait > 0 && early > 0 && unordered > 0);
        /* in two steps a rank writes only where those that read have begun the sum, if its slices stay the same */
        assert_true(dtype >= TWO ? one_half == 0 : one_half > 0);
        assert_int_equal(found(&k_window_sum_simt, dtype, false), 0);
    }
}

#ifdef WEAK
static void test_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const uint32_t dtype = codes[i].dtype;
        const uint32_t unfenced = found(&window_unfenced_simt, dtype, false);
        const uint32_t unreleased = found(&window_unreleased_simt, dtype, false);
        const uint32_t unseen = found(&window_unseen_simt, dtype, false);
        print_message(
            "%s: schedules of 10 that find: no fence %u, none before a flag %u, none behind a "
            "flag %u\n",
            codes[i].name, unfenced, unreleased, unseen);
        assert_true(unfenced > 0 && unreleased > 0 && unseen > 0);
    }
}
#endif

/* A rank that never comes, and a group that has ended, hold nobody. */
static void test_dead(void **state)
{
    const struct shape s = { 3, TSR_F32, 1, 700, false, SHORT };
    (void)state;
    open_ranks(&s);
    /* its clock ends the wait, not a number of turns, which a fast machine is through with before */
    assert_true(run_within(&s, &k_window_sum_simt, 2, 5, UINT64_C(1) << 20));
    assert_int_equal(state_of(0), K_WINDOW_LATE + 2);
    assert_int_equal(state_of(1), K_WINDOW_LATE + 2);
    close_ranks(&s);
    const struct shape ended = { 3, TSR_F32, 1, 700, false, LONG };
    open_ranks(&ended);
    for (uint32_t r = 0; r < 2; r++)
        *(uint32_t *)simt_place(rank[r].state, 4) = K_WINDOW_ENDED;
    assert_true(run(&ended, &k_window_sum_simt, 2, 6));
    assert_int_equal(state_of(0), K_WINDOW_ENDED);
    close_ranks(&ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sums), cmocka_unit_test(test_rounds),
                                        cmocka_unit_test(test_faults),
#ifdef WEAK
                                        cmocka_unit_test(test_order),
#endif
                                        cmocka_unit_test(test_dead) };
    return cmocka_run_group_tests_name("cuda-window", tests, NULL, NULL);
}
