/* Sums over ranks: the same bytes on every rank, exact codecs in the order of the numerics page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/clock.h"
#include "base/rng.h"
#include "comm/group.h"
#include "comm/link.h"
#include "plugin_open.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_US   UINT64_C(20000000) /* far above what a test takes: only a hang reaches it */
#define MAX_RANKS 8

static struct tsr_registry    *registry;
static struct tsr_plugin_found found;

/* ---- oracle ------------------------------------------------------------ */

/* Rank r's element i: a wide range of magnitudes, so that another order of additions shows. */
static float element(uint64_t seed, uint32_t r, uint64_t i)
{
    uint32_t u[4];
    tsr_philox(u, i, r, seed);
    return ((float)(u[0] & 0xffffff) - 8388608.0f) / (float)(1u << (u[1] & 31));
}

/* Halves of a power of two at least n, by recursion: another way to say which pairs are added. */
static float tree(const float *v, uint32_t n)
{
    uint32_t half = 1;
    if (n == 1)
        return v[0];
    while (half * 2 < n)
        half *= 2;
    return tree(v, half) + tree(v + half, n - half);
}

static float *partial(uint64_t seed, uint32_t r, uint64_t n)
{
    float *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    for (uint64_t i = 0; i < n; i++)
        x[i] = element(seed, r, i);
    x[n] = 12345.0f; /* must stay */
    return x;
}

/* ---- a group on threads ------------------------------------------------ */

struct shape {
    uint64_t rows, cols;
};

struct member {
    struct tsr_comm_group *g;
    uint32_t               rank, phase;
    const struct shape    *shape;
    uint32_t               n_shapes;
    float                **x; /* [n_shapes] */
    tsr_status             st;
    struct tsr_errbuf      e;
    uint64_t               us;
};

static void *run_member(void *arg)
{
    struct member *m = arg;
    uint64_t       start = tsr_now_us();
    for (uint32_t i = 0; m->st == TSR_OK && i < m->n_shapes; i++)
        m->st = tsr_comm_group_sum(m->g, m->phase, i, m->x[i], m->shape[i].rows, m->shape[i].cols,
                                   &m->e.err);
    m->us = tsr_now_us() - start;
    return NULL;
}

struct group {
    struct tsr_comm_world  world;
    struct tsr_comm_group *g[MAX_RANKS];
    uint32_t               ranks;
};

