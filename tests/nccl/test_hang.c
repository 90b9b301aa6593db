/* The transport nccl where ncclCommAbort() or ncclCommDestroy() does not come back, or no thread is to be had for them: whoever waits gets its sentence, other ranks of
 * the process go on meanwhile, and so does what comes later.  What is left with the device stays there, so
 * these have a process of their own. */
#include "../fixtures/error_is.h"
#include "ranks.h"

#include <unistd.h>

struct waiter {
    struct group     *g;
    void             *q;
    tsr_status        st;
    struct tsr_errbuf e;
};

static void *wait_for(void *arg)
{
    struct waiter *w = arg;
    w->st = table()->wait(self_of(w->g, 0), w->q, SHORT_US, &w->e.err);
    return NULL;
}

/* The stand-in has come so far; false: it has not in all that time. */
static bool counted(uint64_t aborting, uint64_t aborted)
{
    for (uint64_t since = tsr_now_us(); tsr_now_us() - since < LONG_US; (void)usleep(1000)) {
        struct standin_counts c = standin_counts();
        if (c.aborting >= aborting && c.aborted >= aborted)
            return true;
    }
    return false;
}

/* So many communicators are left. */
static bool left(uint64_t n)
{
    for (uint64_t since = tsr_now_us(); tsr_now_us() - since < LONG_US; (void)usleep(1000))
        if (standin_counts().communicators == n)
            return true;
    return false;
}

static bool all_over(void)
{
    return left(0);
}

static void test_abort_hangs(void **state)
{
    (void)state;
    struct group          g;
    struct waiter         w = { .g = &g, .e = TSR_ERRBUF(w.e) };
    struct standin_counts before = standin_counts();
    pthread_t             id;
    uint64_t              now, peak;
    make(&g, "nccl", 3);
    join_all(&g);
    works(&g, 0, 1);
    standin_fault(STANDIN_ABORT_HANGS, 2, 0); /* at every sender of a pair */
    w.q = start(&g, 0, SEND, 1, room[0], 9000);
    assert_int_equal(pthread_create(&id, NULL, wait_for, &w), 0);
    assert_true(counted(before.aborting + 1, 0));
    /* it hangs, and nobody else does: neither other ranks nor the rank's other communicators */
    works(&g, 2, 1);
    works(&g, 1, 0);
    works(&g, 0, 2);
    assert_int_equal(standin_counts().aborted, before.aborted);
    assert_int_equal(pthread_join(id, NULL), 0);
    assert_int_equal(w.st, TSR_E_DEVICE);
    assert_true(error_is(&w.e.err, "", "100000 for#rank#1"));
    assert_int_equal(standin_counts().aborted, before.aborted);
    refused(&g, 0, 1, "rank#0 rank#1");
    works(&g, 2, 1);
    end(&g); /* it hangs still */
    assert_int_equal(standin_counts().aborted, before.aborted);
    tsr_plugin_registry_memory(registry, &now, &peak);
    assert_int_equal(now, 0); /* the host has all of its memory back */
    standin_fault(STANDIN_NONE, 0, 0);
    assert_true(counted(0, before.aborted + 1)); /* its thread needs nothing of the instance */
    assert_true(all_over());
    assert_int_equal(standin_counts().misused, 0);

    /* a group that comes later works; nothing is freed on devices any more */
    make(&g, "nccl", 2);
    join_all(&g);
    works(&g, 0, 1);
    works(&g, 1, 0);
    end(&g);
    tsr_plugin_registry_memory(registry, &now, &peak);
    assert_int_equal(now, 0);
    assert_true(standin_live().blocks > 0);
    assert_int_equal(standin_counts().misused, 0);
}

