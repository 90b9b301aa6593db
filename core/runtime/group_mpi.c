/* Ranks as processes of an MPI job: the connections and transports of each, and running a single rank. */
#include "base/mem.h"
#include "runtime/group_internal.h"
#include "runtime/peers.h"

#include <time.h>

/* Tag 0 is of the beats (peers_beat.c). */
tsr_status tsr_runtime_group_mpi(struct tsr_runtime_group *c, struct tsr_err *err)
{
    const struct tsr_runtime_layout *l = c->plan.layout;
    uint32_t                         tag = 1, n = l->replicas * l->n_stages;
    if (c->ranks != tsr_runtime_peers_ranks(c->plan.peers))
        return tsr_fail(
            err, TSR_E_INPUT,
            "the plan has %u ranks, %u processes were started; start it with `mpirun -n "
            "%u`",
            c->ranks, tsr_runtime_peers_ranks(c->plan.peers), c->ranks);
    if (c->plan.epoch == 0)
        return tsr_fail(err, TSR_E_BUG, "a group of MPI ranks without an epoch");
    if (c->plan.pacing)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "emulated devices are ranks of one machine; run the job without mpirun");
    c->plan.group_over = tsr_new(n, sizeof *c->plan.group_over);
    if (!c->plan.group_over)
        return tsr_fail_nomem(err, n * sizeof *c->plan.group_over, "links");
    for (uint32_t i = 0; i < c->plan.n_edges; i++) {
        struct tsr_runtime_edge *e = &c->edges[i];
        for (int k = 0; k < 2; k++, tag++)
            (void)snprintf(e->mpi[k], sizeof e->mpi[k], "mpi:first=%u,stride=%d,tag=%u", e->from,
                           (int)e->to - (int)e->from, tag);
        e->heads_over = e->mpi[0];
        e->rows_over = e->mpi[1];
    }
    for (uint32_t i = 0; i < n; i++, tag++)
        (void)snprintf(c->plan.group_over[i], sizeof *c->plan.group_over, "mpi:first=%u,tag=%u",
                       tsr_runtime_layout_rank(l, i / l->n_stages, i % l->n_stages, 0), tag);
    return TSR_OK;
}

tsr_status tsr_runtime_group_serve(struct tsr_runtime_group *c, struct tsr_err *err)
{
    struct tsr_runtime_peers  *m = c->plan.peers;
    struct tsr_runtime_member *own = &c->member[tsr_runtime_peers_rank(m)];
    uint64_t                   told = 0; /* to end */
    while (!atomic_load(&c->handle.over)) {
        tsr_runtime_group_sample(c); /* rank 0 sees it by the beats */
        if (tsr_runtime_page_failed(c->plan.page) || tsr_runtime_peers_over(m) ||
            tsr_plugin_cancelled()) {
            tsr_runtime_rank_abort(&c->handle);
            told = told ? told : tsr_runtime_now_ns();
        }
        if (told && tsr_runtime_group_late(c, own->rank, told))
            tsr_runtime_group_give_up(c, own->rank);
        (void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    }
    (void)pthread_join(own->thread, NULL);
    own->gone = true;
    tsr_status st = tsr_runtime_page_failure(c->plan.page, err);
    if (st == TSR_OK && tsr_plugin_cancelled())
        st = tsr_fail(err, TSR_E_CANCELLED, "interrupted");
    if (st == TSR_OK && tsr_runtime_peers_over(m))
        st = tsr_fail(err, TSR_E_DEVICE, "ended by rank 0");
    return st == TSR_OK ? tsr_runtime_peers_done(m, err) : st;
}