static struct group make_group(const char *transport, uint32_t ranks,
                               const struct tsr_comm_way *way, uint64_t deadline)
{
    struct group      g = { .ranks = ranks };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_comm_world_create(&g.world, registry, transport, ranks, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    for (uint32_t r = 0; r < ranks; r++) {
        struct tsr_comm_options o = { .place = { transport, r, ranks, g.world.shared, g.world.bytes,
                                                 0, NULL },
                                      .deadline_us = deadline,
                                      .way = { way[0], way[1] } };
        if (tsr_comm_group_create(&g.g[r], registry, &o, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
    }
    return g;
}

static void free_group(struct group *g)
{
    for (uint32_t r = 0; r < g->ranks; r++)
        tsr_comm_group_destroy(g->g[r]);
    tsr_comm_world_close(&g->world);
}

static const struct shape shapes[] = { { 1, 64 },   { 1, 512 }, { 3, 576 }, { 5, 100 },  { 1, 8 },
                                       { 37, 256 }, { 0, 64 },  { 4, 0 },   { 16, 1024 } };
#define N_SHAPES (sizeof shapes / sizeof *shapes)

/* Every shape through a group of threads; all ranks must hold what `want` says. */
static void sum_all(const char *transport, uint32_t ranks, const struct tsr_comm_way *way)
{
    struct tsr_comm_way   ways[2] = { *way, *way };
    struct group          g = make_group(transport, ranks, ways, LONG_US);
    struct member         m[MAX_RANKS];
    pthread_t             thread[MAX_RANKS];
    float                *x[MAX_RANKS][N_SHAPES], *want[N_SHAPES];
    struct tsr_comm_coder coder;
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    uint64_t              declared[MAX_RANKS] = { 0 };
    if (tsr_comm_coder_open(&coder, registry, way, ranks, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    bool exact = tsr_comm_coder_exact(&coder);
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        uint64_t     n = shapes[i].rows * shapes[i].cols, bytes;
        const float *p[MAX_RANKS];
        want[i] = calloc(n + 1, sizeof(float));
        for (uint32_t r = 0; r < ranks; r++) {
            p[r] = x[r][i] = partial(i, r, n);
            assert_int_equal(tsr_comm_sent_bytes(&coder, r, shapes[i].rows, shapes[i].cols, &bytes,
                                                 &e.err),
                             TSR_OK);
            declared[r] += bytes;
        }
        if (tsr_comm_sum_simulated(&coder, i, p, shapes[i].rows, shapes[i].cols, want[i], &e.err) !=
            TSR_OK)
            fail_msg("%s", e.text);
        for (uint64_t k = 0; exact && k < n; k++) {
            float v[MAX_RANKS];
            for (uint32_t r = 0; r < ranks; r++)
                v[r] = p[r][k];
            float sum = tree(v, ranks);
            assert_memory_equal(&want[i][k], &sum, sizeof sum);
        }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        m[r] =
            (struct member){ g.g[r], r, 0, shapes, N_SHAPES, x[r], TSR_OK, TSR_ERRBUF(m[r].e), 0 };
        assert_int_equal(pthread_create(&thread[r], NULL, run_member, &m[r]), 0);
    }
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    for (uint32_t r = 0; r < ranks; r++) {
        struct tsr_comm_counters c;
        if (m[r].st != TSR_OK)
            fail_msg("rank %u: %s", r, m[r].e.text);
        for (uint32_t i = 0; i < N_SHAPES; i++) {
            uint64_t n = shapes[i].rows * shapes[i].cols;
            assert_memory_equal(x[r][i], want[i], n * sizeof(float));
            assert_true(x[r][i][n] == 12345.0f);
            free(x[r][i]);
        }
        tsr_comm_group_counters(g.g[r], &c);
        assert_int_equal(c.sums, N_SHAPES);
        assert_int_equal(c.declared, declared[r]);
        assert_true(c.counted);
        assert_int_equal(c.sent, declared[r]); /* counted where the bytes go into a ring */
        assert_int_equal(c.refused, 0);
    }
    for (uint32_t i = 0; i < N_SHAPES; i++)
        free(want[i]);
    tsr_comm_coder_close(&coder);
    free_group(&g);
}

static void test_sums(void **state)
{
    static const char *const codecs[] = { "plain", "plain:dtype=bf16", "plain:dtype=f16" };
    static const uint32_t    widths[] = { 1, 2, 3, 4, 7, 8 };
    (void)state;
    for (size_t c = 0; c < 3; c++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (int a = 0; a < 2; a++) {
                struct tsr_comm_way way = { .codec = codecs[c],
                                            .algorithm = (enum tsr_comm_algorithm)a,
                                            .piece = c == 2 ? 0 : 4096 }; /* many pieces, or one */
                sum_all(c ? "local" : "local:ring=1", widths[w], &way);
            }
}

/* The sum over ranks of the sums of their segments is the sum of all segments. */
static void test_segments(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        float s[8], whole;
        for (uint32_t k = 0; k < 8; k++)
            s[k] = element(99, k, i);
        whole = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
        for (uint32_t ranks = 1; ranks <= 8; ranks *= 2) {
            struct tsr_comm_way   way = { .algorithm = i & 1 };
            struct tsr_comm_coder c;
            float                 part[8], out;
            const float          *p[8];
            for (uint32_t r = 0; r < ranks; r++) {
                part[r] = tree(s + r * (8 / ranks), 8 / ranks);
                p[r] = &part[r];
            }
            assert_int_equal(tsr_comm_coder_open(&c, registry, &way, ranks, &e.err), TSR_OK);
            assert_int_equal(tsr_comm_sum_simulated(&c, 0, p, 1, 1, &out, &e.err), TSR_OK);
            assert_memory_equal(&out, &whole, sizeof out);
            tsr_comm_coder_close(&c);
        }
    }
}

static void test_slices(void **state)
{
    (void)state;
    for (uint64_t cols = 0; cols < 1400; cols += 7)
        for (uint32_t n = 1; n <= 40; n++) {
            uint64_t at = 0, first, end;
            for (uint32_t r = 0; r < n; r++) {
                tsr_comm_slice(cols, n, r, &first, &end);
                assert_int_equal(first, at);
                assert_true(end >= first && (end % TSR_COMM_BORDER == 0 || end == cols));
                at = end;
            }
            assert_int_equal(at, cols);
        }
    uint64_t first, end;
    tsr_comm_slice(UINT64_MAX, 64, 63, &first, &end);
    assert_true(end == UINT64_MAX && first < end);
}

/* ---- processes --------------------------------------------------------- */

static void test_processes(void **state)
{
    enum { RANKS = 4, ROWS = 50, COLS = 320 };
    struct tsr_comm_way   way[2] = { { .algorithm = TSR_COMM_TWO_STEP, .piece = 8192 },
                                     { .codec = "plain:dtype=bf16" } };
    struct tsr_comm_world w;
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    pid_t                 child[RANKS];
    (void)state;
    assert_int_equal(tsr_comm_world_create(&w, registry, "local", RANKS, &e.err), TSR_OK);
    float *out = mmap(NULL, (size_t)2 * RANKS * ROWS * COLS * sizeof(float), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(out != MAP_FAILED);
    for (uint32_t r = 0; r < RANKS; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] == 0) {
            struct tsr_comm_group  *g = NULL;
            struct tsr_comm_options o = { .place = { "local", r, RANKS, w.shared, w.bytes, 0,
                                                     NULL },
                                          .deadline_us = LONG_US,
                                          .way = { way[0], way[1] } };
            bool                    ok = tsr_comm_group_create(&g, registry, &o, &e.err) == TSR_OK;
            for (uint32_t p = 0; ok && p < 2; p++) {
                float *x = out + ((size_t)p * RANKS + r) * ROWS * COLS;
                for (uint64_t i = 0; i < ROWS * COLS; i++)
                    x[i] = element(p, r, i);
                ok = tsr_comm_group_sum(g, p, 0, x, ROWS, COLS, &e.err) == TSR_OK;
            }
            if (!ok)
                (void)fprintf(stderr, "rank %u: %s\n", r, e.text);
            _exit(ok ? 0 : 1);
        }
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        int status;
        assert_int_equal(waitpid(child[r], &status, 0), child[r]);
        assert_int_equal(status, 0);
    }
    for (uint32_t p = 0; p < 2; p++) {
        struct tsr_comm_coder c;
        float                *x[RANKS], *want = calloc(ROWS * COLS, sizeof *want);
        const float          *in[RANKS];
        for (uint32_t r = 0; r < RANKS; r++)
            in[r] = x[r] = partial(p, r, ROWS * COLS);
        assert_int_equal(tsr_comm_coder_open(&c, registry, &way[p], RANKS, &e.err), TSR_OK);
        assert_int_equal(tsr_comm_sum_simulated(&c, 0, in, ROWS, COLS, want, &e.err), TSR_OK);
        for (uint32_t r = 0; r < RANKS; r++) {
            assert_memory_equal(out + ((size_t)p * RANKS + r) * ROWS * COLS, want,
                                ROWS * COLS * sizeof *want);
            free(x[r]);
        }
        free(want);
        tsr_comm_coder_close(&c);
    }
    (void)munmap(out, (size_t)2 * RANKS * ROWS * COLS * sizeof(float));
    tsr_comm_world_close(&w);
}

/* ---- what goes wrong ---------------------------------------------------- */

/* Rank 2 never comes: one of the others names it, all are out soon. */
static void test_late(void **state)
{
    struct tsr_comm_way way[2] = { 0 };
    struct group        g = make_group("local", 3, way, 200000);
    struct member       m[3];
    pthread_t           thread[3];
    struct shape        shape = { 4, 128 };
    float              *x[3];
    uint32_t            named = 0;
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        x[r] = partial(1, r, 512);
        m[r] = (struct member){ g.g[r], r, 1, &shape, 1, &x[r], TSR_OK, TSR_ERRBUF(m[r].e), 0 };
        assert_int_equal(pthread_create(&thread[r], NULL, run_member, &m[r]), 0);
    }
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        assert_true(m[r].st == TSR_E_DEVICE || m[r].st == TSR_E_CANCELLED);
        assert_true(error_is(&m[r].e.err, "decode, layer 0, sum of attention", NULL));
        if (m[r].st == TSR_E_DEVICE) {
            assert_true(error_is(&m[r].e.err, "decode, layer 0, sum of attention", "for#rank#2"));
            named++;
        }
        assert_true(m[r].us < LONG_US / 4);
        free(x[r]);
    }
    assert_true(named >= 1);
    float             y[512] = { 0 };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(tsr_comm_group_sum(g.g[2], 0, 0, y, 4, 128, &e.err), TSR_E_CANCELLED);
    assert_int_equal(tsr_comm_group_sum(g.g[0], 0, 0, y, 4, 128, &e.err), TSR_E_CANCELLED);
    assert_true(error_is(&e.err, "", "rank#0"));
    free_group(&g);
}

static void count(void *ctx)
{
    ++*(uint64_t *)ctx;
}

/* A sum of many pieces says so as they get through: who watches does not take a slow one for none. */
static void test_beats(void **state)
{
    enum { RANKS = 2, ROWS = 40 };
    struct tsr_comm_way   way = { .piece = 4096 }; /* of F32: two rows of 512 */
    struct tsr_comm_world w;
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct member         m[RANKS];
    pthread_t             thread[RANKS];
    uint64_t              beats[RANKS] = { 0 };
    struct shape          shape = { ROWS, 512 };
    float                *x[RANKS];
    (void)state;
    assert_int_equal(tsr_comm_world_create(&w, registry, "local", RANKS, &e.err), TSR_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        struct tsr_comm_options o = { .place = { "local", r, RANKS, w.shared, w.bytes, 0, NULL },
                                      .deadline_us = LONG_US,
                                      .way = { way, way },
                                      .beat = count,
                                      .ctx = &beats[r] };
        struct tsr_comm_group  *g;
        assert_int_equal(tsr_comm_group_create(&g, registry, &o, &e.err), TSR_OK);
        x[r] = partial(1, r, ROWS * 512);
        m[r] = (struct member){ g, r, 0, &shape, 1, &x[r], TSR_OK, TSR_ERRBUF(m[r].e), 0 };
    }
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, run_member, &m[r]), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        assert_int_equal(m[r].st, TSR_OK);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_true(beats[r] >= ROWS / 2);
        tsr_comm_group_destroy(m[r].g);
        free(x[r]);
    }
    tsr_comm_world_close(&w);
}

