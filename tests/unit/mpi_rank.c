/* One rank of an MPI job: `mpirun -n N mpi_rank`.  Sums as the simulated group has them, messages of
 * all sizes, and what happens when ranks disagree, are late or abort.  Exit status 0: all held. */
#include "../fixtures/error_is.h"
#include "base/clock.h"
#include "base/rng.h"
#include "comm/group.h"
#include "comm/link.h"

#include <stdlib.h>
#include <string.h>

#define LONG_US UINT64_C(30000000) /* only a hang reaches it */

static uint32_t             rank, ranks;
static struct tsr_registry *registry;
static struct tsr_errbuf    e = TSR_ERRBUF(e);

#define CHECK(c)                                                                                   \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            (void)fprintf(stderr, "rank %u: line %d: %s: %s\n", rank, __LINE__, #c, e.text);       \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static void fill(float *x, uint64_t seed, uint32_t r, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t u[4];
        tsr_philox(u, i, r, seed);
        x[i] = ((float)(u[0] & 0xffffff) - 8388608.0f) / (float)(1u << (u[1] & 31));
    }
}

static struct tsr_comm_place place(const char *transport)
{
    return (struct tsr_comm_place){ .transport = transport, .rank = rank, .ranks = ranks };
}

/* ---- sums ---------------------------------------------------------------- */

static bool one_sum(struct tsr_comm_group *g, const struct tsr_comm_coder *c, uint64_t rows,
                    uint64_t cols)
{
    uint64_t n = rows * cols;
    float   *all = calloc((size_t)(n * ranks + n), sizeof *all), *want = calloc(n, sizeof *want);
    const float *partial[TSR_COMM_MAX_RANKS];
    CHECK(all && want);
    float *x = all + n * ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        fill(all + n * r, rows, r, n);
        partial[r] = all + n * r;
    }
    memcpy(x, partial[rank], n * sizeof *x);
    CHECK(tsr_comm_sum_simulated(c, 3, partial, rows, cols, want, &e.err) == TSR_OK);
    CHECK(tsr_comm_group_sum(g, 0, 3, x, rows, cols, &e.err) == TSR_OK);
    CHECK(memcmp(x, want, n * sizeof *x) == 0);
    free(all);
    free(want);
    return true;
}

static bool sums(void)
{
    static const char *const codecs[] = { NULL, "plain:dtype=bf16" };
    for (int a = 0; a < 2; a++)
        for (int k = 0; k < 2; k++) {
            struct tsr_comm_way      way = { .codec = codecs[k],
                                             .algorithm = (enum tsr_comm_algorithm)a,
                                             .piece = 65536 };
            struct tsr_comm_options  o = { .place = place(k ? "mpi:tag=3" : "mpi"),
                                           .deadline_us = LONG_US,
                                           .way = { way, way } };
            struct tsr_comm_group   *g;
            struct tsr_comm_coder    c;
            struct tsr_comm_counters n;
            CHECK(tsr_comm_group_create(&g, registry, &o, &e.err) == TSR_OK);
            CHECK(tsr_comm_coder_open(&c, registry, &way, ranks, &e.err) == TSR_OK);
            CHECK(one_sum(g, &c, 1, 512) && one_sum(g, &c, 3, 100) && one_sum(g, &c, 333, 832));
            tsr_comm_group_counters(g, &n);
            CHECK(n.counted && n.sent == n.declared && n.sent > 0 && n.refused == 0);
            tsr_comm_coder_close(&c);
            tsr_comm_group_destroy(g);
        }
    return true;
}

/* ---- links --------------------------------------------------------------- */

static bool links(void)
{
    enum { COLS = 1000, ROWS = 700 };
    struct tsr_comm_link_options o = { .place = place("mpi:tag=9") };
    struct tsr_comm_link        *l;
    uint32_t                     to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    struct tsr_comm_transfer    *out[4], *in[4];
    static float                 x[4][ROWS * COLS], want[ROWS * COLS];
    CHECK(tsr_comm_link_create(&l, registry, &o, &e.err) == TSR_OK);
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t rows = i ? ROWS / i : 0;
        fill(want, i, rank, rows * COLS);
        CHECK(tsr_comm_link_recv(l, 0, 1, from, x[i], rows, COLS, &in[i], &e.err) == TSR_OK);
        CHECK(tsr_comm_link_send(l, 0, 1, to, want, rows, COLS, &out[i], &e.err) == TSR_OK);
    }
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t rows = i ? ROWS / i : 0;
        CHECK(tsr_comm_link_wait_for(l, in[i], LONG_US, &e.err) == TSR_OK);
        CHECK(tsr_comm_link_wait_for(l, out[i], LONG_US, &e.err) == TSR_OK);
        fill(want, i, from, rows * COLS);
        CHECK(memcmp(x[i], want, rows * COLS * sizeof(float)) == 0);
    }
    tsr_comm_link_destroy(l);
    return true;
}

