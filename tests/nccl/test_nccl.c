/* The transport nccl over the stand-in of its libraries (standin.h): bytes arrive, in every way in which
 * ranks may find each other, and what goes wrong with a communicator ends in a sentence in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "comm/group.h"
#include "plugin_open.h"
#include "standin.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_US   UINT64_C(30000000) /* only a hang reaches it */
#define SHORT_US  UINT64_C(100000)
#define MAX_RANKS 8

static struct tsr_registry *registry;
static struct tsr_found     found;

/* ---- groups ------------------------------------------------------------------- */

struct group {
    const char           *spec;
    uint32_t              ranks;
    struct tsr_comm_world world;
    struct tsr_comm_port  port[MAX_RANKS];
};

static void make(struct group *g, const char *spec, uint32_t ranks)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *g = (struct group){ .spec = spec, .ranks = ranks };
    if (tsr_comm_world_create(&g->world, registry, spec, ranks, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static tsr_status join(struct group *g, uint32_t rank, uint64_t epoch, struct tsr_errbuf *e)
{
    struct tsr_comm_place p = { g->spec, rank, g->ranks, g->world.shared, g->world.bytes, epoch };
    return tsr_comm_port_open(&g->port[rank], registry, &p, &e->err);
}

static void join_all(struct group *g)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (uint32_t r = g->ranks; r-- > 0;)
        if (join(g, r, 7, &e) != TSR_OK)
            fail_msg("%s", e.text);
}

static void end(struct group *g)
{
    for (uint32_t r = 0; r < g->ranks; r++)
        tsr_comm_port_close(&g->port[r]);
    tsr_comm_world_close(&g->world);
}

static const struct tsr_transport_v1 *table(void)
{
    return found.iface;
}

static void *self_of(struct group *g, uint32_t rank)
{
    return g->port[rank].self;
}

/* Nothing that the libraries gave is left, and nothing was asked of them that they do not allow. */
static void all_given_back(void)
{
    struct standin_live   l = standin_live();
    struct standin_counts c = standin_counts();
    uint64_t              now, peak;
    tsr_registry_memory(registry, &now, &peak);
    assert_int_equal(now, 0);
    standin_move(); /* streams that were destroyed with work on them */
    assert_int_equal(l.contexts + l.blocks + l.events, 0);
    assert_int_equal(standin_live().streams, 0);
    assert_int_equal(c.communicators, 0);
    assert_int_equal(c.misused, 0);
}

/* ---- one thread, several ranks ------------------------------------------------- */

static unsigned char pattern(uint32_t from, uint32_t to, uint64_t n, uint64_t i)
{
    return (unsigned char)(from * 37u + to * 11u + n * 101u + i * 7u + i / 251u);
}

static const uint64_t sizes[] = { 0, 1, 1000, 4097, 30011 };

/* Everything that a rank starts with all others at once, then waits for in odd order. */
static bool traffic(struct group *g, uint32_t rank, uint64_t bytes, uint64_t n)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = self_of(g, rank), *q[2 * MAX_RANKS + 2] = { NULL };
    uint32_t          ranks = g->ranks;
    uint64_t          room = (uint64_t)ranks * bytes + 1;
    unsigned char    *out = calloc(1, room), *in = malloc(3 * room), *to = in + room;
    unsigned char    *all = to + room;
    bool              ok = out && in;
    memset(in, 0xee, 3 * room);
    for (uint32_t r = 0; r < ranks; r++)
        for (uint64_t i = 0; i < bytes; i++)
            out[r * bytes + i] = pattern(rank, r, n, i);
    for (uint32_t r = 0; ok && r < ranks; r++)
        ok = table()->send(self, NULL, r, out + r * bytes, bytes, &q[r], &e.err) == TSR_OK && q[r];
    ok = ok && table()->all_to_all(self, NULL, out, to, bytes, &q[2 * ranks], &e.err) == TSR_OK;
    for (uint32_t r = 0; ok && r < ranks; r++)
        ok = table()->recv(self, NULL, r, in + r * bytes, bytes, &q[ranks + r], &e.err) == TSR_OK;
    ok = ok && table()->all_gather(self, NULL, out + rank * bytes, all, bytes, &q[2 * ranks + 1],
                                   &e.err) == TSR_OK;
    for (uint32_t i = 2 * ranks + 2; ok && i-- > 0;)
        ok = table()->wait(self, q[i], LONG_US, &e.err) == TSR_OK;
    for (uint32_t r = 0; ok && r < ranks; r++)
        for (uint64_t i = 0; ok && i < bytes; i++)
            ok = in[r * bytes + i] == pattern(r, rank, n, i) &&
                 to[r * bytes + i] == pattern(r, rank, n, i) &&
                 all[r * bytes + i] == pattern(r, r, n, i);
    ok = ok && in[ranks * bytes] == 0xee && to[ranks * bytes] == 0xee && all[ranks * bytes] == 0xee;
    if (!ok)
        (void)fprintf(stderr, "rank %u of %u, %llu bytes: %s\n", rank, ranks,
                      (unsigned long long)bytes, e.text);
    free(out);
    free(in);
    return ok;
}

