/* TSR_TRANSPORT_WINDOW and TSR_BACKEND_WINDOW, through core/comm.
 *
 * Sums of ranks that have a device each, on the driver of the tests: in memory that the devices see of each other,
 * they are those of ranks on CPUs, to the bit, without a message and without a wait of the host; the launches of a
 * round of them are one graph.  Where one rank is on its host or the devices do not see each other, messages stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "../gpu/standin/standin.h"
#include "base/rng.h"
#include "comm/group.h"
#include "late.h"
#include "plugin_open.h"
#include "states.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LONG_US   UINT64_C(60000000) /* only a hang reaches it */
#define MAX_RANKS 4u
#define ROWS      UINT64_C(3)
#define COLS      UINT64_C(328)
#define SUMS      8u /* of a round: without a wait between them, as those of a token's layers */
#define ROUNDS    4u

static struct tsr_registry    *registry;
static struct tsr_plugin_found found;

struct member {
    struct tsr_comm_group *g;
    void                  *backend;
    struct tsr_tensor      x[SUMS];
    float                 *here; /* [SUMS][ROWS][COLS]: up, then down */
    uint32_t               rank, round;
    bool                   on_host;
    tsr_status             st;
    struct tsr_errbuf      e;
};

struct ranks {
    const char             *codec;
    enum tsr_comm_algorithm algorithm;
    uint32_t                n;
    bool                    mixed;
    struct tsr_comm_world   world;
    struct tsr_comm_coder   coder;
    struct tsr_comm_state   states[2 * MAX_RANKS]; /* of a codec with calibration */
    uint64_t                n_states;
    struct member           m[MAX_RANKS];
};

static float number(uint64_t i, uint32_t rank, uint32_t round)
{
    uint32_t u[4];
    tsr_philox(u, i, rank, 7 + round);
    return (float)(int32_t)u[0] / (float)(1u << (u[1] & 31));
}

static struct tsr_comm_way way_of(const struct ranks *all)
{
    return (struct tsr_comm_way){ .codec = all->codec,
                                  .algorithm = all->algorithm,
                                  .states = all->n_states ? all->states : NULL,
                                  .n_states = all->n_states };
}

/* Ranges of each sum's numbers in the first round; other rounds have numbers beyond them. */
static void calibrate(struct ranks *all)
{
    static float      x[MAX_RANKS][ROWS * COLS];
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const float      *partial[MAX_RANKS];
    if (!all->coder.iface->observe)
        return;
    for (uint32_t k = 0; k < SUMS; k++) {
        for (uint32_t r = 0; r < all->n; r++) {
            for (uint64_t i = 0; i < ROWS * COLS; i++)
                x[r][i] = number(k * ROWS * COLS + i, r, 0);
            partial[r] = x[r];
        }
        assert_int_equal(tsr_comm_sum_observe(&all->coder, k, partial, ROWS, COLS, &e.err), TSR_OK);
    }
    all->n_states = states_take(&all->coder, all->states);
}

static void open_member(struct ranks *all, uint32_t r, uint64_t deadline_us)
{
    struct member          *m = &all->m[r];
    char                    transport[24];
    struct tsr_comm_way     way = way_of(all);
    struct tsr_comm_options o = { .deadline_us = deadline_us, .way = { way, way } };
    *m = (struct member){ .rank = r,
                          .on_host = all->mixed && r + 1 == all->n,
                          .e = TSR_ERRBUF(m->e) };
    (void)snprintf(transport, sizeof transport, "nccl:device=%u", r);
    o.place = (struct tsr_comm_place){ transport,        r, all->n, all->world.shared,
                                       all->world.bytes, 1, NULL };
    late_elsewhere((int)r);
    if (late_open(&m->backend, &m->e.err) != TSR_OK ||
        tsr_comm_group_create(&m->g, registry, &o, &m->e.err) != TSR_OK)
        fail_msg("%s", m->e.text);
    m->here = malloc(SUMS * ROWS * COLS * sizeof *m->here);
    assert_non_null(m->here);
    for (uint32_t k = 0; k < SUMS; k++) {
        m->x[k] = (struct tsr_tensor){ .struct_size = sizeof m->x[k],
                                       .dtype = TSR_F32,
                                       .rows = ROWS,
                                       .cols = COLS,
                                       .row_stride = 4 * COLS };
        assert_int_equal(late_table()->buffer_alloc(m->backend, 4 * ROWS * COLS, &m->x[k].buffer,
                                                    &m->e.err),
                         TSR_OK);
    }
    if (tsr_comm_group_reserve(m->g, late_table(), m->backend, ROWS, COLS, 0, SUMS, &m->e.err) !=
        TSR_OK)
        fail_msg("%s", m->e.text);
}