/* One that is only polled ends too. */
static void test_polled(void **state)
{
    (void)state;
    struct group          g;
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct standin_counts before = standin_counts();
    tsr_status            st = TSR_OK;
    int32_t               done = 0;
    make(&g, "nccl", 2);
    join_all(&g);
    standin_fault(STANDIN_ABORT_HANGS, 2, 1);
    standin_fault(STANDIN_LOST, 2, 1);
    void *s = start(&g, 0, SEND, 1, room[0], 9000), *r = start(&g, 1, RECV, 0, room[1], 9000);
    for (uint64_t since = tsr_now_us(); !done && tsr_now_us() - since < LONG_US;) {
        int32_t sent = 0;
        st = table()->test(self_of(&g, 1), r, &done, &e.err);
        if (s && (table()->test(self_of(&g, 0), s, &sent, NULL) != TSR_OK || sent))
            s = NULL;
    }
    assert_true(done);
    assert_int_equal(st, TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "rank#1 lost#rank#0"));
    assert_int_equal(standin_counts().aborting, standin_counts().aborted + 1);
    standin_fault(STANDIN_NONE, 0, 0);
    assert_true(counted(0, before.aborted + 1));
    if (s)
        (void)table()->wait(self_of(&g, 0), s, SHORT_US, NULL);
    end(&g);
    assert_true(all_over());
}

/* A group that has done its work ends, whether its communicators do or not. */
static void test_end_hangs(void **state)
{
    (void)state;
    struct group          g;
    struct standin_counts before = standin_counts();
    uint64_t              now, peak;
    make(&g, "nccl", 2);
    join_all(&g);
    works(&g, 0, 1);
    standin_fault(STANDIN_END_HANGS, 2, 0); /* at the sender; the receiver's ends */
    end(&g);
    assert_true(left(1));
    assert_int_equal(standin_counts().ending, before.ending + 2);
    assert_int_equal(standin_counts().finalized, before.finalized + 1);
    assert_int_equal(standin_counts().aborting, before.aborting);
    tsr_plugin_registry_memory(registry, &now, &peak);
    assert_int_equal(now, 0);
    standin_fault(STANDIN_NONE, 0, 0);
    assert_true(all_over());
    assert_int_equal(standin_counts().misused, 0);
}

/* Without the room for a thread's stack there is none. */
static void let_threads(bool there)
{
    static size_t  usual;
    pthread_attr_t a;
    assert_int_equal(pthread_getattr_default_np(&a), 0);
    if (!usual)
        assert_int_equal(pthread_attr_getstacksize(&a, &usual), 0);
    assert_int_equal(pthread_attr_setstacksize(&a, there ? usual : (size_t)1 << 50), 0);
    assert_int_equal(pthread_setattr_default_np(&a), 0);
    assert_int_equal(pthread_attr_destroy(&a), 0);
    if (!there) {
        pthread_t id;
        assert_int_not_equal(pthread_create(&id, NULL, wait_for, NULL), 0);
    }
}

/* Nobody aborts under the lock, where an abort that hung would take all with it: it waits for a thread. */
static void test_no_thread(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) { /* one comes in time, none does */
        struct group          g;
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        struct standin_counts before = standin_counts();
        int32_t               done = 0;
        make(&g, "nccl", 2);
        join_all(&g);
        works(&g, 1, 0);
        standin_fault(STANDIN_HANGS, 2, 1); /* at every receiver of a pair */
        void *r = start(&g, 1, RECV, 0, room[1], 9000);
        void *s = start(&g, 0, SEND, 1, room[0], 9000);
        for (int i = 0; i < 50; i++) {
            assert_int_equal(table()->test(self_of(&g, 1), r, &done, &e.err), TSR_OK);
            assert_int_equal(done, 0);
        }
        standin_fault(STANDIN_LOST, 2, 1);
        let_threads(false);
        assert_int_equal(table()->test(self_of(&g, 1), r, &done, &e.err), TSR_OK);
        assert_int_equal(done, 0); /* it has failed, and is not over */
        standin_fault(STANDIN_NONE, 0, 0);
        works(&g, 1, 0);
        assert_int_equal(standin_counts().aborting, before.aborting);
        if (k == 0)
            let_threads(true);
        ends(&g, 1, r, LONG_US, TSR_E_DEVICE, "rank#1 lost#rank#0");
        if (k == 1)
            assert_int_equal(standin_counts().aborting, before.aborting);
        let_threads(true);
        ends(&g, 0, s, LONG_US, TSR_E_DEVICE, NULL);
        end(&g);
        assert_true(counted(0, before.aborted + 2)); /* what was left for want of a thread, too */
        assert_true(all_over());
        assert_int_equal(standin_counts().misused, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_thread),
        cmocka_unit_test(test_end_hangs),
        cmocka_unit_test(test_abort_hangs),
        cmocka_unit_test(test_polled),
    };
    return cmocka_run_group_tests_name("nccl-hang", tests, open_all, close_all);
}
