/* The transport "local": every byte arrives, over any number of ranks, and nothing waits for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/clock.h"
#include "comm/local/ring.h"
#include "plugin_open.h"
#include "tessera/crc32c.h"
#include "tessera/transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_US   20000000u /* far above what a test takes, so that only a hang reaches it */
#define MAX_RANKS 8

static struct tsr_registry           *registry;
static struct tsr_plugin_found        found;
static const struct tsr_transport_v1 *local;
/* as the plugin declares them */
struct options {
    int64_t ring;
    double  bandwidth, latency;
    int64_t wire;
};
static const struct options opts = { .ring = 1 }; /* 1 KiB: most messages are larger */

/* ---- a group ----------------------------------------------------------- */

struct group {
    uint32_t ranks;
    void    *shared;
    uint64_t bytes;
};

static struct group make_group(uint32_t ranks)
{
    struct group g = { ranks, NULL, local->world_bytes(&opts, ranks) };
    g.shared = mmap(NULL, g.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(g.shared != MAP_FAILED);
    return g;
}

static void free_group(struct group *g)
{
    assert_int_equal(munmap(g->shared, g->bytes), 0);
}

static void *join(const struct group *g, uint32_t rank)
{
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_transport_world w = { .struct_size = sizeof w,
                                     .rank = rank,
                                     .ranks = g->ranks,
                                     .shared = g->shared,
                                     .shared_bytes = g->bytes };
    void                      *self = NULL;
    return local->create(found.host, &opts, &w, &self, &e.err) == TSR_OK ? self : NULL;
}

static struct tsr_transport_counts counts_of(void *self)
{
    struct tsr_transport_counts           c = { .struct_size = sizeof c };
    const struct tsr_transport_counts_v1 *t = local->extension(self, TSR_TRANSPORT_COUNTS);
    assert_non_null(t);
    t->read(self, &c);
    return c;
}

/* What rank `from` sends to rank `to`, byte i of message n. */
static unsigned char pattern(uint32_t from, uint32_t to, uint64_t n, uint64_t i)
{
    return (unsigned char)(from * 37u + to * 11u + n * 101u + i * 7u + i / 251u);
}

/* ---- the traffic of one rank ------------------------------------------ */

static const uint64_t sizes[] = { 0, 1, 7, 1000, 1024, 1025, 20011 };

#define CHECK(c)                                                                                   \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            (void)fprintf(stderr, "rank %u: line %d: %s: %s\n", rank, __LINE__, #c, e.text);       \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static bool gathers(void *self, uint32_t rank, uint32_t ranks, uint64_t bytes, uint64_t n,
                    unsigned char *in, unsigned char *out)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL;
    for (uint64_t i = 0; i < bytes; i++)
        out[i] = pattern(rank, 0, n, i);
    memset(in, 0xee, ranks * bytes + 1);
    while (!q)
        CHECK(local->all_gather(self, NULL, out, in, bytes, &q, &e.err) == TSR_OK);
    CHECK(local->wait(self, q, LONG_US, &e.err) == TSR_OK);
    for (uint32_t r = 0; r < ranks; r++)
        for (uint64_t i = 0; i < bytes; i++)
            CHECK(in[r * bytes + i] == pattern(r, 0, n, i));
    CHECK(in[ranks * bytes] == 0xee);

    for (uint32_t r = 0; r < ranks; r++)
        for (uint64_t i = 0; i < bytes; i++)
            out[r * bytes + i] = pattern(rank, r, n, i);
    memset(in, 0xee, ranks * bytes + 1);
    q = NULL;
    while (!q)
        CHECK(local->all_to_all(self, NULL, out, in, bytes, &q, &e.err) == TSR_OK);
    int32_t done = 0; /* by test() this time */
    for (uint64_t start = tsr_now_us(); !done && tsr_now_us() - start < LONG_US;)
        CHECK(local->test(self, q, &done, &e.err) == TSR_OK);
    CHECK(done);
    for (uint32_t r = 0; r < ranks; r++)
        for (uint64_t i = 0; i < bytes; i++)
            CHECK(in[r * bytes + i] == pattern(r, rank, n, i));
    CHECK(in[ranks * bytes] == 0xee);
    return true;
}