struct seat {
    struct group *g;
    uint32_t      rank;
    bool          ok;
};

static void *sit(void *arg)
{
    struct seat *s = arg;
    s->ok = true;
    for (size_t i = 0; s->ok && i < sizeof sizes / sizeof *sizes; i++)
        s->ok = traffic(s->g, s->rank, sizes[i], i);
    return NULL;
}

static uint64_t moved(struct group *g, bool received)
{
    struct tsr_transport_counts c = { .struct_size = sizeof c };
    uint64_t                    n = 0;
    for (uint32_t r = 0; r < g->ranks; r++) {
        g->port[r].counts->read(g->port[r].self, &c);
        n += received ? c.received : c.sent;
        assert_int_equal(c.refused, 0);
    }
    return n;
}

static void on_threads(const char *spec, uint32_t ranks)
{
    struct group g;
    struct seat  seats[MAX_RANKS];
    pthread_t    id[MAX_RANKS];
    uint64_t     each = 0;
    make(&g, spec, ranks);
    join_all(&g);
    for (uint32_t r = 0; r < ranks; r++) {
        seats[r] = (struct seat){ &g, r, false };
        assert_int_equal(pthread_create(&id[r], NULL, sit, &seats[r]), 0);
    }
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_join(id[r], NULL), 0);
    for (uint32_t r = 0; r < ranks; r++)
        assert_true(seats[r].ok);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        each += sizes[i];
    assert_int_equal(moved(&g, false), 3 * each * ranks * (ranks - 1));
    assert_int_equal(moved(&g, true), 3 * each * ranks * (ranks - 1));
    end(&g);
    all_given_back();
}

static void test_bytes(void **state)
{
    (void)state;
    on_threads("nccl", 1);
    on_threads("nccl", 2);
    on_threads("nccl:device=0", 5);
    on_threads("nccl:ids=local", 2);
    on_threads("nccl:ids=local:ring=1", 4);
    standin_slow(20);
    on_threads("nccl", 3);
    standin_slow(2);
    on_threads("nccl", 8);
}