static void open_ranks(struct ranks *all, const char *codec, enum tsr_comm_algorithm a, uint32_t n,
                       bool mixed, uint64_t deadline_us)
{
    struct tsr_errbuf   e = TSR_ERRBUF(e);
    struct tsr_comm_way way = { .codec = codec, .algorithm = a };
    *all = (struct ranks){ .codec = codec, .algorithm = a, .n = n, .mixed = mixed };
    assert_int_equal(tsr_comm_coder_open(&all->coder, registry, &way, n, &e.err), TSR_OK);
    calibrate(all);
    assert_int_equal(tsr_comm_world_create(&all->world, registry, "nccl", n, &e.err), TSR_OK);
    for (uint32_t r = 0; r < n; r++)
        open_member(all, r, deadline_us);
}

static void close_ranks(struct ranks *all)
{
    for (uint32_t r = 0; r < all->n; r++) {
        struct member *m = &all->m[r];
        tsr_comm_group_destroy(m->g);
        for (uint32_t k = 0; k < SUMS; k++)
            late_table()->buffer_free(m->backend, m->x[k].buffer);
        late_close(m->backend);
        free(m->here);
    }
    tsr_comm_world_close(&all->world);
    tsr_comm_coder_close(&all->coder);
    states_free(all->states, all->n_states);
}

/* ---- rounds ------------------------------------------------------------------------- */

static tsr_status sum(struct member *m, uint32_t k)
{
    bool done = false;
    if (m->on_host)
        return tsr_comm_group_sum(m->g, 1, k, m->here + k * ROWS * COLS, ROWS, COLS, &m->e.err);
    TSR_TRY(
        tsr_comm_group_sum_on(m->g, 1, k, late_table(), m->backend, &m->x[k], &done, &m->e.err));
    return done ? TSR_OK : tsr_fail(&m->e.err, TSR_E_UNSUPPORTED, "the sum is not on the device");
}

static tsr_status round_of(struct member *m)
{
    const struct tsr_backend_v1 *b = late_table();
    for (uint32_t k = 0; k < SUMS && !m->on_host; k++)
        TSR_TRY(b->upload(m->backend, m->x[k].buffer, 0, m->here + k * ROWS * COLS, 4 * ROWS * COLS,
                          &m->e.err));
    for (uint32_t k = 0; k < SUMS; k++)
        TSR_TRY(sum(m, k));
    for (uint32_t k = 0; k < SUMS && !m->on_host; k++)
        TSR_TRY(b->download(m->backend, m->x[k].buffer, 0, m->here + k * ROWS * COLS,
                            4 * ROWS * COLS, &m->e.err));
    return TSR_OK;
}

static void *work(void *arg)
{
    struct member *m = arg;
    m->st = round_of(m);
    return NULL;
}

static void run_round(struct ranks *all, uint32_t round, uint32_t alive)
{
    pthread_t id[MAX_RANKS];
    for (uint32_t r = 0; r < alive; r++) {
        struct member *m = &all->m[r];
        for (uint64_t i = 0; i < SUMS * ROWS * COLS; i++)
            m->here[i] = number(i, r, round);
        assert_int_equal(pthread_create(&id[r], NULL, work, m), 0);
    }
    for (uint32_t r = 0; r < alive; r++)
        assert_int_equal(pthread_join(id[r], NULL), 0);
}