static void test_abort(void **state)
{
    struct tsr_comm_way way[2] = { { .algorithm = TSR_COMM_TWO_STEP },
                                   { .algorithm = TSR_COMM_TWO_STEP } };
    struct group        g = make_group("local", 4, way, LONG_US);
    struct member       m[3];
    pthread_t           thread[3];
    struct shape        shape = { 64, 1024 };
    float              *x[3];
    (void)state;
    for (uint32_t r = 0; r < 3; r++) {
        x[r] = partial(1, r, shape.rows * shape.cols);
        m[r] = (struct member){ g.g[r], r, 0, &shape, 1, &x[r], TSR_OK, TSR_ERRBUF(m[r].e), 0 };
        assert_int_equal(pthread_create(&thread[r], NULL, run_member, &m[r]), 0);
    }
    tsr_clock_system.sleep_us(NULL, 20000);
    tsr_comm_group_abort(g.g[3]);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        assert_int_equal(m[r].st, TSR_E_CANCELLED);
        assert_true(error_is(&m[r].e.err, "prefill, layer 0, sum of attention", "rank#3"));
        assert_true(m[r].us < LONG_US / 4);
        free(x[r]);
    }
    free_group(&g);
}

/* Ranks that ask for different sums do not get wrong ones. */
static void test_disagree(void **state)
{
    struct tsr_comm_way way[2] = { 0 };
    struct group        g = make_group("local", 2, way, LONG_US);
    struct member       m[2];
    pthread_t           thread[2];
    struct shape        shape[2] = { { 4, 128 }, { 3, 128 } };
    float              *x[2];
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        x[r] = partial(1, r, 512);
        m[r] = (struct member){ g.g[r], r, 0, &shape[r], 1, &x[r], TSR_OK, TSR_ERRBUF(m[r].e), 0 };
        assert_int_equal(pthread_create(&thread[r], NULL, run_member, &m[r]), 0);
    }
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        assert_true(m[r].st != TSR_OK);
        free(x[r]);
    }
    assert_true(m[0].st == TSR_E_DEVICE || m[1].st == TSR_E_DEVICE);
    free_group(&g);
}

