/* TSR_TRANSPORT_WINDOW between processes: each rank is a process with a device of its own, on the driver of the tests.
 *
 * Sums in memory that they open of each other are those of ranks on CPUs, to the bit, without a message.  A rank whose
 * device opens no memory keeps all ranks to messages, and all logs have the same line.  A rank that dies in a sum is
 * named by the others.  Nobody frees memory that another process has open, whoever leaves first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../gpu/standin/standin.h"
#include "base/log.h"
#include "base/rng.h"
#include "comm/group.h"
#include "late.h"
#include "plugin_open.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 4u
#define ROWS      UINT64_C(3)
#define COLS      UINT64_C(328)
#define SUMS      4u
#define ROUNDS    3u
#define LONG_US   UINT64_C(60000000) /* only a hang reaches it */
#define SHORT_US                                                                                   \
    UINT64_C(5000000) /* ranks before the one that dies are in time on a busy machine */

static struct tsr_registry    *registry;
static struct tsr_plugin_found found;

struct group {
    const char *codec, *options; /* TSR_STANDIN */
    uint32_t    ranks;
    uint32_t    dies;  /* 1 + the rank that does, in the second round */
    uint32_t    stays; /* 1 + the rank that has the others' memory open for longer than they */
};

/* What a rank leaves for the test. */
struct rank {
    tsr_status          st;
    uint32_t            lines;
    char                text[400], line[400];
    uint64_t            sent, torn;
    struct standin_left left;
    float               got[ROUNDS][SUMS][ROWS * COLS];
};
static struct rank *rank; /* [MAX_RANKS], shared by the processes */

static float number(uint64_t i, uint32_t r, uint32_t round)
{
    uint32_t u[4];
    tsr_philox(u, i, r, 31 + round);
    return (float)(int32_t)u[0] / (float)(1u << (u[1] & 31));
}

/* ---- a rank ------------------------------------------------------------------------- */

struct member {
    uint32_t               rank;
    const struct group    *of;
    struct tsr_comm_group *g;
    void                  *backend;
    struct tsr_tensor      x[SUMS];
};

static void hear(void *ctx, int32_t level, const char *line)
{
    struct rank *r = ctx;
    (void)level;
    if (!strstr(line, "sums over ranks are messages"))
        return;
    r->lines++;
    (void)snprintf(r->line, sizeof r->line, "%s", strstr(line, "sums over"));
}

static tsr_status open_member(struct member *m, const struct tsr_comm_world *w, struct tsr_err *err)
{
    char                    transport[24];
    struct tsr_comm_way     way = { .codec = m->of->codec, .algorithm = TSR_COMM_ALL_GATHER };
    struct tsr_comm_options o = { .deadline_us = m->of->dies ? SHORT_US : LONG_US,
                                  .way = { way, way } };
    (void)snprintf(transport, sizeof transport, "nccl:device=%u", m->rank);
    o.place =
        (struct tsr_comm_place){ transport, m->rank, m->of->ranks, w->shared, w->bytes, 1, NULL };
    late_elsewhere((int)m->rank);
    TSR_TRY(late_open(&m->backend, err));
    TSR_TRY(tsr_comm_group_create(&m->g, registry, &o, err));
    for (uint32_t k = 0; k < SUMS; k++) {
        m->x[k] = (struct tsr_tensor){ .struct_size = sizeof m->x[k],
                                       .dtype = TSR_F32,
                                       .rows = ROWS,
                                       .cols = COLS,
                                       .row_stride = 4 * COLS };
        TSR_TRY(late_table()->buffer_alloc(m->backend, 4 * ROWS * COLS, &m->x[k].buffer, err));
    }
    return tsr_comm_group_reserve(m->g, late_table(), m->backend, ROWS, COLS, 0, SUMS, err);
}

static void close_member(struct member *m)
{
    tsr_comm_group_destroy(m->g);
    for (uint32_t k = 0; m->backend && k < SUMS; k++)
        late_table()->buffer_free(m->backend, m->x[k].buffer);
    if (m->backend)
        late_close(m->backend);
}

