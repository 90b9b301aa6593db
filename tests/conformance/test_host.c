/* The host table that watches: what it gives, counts and notices. */
#include "conformance/test_host.h"
#include "../fixtures/error_is.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void memory_is_aligned_and_dirty(void **state)
{
    (void)state;
    for (int guard = 0; guard < 2; guard++)
        for (uint64_t align = 1; align <= 1 << 16; align *= 2)
            for (uint64_t size = 0; size < 300; size = size * 3 + 1) {
                struct tsr_conformance_test_host h;
                tsr_conformance_test_host_init(&h, 1);
                h.guard = guard;
                unsigned char *p = h.table.alloc(&h, size, align);
                assert_non_null(p);
                assert_int_equal((uintptr_t)p % align, 0);
                for (uint64_t i = 0; i < size; i++)
                    assert_int_equal(p[i], 0xA5);
                assert_int_equal(atomic_load(&h.live_bytes), size);
                h.table.release(&h, p, size);
                assert_int_equal(atomic_load(&h.live), 0);
                for (int m = 0; m < TSR_CONFORMANCE_MISUSES; m++)
                    assert_string_equal(h.misuse[m], "");
            }
}

static void misuse_is_noticed(void **state)
{
    (void)state;
    struct tsr_conformance_test_host h;
    tsr_conformance_test_host_init(&h, 1);
    assert_null(h.table.alloc(&h, 8, 24));
    assert_true(text_has(h.misuse[TSR_CONFORMANCE_MISUSE_ALLOC], "24"));
    char *p = h.table.alloc(&h, 100, 16);
    assert_non_null(p);
    h.table.release(&h, NULL, 100);
    assert_string_equal(h.misuse[TSR_CONFORMANCE_MISUSE_RELEASE], "");
    p[100] = 1;
    h.table.release(&h, p, 99);
    assert_true(text_has(h.misuse[TSR_CONFORMANCE_MISUSE_RELEASE], "99 100"));
    assert_true(text_has(h.misuse[TSR_CONFORMANCE_MISUSE_OVERRUN], "100"));
    assert_int_equal(atomic_load(&h.live), 0);
    tsr_conformance_test_host_init(&h, 1);
    p = h.table.alloc(&h, 100, 16);
    h.table.release(&h, p, 100);
    h.table.release(&h, p, 100);
    assert_true(text_has(h.misuse[TSR_CONFORMANCE_MISUSE_RELEASE], "second"));
    h.table.log(&h, TSR_LOG_INFO, "fine");
    assert_string_equal(h.misuse[TSR_CONFORMANCE_MISUSE_LOG], "");
    h.table.log(&h, TSR_LOG_INFO, "two\nlines");
    assert_true(text_has(h.misuse[TSR_CONFORMANCE_MISUSE_LOG], "0x0a"));
}

static void the_named_allocation_fails(void **state)
{
    (void)state;
    struct tsr_conformance_test_host h;
    tsr_conformance_test_host_init(&h, 1);
    h.fail_alloc = 2;
    void *a = h.table.alloc(&h, 1, 1), *b = h.table.alloc(&h, 1, 1), *c = h.table.alloc(&h, 1, 1);
    assert_true(a && !b && c);
    h.table.release(&h, a, 1);
    h.table.release(&h, c, 1);
}

/* What a touch of p[at] ends with: 0, or the signal. */
static int touch(volatile char *p, int64_t at)
{
    int   status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* not cmocka's, nor a sanitizer's */
        p[at] = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void the_ends_can_be_felt(void **state)
{
    (void)state;
    char  where[200];
    char *p = tsr_conformance_guarded("codes", 128, 0),
         *odd = tsr_conformance_guarded("meta", 100, 0);
    char *room = tsr_conformance_roomy("scratch", 128, 0);
    assert_int_equal(touch(p, 0), 0);
    assert_int_equal(touch(p, 127), 0);
    assert_int_not_equal(touch(p, 128), 0);
    assert_int_not_equal(touch(p, -4096), 0);
    assert_int_equal(touch(room, 128), 0);
    assert_int_equal(touch(room, -1), 0);
    assert_true(tsr_conformance_guarded_intact(odd));
    odd[100] = 1;
    assert_false(tsr_conformance_guarded_intact(odd));
    assert_true(tsr_conformance_guarded_describe(p + 128, where, sizeof where));
    assert_string_equal(where, "byte 129 of codes, which has 128");
    assert_true(tsr_conformance_guarded_describe(p - 1, where, sizeof where));
    assert_string_equal(where, "1 bytes before codes (128 bytes)");
    assert_false(tsr_conformance_guarded_describe(where, where, sizeof where));
    tsr_conformance_guarded_protect(p, true);
    assert_int_not_equal(touch(p, 0), 0);
    tsr_conformance_guarded_free(p);
    tsr_conformance_guarded_free(odd);
    tsr_conformance_guarded_free(room);
}

struct seen {
    _Atomic uint64_t sum, chunks;
};

static tsr_status add(void *arg, uint64_t begin, uint64_t end)
{
    struct seen *s = arg;
    atomic_fetch_add(&s->chunks, 1);
    for (uint64_t i = begin; i < end; i++)
        atomic_fetch_add(&s->sum, i);
    return TSR_OK;
}

static tsr_status stop(void *arg, uint64_t begin, uint64_t end)
{
    (void)arg;
    (void)end;
    return begin == 7 ? TSR_E_NUMERIC : TSR_OK;
}

static void loops_are_whole(void **state)
{
    (void)state;
    static const uint32_t workers[] = { 1, 2, 7 };
    for (size_t i = 0; i < 3; i++) {
        struct tsr_conformance_test_host h;
        struct seen                      s = { 0 };
        tsr_conformance_test_host_init(&h, workers[i]);
        assert_int_equal(h.table.parallel_for(&h, 1001, 10, add, &s), TSR_OK);
        assert_int_equal(atomic_load(&s.sum), 1000 * 1001 / 2);
        assert_int_equal(atomic_load(&s.chunks), 101);
        assert_int_equal(h.table.parallel_for(&h, 20, 1, stop, NULL), TSR_E_NUMERIC);
        assert_int_equal(h.table.parallel_for(&h, 0, 1, stop, NULL), TSR_OK);
    }
}

static void time_is_the_process_own(void **state)
{
    (void)state;
    struct tsr_conformance_test_host h;
    tsr_conformance_test_host_init(&h, 1);
    assert_int_equal(h.table.cancelled(&h), 0);
    h.cancel_after_ms = 5;
    assert_int_equal(h.table.cancelled(&h), 0); /* the clock does not run */
    tsr_conformance_test_host_start(&h);
    while (!h.table.cancelled(&h)) {
    }
    assert_true(tsr_conformance_test_host_late_ms(&h) >= 0.0);
    tsr_conformance_test_host_init(&h, 1);
    atomic_store(&h.cancel, 1);
    assert_int_equal(h.table.cancelled(&h), 1);
    assert_int_equal(atomic_load(&h.asked), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_and_dirty),
        cmocka_unit_test(misuse_is_noticed),
        cmocka_unit_test(the_named_allocation_fails),
        cmocka_unit_test(the_ends_can_be_felt),
        cmocka_unit_test(loops_are_whole),
        cmocka_unit_test(time_is_the_process_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