static void test_options(void **state)
{
    struct tsr_comm_options o = { .place = { "local", 0, 1, NULL, 0, 0, NULL } };
    struct tsr_comm_group  *g;
    struct tsr_comm_world   w;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    enum tsr_comm_algorithm a;
    (void)state;
    assert_int_equal(tsr_comm_world_create(&w, registry, "lokal", 2, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "lokal", "transport"));
    assert_int_equal(tsr_comm_world_create(&w, registry, "local:ring=-1", 2, &e.err), TSR_E_INPUT);
    o.way[1].codec = "plain:dtype=f8";
    assert_int_equal(tsr_comm_group_create(&g, registry, &o, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "dtype", "plain:dtype=f8"));
    assert_null(g);
    struct tsr_comm_state none = { "x", 1 };
    o.way[1] = (struct tsr_comm_way){ .states = &none, .n_states = 1 };
    assert_int_equal(tsr_comm_group_create(&g, registry, &o, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "codec 'plain'", NULL));
    o.way[1].n_states = 3;
    assert_int_equal(tsr_comm_group_create(&g, registry, &o, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "codec 'plain'", "3 1"));
    assert_int_equal(tsr_comm_algorithm_find(&a, "two-step", &e.err), TSR_OK);
    assert_int_equal(a, TSR_COMM_TWO_STEP);
    assert_int_equal(tsr_comm_algorithm_find(&a, "ring", &e.err), TSR_E_INPUT);
}

