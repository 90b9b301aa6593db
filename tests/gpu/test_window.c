/* Sums over ranks in one launch (window.cu): ranks are launches of the emulation that take turns in drawn orders, at
 * every look at a flag.  All leave with the sum of the tree, to the bit, in every order; a kernel without a wait, with
 * flags that come too early, or with one buffer for all sums does not.  With hooks, what ranks see of each other is in a
 * weak order too, and a kernel without one of its fences does not either. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "k_args.h"
#include "k_window.h"
#include "simt/simt.h"
#include "tessera/dtype.h"
#include "tessera/f16.h"

#define RANKS K_WINDOW_RANKS
#define TURNS UINT64_C(5)
#define LONG  UINT64_C(60000000000) /* ns: only a hang takes so long */
#define SHORT UINT64_C(2000000)
#define GAP   5u
#define HALF  (UINT64_C(64) << 10)
#define MOST                                                                                       \
    512u /* turns of a schedule for a block of a sum; ranks that wait for each other take no more */

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

struct shape {
    uint32_t ranks, dtype;
    uint64_t rows, cols;
    bool     one_half; /* a fault: each sum writes where the one before is read */
    uint64_t wait_ns;
};

struct rank {
    uint64_t              window, x, state;
    struct k_window       a; /* window: those of others may be views */
    struct simt_resident *at_work;
    uint32_t              turn; /* the next one */
    float                *got;  /* [TURNS][rows][cols] */
};

static struct rank rank[RANKS];

static uint64_t draw(uint64_t *s, uint64_t below)
{
    *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*s >> 33) % below;
}

/* Of both signs, with sums whose order matters. */
static float number(uint32_t r, uint32_t turn, uint64_t i)
{
    uint64_t s = (uint64_t)r << 48 ^ (uint64_t)turn << 40 ^ i;
    (void)draw(&s, 2);
    float v = (float)draw(&s, 1u << 20) - 524288.0f;
    return v / (float)(1u << draw(&s, 24));
}

/* ---- the sum, by its definition ------------------------------------------------------- */

static float leaf(const struct shape *s, uint32_t r, uint32_t turn, uint64_t i)
{
    float v = number(r, turn, i);
    return s->dtype == TSR_F16    ? tsr_f16_f32(tsr_f32_f16(v))
           : s->dtype == TSR_BF16 ? tsr_bf16_f32(tsr_f32_bf16(v))
                                  : v;
}

/* The left half is the largest power of two that leaves something to the right. */
static float tree(const struct shape *s, uint32_t first, uint32_t n, uint32_t turn, uint64_t i)
{
    uint32_t half = 1;
    if (n == 1)
        return leaf(s, first, turn, i);
    while (2 * half < n)
        half *= 2;
    return tree(s, first, half, turn, i) + tree(s, first + half, n - half, turn, i);
}

/* ---- ranks ---------------------------------------------------------------------------- */

static uint64_t stride(const struct shape *s)
{
    return s->cols + GAP + (4 - (s->cols + GAP) % 4) % 4;
}

#ifdef WEAK
static uint64_t seen(uint64_t window, uint32_t r)
{
    const uint64_t view = simt_view(window, r);
    assert_true(view);
    return view;
}
static void forget(uint64_t view)
{
    simt_view_close(view);
}
#else
static uint64_t seen(uint64_t window, uint32_t r)
{
    (void)r;
    return window;
}
static void forget(uint64_t window)
{
    (void)window;
}
#endif

/* Rows of odd ranks lie off 16 bytes, so that they are not read in fours. */
static void open_ranks(const struct shape *s)
{
    memset(rank, 0, sizeof rank);
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct rank *k = &rank[r];
        k->window = simt_alloc(K_WINDOW_HEAD + 2 * HALF);
        k->x = simt_alloc(16 + 4 * s->rows * stride(s));
        k->state = simt_alloc(4);
        k->got = malloc(TURNS * s->rows * s->cols * sizeof *k->got);
        assert_true(k->window && k->x && k->state && k->got);
        /* what is read without having been written is far off */
        memset((char *)simt_place(k->window, K_WINDOW_HEAD + 2 * HALF) + K_WINDOW_HEAD, 0x7b,
               2 * HALF);
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct k_window *a = &rank[r].a;
        *a = (struct k_window){ .x = rank[r].x + (r % 2 ? 12 : 0),
                                .ldx = stride(s),
                                .rows = s->rows,
                                .cols = s->cols,
                                .state = rank[r].state,
                                .wait_ns = s->wait_ns,
                                .rank = r,
                                .ranks = s->ranks,
                                .dtype = s->dtype,
                                .wide = s->cols % 4 == 0 && r % 2 == 0 };
        for (uint32_t o = 0; o < s->ranks; o++)
            a->window[o] = o == r ? rank[o].window : seen(rank[o].window, r);
    }
}

static void close_ranks(const struct shape *s)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        simt_drop(rank[r].at_work); /* of a kernel that gets nowhere */
        rank[r].at_work = NULL;
        for (uint32_t o = 0; o < s->ranks; o++)
            if (o != r)
                forget(rank[r].a.window[o]);
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        simt_free(rank[r].window);
        simt_free(rank[r].x);
        simt_free(rank[r].state);
        free(rank[r].got);
    }
}

static float *row_of(const struct rank *k, const struct shape *s, uint64_t row)
{
    float *p = simt_place(rank[0].x ? k->a.x : 0, 4);
    return p + row * stride(s);
}

static uint32_t state_of(uint32_t r)
{
    return *(const uint32_t *)simt_place(rank[r].state, 4);
}

