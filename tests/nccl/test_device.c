/* Sums whose numbers lie on devices: the transport nccl over the stand-in of its libraries, the CUDA
 * backend over the emulation (late.h), codecs on the device.  They are the sums of ranks on CPUs, to the
 * bit; where something keeps them off the device, that is said and nothing happens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/log.h"
#include "base/rng.h"
#include "comm/group.h"
#include "frames.h"
#include "late.h"
#include "plugin_open.h"
#include "standin.h"
#include "states.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LONG_US   UINT64_C(30000000) /* only a hang reaches it */
#define MAX_RANKS 4
#define ROWS      19u
#define COLS      328u /* no multiple of a slice's border, nor of a block */
#define GAP       5u   /* elements between rows */
#define SITES     2u

static struct tsr_registry    *registry;
static struct tsr_plugin_found found;

/* ---- ways ---------------------------------------------------------------------- */

struct way {
    struct tsr_comm_way   way;
    struct tsr_comm_coder coder;
    struct tsr_comm_state states[2 * MAX_RANKS];
};

static float number(uint64_t i, uint32_t rank, uint32_t site)
{
    uint32_t u[4];
    tsr_philox(u, i, rank, 7 + site);
    return (float)(int32_t)u[0] / (float)(1u << (u[1] & 31));
}

static float *partial_of(uint32_t rank, uint32_t site)
{
    float *x = malloc(ROWS * COLS * sizeof *x);
    assert_non_null(x);
    for (uint64_t i = 0; i < ROWS * COLS; i++)
        x[i] = number(i, rank, site);
    return x;
}

static void calibrate(struct way *w, uint32_t ranks)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (uint32_t site = 0; site < SITES; site++) {
        const float *partial[MAX_RANKS];
        for (uint32_t r = 0; r < ranks; r++)
            partial[r] = partial_of(r, site);
        assert_int_equal(tsr_comm_sum_observe(&w->coder, site, partial, ROWS, COLS, &e.err),
                         TSR_OK);
        for (uint32_t r = 0; r < ranks; r++)
            free((void *)(uintptr_t)partial[r]);
    }
    w->way.states = w->states;
    w->way.n_states = states_take(&w->coder, w->states);
}

