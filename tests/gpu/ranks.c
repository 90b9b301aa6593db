/* ranks.c - sums over ranks whose numbers lie on a backend's device: processes, each with a host id of its
 * own, so that NCCL takes them for hosts and lets them share a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "comm/group.h"
#include "config/config.h"
#include "ranks.h"

#define DEADLINE_US UINT64_C(20000000)
#define MOST        8u
#define ROWS        37u
#define MOST_COLS   1096u
#define SITE        3u

/* A group for each: more ranks, whose communicators take longer, have fewer. */
static const char *const codecs[] = { "mx", "int4_bf16", "plain", "plain:dtype=bf16",
                                      "mx:element=fp8_e4m3,block=16" };
#define CODECS (sizeof codecs / sizeof *codecs)
static uint64_t groups_of(uint32_t ranks)
{
    return ranks == 2 ? CODECS : ranks <= 4 ? 2 : 1;
}

/* Slices of different sizes, no multiple of a block: messages between pairs; with many ranks slices of
 * one size: collectives. */
static uint64_t cols_of(uint32_t ranks)
{
    return ranks <= 4 ? MOST_COLS : 1024;
}

struct rank {
    const struct ranks_options  *o;
    struct tsr_registry         *registry;
    const struct tsr_backend_v1 *t;
    void                        *self;
    struct tsr_plugin_spec       spec;
    uint32_t                     rank;
    uint64_t                     cols, n; /* of x, and numbers in it */
    struct tsr_tensor            x;
    struct tsr_errbuf            err;
};

/* ---- a way, the same in every rank ---------------------------------------------------------------- */

struct way {
    struct tsr_comm_way   way;
    struct tsr_comm_coder coder;
    struct tsr_comm_state states[2 * MOST];
    float                *partial[MOST], *want;
};

static tsr_status calibrate(struct way *w, uint32_t ranks, uint64_t cols, struct tsr_err *err)
{
    const struct tsr_codec_v1 *t = w->coder.iface;
    const float               *partial[MOST];
    for (uint32_t r = 0; r < ranks; r++)
        partial[r] = w->partial[r];
    TSR_TRY(tsr_comm_sum_observe(&w->coder, SITE, partial, ROWS, cols, err));
    for (uint64_t i = 0; i < tsr_comm_instances(w->coder.algorithm, ranks); i++) {
        TSR_TRY(t->freeze(w->coder.self[i], err));
        w->states[i].bytes = t->state_bytes(w->coder.self[i]);
        void *state = malloc(w->states[i].bytes);
        if (!state)
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: a state");
        w->states[i].data = state;
        TSR_TRY(t->save(w->coder.self[i], state, err));
        w->way.n_states = i + 1;
    }
    w->way.states = w->states;
    return TSR_OK;
}

static tsr_status open_way(struct way *w, const struct rank *r, const char *codec,
                           enum tsr_comm_algorithm a, struct tsr_err *err)
{
    uint32_t ranks = r->o->ranks;
    *w = (struct way){ .way = { .codec = codec, .algorithm = a, .piece = 16 * r->cols * 4 } };
    w->want = malloc(r->n * sizeof *w->want);
    for (uint32_t k = 0; k < ranks; k++) {
        w->partial[k] = malloc(r->n * sizeof *w->partial[k]);
        if (!w->want || !w->partial[k])
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: a sum");
        for (uint64_t i = 0; i < r->n; i++)
            w->partial[k][i] = (float)(tsr_uniform(r->o->seed, k, i) * 8 - 4);
    }
    TSR_TRY(tsr_comm_coder_open(&w->coder, r->registry, &w->way, ranks, err));
    if (w->coder.iface->observe)
        TSR_TRY(calibrate(w, ranks, r->cols, err));
    const float *partial[MOST];
    for (uint32_t k = 0; k < ranks; k++)
        partial[k] = w->partial[k];
    return tsr_comm_sum_simulated(&w->coder, SITE, partial, ROWS, r->cols, w->want, err);
}

static void close_way(struct way *w)
{
    for (uint64_t i = 0; i < w->way.n_states; i++)
        free((void *)(uintptr_t)w->states[i].data);
    for (uint32_t k = 0; k < MOST; k++)
        free(w->partial[k]);
    free(w->want);
    tsr_comm_coder_close(&w->coder);
}

/* ---- a rank ---------------------------------------------------------------------------------------- */

static tsr_status open_backend(struct rank *r, struct tsr_err *err)
{
    TSR_TRY(tsr_plugin_spec_backend(&r->spec, r->registry, r->o->backend, TSR_NUMERICS_EXACT, err));
    r->t = r->spec.found.iface;
    TSR_TRY(r->t->create(tsr_plugin_registry_host(r->registry), r->spec.options, &r->self, err));
    r->x = (struct tsr_tensor){ .struct_size = sizeof r->x,
                                .dtype = TSR_F32,
                                .rows = ROWS,
                                .cols = r->cols,
                                .row_stride = 4 * r->cols };
    return r->t->buffer_alloc(r->self, 4 * r->n, &r->x.buffer, err);
}

