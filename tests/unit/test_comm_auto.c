/* The choice of codec and algorithm: the fit of a link, the prediction beside a simulation of all
 * ranks, and the choice itself over slow links. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/clock.h"
#include "comm/group.h"
#include "comm/predict.h"
#include "plugin_open.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LONG_US   UINT64_C(60000000) /* only a hang reaches it */
#define MAX_RANKS 8

static struct tsr_registry *registry;

/* ---- the fit ----------------------------------------------------------- */

static void test_fit(void **state)
{
    (void)state;
    double               x[8], y[8];
    struct tsr_comm_path p;
    for (int k = 0; k < 20; k++) {
        double alpha = 1e-6 * pow(3, k % 5), rate = 1e6 * pow(7, k % 4);
        for (int i = 0; i < 8; i++) {
            x[i] = pow(8, i);
            y[i] = alpha + x[i] / rate;
        }
        assert_true(tsr_comm_fit(x, y, 8, &p));
        assert_true(fabs(p.alpha - alpha) <= 1e-6 * alpha && fabs(p.rate - rate) <= 1e-6 * rate);
        for (int i = 0; i < 8; i++) /* 5 % of noise moves neither by more than 10 % */
            y[i] *= i % 2 ? 1.05 : 0.95;
        assert_true(tsr_comm_fit(x, y, 8, &p));
        assert_true(fabs(p.alpha - alpha) <= 0.1 * alpha && fabs(p.rate - rate) <= 0.1 * rate);
    }
    y[0] = 1e-3;
    for (int i = 0; i < 8; i++)
        y[i] = x[i] * 1e-9; /* through the origin */
    assert_true(tsr_comm_fit(x, y, 8, &p) && p.alpha <= 1e-12);
    assert_false(tsr_comm_fit(x, y, 1, &p));
    y[0] = y[1] = 1;
    x[0] = x[1];
    assert_false(tsr_comm_fit(x, y, 2, &p));
    x[0] = 1, x[1] = 2;
    assert_false(tsr_comm_fit(x, y, 2, &p)); /* does not grow */
}

/* ---- a simulation of every rank ------------------------------------------- */

struct model {
    struct tsr_comm_speed v;
    struct tsr_comm_path  p;
};