static void test_processes(void **state)
{
    (void)state;
    static const char *const specs[] = { "nccl", "nccl:ids=local" };
    for (int k = 0; k < 2; k++) {
        struct group g;
        pid_t        pid[3];
        make(&g, specs[k], 3);
        for (uint32_t r = 0; r < 3; r++) {
            pid[r] = fork();
            assert_true(pid[r] >= 0);
            if (pid[r] == 0) {
                struct tsr_errbuf e = TSR_ERRBUF(e);
                struct seat       s = { &g, r, false };
                if (join(&g, r, 7, &e) == TSR_OK)
                    (void)sit(&s);
                tsr_comm_port_close(&g.port[r]);
                _exit(s.ok ? 0 : 1);
            }
        }
        for (uint32_t r = 0; r < 3; r++) {
            int status;
            assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        tsr_comm_world_close(&g.world);
    }
}

/* ---- sums ----------------------------------------------------------------------- */

struct adder {
    struct tsr_comm_group *g;
    float                 *x;
    tsr_status             st;
    struct tsr_errbuf      e;
};

enum { ROWS = 37, COLS = 448 };

static void *add(void *arg)
{
    struct adder *a = arg;
    a->st = tsr_comm_group_sum(a->g, 0, 3, a->x, ROWS, COLS, &a->e.err);
    return NULL;
}

/* A group's sums over it are those of the simulated group, to the bit. */
static void sums(const char *spec, uint32_t ranks, enum tsr_comm_algorithm algorithm)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_comm_way   way = { .codec = "plain:dtype=bf16",
                                  .algorithm = algorithm,
                                  .piece = 16384 };
    struct tsr_comm_world world;
    struct tsr_comm_coder coder;
    struct adder          a[MAX_RANKS];
    pthread_t             id[MAX_RANKS];
    static float          want[ROWS * COLS];
    const float          *partial[MAX_RANKS];
    assert_int_equal(tsr_comm_world_create(&world, registry, spec, ranks, &e.err), TSR_OK);
    assert_int_equal(tsr_comm_coder_open(&coder, registry, &way, ranks, &e.err), TSR_OK);
    for (uint32_t r = 0; r < ranks; r++) {
        struct tsr_comm_options o = { { spec, r, ranks, world.shared, world.bytes, 1 },
                                      LONG_US,
                                      { way, way } };
        a[r] = (struct adder){ .x = malloc(sizeof want), .e = TSR_ERRBUF(a[r].e) };
        for (uint64_t i = 0; i < ROWS * COLS; i++) {
            uint32_t u[4];
            tsr_philox(u, i, r, 5);
            a[r].x[i] = (float)(int32_t)u[0] / (float)(1u << (u[1] & 31));
        }
        partial[r] = a[r].x;
        if (tsr_comm_group_create(&a[r].g, registry, &o, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
    }
    assert_int_equal(tsr_sum_simulated(&coder, 3, partial, ROWS, COLS, want, &e.err), TSR_OK);
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_create(&id[r], NULL, add, &a[r]), 0);
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_join(id[r], NULL), 0);
    for (uint32_t r = 0; r < ranks; r++) {
        if (a[r].st != TSR_OK)
            fail_msg("%s", a[r].e.text);
        assert_memory_equal(a[r].x, want, sizeof want);
        free(a[r].x);
        tsr_comm_group_destroy(a[r].g);
    }
    tsr_comm_coder_close(&coder);
    tsr_comm_world_close(&world);
    all_given_back();
}

static void test_sums(void **state)
{
    (void)state;
    sums("nccl", 2, TSR_COMM_ALL_GATHER);
    sums("nccl", 4, TSR_COMM_TWO_STEP); /* slices of different sizes: messages, not collectives */
    sums("nccl:ids=local", 3, TSR_COMM_TWO_STEP);
}

/* ---- what goes wrong -------------------------------------------------------------- */

enum kind { SEND, RECV, GATHER };

static void *start(struct group *g, uint32_t rank, enum kind kind, uint32_t peer, void *buf,
                   uint64_t bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL, *self = self_of(g, rank);
    tsr_status        st = kind == SEND   ? table()->send(self, NULL, peer, buf, bytes, &q, &e.err)
                           : kind == RECV ? table()->recv(self, NULL, peer, buf, bytes, &q, &e.err)
                                          : table()->all_gather(self, NULL, (char *)buf + 8192, buf, bytes,
                                                                &q, &e.err);
    if (st != TSR_OK || !q)
        fail_msg("rank %u: %s", rank, e.text);
    return q;
}

static void ends(struct group *g, uint32_t rank, void *q, uint64_t us, tsr_status want,
                 const char *text)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = table()->wait(self_of(g, rank), q, us, &e.err);
    if (st != want || (text && !strstr(e.text, text)))
        fail_msg("rank %u: status %d, wanted %d: '%s', wanted '%s'", rank, st, want, e.text,
                 text ? text : "");
}