static tsr_status sum(struct rank *r, struct tsr_comm_group *g, uint32_t phase, float *x,
                      struct tsr_err *err)
{
    uint64_t bytes = r->n * sizeof *x;
    bool     done = false;
    TSR_TRY(r->t->upload(r->self, r->x.buffer, 0, x, bytes, err));
    TSR_TRY(tsr_comm_group_sum_on(g, phase, SITE, r->t, r->self, &r->x, &done, err));
    if (done != r->o->on_device)
        return tsr_fail(err, TSR_E_DEVICE, "the sum was made %s",
                        done ? "on the device" : "through the host; tessera run -v says why");
    if (!done)
        return tsr_comm_group_sum(g, phase, SITE, x, ROWS, r->cols, err);
    return r->t->download(r->self, r->x.buffer, 0, x, bytes, err);
}

/* One group: all-gather as its first phase, two-step as its second. */
static tsr_status one(struct rank *r, const char *codec, const struct tsr_comm_world *world,
                      struct tsr_err *err)
{
    struct way             w[2] = { { .want = NULL }, { .want = NULL } };
    struct tsr_comm_group *g = NULL;
    tsr_status             st = open_way(&w[0], r, codec, TSR_COMM_ALL_GATHER, err);
    if (st == TSR_OK)
        st = open_way(&w[1], r, codec, TSR_COMM_TWO_STEP, err);
    if (st == TSR_OK) {
        struct tsr_comm_options o = { .place = { .transport = r->o->transport,
                                                 .rank = r->rank,
                                                 .ranks = r->o->ranks,
                                                 .shared = world->shared,
                                                 .shared_bytes = world->bytes },
                                      .deadline_us = DEADLINE_US,
                                      .way = { w[0].way, w[1].way } };
        st = tsr_comm_group_create(&g, r->registry, &o, err);
    }
    for (uint32_t p = 0; p < 2 && st == TSR_OK; p++) {
        st = sum(r, g, p, w[p].partial[r->rank], err);
        if (st == TSR_OK && memcmp(w[p].partial[r->rank], w[p].want, r->n * sizeof(float)) != 0)
            st = tsr_fail(err, TSR_E_NUMERIC, "%s: another sum than ranks on CPUs make",
                          tsr_comm_algorithm_name(w[p].way.algorithm));
    }
    tsr_comm_group_destroy(g);
    close_way(&w[0]);
    close_way(&w[1]);
    return st == TSR_OK ? st
                        : tsr_err_prefix(err, st, "rank %u of %u, %s", r->rank, r->o->ranks, codec);
}

static int work(struct rank *r, const struct tsr_comm_world *worlds)
{
    char       id[32];
    tsr_status st;
    (void)snprintf(id, sizeof id, "tessera-rank-%u", r->rank);
    (void)setenv("NCCL_HOSTID", id, 1);
    r->err = (struct tsr_errbuf)TSR_ERRBUF(r->err);
    st = open_backend(r, &r->err.err);
    for (uint64_t i = 0; i < groups_of(r->o->ranks) && st == TSR_OK; i++)
        st = one(r, codecs[i], &worlds[i], &r->err.err);
    if (st != TSR_OK)
        (void)fprintf(stderr, "gpu_check: %s\n", r->err.text);
    if (r->self) {
        r->t->buffer_free(r->self, r->x.buffer);
        r->t->destroy(r->self);
    }
    tsr_plugin_spec_close(&r->spec);
    return st == TSR_OK ? 0 : strstr(r->err.text, "Duplicate GPU") ? RANKS_REFUSED : 1;
}

int ranks_check(struct tsr_registry *registry, const struct ranks_options *o, struct tsr_err *err)
{
    struct tsr_comm_world worlds[CODECS];
    pid_t                 pid[MOST];
    int                   rc = 0, refused = 0;
    uint64_t              n = 0, groups = groups_of(o->ranks);
    tsr_status            st = o->ranks < 2 || o->ranks > MOST
                                   ? tsr_fail(err, TSR_E_INPUT, "%u ranks; 2 to %u", o->ranks, MOST)
                                   : TSR_OK;
    while (n < groups && st == TSR_OK) {
        st = tsr_comm_world_create(&worlds[n], registry, o->transport, o->ranks, err);
        n += st == TSR_OK;
    }
    uint32_t started = 0;
    (void)fflush(NULL);
    for (; st == TSR_OK && started < o->ranks; started++) {
        pid[started] = fork();
        if (pid[started] == 0) {
            struct rank r = { .o = o, .registry = registry, .rank = started };
            r.cols = cols_of(o->ranks);
            r.n = ROWS * r.cols;
            _exit(work(&r, worlds));
        }
        if (pid[started] < 0) {
            st = tsr_fail(err, TSR_E_NOMEM, "cannot fork a rank");
            break;
        }
    }
    for (uint32_t r = 0; r < started; r++) {
        int status = 0;
        if (waitpid(pid[r], &status, 0) != pid[r] || !WIFEXITED(status))
            rc = 2;
        else if (WEXITSTATUS(status) == RANKS_REFUSED)
            refused = 1;
        else if (WEXITSTATUS(status) != 0 && !rc)
            rc = 1;
    }
    if (refused && rc == 1) /* the others were told that the group is over */
        rc = 0;
    rc = rc ? 1 : refused ? RANKS_REFUSED : 0;
    while (n > 0)
        tsr_comm_world_close(&worlds[--n]);
    if (st != TSR_OK)
        return st == TSR_E_DEVICE ? 6 : 1;
    if (rc == 0)
        (void)printf("%u ranks: %u sums are those of ranks on CPUs, %s\n", o->ranks,
                     2 * (unsigned)groups, o->on_device ? "on the device" : "through the host");
    return rc;
}