static tsr_status round_of(struct member *m, uint32_t round, struct tsr_err *err)
{
    const struct tsr_backend_v1 *b = late_table();
    for (uint32_t k = 0; k < SUMS; k++) {
        float x[ROWS * COLS];
        for (uint64_t i = 0; i < ROWS * COLS; i++)
            x[i] = number(k * ROWS * COLS + i, m->rank, round);
        TSR_TRY(b->upload(m->backend, m->x[k].buffer, 0, x, sizeof x, err));
    }
    for (uint32_t k = 0; k < SUMS; k++) {
        bool done = false;
        TSR_TRY(tsr_comm_group_sum_on(m->g, 1, k, b, m->backend, &m->x[k], &done, err));
        if (!done)
            return tsr_fail(err, TSR_E_UNSUPPORTED, "the sum is not on the device");
        if (m->of->dies == m->rank + 1 && round == 1 && k == 1) {
            standin_run_all(); /* its flag of this sum may be raised, or not */
            (void)raise(SIGKILL);
        }
    }
    for (uint32_t k = 0; k < SUMS; k++)
        TSR_TRY(b->download(m->backend, m->x[k].buffer, 0, rank[m->rank].got[round][k],
                            4 * ROWS * COLS, err));
    return TSR_OK;
}

static void be(uint32_t number_of, const struct group *g, const struct tsr_comm_world *w)
{
    struct rank             *r = &rank[number_of];
    struct member            m = { .rank = number_of, .of = g };
    struct tsr_comm_counters c = { .sums = 0 };
    struct tsr_err           err = { .struct_size = sizeof err, .cap = sizeof r->text };
    err.text = r->text;
    tsr_log_set_level(TSR_LOG_INFO);
    tsr_log_divert(hear, r);
    r->st = open_member(&m, w, &err);
    for (uint32_t round = 0; r->st == TSR_OK && round < ROUNDS; round++)
        r->st = round_of(&m, round, &err);
    if (m.g)
        tsr_comm_group_counters(m.g, &c);
    if (m.g && r->st != TSR_OK)
        tsr_comm_group_abort(m.g);
    if (g->stays == number_of + 1)
        (void)usleep(200000);
    close_member(&m);
    r->sent = c.sent;
    r->torn = standin_count()->torn;
    r->left = standin_left();
    _exit(0); /* what cmocka has to say, its process says */
}

/* ---- a group ------------------------------------------------------------------------ */

static void run(const struct group *g)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_comm_world w;
    pid_t                 pid[MAX_RANKS];
    memset(rank, 0, MAX_RANKS * sizeof *rank);
    assert_int_equal(setenv("TSR_STANDIN", g->options, 1), 0);
    if (tsr_comm_world_create(&w, registry, "nccl", g->ranks, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    for (uint32_t r = 0; r < g->ranks; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] == 0)
            be(r, g, &w);
    }
    for (uint32_t r = 0; r < g->ranks; r++) {
        int status = -1;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        if (g->dies == r + 1)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    tsr_comm_world_close(&w);
}

static void check_sums(const struct group *g, uint32_t rounds)
{
    static float          partial[MAX_RANKS][ROWS * COLS], want[ROWS * COLS];
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_comm_way   way = { .codec = g->codec, .algorithm = TSR_COMM_ALL_GATHER };
    struct tsr_comm_coder coder;
    assert_int_equal(tsr_comm_coder_open(&coder, registry, &way, g->ranks, &e.err), TSR_OK);
    for (uint32_t i = 0; i < rounds * SUMS; i++) {
        const float *p[MAX_RANKS];
        for (uint32_t r = 0; r < g->ranks; r++) {
            for (uint64_t j = 0; j < ROWS * COLS; j++)
                partial[r][j] = number(i % SUMS * ROWS * COLS + j, r, i / SUMS);
            p[r] = partial[r];
        }
        assert_int_equal(tsr_comm_sum_simulated(&coder, i % SUMS, p, ROWS, COLS, want, &e.err),
                         TSR_OK);
        for (uint32_t r = 0; r < g->ranks; r++)
            if (memcmp((const void *)rank[r].got[i / SUMS][i % SUMS], (const void *)want,
                       sizeof want) != 0)
                fail_msg("%s, %u processes: rank %u leaves sum %u of round %u with other numbers",
                         g->codec, g->ranks, r, i % SUMS, i / SUMS);
    }
    tsr_comm_coder_close(&coder);
}