static void refused(struct group *g, uint32_t rank, uint32_t peer, const char *text)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL;
    char              b[1] = "";
    tsr_status        st = table()->send(self_of(g, rank), NULL, peer, b, 1, &q, &e.err);
    if (st != TSR_E_DEVICE || q || !strstr(e.text, text))
        fail_msg("rank %u: status %d: '%s', wanted '%s'", rank, st, e.text, text);
}

static char room[3][16384];

/* The two of a pair send and receive a small message: it works. */
static void works(struct group *g, uint32_t from, uint32_t to)
{
    void *s = start(g, from, SEND, to, "xyz", 3), *r = start(g, to, RECV, from, room[to], 3);
    ends(g, to, r, LONG_US, TSR_OK, NULL);
    ends(g, from, s, LONG_US, TSR_OK, NULL);
    assert_memory_equal(room[to], "xyz", 3);
}

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
        ends(&g, 1, q, LONG_US, TSR_E_DEVICE,
             "rank 1 lost rank 0: remote process exited (a peer has gone)");
        standin_fault(STANDIN_NONE, 0, 0);
        assert_int_equal(standin_counts().aborted, before.aborted + 1);
        works(&g, 1, 0); /* the other direction, and other ranks */
        works(&g, 2, 1);
        /* the sender is told that there is nobody any more */
        ends(&g, 0, start(&g, 0, SEND, 1, room[0], 5000), LONG_US, TSR_E_DEVICE,
             "gave up the communicator");
        refused(&g, 0, 1, "gave up the communicator");
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
        ends(&g, 0, q, SHORT_US, TSR_E_DEVICE,
             "rank 0 waited 100000 us for rank 1; it is late or "
             "has died, and the communicator was aborted");
        assert_true(tsr_now_us() - since >= SHORT_US);
        assert_int_equal(standin_counts().aborted, before.aborted + 1);
        refused(&g, 0, 1, "rank 0 gave up an earlier operation with rank 1");
        ends(&g, 1, start(&g, 1, RECV, 0, room[1], 9000), LONG_US, TSR_E_DEVICE,
             "gave up the communicator");
        /* a peer that never came: nothing has begun, and it may still come */
        q = start(&g, 0, RECV, 2, room[0], 3);
        ends(&g, 0, q, SHORT_US, TSR_E_DEVICE, "for rank 2; it is late or has died");
        works(&g, 2, 0);
        /* all ranks are in a collective, which hangs */
        void *all[3];
        standin_fault(STANDIN_HANGS, 3, 2);
        for (uint32_t r = 0; r < 3; r++)
            all[r] = start(&g, r, GATHER, 0, room[r], 4000);
        ends(&g, 1, all[1], SHORT_US, TSR_E_DEVICE, "for rank 0, 2; it is late or has died, and");
        ends(&g, 0, all[0], LONG_US, TSR_E_DEVICE, "gave up the communicator");
        ends(&g, 2, all[2], LONG_US, TSR_E_DEVICE, "gave up the communicator");
        standin_fault(STANDIN_NONE, 0, 0);
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
    ends(&g, 0, q[0], SHORT_US, TSR_E_DEVICE, "for rank 1; it is late");
    ends(&g, 2, q[1], SHORT_US, TSR_E_DEVICE, "for rank 1; it is late");
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
    ends(&g, 0, q[0], SHORT_US, TSR_E_DEVICE, "for rank 1");
    ends(&g, 1, q[1], SHORT_US, TSR_E_DEVICE, "for rank 0");
    end(&g); /* aborts what never stood */
    standin_fault(STANDIN_NONE, 0, 0);
    all_given_back();

    make(&g, "nccl", 2);
    join_all(&g);
    standin_fault(STANDIN_REFUSES, 2, 0);
    ends(&g, 0, start(&g, 0, SEND, 1, room[0], 3), LONG_US, TSR_E_DEVICE,
         "rank 0 cannot join rank 1: invalid usage (Duplicate GPU detected)");
    ends(&g, 1, start(&g, 1, RECV, 0, room[1], 3), LONG_US, TSR_E_DEVICE,
         "rank 0 gave up the communicator");
    standin_fault(STANDIN_NONE, 0, 0);
    standin_fault(STANDIN_CALL_REFUSED, 2, 0);
    q[1] = start(&g, 0, RECV, 1, room[1], 3);
    ends(&g, 1, start(&g, 1, SEND, 0, room[0], 3), LONG_US, TSR_E_DEVICE,
         "rank 1 and rank 0: invalid usage (refused)");
    ends(&g, 0, q[1], LONG_US, TSR_E_DEVICE, "gave up the communicator");
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
            ends(&g, r, q[r], LONG_US, TSR_E_CANCELLED, "aborted the group");
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
        ends(&g, 0, q, LONG_US, TSR_E_DEVICE, "rank 1 has left the group");
        ends(&g, 0, all, LONG_US, TSR_E_DEVICE, "has left the group");
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
    ends(&g, 0, q, SHORT_US, TSR_E_DEVICE, "for rank 1; it is late or has died");
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
    ends(&g, 0, start(&g, 0, RECV, 1, room[0], 3), LONG_US, TSR_E_DEVICE,
         "called by a rank of epoch 6, this group is in epoch 7");
    ends(&g, 1, q, LONG_US, TSR_E_DEVICE, "gave up the communicator");
    end(&g);
    all_given_back();
}

