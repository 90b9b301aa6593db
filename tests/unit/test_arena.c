/* Blocks side by side in large pages: none overlaps another, freed ones are used again and go back to the system,
 * and children and threads get their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB   UINT64_C(1024)
#define MIB   (UINT64_C(1) << 20)
#define LARGE (2 * MIB)

/* A block, or the end of the test: under AddressSanitizer there are none. */
static uint8_t *get(uint64_t bytes)
{
    uint8_t *p = tsr_arena_get(bytes, 64);
    if (!p)
        skip();
    return p;
}

static void put(uint8_t *p, uint64_t bytes)
{
    assert_true(tsr_arena_put(p, bytes));
}

static void test_not_for(void **state)
{
    (void)state;
    uint8_t *plain = malloc(MIB);
    assert_non_null(plain);
    assert_null(tsr_arena_get(128 * KIB - 1, 64));
    assert_null(tsr_arena_get(32 * MIB + 1, 64));
    assert_null(tsr_arena_get(UINT64_MAX, 64));
    assert_null(tsr_arena_get(MIB, 8192));
    assert_false(tsr_arena_put(plain, MIB));
    assert_false(tsr_arena_put(plain, 64));
    free(plain);
}

static void test_side_by_side(void **state)
{
    (void)state;
    uint8_t *a = get(800 * KIB + 1), *b = get(800 * KIB), *c = get(3 * MIB);
    assert_int_equal((uintptr_t)a % LARGE, 0);
    assert_ptr_equal(b, a + 804 * KIB);
    assert_ptr_equal(c, b + 800 * KIB);
    put(b, 800 * KIB);
    uint8_t *d = get(900 * KIB), *e = get(700 * KIB), *f = get(128 * KIB);
    assert_ptr_equal(d, c + 3 * MIB); /* too large for the hole */
    assert_ptr_equal(e, b);
    assert_ptr_equal(f, d + 900 * KIB); /* the rest of the hole is 100 KiB */
    put(a, 800 * KIB + 1);
    put(c, 3 * MIB);
    put(d, 900 * KIB);
    put(e, 700 * KIB);
    put(f, 128 * KIB);
}

/* What comes back from the system is zero. */
static void test_gives_back(void **state)
{
    (void)state;
    uint8_t *low = get(MIB), *mid = get(6 * MIB), *high = get(MIB);
    memset(low, 1, MIB);
    memset(mid, 2, 6 * MIB);
    memset(high, 3, MIB);
    put(mid, 6 * MIB);
    uint8_t *again = get(6 * MIB);
    assert_ptr_equal(again, mid);
    for (uint64_t i = MIB; i < 5 * MIB; i++) /* the large pages that nobody else had */
        assert_int_equal(again[i], 0);
    assert_int_equal(low[MIB - 1], 1);
    assert_int_equal(high[0], 3);
    put(low, MIB);
    put(high, MIB);
    put(again, 6 * MIB);
}

struct block {
    uint8_t *p;
    uint64_t bytes;
    uint8_t  mark;
};

/* Any order of blocks: the first and the last byte of each page is the block's own. */
static void *churn(void *arg)
{
    enum { BLOCKS = 24, TURNS = 1500 };
    struct block b[BLOCKS] = { { 0 } };
    uint64_t     x = *(const uint64_t *)arg, wrong = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        struct block *at = &b[(x >> 33) % BLOCKS];
        if (at->p) {
            for (uint64_t i = 0; i < at->bytes; i += 4096)
                wrong += at->p[i] != at->mark || at->p[at->bytes - 1] != at->mark;
            wrong += !tsr_arena_put(at->p, at->bytes);
            at->p = NULL;
            continue;
        }
        at->bytes = 128 * KIB + (x >> 40) % ((x >> 20) % 8 ? MIB : 16 * MIB);
        at->mark = (uint8_t)(x >> 56);
        at->p = tsr_arena_get(at->bytes, 4096);
        if (!at->p) {
            wrong++;
            continue;
        }
        for (uint64_t i = 0; i < at->bytes; i += 4096)
            at->p[i] = at->mark;
        at->p[at->bytes - 1] = at->mark;
    }
    for (int i = 0; i < BLOCKS; i++)
        if (b[i].p)
            wrong += !tsr_arena_put(b[i].p, b[i].bytes);
    return wrong ? arg : NULL;
}

/* Threads at work while children fork, which go on. */
static void test_threads_and_children(void **state)
{
    enum { THREADS = 3, CHILDREN = 10 };
    pthread_t id[THREADS];
    uint64_t  seed[THREADS], own = 77;
    (void)state;
    put(get(MIB), MIB);
    for (int i = 0; i < THREADS; i++) {
        seed[i] = (uint64_t)i + 1;
        assert_int_equal(pthread_create(&id[i], NULL, churn, &seed[i]), 0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            uint8_t *p = tsr_arena_get(MIB, 64);
            if (p)
                memset(p, 5, MIB);
            _exit(p && tsr_arena_put(p, MIB) ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    assert_null(churn(&own));
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        assert_int_equal(pthread_join(id[i], &wrong), 0);
        assert_null(wrong);
    }
}

/* More than the first reservation holds. */
static void test_grows(void **state)
{
    enum { BLOCKS = 300 };
    uint8_t *p[BLOCKS];
    (void)state;
    for (int i = 0; i < BLOCKS; i++) {
        p[i] = get(MIB);
        p[i][0] = (uint8_t)i;
        p[i][MIB - 1] = (uint8_t)i;
    }
    for (int i = 0; i < BLOCKS; i++) {
        assert_int_equal(p[i][0], (uint8_t)i);
        assert_int_equal(p[i][MIB - 1], (uint8_t)i);
        put(p[i], MIB);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_for),    cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_gives_back), cmocka_unit_test(test_threads_and_children),
        cmocka_unit_test(test_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
