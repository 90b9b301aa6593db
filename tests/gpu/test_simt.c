/* The SIMT emulation: right kernels give the same in every schedule, and a missing barrier, a wrong
 * lane, a race and the like are each found, with a sentence that names the place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "faulty.h"
#include "simt/simt.h"
#include "simt/simt_trace.h"

#define KERNELS(X)                                                                                 \
    X(good_sum)                                                                                    \
    X(missing_barrier)                                                                             \
    X(half_barrier)                                                                                \
    X(good_shuffle)                                                                                \
    X(wrong_lane)                                                                                  \
    X(lost_lanes)                                                                                  \
    X(race)                                                                                        \
    X(good_count)                                                                                  \
    X(block_race)                                                                                  \
    X(out_of_bounds)                                                                               \
    X(good_votes)                                                                                  \
    X(good_mma)                                                                                    \
    X(wrong_fragment)                                                                              \
    X(lost_mma)                                                                                    \
    X(good_mma_f16)                                                                                \
    X(good_mma_bf16)                                                                               \
    X(good_copies)                                                                                 \
    X(missing_wait)                                                                                \
    X(good_traffic)                                                                                \
    X(bank_conflict)                                                                               \
    X(lone_sectors)                                                                                \
    X(good_wide_traffic)                                                                           \
    X(wide_conflict)                                                                               \
    X(good_last_block)                                                                             \
    X(missing_release)                                                                             \
    X(missing_acquire)                                                                             \
    X(double_flag)                                                                                 \
    X(good_early)                                                                                  \
    X(early_read)                                                                                  \
    X(early_write)                                                                                 \
    X(no_wait)
#define EXTERN(name) extern const struct simt_kernel name##_simt;
KERNELS(EXTERN)

static uint64_t in, out;
static uint32_t threads = 128; /* of a block */
static char     text[512];

static int setup(void **state)
{
    (void)state;
    in = simt_alloc(256 * 4);
    out = simt_alloc(256 * 4);
    assert_true(in && out);
    float *p = simt_place(in, 256 * 4);
    for (int i = 0; i < 256; i++)
        p[i] = (float)(i + 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    simt_free(in);
    simt_free(out);
    return 0;
}

static tsr_status run(const struct simt_kernel *k, uint32_t blocks, uint64_t seed)
{
    struct tsr_err     err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    struct faulty_args a = { .in = in, .out = out, .n = 256 };
    struct simt_launch l = {
        .kernel = k, .grid = { blocks, 1, 1 }, .threads = threads, .args = &a, .seed = seed
    };
    text[0] = '\0';
    memset(simt_place(out, 256 * 4), 0, 256 * 4);
    return simt_run(&l, &err);
}

static void passes(const struct simt_kernel *k, uint32_t blocks)
{
    uint8_t first[256 * 4];
    for (uint64_t seed = 0; seed < 8; seed++) {
        if (run(k, blocks, seed) != TSR_OK)
            fail_msg("seed %d: %s", (int)seed, text);
        if (seed == 0)
            memcpy(first, simt_place(out, sizeof first), sizeof first);
        assert_memory_equal(first, simt_place(out, sizeof first), sizeof first);
    }
}

static void right_kernels_pass(void **state)
{
    (void)state;
    passes(&good_sum_simt, 2);
    assert_true(((float *)simt_place(out, 8))[0] == 128 * 129 / 2);
    assert_true(((float *)simt_place(out, 8))[1] == 256 * 257 / 2 - 128 * 129 / 2);
    passes(&good_shuffle_simt, 1);
    assert_true(((float *)simt_place(out, 4))[0] == 32 * 33 / 2);
    passes(&good_count_simt, 3);
    assert_int_equal(((uint32_t *)simt_place(out, 4))[0], 3 * 128);
    passes(&good_votes_simt, 1);
    uint32_t b = 0x49249249u ^ 1u << 31;
    assert_int_equal(((uint32_t *)simt_place(out, 512))[0], b ^ 8u);
    assert_int_equal(((uint32_t *)simt_place(out, 512))[31], b ^ 31u);
}

/* Caught in every schedule, by the rules alone. */
static void caught(const struct simt_kernel *k, uint32_t blocks, const char *facts)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        if (run(k, blocks, seed) != TSR_E_DEVICE)
            fail_msg("%s passes under seed %d", k->name, (int)seed);
        assert_true(text_has(text, k->name));
        assert_true(text_has(text, facts));
    }
}