/* A driver frees nothing while a receive is on the device, which may wait for a rank that needs the same
 * lock: large messages come and go beside it, their memory goes behind it. */
static void test_frees(void **state)
{
    (void)state;
    static const uint64_t    bytes[] = { 3000, 5 << 20, 200000, 6 << 20, 7 << 20, 5 << 20 };
    static const char *const specs[] = { "nccl", "nccl:device=0" }; /* the second: one for both */
    char                    *large = malloc(7 << 20), *there = malloc(7 << 20);
    assert_true(large && there);
    for (int k = 0; k < 2; k++) {
        struct group g;
        uint64_t     before = standin_stalls();
        make(&g, specs[k], 2);
        join_all(&g);
        works(&g, 0, 1);
        void *late = start(&g, 0, RECV, 1, room[0], 900);
        for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
            memset(large, (int)i, bytes[i]);
            void *s = start(&g, 0, SEND, 1, large, bytes[i]);
            void *r = start(&g, 1, RECV, 0, there, bytes[i]);
            ends(&g, 1, r, LONG_US, TSR_OK, NULL);
            ends(&g, 0, s, LONG_US, TSR_OK, NULL);
            assert_memory_equal(large, there, bytes[i]);
        }
        assert_int_equal(standin_stalls(), before);
        uint64_t held = standin_live().blocks;
        void    *s = start(&g, 1, SEND, 0, large, 900);
        ends(&g, 1, s, LONG_US, TSR_OK, NULL);
        ends(&g, 0, late, LONG_US, TSR_OK, NULL);
        /* the three large rooms of rank 0, each here and on the device; on a device of its own rank 1
         * had nothing to wait for */
        assert_int_equal(standin_live().blocks, held - 6);
        assert_int_equal(standin_stalls(), before);
        end(&g);
        all_given_back();
    }
    free(large);
    free(there);
}

static void test_memory(void **state)
{
    (void)state;
    struct group      g;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL;
    make(&g, "nccl", 2);
    join_all(&g);
    works(&g, 0, 1);
    standin_fail_alloc(1); /* on the device, but none that is pinned */
    q = start(&g, 0, SEND, 1, room[0], 9000);
    ends(&g, 0, q, LONG_US, TSR_E_NOMEM, "memory for a message: out of memory");
    standin_fail_alloc(-1);
    works(&g, 1, 0);
    assert_int_equal(table()->recv(self_of(&g, 0), NULL, 2, room[0], 1, &q, &e.err), TSR_E_INVAL);
    assert_int_equal(table()->all_gather(self_of(&g, 0), NULL, room[0], room[0], UINT64_MAX / 2, &q,
                                         &e.err),
                     TSR_E_INVAL);
    end(&g);
    /* "ask again" comes before any harm */
    make(&g, "nccl", 2);
    join_all(&g);
    uint32_t n = 0;
    do {
        assert_int_equal(table()->recv(self_of(&g, 0), NULL, 1, room[0], 1, &q, &e.err), TSR_OK);
        n++;
    } while (q && n < 10000);
    assert_null(q);
    end(&g);
    all_given_back();
}