static uint64_t wire(const struct tsr_comm_coder *c, bool second, uint32_t slice, uint64_t rows,
                     uint64_t cols)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          n;
    if (tsr_comm_wire_bytes(c, second, slice, rows, cols, &n, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return n;
}

#define PIECES 600

/* All ranks with their own clock and their own wire, message by message: rank r sends to r+1, r+2,
 * ... one after the other; a piece is begun, two pieces later its first hop is waited for, four
 * pieces later it ends. */
static double simulate(const struct tsr_comm_coder *c, const struct model *m, uint64_t rows,
                       uint64_t cols)
{
    static double here[2][PIECES][MAX_RANKS]; /* the last message of a hop has come */
    double        now[MAX_RANKS] = { 0 }, port[MAX_RANKS] = { 0 }, end = 0;
    uint32_t      n = c->ranks;
    bool          two = c->algorithm == TSR_COMM_TWO_STEP;
    uint64_t      each = tsr_comm_piece_rows(c, rows, cols), pieces = (rows + each - 1) / each;
    uint64_t      first, last;
    assert_true(pieces <= PIECES);
    memset(here, 0, sizeof here);
    for (uint64_t i = 0; i < pieces + 4; i++)
        for (int part = 0; part < 3; part++)
            for (uint32_t r = 0; r < n; r++) {
                uint64_t k = i - (uint64_t)part * 2, of = k + 1 == pieces ? rows - k * each : each;
                if (i < (uint64_t)part * 2 || k >= pieces || (part == 1 && !two))
                    continue;
                tsr_comm_slice(cols, n, r, &first, &last);
                double all = (double)(of * cols), own = two ? (double)(of * (last - first)) : all;
                if (part > 0)
                    now[r] = fmax(now[r], here[two && part == 2][k][r]);
                if (part == 0) /* two-step leaves its own slice as it is */
                    now[r] += (two ? all - own : all) * m->v.encode;
                else if (part == 1)
                    now[r] += (n - 1) * own * m->v.decode + own * m->v.encode;
                else
                    now[r] += (two ? all : n * all) * m->v.decode;
                for (uint32_t d = 1; part < 2 && d < n; d++) {
                    uint32_t to = (r + d) % n;
                    uint64_t bytes;
                    tsr_comm_slice(cols, n, part ? r : to, &first, &last);
                    bytes = two ? wire(c, part == 1, part ? r : to, of, last - first)
                                : wire(c, false, 0, of, cols);
                    port[r] = fmax(port[r], now[r]) + (double)bytes / m->p.rate;
                    here[part][k][to] = fmax(here[part][k][to], port[r] + m->p.alpha);
                }
            }
    for (uint32_t r = 0; r < n; r++)
        end = fmax(end, now[r]);
    return end;
}

/* A ring of BF16: n-1 steps that code, send and add an n-th each; then the sum of one n-th is coded, and
 * in n-1 more steps these codes go round, to be decoded by all. */
static double ring(const struct model *m, uint32_t n, double elements)
{
    double part = elements / n, wires = 2 * (n - 1) * (m->p.alpha + 2 * part / m->p.rate);
    return wires + (n * m->v.encode + (2 * n - 1) * m->v.decode) * part;
}

/* Over ranks, sizes and links: what is predicted to be fastest is at most 1.10 times what is fastest,
 * and at most 1.02 times plain, the faster of a BF16 ring and BF16 two-step.  Speeds of codecs are of
 * the size that docs/lab/speed-log.md has. */
static void test_regret(void **state)
{
    static const struct {
        const char           *codec;
        struct tsr_comm_speed v;
    } codecs[] = { { "plain:dtype=bf16", { 0.15e-9, 0.15e-9 } },
                   { "mx", { 0.25e-9, 0.2e-9 } },
                   { "mx:element=fp8_e4m3", { 0.3e-9, 0.3e-9 } } };
    static const struct tsr_comm_path paths[] = {
        { 4e-6, 370e9 }, { 10e-6, 25e9 }, { 20e-6, 6e9 }, { 50e-6, 1.2e9 }, { 100e-6, 0.12e9 }
    };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    double            worst = 0, worst_plain = 0;
    uint32_t          cases = 0, plain_won = 0, gather_won = 0;
    (void)state;
    for (uint32_t n = 2; n <= 8; n += n < 4 ? 1 : 4)
        for (size_t link = 0; link < sizeof paths / sizeof *paths; link++)
            for (uint64_t rows = 1; rows <= 1024; rows *= 4)
                for (uint64_t cols = 1024; cols <= 8192; cols *= 8) {
                    double   best = INFINITY, chosen = INFINITY, truth = INFINITY, plain = INFINITY;
                    uint32_t which = 0;
                    for (uint32_t k = 0; k < 6; k++) {
                        struct tsr_comm_way   way = { .codec = codecs[k / 2].codec,
                                                      .algorithm = (enum tsr_comm_algorithm)(k % 2) };
                        struct model          m = { codecs[k / 2].v, paths[link] };
                        struct tsr_comm_coder c;
                        double                guess = 0;
                        if (tsr_comm_coder_open(&c, registry, &way, n, &e.err) != TSR_OK ||
                            tsr_comm_predict(&c, &m.v, &m.p, rows, cols, &guess, &e.err) != TSR_OK)
                            fail_msg("%s", e.text);
                        double t = simulate(&c, &m, rows, cols);
                        assert_true(guess > 0 && t > 0);
                        best = fmin(best, t);
                        if (k == TSR_COMM_TWO_STEP)
                            plain = fmin(t, ring(&m, n, (double)(rows * cols)));
                        if (guess < chosen) {
                            chosen = guess;
                            truth = t;
                            which = k;
                        }
                        tsr_comm_coder_close(&c);
                    }
                    cases++;
                    plain_won += which < 2;
                    gather_won += which % 2 == 0;
                    worst = fmax(worst, truth / best);
                    worst_plain = fmax(worst_plain, truth / plain);
                    if (!(truth <= 1.10 * best) || !(truth <= 1.02 * plain))
                        fail_msg(
                            "%u ranks, %llu x %llu, link %zu: way %u takes %g us, the best %g, "
                            "plain %g",
                            n, (unsigned long long)rows, (unsigned long long)cols, link, which,
                            truth * 1e6, best * 1e6, plain * 1e6);
                }
    print_message(
        "%u cases: at worst %.3f times the best, %.3f times plain; plain %u, all-gather %u "
        "times\n",
        cases, worst, worst_plain, plain_won, gather_won);
    /* every kind of answer occurs, or the grid proves little */
    assert_true(plain_won > 0 && plain_won < cases && gather_won > 0 && gather_won < cases);
}

/* What two-step saves over 8 ranks, in bytes of messages. */
static void test_bytes(void **state)
{
    static const char *const codecs[] = { "plain", "plain:dtype=bf16", "mx" };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        uint64_t bytes[2];
        for (int a = 0; a < 2; a++) {
            struct tsr_comm_way   way = { .codec = codecs[k],
                                          .algorithm = (enum tsr_comm_algorithm)a };
            struct tsr_comm_coder c;
            assert_int_equal(tsr_comm_coder_open(&c, registry, &way, 8, &e.err), TSR_OK);
            assert_int_equal(tsr_comm_sent_bytes(&c, 3, 500, 4096, &bytes[a], &e.err), TSR_OK);
            tsr_comm_coder_close(&c);
        }
        assert_int_equal(bytes[0], 4 * bytes[1]);
    }
}