static void check_round(struct ranks *all, uint32_t round, const char *what)
{
    static float      partial[MAX_RANKS][ROWS * COLS], want[ROWS * COLS];
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (uint32_t k = 0; k < SUMS; k++) {
        const float *p[MAX_RANKS];
        for (uint32_t r = 0; r < all->n; r++) {
            for (uint64_t i = 0; i < ROWS * COLS; i++)
                partial[r][i] = number(k * ROWS * COLS + i, r, round);
            p[r] = partial[r];
        }
        assert_int_equal(tsr_comm_sum_simulated(&all->coder, k, p, ROWS, COLS, want, &e.err),
                         TSR_OK);
        for (uint32_t r = 0; r < all->n; r++) {
            if (all->m[r].st != TSR_OK)
                fail_msg("%s: rank %u: %s", what, r, all->m[r].e.text);
            const void *got = all->m[r].here + k * ROWS * COLS, *all_of_it = want;
            if (memcmp(got, all_of_it, sizeof want) != 0)
                fail_msg("%s: sum %u of round %u: rank %u leaves with other numbers", what, k,
                         round, r);
        }
    }
}

/* How many bytes went as messages, of the codec's. */
static uint64_t messages(const struct ranks *all)
{
    struct tsr_comm_counters c;
    tsr_comm_group_counters(all->m[0].g, &c);
    assert_int_equal(c.sums, ROUNDS * SUMS);
    return c.sent;
}

static void nothing_is_left(void)
{
    struct standin_left l = standin_left();
    assert_int_equal(l.contexts + l.blocks + l.streams + l.events, 0);
}

static uint64_t sums(const char *codec, enum tsr_comm_algorithm a, uint32_t n, bool mixed)
{
    struct ranks all;
    char         what[80];
    (void)snprintf(what, sizeof what, "%s, %u ranks%s", codec, n, mixed ? ", one on its host" : "");
    open_ranks(&all, codec, a, n, mixed, LONG_US);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        run_round(&all, round, n);
        check_round(&all, round, what);
    }
    const uint64_t sent = messages(&all);
    close_ranks(&all);
    nothing_is_left();
    return sent;
}

/* ---- tests -------------------------------------------------------------------------- */

static void test_sums(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MAX_RANKS; n++) {
        assert_int_equal(sums("plain", TSR_COMM_ALL_GATHER, n, false), 0);
        assert_int_equal(sums("plain:dtype=bf16", TSR_COMM_ALL_GATHER, n, false), 0);
    }
    assert_int_equal(sums("plain:dtype=f16", TSR_COMM_ALL_GATHER, 2, false), 0);
    assert_int_equal(sums("plain", TSR_COMM_TWO_STEP, 3, false), 0);
}

/* All that the codec's options change, with blocks of one lane to a whole warp; columns are no whole number of them. */
static void test_mx(void **state)
{
    static const char *const codecs[] = {
        "mx:element=fp4_e2m1,block=32",
        "mx:element=fp8_e4m3,block=8,rounding=nearest",
        "mx:element=fp8_e5m2,block=16,scale_rule=ceil",
        "mx:element=fp6_e3m2,block=64,scale_bits=5",
        "mx:element=int8,block=256,scale_rule=even",
        "mx:element=fp3_e1m1,block=128,rounding=floor,scale_bits=4",
    };
    (void)state;
    for (uint32_t n = 2; n <= MAX_RANKS; n++)
        assert_int_equal(sums("mx", TSR_COMM_ALL_GATHER, n, false), 0);
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        assert_int_equal(sums(codecs[i], TSR_COMM_ALL_GATHER, 2 + i % 2, false), 0);
}

/* Ranks that add slices, and code the sum again. */
static void test_two_steps(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MAX_RANKS; n++) {
        assert_int_equal(sums("mx", TSR_COMM_TWO_STEP, n, false), 0);
        assert_int_equal(sums("plain:dtype=bf16", TSR_COMM_TWO_STEP, n, false), 0);
    }
    assert_int_equal(sums("plain:dtype=f16", TSR_COMM_TWO_STEP, 3, false), 0);
    assert_int_equal(sums("mx:element=int8,block=64,scale_bits=6", TSR_COMM_TWO_STEP, 3, false), 0);
}