/* All ranks came to the end, and gave everything back. */
static void check_end(const struct group *g)
{
    for (uint32_t r = 0; r < g->ranks; r++) {
        const struct standin_left *l = &rank[r].left;
        if (rank[r].st != TSR_OK)
            fail_msg("rank %u: %s", r, rank[r].text);
        assert_int_equal(l->contexts + l->blocks + l->streams + l->events + l->opened, 0);
        assert_int_equal(rank[r].torn, 0);
    }
}

/* ---- tests -------------------------------------------------------------------------- */

static void test_sums(void **state)
{
    static const struct group groups[] = {
        { "plain", "devices=4", 2, 0, 0 },
        { "plain:dtype=bf16", "devices=4", 4, 0, 0 },
        { "plain:dtype=f16", "devices=4", 3, 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        run(&groups[i]);
        check_end(&groups[i]);
        check_sums(&groups[i], ROUNDS);
        for (uint32_t r = 0; r < groups[i].ranks; r++) {
            assert_int_equal(rank[r].sent, 0);
            assert_int_equal(rank[r].lines, 0);
        }
    }
}

/* One device opens nothing, or none sees another's memory: messages for all, and the same line in all logs. */
static void test_closed(void **state)
{
    static const struct group groups[] = {
        { "plain", "devices=4,closed=0", 2, 0, 0 },
        { "plain", "devices=4,closed=1", 3, 0, 0 },
        { "plain:dtype=bf16", "devices=4,closed=3", 4, 0, 0 },
        { "plain", "devices=4,nopeers", 3, 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        run(&groups[i]);
        check_end(&groups[i]);
        check_sums(&groups[i], ROUNDS);
        print_message("%s: %s\n", groups[i].options, rank[0].line);
        for (uint32_t r = 0; r < groups[i].ranks; r++) {
            assert_true(rank[r].sent > 0);
            assert_int_equal(rank[r].lines, 1);
            assert_string_equal(rank[r].line, rank[0].line);
        }
        assert_non_null(strstr(rank[0].line, "do not see each other's memory"));
    }
}

/* The others wait for their group's deadline and end. */
static void test_death(void **state)
{
    static const struct group groups[] = {
        { "plain", "devices=4", 2, 2, 0 },
        { "plain", "devices=4", 4, 1, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        char who[16];
        run(&groups[i]);
        (void)snprintf(who, sizeof who, "rank %u", groups[i].dies - 1);
        for (uint32_t r = 0; r < groups[i].ranks; r++) {
            if (r + 1 == groups[i].dies)
                continue;
            print_message("rank %u: %s\n", r, rank[r].text);
            assert_true(rank[r].st == TSR_E_DEVICE || rank[r].st == TSR_E_CANCELLED);
            assert_int_equal(rank[r].torn, 0);
            if (rank[r].st == TSR_E_DEVICE)
                assert_non_null(strstr(rank[r].text, who));
        }
    }
}

static void test_order(void **state)
{
    (void)state;
    for (uint32_t stays = 1; stays <= 3; stays++) {
        const struct group g = { "plain", "devices=4", 3, 0, stays };
        run(&g);
        check_end(&g);
        check_sums(&g, ROUNDS);
    }
}

static int open_all(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *p = mmap(NULL, MAX_RANKS * sizeof *rank, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    registry = open_plugin(TSR_KIND_TRANSPORT, "nccl", &found);
    if (p == MAP_FAILED || late_use(registry, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    rank = p;
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sums), cmocka_unit_test(test_closed),
                                        cmocka_unit_test(test_death),
                                        cmocka_unit_test(test_order) };
    return cmocka_run_group_tests_name("cuda-nccl-window-processes", tests, open_all, close_all);
}