/* ---- on a stream -------------------------------------------------------------------- */

/* Buffers of the device, work of the caller's before and behind: only the stream orders them. */
static void test_stream(void **state)
{
    (void)state;
    enum { N = 9001 };
    struct group                          g;
    struct tsr_errbuf                     e = TSR_ERRBUF(e);
    const struct tsr_transport_device_v1 *d;
    cu_context                            context;
    cu_stream                             stream[2];
    cu_pointer                            p[2];
    void                                 *pinned[2], *q[2];
    make(&g, "nccl", 2);
    join_all(&g);
    d = table()->extension(self_of(&g, 0), TSR_TRANSPORT_DEVICE);
    assert_non_null(d);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CU_OK);
    assert_int_equal(cuCtxPushCurrent_v2(context), CU_OK);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(cuStreamCreate(&stream[r], CU_STREAM_ALONE), CU_OK);
        assert_int_equal(cuMemAlloc_v2(&p[r], 3 * N), CU_OK);
        assert_int_equal(cuMemHostAlloc(&pinned[r], 2 * N, CU_HOST_ANY), CU_OK);
        for (uint64_t i = 0; i < N; i++)
            ((unsigned char *)pinned[r])[i] = pattern(r, 9, 1, i);
        assert_int_equal(cuMemcpyHtoDAsync_v2(p[r], pinned[r], N, stream[r]), CU_OK);
        assert_int_equal(table()->all_gather(self_of(&g, r), stream[r], (void *)(uintptr_t)p[r],
                                             (void *)(uintptr_t)(p[r] + N), N, &q[r], &e.err),
                         TSR_OK);
    }
    int32_t is[2] = { 0, 0 };
    for (uint64_t since = tsr_now_us(); (!is[0] || !is[1]) && tsr_now_us() - since < LONG_US;)
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(d->queued(self_of(&g, r), q[r], &is[r], &e.err), TSR_OK);
    assert_true(is[0] && is[1]);
    for (uint32_t r = 0; r < 2; r++) { /* nobody has waited yet */
        memset(pinned[r], 0, 2 * N);
        assert_int_equal(cuMemcpyDtoHAsync_v2(pinned[r], p[r] + N, 2 * N, stream[r]), CU_OK);
    }
    for (uint32_t r = 0; r < 2; r++) {
        ends(&g, r, q[r], LONG_US, TSR_OK, NULL);
        while (cuStreamQuery(stream[r]) == CU_NOT_READY) {
        }
        for (uint64_t i = 0; i < 2 * N; i++)
            assert_int_equal(((unsigned char *)pinned[r])[i], pattern(i / N != 0, 9, 1, i % N));
    }
    /* to itself, on one stream; from one to another is refused */
    assert_int_equal(table()->send(self_of(&g, 0), stream[0], 0, (void *)(uintptr_t)p[0], N, &q[0],
                                   &e.err),
                     TSR_OK);
    assert_int_equal(table()->recv(self_of(&g, 0), stream[0], 0, (void *)(uintptr_t)(p[0] + 2 * N),
                                   N, &q[1], &e.err),
                     TSR_OK);
    ends(&g, 0, q[0], LONG_US, TSR_OK, NULL);
    ends(&g, 0, q[1], LONG_US, TSR_OK, NULL);
    assert_memory_equal(standin_place((void *)(uintptr_t)p[0], N),
                        standin_place((void *)(uintptr_t)(p[0] + 2 * N), N), N);
    assert_int_equal(table()->send(self_of(&g, 0), stream[0], 0, (void *)(uintptr_t)p[0], N, &q[0],
                                   &e.err),
                     TSR_OK);
    assert_int_equal(table()->recv(self_of(&g, 0), stream[1], 0, (void *)(uintptr_t)(p[0] + 2 * N),
                                   N, &q[1], &e.err),
                     TSR_OK);
    ends(&g, 0, q[0], LONG_US, TSR_E_UNSUPPORTED, "from one stream to another");
    ends(&g, 0, q[1], LONG_US, TSR_E_UNSUPPORTED, NULL);
    for (uint32_t r = 0; r < 2; r++) {
        (void)cuStreamDestroy_v2(stream[r]);
        (void)cuMemFree_v2(p[r]);
        (void)cuMemFreeHost(pinned[r]);
    }
    (void)cuCtxPopCurrent_v2(&context);
    (void)cuDevicePrimaryCtxRelease_v2(0);
    end(&g);
    all_given_back();
}

