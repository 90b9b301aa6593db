/* Ends the ranks.  Each wait for one has a limit: a process is killed then, a thread, which cannot be, takes
 * this process with it. */
#include "base/event.h"
#include "base/mem.h"
#include "batch/watch.h"
#include "runtime/group_internal.h"
#include "runtime/peers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SOON_NS UINT64_C(500000000)   /* for a process of a group that has failed */
#define KILL_NS UINT64_C(10000000000) /* for a process that was killed */

/* ---- ranks that do not return ---------------------------------------------------- */

/* After SIGKILL: a process that waits for a disk or a driver does not end before that answers. */
static void reap(struct tsr_runtime_group *c, struct tsr_runtime_member *m)
{
    uint64_t start = tsr_runtime_now_ns();
    pid_t    got;
    (void)kill(m->pid, SIGKILL);
    while ((got = waitpid(m->pid, &m->exit, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (tsr_runtime_now_ns() - start > KILL_NS) {
            struct tsr_err_sent why = { .status = TSR_E_DEVICE };
            (void)snprintf(why.text, sizeof why.text,
                           "its process %d was killed and has not ended for %.0f s: it waits for a "
                           "disk or a driver",
                           (int)m->pid, (double)KILL_NS / 1e9);
            /* also where the first failure is another */
            tsr_runtime_group_say(c, m->rank, "rank-remains", why.text);
            tsr_runtime_page_fail(c->plan.page, m->rank, &why);
            break;
        }
        tsr_runtime_group_nap();
    }
    m->gone = true;
}

/* Waits for a rank that was ordered to end. */
static void join(struct tsr_runtime_group *c, struct tsr_runtime_member *m, uint64_t ended_ns,
                 bool soon)
{
    char text[200];
    if (!m->started || m->gone)
        return;
    while (!m->gone && !(!m->pid && atomic_load(&m->returned)) &&
           !tsr_runtime_group_late(c, m->rank, ended_ns) &&
           !(m->pid && soon && tsr_runtime_now_ns() - ended_ns > SOON_NS)) {
        tsr_runtime_group_sample(c);
        tsr_runtime_group_look_after(c);
        tsr_runtime_group_beat(c);
        tsr_runtime_group_nap();
    }
    if (m->gone)
        return;
    if (!m->pid) {
        if (!atomic_load(&m->returned))
            tsr_runtime_group_give_up(c, m->rank);
        (void)pthread_join(m->thread, NULL);
        m->gone = true;
        return;
    }
    if (!soon) {
        tsr_runtime_progress_describe(&c->plan.page->rank[m->rank].progress, tsr_runtime_now_ns(),
                                      text, sizeof text);
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), ", and was asked to end");
        tsr_runtime_group_fail(c, m->rank, text);
    }
    reap(c, m);
}

static void join_feeder(struct tsr_runtime_group *c, struct tsr_runtime_feeder *f,
                        uint64_t ended_ns)
{
    const struct tsr_runtime_edge *e = f->end.edge;
    while (f->started && !atomic_load(&f->returned)) {
        if (tsr_runtime_now_ns() - ended_ns > 2 * tsr_group_stall_ns(c)) {
            struct tsr_errbuf why = TSR_ERRBUF(why);
            (void)tsr_runtime_page_failure(c->plan.page, &why.err);
            tsr_event_end(TSR_E_DEVICE,
                          "%s%sthe link between ranks %u and %u does not end %.1f s after it was "
                          "asked to: this process ends",
                          why.text, *why.text ? "; " : "", e->from, e->to,
                          (double)(tsr_runtime_now_ns() - ended_ns) / 1e9);
        }
        tsr_runtime_group_nap();
    }
    if (f->started)
        (void)pthread_join(f->thread, NULL);
    f->started = false;
}