/* Three messages to every rank (itself too), all in flight at once, waited for in odd order. */
static bool messages(void *self, uint32_t rank, uint32_t ranks, uint64_t bytes, unsigned char *in,
                     unsigned char *out)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q[2][MAX_RANKS][3];
    for (uint32_t r = 0; r < ranks; r++)
        for (uint64_t n = 0; n < 3; n++) {
            unsigned char *o = out + (r * 3 + n) * bytes;
            for (uint64_t i = 0; i < bytes; i++)
                o[i] = pattern(rank, r, n, i);
            CHECK(local->send(self, NULL, r, o, bytes, &q[0][r][n], &e.err) == TSR_OK &&
                  q[0][r][n]);
        }
    for (uint32_t r = 0; r < ranks; r++)
        for (uint64_t n = 0; n < 3; n++)
            CHECK(local->recv(self, NULL, r, in + (r * 3 + n) * bytes, bytes, &q[1][r][n],
                              &e.err) == TSR_OK &&
                  q[1][r][n]);
    for (uint32_t r = ranks; r-- > 0;)
        for (uint64_t n = 0; n < 3; n++) {
            CHECK(local->wait(self, q[1][r][n], LONG_US, &e.err) == TSR_OK);
            CHECK(local->wait(self, q[0][r][n], LONG_US, &e.err) == TSR_OK);
        }
    for (uint32_t r = 0; r < ranks; r++)
        for (uint64_t n = 0; n < 3; n++)
            for (uint64_t i = 0; i < bytes; i++)
                CHECK(in[(r * 3 + n) * bytes + i] == pattern(r, rank, n, i));
    return true;
}

static bool traffic(const struct group *g, uint32_t rank)
{
    void          *self = join(g, rank);
    uint64_t       room = 3 * MAX_RANKS * UINT64_C(20011) + 1;
    unsigned char *in = malloc(room), *out = malloc(room);
    bool           ok = self && in && out;
    for (size_t i = 0; ok && i < sizeof sizes / sizeof sizes[0]; i++)
        ok = gathers(self, rank, g->ranks, sizes[i], i, in, out) &&
             messages(self, rank, g->ranks, sizes[i], in, out);
    local->destroy(self);
    free(in);
    free(out);
    return ok;
}

struct seat {
    const struct group *group;
    uint32_t            rank;
    bool (*work)(const struct group *g, uint32_t rank);
    bool ok;
};

static void *sit(void *arg)
{
    struct seat *s = arg;
    s->ok = s->work(s->group, s->rank);
    return NULL;
}

static void on_threads(uint32_t ranks, bool (*work)(const struct group *, uint32_t))
{
    struct group g = make_group(ranks);
    struct seat  seats[MAX_RANKS];
    pthread_t    ids[MAX_RANKS];
    for (uint32_t r = 0; r < ranks; r++) {
        seats[r] = (struct seat){ &g, r, work, false };
        assert_int_equal(pthread_create(&ids[r], NULL, sit, &seats[r]), 0);
    }
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_join(ids[r], NULL), 0);
    for (uint32_t r = 0; r < ranks; r++)
        assert_true(seats[r].ok);
    free_group(&g);
}

/* ---- tests -------------------------------------------------------------- */

static void test_threads(void **state)
{
    (void)state;
    static const uint32_t counts[] = { 1, 2, 3, 5, 8 };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        on_threads(counts[i], traffic);
    uint64_t now, peak;
    tsr_plugin_registry_memory(registry, &now, &peak);
    assert_int_equal(now, 0); /* everything given back */
    assert_true(peak > 0);
}

