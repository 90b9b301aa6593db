/* sums.c - what a sum over two ranks takes in memory that their devices see of each other: a process and a device for
 * each. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/group.h"
#include "ranks.h"

#define RANKS       2u
#define DEADLINE_US UINT64_C(20000000)
#define ROUNDS      5u /* the shortest counts; the first one meets */

static const uint64_t bytes_of[] = { 16384, 65536, 524288 };
#define SIZES (sizeof bytes_of / sizeof *bytes_of)

/* What a rank tells. */
struct told {
    bool   messages;
    double us[SIZES];
    char   text[400];
};

struct rank {
    const struct ranks_options  *o;
    struct tsr_registry         *registry;
    const struct tsr_backend_v1 *t;
    void                        *self;
    struct tsr_plugin_spec       spec;
    struct tsr_comm_group       *g;
    struct tsr_tensor            x;
    float                       *here;
};

static tsr_status open_rank(struct rank *r, uint32_t rank, const struct tsr_comm_world *w,
                            struct tsr_err *err)
{
    char                    backend[32], transport[32];
    struct tsr_comm_way     way = { .codec = "plain", .algorithm = TSR_COMM_ALL_GATHER };
    struct tsr_comm_options o = { .deadline_us = DEADLINE_US, .way = { way, way } };
    const uint64_t          most = bytes_of[SIZES - 1];
    (void)snprintf(backend, sizeof backend, "%s:device=%u", r->o->backend, rank);
    (void)snprintf(transport, sizeof transport, "%s:device=%u", r->o->transport, rank);
    TSR_TRY(tsr_plugin_spec_backend(&r->spec, r->registry, backend, TSR_NUMERICS_EXACT, err));
    r->t = r->spec.found.iface;
    TSR_TRY(r->t->create(tsr_plugin_registry_host(r->registry), r->spec.options, &r->self, err));
    o.place = (struct tsr_comm_place){ .transport = transport,
                                       .rank = rank,
                                       .ranks = RANKS,
                                       .shared = w->shared,
                                       .shared_bytes = w->bytes };
    TSR_TRY(tsr_comm_group_create(&r->g, r->registry, &o, err));
    r->here = malloc(most);
    if (!r->here)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a sum");
    r->x = (struct tsr_tensor){ .struct_size = sizeof r->x, .dtype = TSR_F32, .rows = 1 };
    TSR_TRY(r->t->buffer_alloc(r->self, most, &r->x.buffer, err));
    return tsr_comm_group_reserve(r->g, r->t, r->self, 1, most / 4, 0, 1, err);
}

/* All ranks have the same numbers, which every sum doubles, without rounding. */
static tsr_status chain(struct rank *r, uint64_t bytes, uint64_t sums, double *us,
                        struct tsr_err *err)
{
    const uint64_t n = bytes / 4;
    for (uint64_t i = 0; i < n; i++)
        r->here[i] = (float)(i % 251 + 1);
    r->x.cols = n;
    r->x.row_stride = bytes;
    TSR_TRY(r->t->upload(r->self, r->x.buffer, 0, r->here, bytes, err));
    const uint64_t start = tsr_now_us();
    for (uint64_t k = 0; k < sums; k++) {
        bool done = false;
        TSR_TRY(tsr_comm_group_sum_on(r->g, 1, 0, r->t, r->self, &r->x, &done, err));
        if (!done)
            return tsr_fail(err, TSR_E_UNSUPPORTED, "sums go through the host");
    }
    TSR_TRY(r->t->download(r->self, r->x.buffer, 0, r->here, bytes, err));
    const double took = (double)(tsr_now_us() - start) / (double)sums;
    *us = *us == 0 || took < *us ? took : *us;
    for (uint64_t i = 0; i < n; i++)
        if (!(r->here[i] == (float)(i % 251 + 1) * (float)(UINT64_C(1) << sums)))
            return tsr_fail(err, TSR_E_NUMERIC, "number %llu of a sum is %g", (unsigned long long)i,
                            (double)r->here[i]);
    return TSR_OK;
}

static tsr_status measure(struct rank *r, uint64_t sums, struct told *told, struct tsr_err *err)
{
    struct tsr_comm_counters c;
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < SIZES; i++) {
            double first = 0;
            TSR_TRY(chain(r, bytes_of[i], sums, round ? &told->us[i] : &first, err));
        }
    tsr_comm_group_counters(r->g, &c);
    told->messages = c.sent != 0;
    return TSR_OK;
}

static int be(const struct ranks_options *o, struct tsr_registry *registry, uint32_t rank,
              const struct tsr_comm_world *w, struct told *told)
{
    struct rank    r = { .o = o, .registry = registry };
    struct tsr_err err = { .struct_size = sizeof err,
                           .cap = sizeof told->text,
                           .text = told->text };
    tsr_status     st = open_rank(&r, rank, w, &err);
    if (st == TSR_OK)
        st = measure(&r, o->seed, told, &err);
    if (st != TSR_OK && r.g)
        tsr_comm_group_abort(r.g);
    tsr_comm_group_destroy(r.g);
    if (r.x.buffer)
        r.t->buffer_free(r.self, r.x.buffer);
    if (r.self)
        r.t->destroy(r.self);
    tsr_plugin_spec_close(&r.spec);
    free(r.here);
    return st == TSR_OK ? 0 : 1;
}

int sums_measure(struct tsr_registry *registry, const struct ranks_options *o, struct tsr_err *err)
{
    struct tsr_comm_world w;
    pid_t                 pid[RANKS];
    int                   rc = 0;
    struct told          *told =
        mmap(NULL, RANKS * sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED ||
        tsr_comm_world_create(&w, registry, o->transport, RANKS, err) != TSR_OK)
        return 1;
    (void)fflush(NULL);
    for (uint32_t r = 0; r < RANKS; r++) {
        pid[r] = fork();
        if (pid[r] == 0)
            _exit(be(o, registry, r, &w, &told[r]));
    }
    for (uint32_t r = RANKS; r-- > 0;) {
        int status = 0;
        if (pid[r] > 0 && waitpid(pid[r], &status, 0) == pid[r] && WIFEXITED(status) &&
            WEXITSTATUS(status) == 0)
            continue;
        if (!rc) { /* the others are ended */
            (void)fprintf(stderr, "gpu_check: rank %u: %s\n", r, told[r].text);
            rc = strstr(told[r].text, "there is no CUDA device 1,") ? SUMS_ALONE : 1;
        }
        for (uint32_t other = 0; other < r; other++)
            if (pid[other] > 0)
                (void)kill(pid[other], SIGKILL);
    }
    if (rc == 0 && told[0].messages)
        rc = SUMS_MESSAGES;
    for (size_t i = 0; i < SIZES && rc == 0; i++)
        (void)printf("{\"sum_bytes\": %llu, \"ranks\": %u, \"us\": %.2f}\n",
                     (unsigned long long)bytes_of[i], RANKS,
                     told[0].us[i] > told[1].us[i] ? told[0].us[i] : told[1].us[i]);
    tsr_comm_world_close(&w);
    (void)munmap(told, RANKS * sizeof *told);
    return rc;
}