static void join_all(struct tsr_runtime_group *c, bool soon)
{
    uint64_t told = tsr_runtime_now_ns();
    tsr_batch_watch_ranks(true); /* each wait has its limit here */
    for (uint32_t i = 0; c->member && i < c->ranks; i++)
        join(c, &c->member[i], told, soon);
    told = tsr_runtime_now_ns();
    for (uint32_t i = 0; i < c->n_feeders; i++)
        join_feeder(c, &c->feeder[i], told);
    tsr_batch_watch_ranks(false);
}

/* ---- the end ----------------------------------------------------------------------- */

tsr_status tsr_runtime_group_stop(struct tsr_runtime_group *c, struct tsr_err *err)
{
    TSR_TRY(tsr_runtime_group_check(c, err));
    c->stopped = true;
    for (uint32_t r = 0; r < c->plan.layout->replicas; r++) {
        struct tsr_runtime_micro_batch *b = tsr_new(1, sizeof *b);
        if (!b)
            return tsr_fail_nomem(err, sizeof *b, "the end");
        tsr_runtime_frame_make(&b->head, TSR_RUNTIME_FRAME_STOP);
        tsr_runtime_queue_put(tsr_runtime_group_entry(c, r), b);
    }
    join_all(c, false);
    if (c->plan.peers)
        TSR_TRY(tsr_runtime_peers_done(c->plan.peers, err));
    return tsr_runtime_page_failure(c->plan.page, err);
}

/* Wakes every rank that waits for a peer, also those that never connected. */
static void abort_all(struct tsr_runtime_group *c)
{
    struct tsr_errbuf ignored = TSR_ERRBUF(ignored);
    tsr_runtime_queue_close(&c->work);
    tsr_runtime_rank_abort(&c->handle);
    for (uint32_t i = 0; i < c->n_feeders; i++) {
        tsr_runtime_queue_close(&c->feeder[i].queue);
        tsr_runtime_edge_abort(&c->feeder[i].end);
    }
    for (uint32_t i = 0; i < c->plan.n_edges; i++) {
        struct tsr_runtime_edge_end end = { 0 };
        if (c->edges[i].heads.bytes == 0)
            continue;
        (void)tsr_runtime_edge_open(&end, &c->edges[i], true, 0, NULL, c->plan.registry,
                                    &ignored.err);
        tsr_runtime_edge_abort(&end);
        tsr_runtime_edge_close(&end);
    }
}

void tsr_runtime_group_destroy(struct tsr_runtime_group *c)
{
    if (!c)
        return;
    bool left = c->n_feeders && c->feeder[0].started;
    for (uint32_t i = 0; c->member && i < c->ranks; i++)
        left = left || (c->member[i].started && !c->member[i].gone);
    if (c->plan.peers && c->plan.page)
        tsr_runtime_peers_detach(c->plan.peers);
    if (left) {
        abort_all(c);
        c->stopped = true;
        join_all(c, true);
    }
    for (uint32_t i = 0; i < c->n_feeders; i++)
        if (c->feeder[i].made) {
            tsr_runtime_edge_close(&c->feeder[i].end);
            tsr_runtime_queue_free(&c->feeder[i].queue);
        }
    for (uint32_t i = 0; i < c->plan.n_edges; i++)
        tsr_runtime_edge_free(&c->edges[i]);
    for (uint32_t i = 0; c->plan.groups && i < c->plan.layout->replicas * c->plan.layout->n_stages;
         i++)
        if (c->plan.groups[i].bytes)
            tsr_comm_world_close(&c->plan.groups[i]);
    tsr_runtime_queue_free(&c->work);
    (void)pthread_mutex_destroy(&c->loading);
    (void)pthread_mutex_destroy(&c->handle.lock);
    free(c->plan.group_over);
    tsr_runtime_group_slot_sets_free(c);
    tsr_runtime_page_destroy(c->plan.page);
    free(c->plan.groups);
    free(c->edges);
    free(c->feeder);
    free(c->member);
    free(c);
}
