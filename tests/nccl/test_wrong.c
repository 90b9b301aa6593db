/* The transport nccl: what goes wrong with a communicator ends in a sentence, in time, and the ranks that it
 * is not about go on. */
#include "ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const both[] = { "nccl", "nccl:ids=local" };

/* A communicator that reports an error is aborted; the others go on. */
static void test_lost(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct group          g;
        struct standin_counts before = standin_counts();
        make(&g, both[k], 3);
        join_all(&g);
        works(&g, 0, 1);
        void *q = start(&g, 1, RECV, 0, room[1], 5000);
        standin_fault(STANDIN_LOST, 2, 1); /* at every receiver of a pair */
        ends(&g, 1, q, LONG_US, TSR_E_DEVICE, "rank#1 rank#0");
        standin_fault(STANDIN_NONE, 0, 0);
        assert_int_equal(standin_counts().aborted, before.aborted + 1);
        works(&g, 1, 0); /* the other direction, and other ranks */
        works(&g, 2, 1);
        /* the sender is told that there is nobody any more */
        ends(&g, 0, start(&g, 0, SEND, 1, room[0], 5000), LONG_US, TSR_E_DEVICE, NULL);
        refused(&g, 0, 1, NULL);
        end(&g);
        all_given_back();
    }
}

/* What hangs on the device is aborted at the deadline. */
static void test_deadline(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct group g;
        make(&g, both[k], 3);
        join_all(&g);
        works(&g, 0, 1);
        struct standin_counts before = standin_counts();
        uint64_t              since = tsr_now_us();
        void                 *q = start(&g, 0, SEND, 1, room[0], 9000);
        ends(&g, 0, q, SHORT_US, TSR_E_DEVICE, "rank#0 100000 rank#1");
        assert_true(tsr_now_us() - since >= SHORT_US);
        assert_int_equal(standin_counts().aborted, before.aborted + 1);
        refused(&g, 0, 1, "rank#0 rank#1");
        ends(&g, 1, start(&g, 1, RECV, 0, room[1], 9000), LONG_US, TSR_E_DEVICE, NULL);
        /* a peer that never came: nothing has begun, and it may still come */
        q = start(&g, 0, RECV, 2, room[0], 3);
        ends(&g, 0, q, SHORT_US, TSR_E_DEVICE, "rank#2");
        works(&g, 2, 0);
        /* all ranks are in a collective, which hangs */
        void *all[3];
        standin_fault(STANDIN_HANGS, 3, 2);
        for (uint32_t r = 0; r < 3; r++)
            all[r] = start(&g, r, GATHER, 0, room[r], 4000);
        ends(&g, 1, all[1], SHORT_US, TSR_E_DEVICE, "for#rank#0,#2");
        ends(&g, 0, all[0], LONG_US, TSR_E_DEVICE, NULL);
        ends(&g, 2, all[2], LONG_US, TSR_E_DEVICE, NULL);
        standin_fault(STANDIN_NONE, 0, 0);
        end(&g);
        all_given_back();
    }
}

/* A message of another size than its receiver asked for, which NCCL would cut or let hang, and collectives that
 * are not the same: whoever comes second says so before anything is on the device. */
static void test_sizes(void **state)
{
    static const struct {
        uint64_t sent, asked;
    } pairs[] = { { 100, 60 }, { 60, 100 }, { 9000, 16000 }, { 0, 1 } };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof pairs / sizeof *pairs; i++) {
        struct group g;
        char         want[96];
        uint64_t     n = pairs[i / 2].sent, m = pairs[i / 2].asked;
        bool         sender_first = i % 2;
        void        *q[2];
        make(&g, "nccl", 3);
        join_all(&g);
        for (int k = 0; k < 40; k++) /* whatever came before */
            works(&g, 0, 1);
        for (int k = 0; k < 2; k++)
            q[k] = (k == 0) == sender_first ? start(&g, 0, SEND, 1, room[0], n)
                                            : start(&g, 1, RECV, 0, room[1], m);
        (void)snprintf(want, sizeof want, "rank#%d rank#%d %llu", sender_first, !sender_first,
                       (unsigned long long)(sender_first ? m : n));
        ends(&g, sender_first, q[1], LONG_US, TSR_E_DEVICE, want);
        ends(&g, !sender_first, q[0], LONG_US, TSR_E_DEVICE, NULL);
        works(&g, 1, 0);
        works(&g, 2, 1);
        void *all[3];
        for (uint32_t r = 0; r < 3; r++)
            all[r] = start(&g, r, GATHER, 0, room[r], r == 1 ? 64 : 65);
        ends(&g, 1, all[1], LONG_US, TSR_E_DEVICE, "rank#1 64 rank#0 65");
        ends(&g, 0, all[0], LONG_US, TSR_E_DEVICE, NULL);
        end(&g);
        all_given_back();
    }
}

/* Of a collective those are named that have not started it, where ranks share memory. */
static void test_missing(void **state)
{
    (void)state;
    struct group g;
    make(&g, "nccl", 3);
    join_all(&g);
    void *q[2] = { start(&g, 0, GATHER, 0, room[0], 10), start(&g, 2, GATHER, 0, room[2], 10) };
    ends(&g, 0, q[0], SHORT_US, TSR_E_DEVICE, "rank#1");
    ends(&g, 2, q[1], SHORT_US, TSR_E_DEVICE, "rank#1");
    end(&g);
    all_given_back();
}

