/* The transport nccl: bytes arrive, in every way in which ranks may find each other, as threads and as
 * processes, from host memory and on a stream of a device. */
#include "base/rng.h"
#include "ranks.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- one thread, several ranks ------------------------------------------------- */

static const uint64_t sizes[] = { 0, 1, 1000, 4097, 30011 };

/* Everything that a rank starts with all others at once, then waits for in odd order. */
static bool traffic(struct group *g, uint32_t rank, uint64_t bytes, uint64_t n)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = self_of(g, rank), *q[2 * MAX_RANKS + 2] = { NULL };
    uint32_t          ranks = g->ranks;
    uint64_t          each = (uint64_t)ranks * bytes + 1;
    unsigned char    *out = calloc(1, each), *in = malloc(3 * each), *to = in + each;
    unsigned char    *all = to + each;
    bool              ok = out && in;
    memset(in, 0xee, 3 * each);
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
        struct tsr_comm_options o = { .place = { spec, r, ranks, world.shared, world.bytes, 1,
                                                 NULL },
                                      .deadline_us = LONG_US,
                                      .way = { way, way } };
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
    assert_int_equal(tsr_comm_sum_simulated(&coder, 3, partial, ROWS, COLS, want, &e.err), TSR_OK);
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
    ends(&g, 0, q[0], LONG_US, TSR_E_UNSUPPORTED, "0");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), /* forks, so before any thread exists */
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests_name("nccl", tests, open_all, close_all);
}