static void broken_rules_are_caught(void **state)
{
    (void)state;
    caught(&half_barrier_simt, 1, "64 128");
    caught(&wrong_lane_simt, 1, "0x0000ffff");
    caught(&lost_lanes_simt, 1, "0xffffffff");
}

static void accesses_are_caught(void **state)
{
    (void)state;
    (void)run(&good_count_simt, 1, 0);
    if (!simt_hooked()) {
        print_message("these kernels were built without memory hooks\n");
        skip();
    }
    caught(&missing_barrier_simt, 1, "barrier");
    caught(&race_simt, 1, "barrier");
    caught(&block_race_simt, 2, "barrier");
    caught(&out_of_bounds_simt, 1, "buffer");
}

/* Without hooks it is the numbers that show: shared memory begins as NaN, and no schedule adds up. */
static void numbers_differ(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        tsr_status st = run(&missing_barrier_simt, 1, seed);
        float      got = *(float *)simt_place(out, 4);
        assert_true(st != TSR_OK || !(got == 128 * 129 / 2));
    }
}

/* The product that the fragments of faulty.cu stand for. */
static bool is_product(void)
{
    const int8_t  *a = simt_place(in, 16 * 32);
    const int32_t *c = simt_place(out, 16 * 8 * 4);
    for (uint32_t row = 0; row < 16; row++)
        for (uint32_t col = 0; col < 8; col++) {
            int32_t sum = 0;
            for (uint32_t k = 0; k < 32; k++) {
                uint32_t b = (k / 4 + 1) * 0x01030205u ^ col * 0x11010f01u;
                sum += a[row * 32 + k] * (int8_t)(b >> k % 4 * 8);
            }
            if (c[row * 8 + col] != sum)
                return false;
        }
    return true;
}

/* Element k of a row of eight words, as faulty.cu makes a number of it. */
static float half_at(const uint32_t *row, uint32_t k, bool bf16)
{
    const uint32_t h = row[k / 2] >> 16 * (k % 2);
    return bf16 ? 1.0f + (float)(h >> 2 & 31u) * 0x1p-5f : 1.0f + (float)(h >> 5 & 31u) * 0x1p-5f;
}

/* A [16,16] times the transpose of B [8,16]. */
static bool is_half_product(bool bf16)
{
    const uint32_t *in_words = simt_place(in, 192 * 4);
    const float    *c = simt_place(out, 16 * 8 * 4);
    for (uint32_t row = 0; row < 16; row++)
        for (uint32_t col = 0; col < 8; col++) {
            float sum = 0.0f;
            for (uint32_t k = 0; k < 16; k++)
                sum += half_at(in_words + row * 8, k, bf16) *
                       half_at(in_words + 128 + col * 8, k, bf16);
            if (!(c[row * 8 + col] == sum))
                return false;
        }
    return true;
}

static void products_take_their_fragments(void **state)
{
    (void)state;
    uint8_t *p = simt_place(in, 256 * 4);
    for (uint32_t i = 0; i < 256 * 4; i++)
        p[i] = (uint8_t)(i * i * 37 + i * 11 + 5);
    threads = 32;
    passes(&good_mma_simt, 1);
    assert_true(is_product());
    for (uint64_t seed = 0; seed < 8; seed++) {
        assert_int_equal(run(&wrong_fragment_simt, 1, seed), TSR_OK);
        assert_false(is_product());
    }
    caught(&lost_mma_simt, 1, "never come");
    passes(&good_mma_f16_simt, 1);
    assert_true(is_half_product(false));
    assert_false(is_half_product(true));
    passes(&good_mma_bf16_simt, 1);
    assert_true(is_half_product(true));
    threads = 16;
    caught(&good_mma_simt, 1, "32 lanes");
    threads = 128;
}

/* Bytes of a copy that nobody waited for are not there. */
static void copies_come_at_their_wait(void **state)
{
    (void)state;
    const uint32_t *p = simt_place(in, 256 * 4);
    threads = 32;
    passes(&good_copies_simt, 1);
    const uint32_t *c = simt_place(out, 32 * 4);
    for (uint32_t t = 0; t < 32; t++)
        assert_int_equal(c[t], p[4 * (31 - t)] + p[4 * (63 - t)]);
    for (uint64_t seed = 0; seed < 8; seed++) {
        assert_int_equal(run(&missing_wait_simt, 1, seed), TSR_OK);
        for (uint32_t t = 0; t < 32; t++)
            assert_int_not_equal(c[t], p[4 * (31 - t)] + p[4 * (63 - t)]);
    }
    threads = 128;
}