/* ---- links -------------------------------------------------------------- */

struct end {
    struct tsr_comm_link *l;
    bool                  ok;
    struct tsr_errbuf     e;
};

enum { LINK_ROWS = 33, LINK_COLS = 200, MESSAGES = 100 };

static void *run_sender(void *arg)
{
    struct end               *s = arg;
    struct tsr_comm_transfer *t[MESSAGES + 1];
    uint32_t                  from = 0;
    s->ok = tsr_comm_link_send_bytes(s->l, 1, "head", 4, &t[0], &s->e.err) == TSR_OK;
    for (uint32_t i = 1; s->ok && i <= MESSAGES; i++) {
        float *x = partial(i, 0, LINK_ROWS * LINK_COLS);
        if (i - from == TSR_COMM_LINK_MAX)
            s->ok = tsr_comm_link_wait_for(s->l, t[from++], LONG_US, &s->e.err) == TSR_OK;
        s->ok = s->ok && tsr_comm_link_send(s->l, i % 2, i, 1, x, i % LINK_ROWS, LINK_COLS, &t[i],
                                            &s->e.err) == TSR_OK;
        memset(x, 0xee, LINK_ROWS * LINK_COLS * sizeof *x); /* it was copied */
        free(x);
    }
    while (s->ok && from <= MESSAGES)
        s->ok = tsr_comm_link_wait_for(s->l, t[from++], LONG_US, &s->e.err) == TSR_OK;
    return NULL;
}