/* ---- schedules ------------------------------------------------------------------------ */

static uint32_t blocks_of(const struct shape *s)
{
    const uint64_t runs = s->rows * (s->cols % 4 ? s->cols : s->cols / 4),
                   blocks = (runs + 255) / 256;
    return blocks < K_WINDOW_BLOCKS ? (uint32_t)blocks : K_WINDOW_BLOCKS;
}

static void begin(struct rank *k, const struct shape *s, const struct simt_kernel *kernel,
                  uint64_t seed)
{
    struct simt_launch l = { .kernel = kernel,
                             .grid = { blocks_of(s), 1, 1 },
                             .threads = 256,
                             .args = &k->a,
                             .seed = seed,
                             .device = k->a.rank };
    k->a.half = K_WINDOW_HEAD + (s->one_half ? 0 : k->turn % 2 * HALF);
    for (uint64_t i = 0; i < s->rows * s->cols; i++)
        row_of(k, s, i / s->cols)[i % s->cols] = number(k->a.rank, k->turn, i);
    assert_int_equal(simt_begin(&l, &k->at_work, NULL), TSR_OK);
}

static void end(struct rank *k, const struct shape *s)
{
    for (uint64_t r = 0; r < s->rows; r++)
        memcpy(k->got + (k->turn * s->rows + r) * s->cols, row_of(k, s, r), 4 * s->cols);
    k->at_work = NULL;
    k->turn++;
}

/* All sums of the first `alive` ranks; false: the emulation found an error, or they get nowhere. */
static bool run_within(const struct shape *s, const struct simt_kernel *kernel, uint32_t alive,
                       uint64_t seed, uint64_t most)
{
    char           text[400] = "";
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    uint64_t       order = seed, left = alive * TURNS;
    for (uint64_t i = 0; left && i < most * TURNS * alive * blocks_of(s); i++) {
        struct rank *k = &rank[draw(&order, alive)];
        bool         ended = false;
        if (k->turn == TURNS)
            continue;
        if (!k->at_work)
            begin(k, s, kernel, seed ? seed * 64 + (uint64_t)k->turn * RANKS + k->a.rank + 1 : 0);
        if (simt_go_on(k->at_work, &ended, &err) != TSR_OK) {
            print_message("%s\n", text);
            k->at_work = NULL;
            return false;
        }
        if (ended) {
            end(k, s);
            left--;
        }
    }
    return left == 0;
}

static bool run(const struct shape *s, const struct simt_kernel *kernel, uint32_t alive,
                uint64_t seed)
{
    return run_within(s, kernel, alive, seed, MOST);
}

/* Numbers that are not those of the tree. */
static uint64_t wrong(const struct shape *s)
{
    uint64_t n = 0;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (uint64_t j = 0; j < TURNS * s->rows * s->cols; j++) {
            float want =
                tree(s, 0, s->ranks, (uint32_t)(j / (s->rows * s->cols)), j % (s->rows * s->cols));
            n += tsr_f32_bits(want) != tsr_f32_bits(rank[r].got[j]);
        }
    return n;
}

static const struct shape shapes[] = {
    { 2, TSR_F32, 1, 4096, false, LONG }, { 3, TSR_BF16, 3, 328, false, LONG },
    { 4, TSR_F16, 5, 204, false, LONG },  { 5, TSR_F32, 2, 37, false, LONG },
    { 8, TSR_BF16, 1, 64, false, LONG },  { 7, TSR_F16, 3, 5, false, LONG },
};

static void test_sums(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint64_t seed = 0; seed < 10; seed++) {
            const struct shape *s = &shapes[i];
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
    const struct shape s = { 2, TSR_BF16, 9, 3640, false, LONG };
    (void)state;
    assert_true(2 * s.rows * s.cols <= HALF);
    open_ranks(&s);
    assert_true(run(&s, &k_window_sum_simt, s.ranks, 11));
    assert_int_equal(wrong(&s), 0);
    close_ranks(&s);
}

/* Schedules of ten in which a kernel is found to be faulty: by its numbers, or by ranks that get nowhere. */
static uint32_t found(const struct simt_kernel *kernel, bool one_half)
{
    uint32_t n = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        const struct shape s = { 2, TSR_F32, 1, 700, one_half, LONG };
        open_ranks(&s);
        n += !run_within(&s, kernel, s.ranks, seed, 64) || wrong(&s);
        close_ranks(&s);
    }
    return n;
}

static void test_faults(void **state)
{
    (void)state;
    const uint32_t no_wait = found(&window_no_wait_simt, false);
    const uint32_t early = found(&window_early_simt, false);
    const uint32_t unordered = found(&window_unordered_simt, false);
    const uint32_t one_half = found(&k_window_sum_simt, true);
    print_message("of 10 schedules find: no wait %u, a flag of the sum before %u, flags before the "
                  "numbers %u, one half %u\n",
                  no_wait, early, unordered, one_half);
    assert_true(no_wait > 0 && early > 0 && unordered > 0 && one_half > 0);
    assert_int_equal(found(&k_window_sum_simt, false), 0);
}

#ifdef WEAK
static void test_order(void **state)
{
    (void)state;
    const uint32_t unfenced = found(&window_unfenced_simt, false);
    const uint32_t unreleased = found(&window_unreleased_simt, false);
    const uint32_t unseen = found(&window_unseen_simt, false);
    print_message(
        "of 10 schedules find: no fence %u, none before a flag %u, none behind a flag %u\n",
        unfenced, unreleased, unseen);
    assert_true(unfenced > 0 && unreleased > 0 && unseen > 0);
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