static void open_way(struct way *w, const char *codec, enum tsr_comm_algorithm a, uint32_t ranks)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    /* five pieces, the last one smaller */
    *w = (struct way){ .way = { .codec = codec, .algorithm = a, .piece = 4 * COLS * 4 } };
    if (tsr_comm_coder_open(&w->coder, registry, &w->way, ranks, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (w->coder.iface->observe)
        calibrate(w, ranks);
}

static void close_way(struct way *w)
{
    states_free(w->states, w->way.n_states);
    tsr_comm_coder_close(&w->coder);
}

/* ---- ranks --------------------------------------------------------------------- */

struct member {
    struct tsr_comm_group   *g;
    void                    *backend;
    struct tsr_tensor        t;
    float                   *x;       /* of the site at work */
    bool                     on_host; /* it sums there, whatever the others do */
    bool                     done;
    uint32_t                 site;
    tsr_status               st;
    struct tsr_errbuf        e;
    struct tsr_comm_counters counters;
};

static void make_member(struct member *m, const struct tsr_comm_options *o)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *m = (struct member){ .e = TSR_ERRBUF(m->e) };
    if (late_open(&m->backend, &e.err) != TSR_OK ||
        tsr_comm_group_create(&m->g, registry, o, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    m->t = (struct tsr_tensor){ .struct_size = sizeof m->t,
                                .dtype = TSR_F32,
                                .offset = 12,
                                .rows = ROWS,
                                .cols = COLS,
                                .row_stride = 4 * (COLS + GAP) };
    assert_int_equal(late_table()->buffer_alloc(m->backend, 12 + ROWS * m->t.row_stride,
                                                &m->t.buffer, &e.err),
                     TSR_OK);
    if (tsr_comm_group_reserve(m->g, late_table(), m->backend, ROWS, COLS, 0, SITES, &e.err) !=
        TSR_OK)
        fail_msg("%s", e.text);
}

static void end_member(struct member *m)
{
    tsr_comm_group_destroy(m->g);
    late_table()->buffer_free(m->backend, m->t.buffer);
    late_close(m->backend);
    free(m->x);
}

/* Rows to the device or back. */
static tsr_status move(struct member *m, bool up)
{
    const struct tsr_backend_v1 *b = late_table();
    for (uint64_t r = 0; r < ROWS; r++) {
        uint64_t at = m->t.offset + r * m->t.row_stride;
        TSR_TRY(
            up ? b->upload(m->backend, m->t.buffer, at, m->x + r * COLS, 4 * COLS, &m->e.err)
               : b->download(m->backend, m->t.buffer, at, m->x + r * COLS, 4 * COLS, &m->e.err));
    }
    return TSR_OK;
}

static tsr_status sum(struct member *m)
{
    if (m->on_host) {
        m->done = true;
        return tsr_comm_group_sum(m->g, 0, m->site, m->x, ROWS, COLS, &m->e.err);
    }
    TSR_TRY(move(m, true));
    TSR_TRY(tsr_comm_group_sum_on(m->g, 0, m->site, late_table(), m->backend, &m->t, &m->done,
                                  &m->e.err));
    return move(m, false);
}

static void *work(void *arg)
{
    struct member *m = arg;
    m->st = sum(m);
    return NULL;
}

static void all_given_back(void)
{
    struct standin_live   l = standin_live();
    struct standin_counts c = standin_counts();
    uint64_t              now, peak;
    tsr_plugin_registry_memory(registry, &now, &peak);
    assert_int_equal(now, 0);
    standin_move();
    assert_int_equal(l.contexts + l.blocks + l.events, 0);
    assert_int_equal(standin_live().streams, 0);
    assert_int_equal(c.communicators, 0);
    assert_int_equal(c.misused, 0);
    assert_int_equal(late_failed(), 0);
}

struct ranks {
    struct way            way;
    struct tsr_comm_world world;
    struct member         m[MAX_RANKS];
    uint32_t              n;
};

static void open_ranks(struct ranks *all, const char *transport, const char *codec,
                       enum tsr_comm_algorithm a, uint32_t n, uint64_t deadline_us)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    open_way(&all->way, codec, a, n);
    all->n = n;
    assert_int_equal(tsr_comm_world_create(&all->world, registry, transport, n, &e.err), TSR_OK);
    for (uint32_t r = 0; r < n; r++) {
        struct tsr_comm_options o = { .place = { transport, r, n, all->world.shared,
                                                 all->world.bytes, 1, NULL },
                                      .deadline_us = deadline_us,
                                      .way = { all->way.way, all->way.way } };
        make_member(&all->m[r], &o);
    }
}

static void close_ranks(struct ranks *all)
{
    for (uint32_t r = 0; r < all->n; r++)
        end_member(&all->m[r]);
    tsr_comm_world_close(&all->world);
    close_way(&all->way);
    all_given_back();
}

/* Every rank leaves with the simulated group's sum; twice a site, the wires are there then. */
static void check_sums(struct ranks *all, const char *what)
{
    static float      want[ROWS * COLS];
    struct tsr_errbuf e = TSR_ERRBUF(e);
    pthread_t         id[MAX_RANKS];
    for (uint32_t round = 0; round < 2 * SITES; round++) {
        const float *partial[MAX_RANKS];
        for (uint32_t r = 0; r < all->n; r++) {
            free(all->m[r].x);
            all->m[r].x = partial_of(r, round % SITES);
            all->m[r].site = round % SITES;
            partial[r] = all->m[r].x;
        }
        assert_int_equal(tsr_comm_sum_simulated(&all->way.coder, round % SITES, partial, ROWS, COLS,
                                                want, &e.err),
                         TSR_OK);
        for (uint32_t r = 0; r < all->n; r++)
            assert_int_equal(pthread_create(&id[r], NULL, work, &all->m[r]), 0);
        for (uint32_t r = 0; r < all->n; r++)
            assert_int_equal(pthread_join(id[r], NULL), 0);
        for (uint32_t r = 0; r < all->n; r++) {
            if (all->m[r].st != TSR_OK)
                fail_msg("%s: rank %u: %s", what, r, all->m[r].e.text);
            assert_true(all->m[r].done);
            if (memcmp(all->m[r].x, want, sizeof want) != 0)
                fail_msg("%s: rank %u of %u leaves with another sum", what, r, all->n);
        }
    }
}

static const char *const names[] = { "all-gather", "two-step" };

static void sums(const char *codec, enum tsr_comm_algorithm a, uint32_t n, bool mixed)
{
    struct ranks all;
    char         what[96];
    (void)snprintf(what, sizeof what, "%s, %s, %u ranks%s", codec, names[a], n,
                   mixed ? ", one on its host" : "");
    open_ranks(&all, "nccl:device=0", codec, a, n, LONG_US);
    all.m[n - 1].on_host = mixed;
    check_sums(&all, what);
    for (uint32_t r = 0; r < n; r++) { /* what was sent is what the codec says */
        struct tsr_comm_counters c;
        uint64_t                 bytes;
        tsr_comm_group_counters(all.m[r].g, &c);
        assert_int_equal(tsr_comm_sent_bytes(&all.way.coder, r, ROWS, COLS, &bytes, NULL), TSR_OK);
        assert_int_equal(c.sums, 2 * SITES);
        assert_int_equal(c.declared, 2 * SITES * bytes);
        assert_int_equal(c.sent, 2 * SITES * bytes);
    }
    close_ranks(&all);
}

static const char *const codecs[] = { "plain",
                                      "int4_bf16",
                                      "mx",
                                      "plain:dtype=bf16",
                                      "int4_bf16:bits=5,one_in=9",
                                      "mx:element=fp3_e1m1,block=7,scale_bits=5,rounding=nearest",
                                      "plain:dtype=f16",
                                      "int4_bf16:bits=8,features=none",
                                      "mx:element=fp8_e4m3,block=100,scale_rule=ceil" };
#define CODECS (sizeof codecs / sizeof *codecs)

/* A third of the codecs by TSR_TEST_SEED, unless TSR_TEST_ALL=1, each both ways with 2, 3 and 4 ranks. */
static void test_sums(void **state)
{
    const char *all = getenv("TSR_TEST_ALL"), *s = getenv("TSR_TEST_SEED");
    bool        whole = all && strcmp(all, "1") == 0;
    uint64_t    seed = s ? strtoull(s, NULL, 10) : 0;
    (void)state;
    for (uint64_t i = 0; i < CODECS; i++)
        for (uint32_t n = 2; n <= 4 && (whole || i / 3 == seed % 3); n++) {
            sums(codecs[i], TSR_COMM_ALL_GATHER, n, false);
            sums(codecs[i], TSR_COMM_TWO_STEP, n, false);
        }
}

/* A rank whose numbers are in the host's memory sends and understands the same. */
static void test_mixed(void **state)
{
    (void)state;
    sums("mx", TSR_COMM_ALL_GATHER, 3, true);
    sums("int4_bf16", TSR_COMM_TWO_STEP, 3, true);
    sums("plain", TSR_COMM_TWO_STEP, 2, true);
}

/* The messages that the devices put on the wire are the ones that the codec codes on CPUs, to the bit. */
static void same_frames(const char *codec, enum tsr_comm_algorithm a)
{
    struct frames f[2];
    struct ranks  all;
    char          what[96];
    for (int on_host = 0; on_host < 2; on_host++) {
        (void)snprintf(what, sizeof what, "%s, %s, %s", codec, names[a],
                       on_host ? "on CPUs" : "on devices");
        open_ranks(&all, "nccl:device=0", codec, a, 2, LONG_US);
        all.m[0].on_host = all.m[1].on_host = on_host;
        frames_begin();
        check_sums(&all, what);
        frames_end(&f[on_host]);
        struct tsr_comm_counters c;
        tsr_comm_group_counters(all.m[0].g, &c);
        assert_true(c.sent > 0);
        assert_int_equal(f[on_host].bytes, 2 * c.sent); /* all of them were seen */
        close_ranks(&all);
    }
    if (!frames_equal(&f[0], &f[1]))
        fail_msg("%s, %s: other messages than those of CPUs", codec, names[a]);
    frames_free(&f[0]);
    frames_free(&f[1]);
}

static void test_frames(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) { /* plain, int4_bf16, mx as they are by default */
        same_frames(codecs[i], TSR_COMM_ALL_GATHER);
        same_frames(codecs[i], TSR_COMM_TWO_STEP);
    }
}