static void test_processes(void **state)
{
    (void)state;
    struct group g = make_group(3);
    pid_t        child[3];
    for (uint32_t r = 0; r < 3; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] == 0)
            _exit(traffic(&g, r) ? 0 : 1);
    }
    for (uint32_t r = 0; r < 3; r++) {
        int status;
        assert_int_equal(waitpid(child[r], &status, 0), child[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    free_group(&g);
}

static void test_deadline(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct group      g = make_group(4);
    void             *a = join(&g, 0), *c = join(&g, 2), *q = NULL;
    char              buf[4] = "abc", got[4] = "";
    assert_true(a && c);
    uint64_t start = tsr_now_us();
    assert_int_equal(local->recv(a, NULL, 3, buf, 3, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(a, q, 30000, &e.err), TSR_E_DEVICE);
    assert_true(tsr_now_us() - start >= 30000);
    assert_true(error_is(&e.err, "", "rank#0 30000 for#rank#3"));
    /* nothing had begun, so the pair is not spoilt; a deadline of 0 looks once */
    assert_int_equal(local->recv(a, NULL, 2, got, 3, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(a, q, 0, &e.err), TSR_E_DEVICE);
    assert_int_equal(local->send(c, NULL, 0, "xyz", 3, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(c, q, 0, &e.err), TSR_OK);
    assert_int_equal(local->recv(a, NULL, 2, got, 3, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(a, q, 0, &e.err), TSR_OK);
    assert_memory_equal(got, "xyz", 3);
    /* a collective names all who are late */
    unsigned char all[4];
    assert_int_equal(local->all_gather(a, NULL, buf, all, 1, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(a, q, 1000, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "for#rank#1,#2,#3"));
    local->destroy(a);
    local->destroy(c);
    free_group(&g);
}

static void test_late_large(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct group      g = make_group(2);
    void             *a = join(&g, 0), *q = NULL;
    char              big[5000] = "";
    assert_int_equal(local->send(a, NULL, 1, big, sizeof big, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(a, q, 1000, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "for#rank#1 976 5000"));
    /* half a frame is in the ring: the pair is unusable and says so at once */
    assert_int_equal(local->send(a, NULL, 1, big, 1, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(a, q, LONG_US, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "rank#0 rank#1"));
    local->destroy(a);
    free_group(&g);
}

static bool waits_for_abort(const struct group *g, uint32_t rank)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = join(g, rank), *q = NULL;
    char              buf[1];
    CHECK(self);
    if (rank == 0) {
        usleep(20000);
        local->abort(self);
        CHECK(local->send(self, NULL, 1, buf, 0, &q, &e.err) == TSR_E_CANCELLED);
    } else {
        CHECK(local->recv(self, NULL, 0, buf, 1, &q, &e.err) == TSR_OK ||
              error_is(&e.err, "", "local rank#0"));
        if (q) {
            uint64_t start = tsr_now_us();
            CHECK(local->wait(self, q, LONG_US, &e.err) == TSR_E_CANCELLED);
            CHECK(error_is(&e.err, "", "rank#0"));
            CHECK(tsr_now_us() - start < LONG_US);
        }
    }
    local->destroy(self);
    return true;
}

static void test_abort(void **state)
{
    (void)state;
    on_threads(4, waits_for_abort);
}

static void test_leaver(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct group      g = make_group(2);
    void             *a = join(&g, 0), *b = join(&g, 1), *q = NULL, *q2 = NULL;
    char              got[2] = "";
    assert_int_equal(local->send(b, NULL, 0, "z", 1, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(b, q, 0, &e.err), TSR_OK);
    local->destroy(b);
    assert_int_equal(local->recv(a, NULL, 1, got, 1, &q, &e.err), TSR_OK);
    assert_int_equal(local->recv(a, NULL, 1, got, 1, &q2, &e.err), TSR_OK);
    assert_int_equal(local->wait(a, q, 0, &e.err), TSR_OK); /* its last words still arrive */
    assert_int_equal(got[0], 'z');
    assert_int_equal(local->wait(a, q2, LONG_US, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "rank#1"));
    local->destroy(a);
    free_group(&g);
}

static void test_mismatch(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct group      g = make_group(2);
    void             *a = join(&g, 0), *b = join(&g, 1), *q = NULL, *s = NULL;
    char              got[8];
    assert_int_equal(local->send(b, NULL, 0, "abcd", 4, &s, &e.err), TSR_OK);
    assert_int_equal(local->recv(a, NULL, 1, got, 8, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(a, q, LONG_US, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "rank#0 8 rank#1 4"));
    local->destroy(a);
    local->destroy(b);
    free_group(&g);
}

/* Every single flipped bit of a frame in flight is noticed. */
static void test_damage(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const uint64_t    frame = 48 + 5 + 4;
    for (uint64_t bit = 0; bit < frame * 8; bit += 3) {
        struct group g = make_group(2);
        void        *a = join(&g, 0), *b = join(&g, 1), *q = NULL;
        char         got[5];
        assert_int_equal(local->send(b, NULL, 0, "hello", 5, &q, &e.err), TSR_OK);
        struct local_ring *ring = local_ring_of(g.shared, 2, 1024, 1, 0);
        ((unsigned char *)(ring + 1))[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(local->recv(a, NULL, 1, got, 5, &q, &e.err), TSR_OK);
        assert_int_equal(local->wait(a, q, LONG_US, &e.err), TSR_E_DEVICE);
        assert_true(error_is(&e.err, "", "rank#0 rank#1"));
        assert_int_equal(counts_of(a).refused, 1);
        local->destroy(a);
        local->destroy(b);
        free_group(&g);
    }
    /* positions that no honest writer has */
    struct group g = make_group(2);
    void        *a = join(&g, 0), *q = NULL;
    char         got[5];
    atomic_store(&local_ring_of(g.shared, 2, 1024, 1, 0)->written, UINT64_MAX - 3);
    assert_int_equal(local->recv(a, NULL, 1, got, 5, &q, &e.err), TSR_OK);
    assert_int_equal(local->wait(a, q, LONG_US, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "rank#0 rank#1"));
    local->destroy(a);
    free_group(&g);
}

/* A rank of an earlier life of the group is not listened to. */
static void test_epoch(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (uint64_t epoch = 6; epoch <= 8; epoch++) {
        struct group               g = make_group(2);
        struct tsr_transport_world w = { .struct_size = sizeof w,
                                         .ranks = 2,
                                         .shared = g.shared,
                                         .shared_bytes = g.bytes,
                                         .epoch = 7 };
        void                      *self[2], *q = NULL;
        char                       got[5] = "";
        assert_int_equal(local->create(found.host, &opts, &w, &self[0], &e.err), TSR_OK);
        w.rank = 1;
        w.epoch = epoch;
        assert_int_equal(local->create(found.host, &opts, &w, &self[1], &e.err), TSR_OK);
        assert_int_equal(local->send(self[1], NULL, 0, "hello", 5, &q, &e.err), TSR_OK);
        assert_int_equal(local->recv(self[0], NULL, 1, got, 5, &q, &e.err), TSR_OK);
        if (epoch == 7) {
            assert_int_equal(local->wait(self[0], q, LONG_US, &e.err), TSR_OK);
            assert_memory_equal(got, "hello", 5);
        } else {
            assert_int_equal(local->wait(self[0], q, LONG_US, &e.err), TSR_E_DEVICE);
            assert_true(error_is(&e.err, "", "epoch#7"));
            assert_memory_equal(got, "\0\0\0\0\0", 5);
        }
        assert_int_equal(counts_of(self[0]).refused, epoch != 7);
        assert_int_equal(counts_of(self[0]).received, epoch == 7 ? 5 : 0);
        assert_int_equal(counts_of(self[1]).sent, 5);
        local->destroy(self[0]);
        local->destroy(self[1]);
        free_group(&g);
    }
}

/* Nothing comes sooner than a wire of that speed would bring it.  How much later it comes depends on
 * the machine: `bench comm` shows it. */
static void test_paced(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    enum { N = 20000 };
    static unsigned char from[N], to[3][N];
    for (int wire = 0; wire < 2; wire++) {
        /* 20000 bytes take 10 ms; the ring is smaller than a message, or not */
        const struct options paced = {
            .ring = wire ? 64 : 1, .bandwidth = 2, .latency = 3000, .wire = wire
        };
        struct group g = { 3, NULL, local->world_bytes(&paced, 3) };
        g.shared = mmap(NULL, g.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(g.shared != MAP_FAILED);
        void    *self[3], *q[2], *sent[2];
        int32_t  done[2] = { 0, 0 };
        uint64_t start, took[2];
        for (uint32_t r = 0; r < 3; r++) {
            struct tsr_transport_world w = { .struct_size = sizeof w,
                                             .rank = r,
                                             .ranks = 3,
                                             .shared = g.shared,
                                             .shared_bytes = g.bytes };
            assert_int_equal(local->create(found.host, &paced, &w, &self[r], &e.err), TSR_OK);
        }
        for (uint64_t i = 0; i < N; i++)
            from[i] = pattern(0, 1, 0, i);
        memset(to, 0, sizeof to);
        start = tsr_now_us();
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(local->send(self[2], NULL, r, from, N, &sent[r], &e.err), TSR_OK);
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(local->recv(self[r], NULL, 2, to[r], N, &q[r], &e.err), TSR_OK);
        int32_t gone[2] = { 0, 0 };
        while ((!done[0] || !done[1]) && tsr_now_us() - start < LONG_US)
            for (uint32_t r = 0; r < 2; r++) {
                if (!gone[r])
                    assert_int_equal(local->test(self[2], sent[r], &gone[r], &e.err), TSR_OK);
                if (done[r])
                    continue;
                assert_int_equal(local->test(self[r], q[r], &done[r], &e.err), TSR_OK);
                took[r] = tsr_now_us() - start;
            }
        assert_true(done[0] && done[1] && gone[0] && gone[1]);
        assert_memory_equal(to[0], from, N);
        assert_memory_equal(to[1], from, N);
        assert_true(took[0] >= 13000);
        assert_true(took[1] >= (wire == 0 ? 23000 : 13000)); /* one wire, or one each */
        /* what is on the wire still comes when its sender has left; an empty message takes the
         * latency */
        start = tsr_now_us();
        assert_int_equal(local->send(self[2], NULL, 0, from, 0, &sent[0], &e.err), TSR_OK);
        assert_int_equal(local->wait(self[2], sent[0], LONG_US, &e.err), TSR_OK);
        local->destroy(self[2]);
        assert_int_equal(local->recv(self[0], NULL, 2, to[0], 0, &q[0], &e.err), TSR_OK);
        assert_int_equal(local->wait(self[0], q[0], LONG_US, &e.err), TSR_OK);
        assert_true(tsr_now_us() - start >= 3000);
        local->destroy(self[0]);
        local->destroy(self[1]);
        free_group(&g);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct group               g = make_group(2);
    struct tsr_transport_world w = {
        .struct_size = sizeof w, .rank = 2, .ranks = 2, .shared = g.shared, .shared_bytes = g.bytes
    };
    void *self = NULL, *q = NULL;
    char  buf[1] = "";
    assert_int_equal(local->create(found.host, &opts, &w, &self, &e.err), TSR_E_CONFIG);
    w.rank = 0;
    w.shared_bytes--;
    assert_int_equal(local->create(found.host, &opts, &w, &self, &e.err), TSR_E_INVAL);
    w.shared_bytes++;
    assert_null(self);
    self = join(&g, 0);
    assert_non_null(self);
    const struct options other = { .ring = 2 };
    void                *peer = NULL;
    w.rank = 1;
    w.shared_bytes = 1 << 20;
    assert_int_equal(local->create(found.host, &other, &w, &peer, &e.err), TSR_E_CONFIG);
    assert_true(error_is(&e.err, "", "1 2"));
    assert_int_equal(local->send(self, NULL, 2, buf, 1, &q, &e.err), TSR_E_INVAL);
    assert_int_equal(local->send(self, buf, 1, buf, 1, &q, &e.err), TSR_E_UNSUPPORTED);
    unsigned n = 0; /* bounded: at some point "ask again" */
    do {
        assert_int_equal(local->recv(self, NULL, 1, buf, 1, &q, &e.err), TSR_OK);
        n++;
    } while (q && n < 10000);
    assert_null(q);
    local->destroy(self);
    free_group(&g);
}

static void test_cancelled(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct group      g = make_group(2);
    void             *a = join(&g, 0), *q = NULL;
    char              buf[1];
    assert_int_equal(local->recv(a, NULL, 1, buf, 1, &q, &e.err), TSR_OK);
    tsr_plugin_cancel();
    assert_int_equal(local->wait(a, q, LONG_US, &e.err), TSR_E_CANCELLED);
    tsr_plugin_cancel_reset();
    local->destroy(a);
    free_group(&g);
}

static void test_crc(void **state)
{
    (void)state;
    /* the check value of CRC-32C in the catalogue of parametrised CRC algorithms */
    assert_int_equal(tsr_crc32c_portable(0, "123456789", 9), 0xe3069283u);
    static unsigned char data[20000]; /* several times three runs, and parts of them */
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = pattern(1, 2, 3, i);
    for (unsigned level = 0; level <= tsr_crc32c_level(); level++)
        for (size_t n = 0; n < sizeof data; n += n < 100 ? 1 : 13 + n / 7) {
            uint32_t want = tsr_crc32c_portable(0, data, n);
            assert_int_equal(tsr_crc32c_by(level, 0, data, n), want);
            assert_int_equal(tsr_crc32c_by(level, tsr_crc32c_portable(0, data, n / 3), data + n / 3,
                                           n - n / 3),
                             want);
        }
#if defined(TSR_CRC32C_RUN) /* runs side by side are those of an instruction */
    for (size_t n = 3 * (size_t)TSR_CRC32C_RUN - 9; n <= 6 * (size_t)TSR_CRC32C_RUN + 9; n++)
        assert_int_equal(tsr_crc32c_by(tsr_crc32c_level(), 1, data + n % 8, n),
                         tsr_crc32c_by(tsr_crc32c_level() != 0, 1, data + n % 8, n));
#endif
}

static int open_all(void **state)
{
    (void)state;
    registry = open_plugin(TSR_KIND_TRANSPORT, "local", &found);
    local = found.iface;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), /* forks, so before any thread exists */
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_late_large), cmocka_unit_test(test_abort),
        cmocka_unit_test(test_leaver),     cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_damage),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_epoch),      cmocka_unit_test(test_paced),
        cmocka_unit_test(test_cancelled),  cmocka_unit_test(test_crc),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