/* The last of four blocks sees what the others have stored, if there are fences around a counter; with hooks each
 * fault is found in every schedule, without them the block that is too early has another sum. */
static void blocks_are_ordered_by_a_counter(void **state)
{
    (void)state;
    threads = 32;
    passes(&good_last_block_simt, 4);
    const float *sums = simt_place(out, 256 * 4), *p = simt_place(in, 256 * 4);
    for (uint32_t t = 0; t < 32; t++)
        assert_true(sums[128 + t] == p[t] + p[32 + t] + p[64 + t] + p[96 + t]);
    if (simt_hooked()) {
        caught(&missing_release_simt, 4, "barrier");
        caught(&missing_acquire_simt, 4, "barrier");
        caught(&double_flag_simt, 4, "barrier");
    } else {
        for (uint64_t seed = 0; seed < 8; seed++) {
            assert_int_equal(run(&double_flag_simt, 4, seed), TSR_OK);
            assert_false(sums[128] == p[0] + p[32] + p[64] + p[96]);
        }
    }
    threads = 128;
}

/* Wavefronts and sectors of one block, counted by hand from faulty.cu: 33 stores and a load of shared memory, or 9
 * and one of 16 bytes; a load and a store of global memory, in the wide kernels 9 loads. */
static void traffic_is_counted(void **state)
{
    static const struct {
        const struct simt_kernel *kernel;
        unsigned                  requests, wavefronts, least, global, sectors, least_sectors;
    } cases[] = {
        { &good_traffic_simt, 34, 34, 34, 2, 8, 8 },
        { &bank_conflict_simt, 34, 33 + 32, 34, 2, 8, 8 },
        { &lone_sectors_simt, 34, 34, 34, 2, 32 + 4, 8 },
        { &good_wide_traffic_simt, 10, 40, 40, 10, 160, 160 },
        { &wide_conflict_simt, 10, 9 * 4 + 32, 40, 10, 160, 160 },
    };
    (void)state;
    (void)run(&good_count_simt, 1, 0);
    if (!simt_hooked()) {
        print_message("these kernels were built without memory hooks\n");
        skip();
    }
    threads = 32;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct simt_trace t = { .blocks = 1 };
            assert_true(simt_trace(&t));
            assert_int_equal(run(cases[i].kernel, 1, seed), TSR_OK);
            assert_true(simt_trace(NULL));
            assert_int_equal(t.n, 1);
            assert_string_equal(t.of[0].kernel, cases[i].kernel->name);
            assert_int_equal(t.of[0].requests, cases[i].requests);
            assert_int_equal(t.of[0].wavefronts, cases[i].wavefronts);
            assert_int_equal(t.of[0].least_wavefronts, cases[i].least);
            assert_int_equal(t.of[0].global, cases[i].global);
            assert_int_equal(t.of[0].sectors, cases[i].sectors);
            assert_int_equal(t.of[0].least_sectors, cases[i].least_sectors);
            assert_false(t.of[0].cut);
        }
    threads = 128;
}

/* Kernels that begin before the launches before them have ended. */
static void early_accesses_are_caught(void **state)
{
    (void)state;
    caught(&no_wait_simt, 1, "has not waited");
    passes(&good_count_simt, 1); /* writes what early_read reads */
    passes(&good_early_simt, 1);
    if (!simt_hooked())
        return;
    caught(&early_read_simt, 1, "a kernel has written, and has not waited");
    caught(&early_write_simt, 1, "has not waited");
}

static void host_cannot_follow(void **state)
{
    (void)state;
    assert_null(simt_place(in + 256 * 4, 1));
    assert_null(simt_place(in + 4, 256 * 4));
    assert_null(simt_place(0, 1));
    assert_true(in >> 56 != 0); /* no address of a program */
    simt_free(0);
}

static void grids_are_checked(void **state)
{
    (void)state;
    assert_int_equal(run(&good_count_simt, 0, 0), TSR_E_DEVICE);
    assert_true(text_has(text, "good_count 0.1.1 128"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(right_kernels_pass, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_rules_are_caught, setup, teardown),
        cmocka_unit_test_setup_teardown(accesses_are_caught, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_differ, setup, teardown),
        cmocka_unit_test_setup_teardown(products_take_their_fragments, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_come_at_their_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_are_ordered_by_a_counter, setup, teardown),
        cmocka_unit_test_setup_teardown(traffic_is_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(early_accesses_are_caught, setup, teardown),
        cmocka_unit_test_setup_teardown(host_cannot_follow, setup, teardown),
        cmocka_unit_test_setup_teardown(grids_are_checked, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