static void *run_receiver(void *arg)
{
    struct end               *s = arg;
    struct tsr_comm_transfer *t[2];
    float                    *x[2];
    char                      head[5] = "";
    x[0] = calloc(LINK_ROWS * LINK_COLS, sizeof(float));
    x[1] = calloc(LINK_ROWS * LINK_COLS, sizeof(float));
    s->ok = tsr_comm_link_recv_bytes(s->l, 0, head, 4, &t[0], &s->e.err) == TSR_OK &&
            tsr_comm_link_wait_for(s->l, t[0], LONG_US, &s->e.err) == TSR_OK &&
            strcmp(head, "head") == 0;
    for (uint32_t i = 1; s->ok && i <= MESSAGES + 1; i++) {
        if (i <= MESSAGES)
            s->ok = tsr_comm_link_recv(s->l, i % 2, i, 0, x[i % 2], i % LINK_ROWS, LINK_COLS,
                                       &t[i % 2], &s->e.err) == TSR_OK;
        uint32_t k = i - 1; /* the one before, while this one is on its way */
        if (!s->ok || k == 0)
            continue;
        s->ok = tsr_comm_link_wait_for(s->l, t[k % 2], LONG_US, &s->e.err) == TSR_OK;
        for (uint64_t j = 0; s->ok && j < (k % LINK_ROWS) * LINK_COLS; j++) {
            float want = element(k, 0, j), got = x[k % 2][j];
            if (k % 2 == 0)
                s->ok = memcmp(&want, &got, sizeof got) == 0;
            else /* bf16: half a unit of 8 significant bits */
                s->ok = got - want <= (want < 0 ? -want : want) / 256 &&
                        want - got <= (want < 0 ? -want : want) / 256;
        }
    }
    free(x[0]);
    free(x[1]);
    return NULL;
}

static void test_link(void **state)
{
    struct tsr_comm_world w;
    struct end            end[2] = { { .e = TSR_ERRBUF(end[0].e) }, { .e = TSR_ERRBUF(end[1].e) } };
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    pthread_t             thread[2];
    (void)state;
    assert_int_equal(tsr_comm_world_create(&w, registry, "local", 2, &e.err), TSR_OK);
    for (uint32_t r = 0; r < 2; r++) {
        struct tsr_comm_link_options o = { .place = { "local", r, 2, w.shared, w.bytes, 0, NULL },
                                           .codec = { NULL, "plain:dtype=bf16" } };
        assert_int_equal(tsr_comm_link_create(&end[r].l, registry, &o, &e.err), TSR_OK);
    }
    assert_int_equal(pthread_create(&thread[0], NULL, run_sender, &end[0]), 0);
    assert_int_equal(pthread_create(&thread[1], NULL, run_receiver, &end[1]), 0);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        if (!end[r].ok)
            fail_msg("rank %u: %s", r, end[r].e.text);
    }
    uint64_t bytes = 4;
    for (uint64_t i = 1; i <= MESSAGES; i++)
        bytes += (i % LINK_ROWS) * LINK_COLS * (i % 2 ? 2 : 4);
    assert_int_equal(tsr_comm_link_sent(end[0].l), bytes);

    struct tsr_comm_transfer *t;
    float                     x[8] = { 0 };
    uint64_t                  start = tsr_now_us();
    assert_int_equal(tsr_comm_link_send(end[0].l, 2, 0, 1, x, 1, 8, &t, &e.err), TSR_E_INVAL);
    assert_int_equal(tsr_comm_link_send(end[0].l, 0, 0, 2, x, 1, 8, &t, &e.err), TSR_E_INVAL);
    assert_int_equal(tsr_comm_link_recv(end[0].l, 0, 0, 1, x, 1, 8, &t, &e.err), TSR_OK);
    assert_int_equal(tsr_comm_link_wait_for(end[0].l, t, 50000, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "for#rank#1"));
    assert_true(tsr_now_us() - start < LONG_US);
    assert_int_equal(tsr_comm_link_recv(end[0].l, 0, 0, 1, x, 1, 8, &t, &e.err), TSR_OK);
    tsr_comm_link_abort(end[1].l);
    assert_int_equal(tsr_comm_link_wait_for(end[0].l, t, LONG_US, &e.err), TSR_E_CANCELLED);
    for (uint32_t r = 0; r < 2; r++)
        tsr_comm_link_destroy(end[r].l);
    tsr_comm_world_close(&w);
}

static int setup(void **state)
{
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
        cmocka_unit_test(test_slices),   cmocka_unit_test(test_segments),
        cmocka_unit_test(test_sums),     cmocka_unit_test(test_processes),
        cmocka_unit_test(test_late),     cmocka_unit_test(test_abort),
        cmocka_unit_test(test_disagree), cmocka_unit_test(test_options),
        cmocka_unit_test(test_link),     cmocka_unit_test(test_beats),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
