/* The transport nccl: memory of messages, the libraries that it finds, the device that a rank takes. */
#include "../fixtures/error_is.h"
#include "ranks.h"

/* ---- memory ------------------------------------------------------------------------ */

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

/* Pieces of messages, as many as the host has under way, find their memory there: a driver may give none while a
 * receive is on the device. */
static void test_taken(void **state)
{
    (void)state;
    enum { PIECE = 128 << 10, AHEAD = 4 };
    struct group g;
    char        *out = malloc(2 * PIECE), *in = malloc(2 * PIECE);
    void        *s[AHEAD], *r[AHEAD];
    assert_true(out && in);
    make(&g, "nccl:device=0", 2);
    join_all(&g);
    uint64_t taken = standin_live().blocks;
    works(&g, 0, 1);
    for (int round = 0; round < 3; round++) {
        memset(out, 'a' + round, 2 * PIECE);
        for (int i = 0; i < AHEAD; i++) {
            r[i] = start(&g, 1, RECV, 0, in + i * (PIECE / 2), PIECE / 2);
            s[i] = start(&g, 0, SEND, 1, out, PIECE / 2);
        }
        for (int i = 0; i < AHEAD; i++) {
            ends(&g, 1, r[i], LONG_US, TSR_OK, NULL);
            ends(&g, 0, s[i], LONG_US, TSR_OK, NULL);
        }
        assert_memory_equal(in, out, 2 * PIECE);
        r[0] = start(&g, 1, RECV, 0, in, PIECE);
        s[0] = start(&g, 0, SEND, 1, out, PIECE);
        ends(&g, 1, r[0], LONG_US, TSR_OK, NULL);
        ends(&g, 0, s[0], LONG_US, TSR_OK, NULL);
    }
    assert_int_equal(standin_live().blocks, taken);
    end(&g);
    all_given_back();
    free(out);
    free(in);
}

static void test_memory(void **state)
{
    (void)state;
    struct group      g;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL;
    char             *large = malloc(5 << 20);
    assert_non_null(large);
    for (int left = 0; left < 2; left++) { /* on the device, pinned */
        make(&g, "nccl", 2);
        standin_fail_alloc(left);
        assert_int_equal(join(&g, 0, 0, &e), TSR_E_NOMEM);
        assert_true(error_is(&e.err, "", "CUDA 0 2"));
        standin_fail_alloc(-1);
        tsr_comm_world_close(&g.world);
        all_given_back();
    }
    make(&g, "nccl", 2);
    join_all(&g);
    works(&g, 0, 1);
    standin_fail_alloc(1); /* on the device, but none that is pinned */
    q = start(&g, 0, SEND, 1, large, 5 << 20);
    ends(&g, 0, q, LONG_US, TSR_E_NOMEM, "CUDA 0 2");
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
    free(large);
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
    assert_true(error_is(&e.err, "", "version 2.17 NCCL 2.18"));
    standin_version(22809);
    standin_devices(0);
    assert_int_equal(join(&g, 0, 0, &e), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "CUDA"));
    standin_devices(8);
    tsr_comm_world_close(&g.world);
    make(&g, "nccl:device=8", 2);
    assert_int_equal(join(&g, 0, 0, &e), TSR_E_INPUT);
    assert_true(error_is(&e.err, "", "CUDA 8 7"));
    tsr_comm_world_close(&g.world);
    /* a transport under another that wants one itself, and one that does not exist */
    assert_int_equal(tsr_comm_world_create(&g.world, registry, "nccl:ids=nccl:ids=local", 2,
                                           &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "nccl:ids=local", NULL));
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
        tsr_plugin_registry_set_here(registry, cases[i].here, cases[i].ranks);
        make(&g, cases[i].spec, 2);
        if (join(&g, 1, 0, &e) != TSR_OK)
            fail_msg("%s", e.text);
        for (int d = 0; d < cases[i].devices; d++)
            if (standin_retained(d) != (d == cases[i].device))
                fail_msg("case %zu: device %d is retained %d times", i, d, standin_retained(d));
        end(&g);
    }
    tsr_plugin_registry_set_here(registry, 0, 0);
    standin_devices(8);
    all_given_back();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_taken),
        cmocka_unit_test(test_frees),   cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests_name("nccl-setup", tests, open_all, close_all);
}