/* ---- what goes wrong ------------------------------------------------------ */

/* Rank 0 is the one that does not do its part; then all meet again in another group. */
static bool late(void)
{
    struct tsr_comm_options o = { .place = place("mpi:tag=20"), .deadline_us = 300000 };
    struct tsr_comm_group  *g;
    float                   x[64] = { 0 };
    uint64_t                start = tsr_now_us();
    CHECK(tsr_comm_group_create(&g, registry, &o, &e.err) == TSR_OK);
    if (rank > 0) {
        tsr_status st = tsr_comm_group_sum(g, 1, 0, x, 1, 64, &e.err);
        CHECK(st == TSR_E_DEVICE || st == TSR_E_CANCELLED);
        CHECK(st == TSR_E_CANCELLED || text_has(e.text, "for#rank#0"));
        CHECK(tsr_now_us() - start < LONG_US);
        CHECK(tsr_comm_group_sum(g, 1, 0, x, 1, 64, &e.err) == TSR_E_CANCELLED);
    }
    tsr_comm_group_destroy(g);
    return true;
}

static bool aborted(void)
{
    struct tsr_comm_options o = { .place = place("mpi:tag=21"), .deadline_us = LONG_US };
    struct tsr_comm_group  *g;
    float                   x[64] = { 0 };
    CHECK(tsr_comm_group_create(&g, registry, &o, &e.err) == TSR_OK);
    if (rank == 0) {
        tsr_comm_group_abort(g);
        CHECK(tsr_comm_group_sum(g, 1, 0, x, 1, 64, &e.err) == TSR_E_CANCELLED);
    } else {
        CHECK(tsr_comm_group_sum(g, 1, 0, x, 1, 64, &e.err) == TSR_E_CANCELLED);
        CHECK(error_is(&e.err, "decode, layer 0, sum of attention", "rank#0"));
    }
    tsr_comm_group_destroy(g);
    return true;
}

static bool disagree(void)
{
    struct tsr_comm_link_options o = { .place = place("mpi:tag=22") };
    struct tsr_comm_link        *l;
    struct tsr_comm_transfer    *t;
    char                         buf[64] = "twelve bytes";
    o.place.epoch = rank == 0 ? 5 : 6;
    for (int k = 0; k < 3; k++) { /* fewer bytes than asked for, more, another epoch */
        char spec[32];
        (void)snprintf(spec, sizeof spec, "mpi:tag=%d", 22 + k);
        o.place.transport = spec;
        if (k < 2)
            o.place.epoch = 5;
        else
            o.place.epoch = rank == 0 ? 5 : 6;
        CHECK(tsr_comm_link_create(&l, registry, &o, &e.err) == TSR_OK);
        if (rank == 1)
            CHECK(tsr_comm_link_send_bytes(l, 0, buf, 12, &t, &e.err) == TSR_OK &&
                  tsr_comm_link_wait_for(l, t, LONG_US, &e.err) == TSR_OK);
        if (rank == 0) {
            uint64_t ask = k == 0 ? 13 : k == 1 ? 11 : 12;
            CHECK(tsr_comm_link_recv_bytes(l, 1, buf, ask, &t, &e.err) == TSR_OK);
            CHECK(tsr_comm_link_wait_for(l, t, LONG_US, &e.err) == TSR_E_DEVICE);
            CHECK(text_has(e.text, k == 2 ? "epoch" : "0 1 order"));
            CHECK(memcmp(buf, "twelve bytes", 12) == 0);
        }
        tsr_comm_link_destroy(l);
    }
    return true;
}

static bool refusals(void)
{
    struct tsr_comm_link_options o = { .place = place("mpi:first=1") };
    struct tsr_comm_link        *l;
    CHECK(tsr_comm_link_create(&l, registry, &o, &e.err) == TSR_E_INPUT);
    CHECK(error_is(&e.err, "", "MPI mpirun"));
    o.place.transport = "mpi";
    o.place.rank = (rank + 1) % ranks;
    CHECK(tsr_comm_link_create(&l, registry, &o, &e.err) == TSR_E_INPUT);
    CHECK(error_is(&e.err, "", "MPI"));
    return true;
}

static uint32_t number(const char *name)
{
    const char *text = getenv(name);
    return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

int main(void)
{
    rank = number("OMPI_COMM_WORLD_RANK");
    ranks = number("OMPI_COMM_WORLD_SIZE");
    if (ranks < 2) {
        (void)fprintf(stderr, "start it with mpirun -n 2 or more\n");
        return 2;
    }
    bool ok = tsr_plugin_registry_create(&registry, NULL, &e.err) == TSR_OK &&
              tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) == TSR_OK &&
              sums() && links() && refusals() && late() && aborted() && disagree() && sums();
    if (!ok)
        (void)fprintf(stderr, "rank %u failed: %s\n", rank, e.text);
    tsr_plugin_registry_destroy(registry);
    return ok ? 0 : 1;
}