/* ---- libraries ---------------------------------------------------------------------- */

static void test_libraries(void **state)
{
    (void)state;
    struct group      g;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    make(&g, "nccl", 2);
    standin_version(21705);
    assert_int_equal(join(&g, 0, 0, &e), TSR_E_DEVICE);
    assert_non_null(strstr(e.text, "is of version 2.17; install NCCL 2.18 or newer"));
    standin_version(22809);
    standin_devices(0);
    assert_int_equal(join(&g, 0, 0, &e), TSR_E_DEVICE);
    assert_non_null(strstr(e.text, "there is no CUDA device"));
    standin_devices(8);
    tsr_comm_world_close(&g.world);
    make(&g, "nccl:device=8", 2);
    assert_int_equal(join(&g, 0, 0, &e), TSR_E_INPUT);
    assert_non_null(strstr(e.text, "there is no CUDA device 8, the last one is 7"));
    tsr_comm_world_close(&g.world);
    /* a transport under another that wants one itself, and one that does not exist */
    assert_int_equal(tsr_comm_world_create(&g.world, registry, "nccl:ids=nccl:ids=local", 2,
                                           &e.err),
                     TSR_E_INPUT);
    assert_non_null(strstr(e.text, "lies under another one"));
    assert_int_equal(tsr_comm_world_create(&g.world, registry, "nccl:ids=nothing", 2, &e.err),
                     TSR_E_INPUT);
    all_given_back();
}

/* Each rank of a machine takes the next of its devices, in their order there: the group is a part of them. */
static void test_devices(void **state)
{
    static const struct {
        int         devices;
        uint32_t    here, ranks; /* 0: not a rank of a job */
        const char *spec;
        int         device; /* of the group's rank 1 */
    } cases[] = { { 4, 3, 8, "nccl", 3 }, { 4, 6, 8, "nccl", 2 },          { 2, 3, 4, "nccl", 1 },
                  { 4, 0, 0, "nccl", 1 }, { 4, 3, 8, "nccl:device=0", 0 }, { 4, 0, 1, "nccl", 0 } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct group      g;
        struct tsr_errbuf e = TSR_ERRBUF(e);
        standin_devices(cases[i].devices);
        tsr_registry_set_here(registry, cases[i].here, cases[i].ranks);
        make(&g, cases[i].spec, 2);
        if (join(&g, 1, 0, &e) != TSR_OK)
            fail_msg("%s", e.text);
        for (int d = 0; d < cases[i].devices; d++)
            if (standin_retained(d) != (d == cases[i].device))
                fail_msg("case %zu: device %d is retained %d times", i, d, standin_retained(d));
        end(&g);
    }
    tsr_registry_set_here(registry, 0, 0);
    standin_devices(8);
    all_given_back();
}

static int open_all(void **state)
{
    (void)state;
    registry = open_plugin(TSR_KIND_TRANSPORT, "nccl", &found);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    tsr_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), /* forks, so before any thread exists */
        cmocka_unit_test(test_killed),    cmocka_unit_test(test_lost),
        cmocka_unit_test(test_deadline),  cmocka_unit_test(test_missing),
        cmocka_unit_test(test_joining),   cmocka_unit_test(test_abort),
        cmocka_unit_test(test_leaver),    cmocka_unit_test(test_epoch),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_frees),
        cmocka_unit_test(test_stream),    cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_devices),   cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests_name("nccl", tests, open_all, close_all);
}