/* ---- where it is not possible ----------------------------------------------------- */

static void goes_without(const char *transport, const char *codec)
{
    struct ranks   all;
    struct member *m = &all.m[0];
    open_ranks(&all, transport, codec, TSR_COMM_ALL_GATHER, 2, LONG_US);
    for (int i = 0; i < 2; i++) {
        m->done = true;
        assert_int_equal(tsr_comm_group_sum_on(m->g, 0, 0, late_table(), m->backend, &m->t,
                                               &m->done, &m->e.err),
                         TSR_OK);
        assert_false(m->done);
    }
    struct tsr_comm_counters c;
    tsr_comm_group_counters(m->g, &c);
    assert_int_equal(c.sums + c.sent, 0);
    close_ranks(&all);
}

static void test_without(void **state)
{
    (void)state;
    goes_without("local", "mx");
    goes_without("nccl:device=0", "topk");
    goes_without("nccl:device=1", "mx");
    late_elsewhere(1);
    goes_without("nccl:device=0", "mx");
    late_elsewhere(0);
}

/* A codec that was not calibrated for a site; a rank that never comes; a group that failed. */
static void test_wrong(void **state)
{
    (void)state;
    struct ranks   all;
    struct member *m = &all.m[0];
    open_ranks(&all, "nccl:device=0", "int4_bf16", TSR_COMM_TWO_STEP, 2, 100000);
    tsr_status st =
        tsr_comm_group_sum_on(m->g, 1, 9, late_table(), m->backend, &m->t, &m->done, &m->e.err);
    assert_int_equal(st, TSR_E_CONFIG);
    assert_true(error_is(&m->e.err, "decode, layer 4, sum of MLP", "int4_bf16 9 0"));
    assert_true(error_is(&m->e.err, "decode, layer 4, sum of MLP", "int4_bf16 9 0"));
    m = &all.m[1];
    st = tsr_comm_group_sum_on(m->g, 1, 0, late_table(), m->backend, &m->t, &m->done, &m->e.err);
    assert_int_equal(st, TSR_E_CANCELLED);
    assert_true(error_is(&m->e.err, "decode, layer 0, sum of attention", "rank#0"));
    st = tsr_comm_group_sum_on(m->g, 1, 0, late_table(), m->backend, &m->t, &m->done, &m->e.err);
    assert_int_equal(st, TSR_E_CANCELLED);
    assert_true(error_is(&m->e.err, "", "rank#1"));
    close_ranks(&all);
    /* a first sum waits until all have opened their memory, or say that they cannot */
    open_ranks(&all, "nccl:device=0", "int4_bf16", TSR_COMM_ALL_GATHER, 2, 100000);
    m = &all.m[1];
    st = tsr_comm_group_sum_on(m->g, 0, 0, late_table(), m->backend, &m->t, &m->done, &m->e.err);
    assert_int_equal(st, TSR_E_DEVICE);
    assert_true(error_is(&m->e.err, "prefill, layer 0, sum of attention", "for#rank#0"));
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sums), cmocka_unit_test(test_frames),
                                        cmocka_unit_test(test_mixed),
                                        cmocka_unit_test(test_without),
                                        cmocka_unit_test(test_wrong) };
    return cmocka_run_group_tests_name("nccl-device", tests, open_all, close_all);
}