/* ---- the choice ---------------------------------------------------------- */

struct member {
    struct tsr_comm_group *g;
    uint64_t               rows, cols;
    bool                   ok;
    struct tsr_comm_path   path;
    struct tsr_errbuf      e;
};

static void *tune(void *arg)
{
    struct member *m = arg;
    float         *x = calloc(m->rows * m->cols, sizeof *x);
    m->ok = x && tsr_comm_group_probe(m->g, &m->path, &m->e.err) == TSR_OK &&
            tsr_comm_group_tune(m->g, 0, m->rows, m->cols, &m->e.err) == TSR_OK &&
            tsr_comm_group_tune(m->g, 1, m->rows, m->cols, &m->e.err) == TSR_OK &&
            tsr_comm_group_sum(m->g, 0, 0, x, m->rows, m->cols, &m->e.err) == TSR_OK &&
            tsr_comm_group_sum(m->g, 1, 0, x, m->rows, m->cols, &m->e.err) == TSR_OK;
    free(x);
    return NULL;
}

static void choose(const char *transport, uint32_t ranks, uint64_t rows, uint64_t cols,
                   const char *asked, enum tsr_comm_algorithm by, const char *codec,
                   enum tsr_comm_algorithm algorithm)
{
    struct tsr_comm_world w;
    struct member         m[MAX_RANKS];
    pthread_t             thread[MAX_RANKS];
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    if (tsr_comm_world_create(&w, registry, transport, ranks, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    for (uint32_t r = 0; r < ranks; r++) {
        struct tsr_comm_options o = { .place = { transport, r, ranks, w.shared, w.bytes, 0, NULL },
                                      .deadline_us = LONG_US,
                                      .way = { { .codec = asked, .algorithm = by },
                                               { .codec = "plain" } } };
        m[r] = (struct member){ .rows = rows, .cols = cols, .e = TSR_ERRBUF(m[r].e) };
        if (tsr_comm_group_create(&m[r].g, registry, &o, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        float x = 0;
        assert_int_equal(tsr_comm_group_sum(m[r].g, 0, 0, &x, 1, 1, &e.err), TSR_E_INVAL);
        assert_true(error_is(&e.err, "", NULL));
    }
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, tune, &m[r]), 0);
    for (uint32_t r = 0; r < ranks; r++) {
        struct tsr_comm_counters n;
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        if (!m[r].ok)
            fail_msg("rank %u: %s", r, m[r].e.text);
        assert_string_equal(tsr_comm_group_codec(m[r].g, 0), codec);
        assert_int_equal(tsr_comm_group_algorithm(m[r].g, 0), algorithm);
        assert_string_equal(tsr_comm_group_codec(m[r].g, 1), "plain");
        tsr_comm_group_counters(m[r].g, &n);
        assert_true(n.counted && n.sent == n.declared);
        assert_true(m[r].path.rate > 0 && isfinite(m[r].path.rate) && m[r].path.alpha >= 0);
        assert_memory_equal(&m[r].path, &m[0].path, sizeof m[0].path);
        tsr_comm_group_destroy(m[r].g);
    }
    tsr_comm_world_close(&w);
}

/* Differences that no load of the machine turns around: several milliseconds on the wire, twice or more. */
static void test_choice(void **state)
{
    (void)state;
    /* 256 KiB of BF16 or 68 KiB of MXFP4 at 8 MB/s */
    choose("local:bandwidth=8,latency=100,ring=1024", 2, 256, 512, "auto", TSR_COMM_ALL_GATHER,
           "mx", TSR_COMM_ALL_GATHER);
    /* twice the latency, or 7 times the bytes */
    choose("local:bandwidth=1000,latency=10000", 4, 1, 512, "plain", TSR_COMM_AUTO, "plain",
           TSR_COMM_ALL_GATHER);
    choose("local:bandwidth=10,latency=100,ring=1024", 8, 64, 512, "auto:plain", TSR_COMM_AUTO,
           "plain", TSR_COMM_TWO_STEP);
}

static void *probe_late(void *arg)
{
    struct member *m = arg;
    nanosleep(&(struct timespec){ 0, (long)m->rows * 1000000 }, NULL);
    m->ok = tsr_comm_group_probe(m->g, &m->path, &m->e.err) == TSR_OK;
    return NULL;
}

/* A rank that begins 15 ms after the other stays so far behind, as messages are all that they have in common: the
 * first waits 20 + 15 ms each time, the second 20 - 15.  The link has 20 ms. */
static void test_late(void **state)
{
    (void)state;
    static const char     transport[] = "local:bandwidth=1000,latency=20000";
    struct tsr_comm_world w;
    struct member         m[2];
    pthread_t             thread[2];
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    assert_int_equal(tsr_comm_world_create(&w, registry, transport, 2, &e.err), TSR_OK);
    for (uint32_t r = 0; r < 2; r++) {
        struct tsr_comm_options o = { .place = { transport, r, 2, w.shared, w.bytes, 0, NULL },
                                      .deadline_us = LONG_US };
        m[r] = (struct member){ .rows = 15 * r, .e = TSR_ERRBUF(m[r].e) };
        assert_int_equal(tsr_comm_group_create(&m[r].g, registry, &o, &e.err), TSR_OK);
    }
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, probe_late, &m[r]), 0);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        if (!m[r].ok)
            fail_msg("rank %u: %s", r, m[r].e.text);
        /* some milliseconds of a busy machine are let be */
        if (!(m[r].path.alpha >= 0.015 && m[r].path.alpha <= 0.030))
            fail_msg("rank %u finds a latency of %.1f ms", r, m[r].path.alpha * 1e3);
        tsr_comm_group_destroy(m[r].g);
    }
    tsr_comm_world_close(&w);
}

/* On a link that is fast beside the codec nothing is gained by coding: memory that is shared, and the
 * encoders without vectors, which take several times as long as moving BF16. */
static void test_fast_link(void **state)
{
    (void)state;
    assert_int_equal(setenv("TSR_ISA", "scalar", 1), 0);
    choose("local", 2, 256, 1024, "auto:mx:element=fp5_e2m2,block=8,scale_bits=5;plain:dtype=bf16",
           TSR_COMM_ALL_GATHER, "plain:dtype=bf16", TSR_COMM_ALL_GATHER);
    assert_int_equal(unsetenv("TSR_ISA"), 0);
}

static int setup(void **state)
{
    struct tsr_plugin_found found;
    (void)state;
    registry = open_plugin(TSR_KIND_TRANSPORT, "local", &found);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),   cmocka_unit_test(test_regret),
        cmocka_unit_test(test_bytes), cmocka_unit_test(test_choice),
        cmocka_unit_test(test_late),  cmocka_unit_test(test_fast_link),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