/* Lists that differ by rank, by sum and by slice; codes of one word and of two. */
static void test_int4(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MAX_RANKS; n++) {
        assert_int_equal(sums("int4_bf16", TSR_COMM_ALL_GATHER, n, false), 0);
        assert_int_equal(sums("int4_bf16", TSR_COMM_TWO_STEP, n, false), 0);
    }
    assert_int_equal(sums("int4_bf16:bits=5,one_in=9", TSR_COMM_TWO_STEP, 3, false), 0);
    assert_int_equal(sums("int4_bf16:bits=8,features=none", TSR_COMM_ALL_GATHER, 2, false), 0);
}

/* Blocks that a warp or a slice does not have, and a rank on its host. */
static void test_messages(void **state)
{
    (void)state;
    assert_true(sums("mx:block=24", TSR_COMM_ALL_GATHER, 2, false) > 0);
    assert_true(sums("mx:block=512", TSR_COMM_ALL_GATHER, 2, false) > 0);
    assert_true(sums("mx:block=128", TSR_COMM_TWO_STEP, 2, false) > 0);
    assert_true(sums("plain", TSR_COMM_ALL_GATHER, 3, true) > 0);
    assert_true(sums("int4_bf16", TSR_COMM_TWO_STEP, 3, true) > 0);
}

static void test_blind(void **state)
{
    (void)state;
    assert_int_equal(setenv("TSR_STANDIN", "devices=4,nopeers", 1), 0);
    assert_true(sums("plain", TSR_COMM_ALL_GATHER, 2, false) > 0);
    assert_int_equal(setenv("TSR_STANDIN", "devices=4", 1), 0);
}

/* From the third round on, the launches of each rank are one graph, nothing is taken, and the host waits for what it
 * copies alone: as in rounds without sums. */
static void graphs_of(const char *codec)
{
    struct ranks all;
    open_ranks(&all, codec, TSR_COMM_ALL_GATHER, 2, false, LONG_US);
    for (uint32_t round = 0; round < 2; round++)
        run_round(&all, round, 2);
    const struct standin_counts before = *standin_count();
    run_round(&all, 2, 2);
    run_round(&all, 3, 2);
    check_round(&all, 3, "graphs");
    const struct standin_counts after = *standin_count();
    assert_int_equal(after.graphs - before.graphs, 4); /* two ranks, two rounds */
    assert_int_equal(after.launches - before.launches, 0);
    assert_int_equal(after.taken - before.taken, 0);
    assert_int_equal(after.waits - before.waits, (uint64_t)4 * SUMS); /* downloads */
    assert_int_equal(messages(&all), 0);
    close_ranks(&all);
    nothing_is_left();
}

static void test_graphs(void **state)
{
    (void)state;
    graphs_of("plain");
    graphs_of("int4_bf16");
}

/* A rank that does not come is named by whoever waits next, and nobody hangs. */
static void test_late(void **state)
{
    struct ranks all;
    (void)state;
    open_ranks(&all, "plain", TSR_COMM_ALL_GATHER, 2, false, 300000);
    run_round(&all, 0, 2);
    check_round(&all, 0, "before");
    run_round(&all, 1, 1);
    assert_int_equal(all.m[0].st, TSR_E_DEVICE);
    assert_true(error_is(&all.m[0].e.err, "Stand-in", "300000 rank#1"));
    tsr_comm_group_abort(all.m[0].g);
    close_ranks(&all);
}

static int open_all(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    registry = open_plugin(TSR_KIND_TRANSPORT, "nccl", &found);
    if (late_use(registry, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
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
        cmocka_unit_test(test_sums),      cmocka_unit_test(test_mx),
        cmocka_unit_test(test_two_steps), cmocka_unit_test(test_int4),
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_blind),
        cmocka_unit_test(test_graphs),    cmocka_unit_test(test_late)
    };
    return cmocka_run_group_tests_name("cuda-nccl-window", tests, open_all, close_all);
}