static void test_joining(void **state)
{
    (void)state;
    struct group g;
    make(&g, "nccl", 2);
    join_all(&g);
    standin_fault(STANDIN_NEVER_JOINS, 2, 1);
    void *q[2] = { start(&g, 0, SEND, 1, room[0], 3), start(&g, 1, RECV, 0, room[1], 3) };
    ends(&g, 0, q[0], SHORT_US, TSR_E_DEVICE, "rank#1");
    ends(&g, 1, q[1], SHORT_US, TSR_E_DEVICE, "rank#0");
    end(&g); /* aborts what never stood */
    standin_fault(STANDIN_NONE, 0, 0);
    all_given_back();

    make(&g, "nccl", 2);
    join_all(&g);
    standin_fault(STANDIN_REFUSES, 2, 0);
    ends(&g, 0, start(&g, 0, SEND, 1, room[0], 3), LONG_US, TSR_E_DEVICE, "rank#0 rank#1");
    ends(&g, 1, start(&g, 1, RECV, 0, room[1], 3), LONG_US, TSR_E_DEVICE, NULL);
    standin_fault(STANDIN_NONE, 0, 0);
    standin_fault(STANDIN_CALL_REFUSED, 2, 0);
    q[1] = start(&g, 0, RECV, 1, room[1], 3);
    ends(&g, 1, start(&g, 1, SEND, 0, room[0], 3), LONG_US, TSR_E_DEVICE, "rank#1 rank#0");
    ends(&g, 0, q[1], LONG_US, TSR_E_DEVICE, NULL);
    standin_fault(STANDIN_NONE, 0, 0);
    end(&g);
    all_given_back();
}

static void test_abort(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct group      g;
        struct tsr_errbuf e = TSR_ERRBUF(e);
        void             *q[3];
        make(&g, both[k], 3);
        join_all(&g);
        works(&g, 0, 1);
        for (uint32_t r = 0; r < 3; r++)
            q[r] = start(&g, r, RECV, (r + 1) % 3, room[r], 5000);
        table()->abort(self_of(&g, 2));
        for (uint32_t r = 0; r < 3; r++) {
            ends(&g, r, q[r], LONG_US, TSR_E_CANCELLED, NULL);
            void *none = NULL;
            assert_int_equal(table()->all_gather(self_of(&g, r), NULL, room[r], room[r], 1, &none,
                                                 &e.err),
                             TSR_E_CANCELLED);
        }
        end(&g);
        all_given_back();
    }
}

static void test_leaver(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct group g;
        make(&g, both[k], 3);
        join_all(&g);
        void *q = start(&g, 0, RECV, 1, room[0], 10), *all = start(&g, 0, GATHER, 0, room[0], 10);
        void *s = start(&g, 2, SEND, 0, "last", 4), *r = start(&g, 0, RECV, 2, room[0], 4);
        ends(&g, 2, s, LONG_US, TSR_OK, NULL);
        tsr_comm_port_close(&g.port[1]);
        tsr_comm_port_close(&g.port[2]);
        ends(&g, 0, q, LONG_US, TSR_E_DEVICE, "rank#1");
        ends(&g, 0, all, LONG_US, TSR_E_DEVICE, "1");
        ends(&g, 0, r, LONG_US, TSR_OK, NULL); /* its last words had arrived */
        assert_memory_equal(room[0], "last", 4);
        end(&g);
        all_given_back();
    }
}

/* A rank that is killed with a message half on its way is found out by the deadline. */
static void test_killed(void **state)
{
    (void)state;
    struct group g;
    int          ready[2], status;
    make(&g, "nccl", 2);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        void             *q = NULL;
        int32_t           done = 0;
        if (join(&g, 1, 7, &e) == TSR_OK)
            (void)table()->send(self_of(&g, 1), NULL, 0, room[1], 16384, &q, &e.err);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;) /* half of it, and what the parent takes */
            (void)table()->test(self_of(&g, 1), q, &done, &e.err);
    }
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              x;
    assert_int_equal(read(ready[0], &x, 1), 1);
    assert_int_equal(join(&g, 0, 7, &e), TSR_OK);
    standin_fault(STANDIN_HANGS, 2, 1); /* nothing is taken before it has died */
    void   *q = start(&g, 0, RECV, 1, room[0], 16384);
    int32_t done = 0;
    while (standin_counts().communicators == 0) /* they meet */
        assert_int_equal(table()->test(self_of(&g, 0), q, &done, &e.err), TSR_OK);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    standin_fault(STANDIN_NONE, 0, 0);
    ends(&g, 0, q, SHORT_US, TSR_E_DEVICE, "rank#1");
    (void)close(ready[0]);
    (void)close(ready[1]);
    end(&g);
    all_given_back();
}

static void test_epoch(void **state)
{
    (void)state;
    struct group      g;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    make(&g, "nccl", 2);
    assert_int_equal(join(&g, 0, 7, &e), TSR_OK);
    assert_int_equal(join(&g, 1, 6, &e), TSR_OK);
    void *q = start(&g, 1, SEND, 0, "old", 3);
    ends(&g, 0, start(&g, 0, RECV, 1, room[0], 3), LONG_US, TSR_E_DEVICE, "6 7");
    ends(&g, 1, q, LONG_US, TSR_E_DEVICE, NULL);
    end(&g);
    all_given_back();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed), /* forks, so before any thread exists */
        cmocka_unit_test(test_lost),    cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_missing), cmocka_unit_test(test_joining),
        cmocka_unit_test(test_abort),   cmocka_unit_test(test_leaver),
        cmocka_unit_test(test_epoch),   cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests_name("nccl-wrong", tests, open_all, close_all);
}
