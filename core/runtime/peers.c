/* Who runs the job: joining, comparing, waiting, leaving. */
#include "runtime/join.h"
#include "runtime/peers_internal.h"
#include "runtime/thread.h"

#include "base/clock.h"
#include "base/held.h"
#include "base/log.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STALL_US UINT64_C(5000000)
#define MEET_US  UINT64_C(60000000) /* names; all have joined by then */
#define PRINT_US 500000u            /* for rank 0 to print why the run ends */
#define LAST_US  UINT64_C(500000)   /* for the last word of rank 0 */

/* ---- life ---------------------------------------------------------------------- */

/* Processes that see each other's ids: one boot, one namespace. */
static void name_machine(char *text, size_t cap)
{
    char    boot[40] = "", space[40] = "";
    int     fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, boot, sizeof boot - 1) : -1;
    if (fd >= 0)
        (void)close(fd);
    boot[n > 0 ? n : 0] = '\0';
    n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[n > 0 ? n : 0] = '\0';
    (void)snprintf(text, cap, "%s %s", boot, space);
}

static bool same_machine(const struct tsr_runtime_peers *m, uint32_t r)
{
    return strcmp(m->name[r].host, m->name[m->rank].host) == 0 &&
           strcmp(m->name[r].machine, m->name[m->rank].machine) == 0;
}

/* Everybody's name to everybody. */
/* So that its end is seen at once. */
static void hold_process(struct tsr_runtime_peers *m, uint32_t r, int32_t pid)
{
    m->pidfd[r] = (int)syscall(SYS_pidfd_open, pid, 0);
    if (m->pidfd[r] >= 0)
        tsr_held_add(m->pidfd[r], "process of another rank");
}

static tsr_status exchange_names(struct tsr_runtime_peers *m, struct tsr_err *err)
{
    struct tsr_runtime_peer_name mine;
    void                        *q = NULL;
    memset(&mine, 0, sizeof mine);
    if (gethostname(mine.host, sizeof mine.host - 1) != 0)
        (void)snprintf(mine.host, sizeof mine.host, "unknown");
    name_machine(mine.machine, sizeof mine.machine);
    mine.pid = (int32_t)getpid();
    TSR_TRY(m->port.iface->all_gather(m->port.self, NULL, &mine, m->name, sizeof mine, &q, err));
    if (!q)
        return tsr_fail(err, TSR_E_DEVICE, "the transport takes no operation");
    TSR_TRY(m->port.iface->wait(m->port.self, q, MEET_US, err));
    for (uint32_t r = 0; r < m->ranks; r++) {
        struct tsr_runtime_peer_name *n = &m->name[r];
        n->host[sizeof n->host - 1] = n->machine[sizeof n->machine - 1] = '\0';
        for (char *c = n->host; *c; c++)
            if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f)
                *c = '_';
        memcpy(m->host[r], n->host, sizeof n->host);
        m->peer[r].heard_us = m->peer[r].active_us = tsr_now_us();
        if (r != m->rank && same_machine(m, r))
            hold_process(m, r, n->pid);
    }
    return TSR_OK;
}

tsr_status tsr_runtime_peers_join(struct tsr_runtime_peers **out, struct tsr_registry *r,
                                  uint32_t rank, uint32_t ranks, uint64_t stall_us,
                                  struct tsr_err *err)
{
    struct tsr_comm_place place = { .transport = "mpi", .rank = rank, .ranks = ranks };
    pthread_condattr_t    a;
    *out = NULL;
    if (ranks > TSR_PEERS_MOST)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%u processes were started for one job; up to %u ranks under mpirun are "
                        "possible",
                        ranks, TSR_PEERS_MOST);
    struct tsr_runtime_peers *m = tsr_new(1, sizeof *m);
    if (!m)
        return tsr_fail_nomem(err, sizeof *m, "ranks");
    m->rank = rank;
    m->ranks = ranks;
    m->stall_us = stall_us ? stall_us : STALL_US;
    m->clock = tsr_runtime_thread_clock();
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_condattr_init(&a);
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&m->news, &a);
    (void)pthread_condattr_destroy(&a);
    m->name = tsr_new(ranks, sizeof *m->name);
    m->host = tsr_new(ranks, sizeof *m->host);
    m->pidfd = tsr_new(ranks, sizeof *m->pidfd);
    m->peer = tsr_new(ranks, sizeof *m->peer);
    for (uint32_t i = 0; m->pidfd && i < ranks; i++)
        m->pidfd[i] = -1;
    tsr_status st = m->name && m->host && m->pidfd && m->peer
                        ? tsr_runtime_join(&m->port, r, &place, TSR_JOIN_US, err)
                        : tsr_fail_nomem(err, ranks * sizeof *m->peer, "ranks");
    if (st == TSR_OK)
        st = exchange_names(m, err);
    if (st == TSR_OK)
        st = tsr_runtime_thread_start(&m->thread, tsr_runtime_peers_beat, m, err);
    m->started = st == TSR_OK;
    if (st != TSR_OK) {
        (void)tsr_runtime_peers_destroy(m);
        return st;
    }
    *out = m;
    return TSR_OK;
}

/* The thread that beats may stand inside of MPI, which then has m's memory. */
static bool beat_ends(struct tsr_runtime_peers *m)
{
    struct timespec t;
    uint64_t        ns = 2000 * m->stall_us;
    (void)pthread_mutex_lock(&m->lock);
    m->stop = true;
    (void)pthread_mutex_unlock(&m->lock);
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return pthread_clockjoin_np(m->thread, NULL, CLOCK_MONOTONIC, &t) == 0;
}

bool tsr_runtime_peers_destroy(struct tsr_runtime_peers *m)
{
    if (!m)
        return true;
    if (m->started && !beat_ends(m)) {
        tsr_logf(TSR_LOG_WARN, "rank %u: MPI does not return; it is left as it is", m->rank);
        return false;
    }
    if (!m->started && m->port.self)
        m->port.iface->destroy(m->port.self);
    m->port.iface = NULL; /* already destroyed */
    tsr_comm_port_close(&m->port);
    for (uint32_t i = 0; m->pidfd && i < m->ranks; i++)
        if (m->pidfd[i] >= 0)
            (void)tsr_held_close(m->pidfd[i]);
    (void)pthread_cond_destroy(&m->news);
    (void)pthread_mutex_destroy(&m->lock);
    free(m->name);
    free(m->host);
    free(m->pidfd);
    free(m->peer);
    free(m);
    return true;
}

uint32_t tsr_runtime_peers_rank(const struct tsr_runtime_peers *m)
{
    return m->rank;
}

uint32_t tsr_runtime_peers_ranks(const struct tsr_runtime_peers *m)
{
    return m->ranks;
}

const char *tsr_runtime_peers_host(const struct tsr_runtime_peers *m, uint32_t rank)
{
    return m->host[rank];
}

uint32_t tsr_runtime_peers_here(const struct tsr_runtime_peers *m)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < m->ranks; r++)
        n += same_machine(m, r);
    return n;
}

bool tsr_runtime_peers_is_here(const struct tsr_runtime_peers *m, uint32_t rank)
{
    return same_machine(m, rank);
}

/* ---- waiting -------------------------------------------------------------------- */

void tsr_runtime_peers_wait_news(struct tsr_runtime_peers *m)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += 20000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&m->news, &m->lock, &t);
}

tsr_status tsr_runtime_peers_failed(const struct tsr_runtime_peers *m, struct tsr_err *err)
{
    char where[TSR_COMM_HOST + 32];
    if (!m->failed)
        return TSR_OK;
    (void)snprintf(where, sizeof where, "rank %u on %s: ", m->failed_rank, m->host[m->failed_rank]);
    return tsr_err_arrive(err, &m->why, where);
}

/* Whether every reachable peer has received the current state. [lock] */
static bool all_notified(const struct tsr_runtime_peers *m)
{
    for (uint32_t r = 0; r < m->ranks; r++) {
        const struct tsr_runtime_peer *a = &m->peer[r];
        if (tsr_peers_speak(m, r) && !a->silent && (a->said != m->state || a->tx))
            return false;
    }
    return true;
}

void tsr_runtime_peers_attach(struct tsr_runtime_peers *m, struct tsr_runtime_page *page,
                              const struct tsr_runtime_layout *layout)
{
    (void)pthread_mutex_lock(&m->lock);
    m->page = page;
    m->layout = layout;
    page->host = m->host;
    for (uint32_t r = 0; r < m->ranks; r++)
        if (r != m->rank)
            atomic_store(&page->rank[r].progress.pid, m->name[r].pid);
    if (m->failed)
        tsr_runtime_page_fail(page, m->failed_rank, &m->why);
    m->state++;
    (void)pthread_mutex_unlock(&m->lock);
}

void tsr_runtime_peers_detach(struct tsr_runtime_peers *m)
{
    (void)pthread_mutex_lock(&m->lock);
    tsr_runtime_peers_look(m); /* its last words */
    m->page = NULL;
    (void)pthread_mutex_unlock(&m->lock);
}

bool tsr_runtime_peers_over(const struct tsr_runtime_peers *m)
{
    struct tsr_runtime_peers *v = (struct tsr_runtime_peers *)(uintptr_t)m;
    (void)pthread_mutex_lock(&v->lock);
    bool over = v->over;
    (void)pthread_mutex_unlock(&v->lock);
    return over;
}

tsr_status tsr_runtime_peers_done(struct tsr_runtime_peers *m, struct tsr_err *err)
{
    uint64_t   until = tsr_now_us() + 2 * m->stall_us;
    uint32_t   missing = 1;
    tsr_status st = TSR_OK;
    (void)pthread_mutex_lock(&m->lock);
    m->state++;
    if (m->rank > 0) {
        m->done = true;
        missing = 0;
        while (!all_notified(m) && !m->failed && tsr_now_us() < until) /* with its numbers */
            tsr_runtime_peers_wait_news(m);
    }
    while (missing && st == TSR_OK) {
        uint32_t late = 0;
        missing = 0;
        for (uint32_t r = 1; r < m->ranks; r++)
            if (!m->peer[r].done) {
                missing++;
                late = r;
            }
        st = tsr_runtime_peers_failed(m, err);
        if (st == TSR_OK && missing && tsr_now_us() > until)
            st =
                tsr_fail(err, TSR_E_DEVICE, "rank %u on %s was asked to end and has not for %.1f s",
                         late, m->host[late], (double)(2 * m->stall_us) / 1e6);
        if (missing && st == TSR_OK)
            tsr_runtime_peers_wait_news(m);
    }
    if (st == TSR_OK)
        m->done = true;
    (void)pthread_mutex_unlock(&m->lock);
    return st;
}

tsr_status tsr_runtime_peers_failure(struct tsr_runtime_peers *m, uint64_t wait_us,
                                     struct tsr_err *err)
{
    uint64_t until = tsr_now_us() + wait_us;
    (void)pthread_mutex_lock(&m->lock);
    while (!m->failed && tsr_now_us() < until)
        tsr_runtime_peers_wait_news(m);
    tsr_status st = tsr_runtime_peers_failed(m, err);
    (void)pthread_mutex_unlock(&m->lock);
    return st;
}

void tsr_runtime_peers_leave(struct tsr_runtime_peers *m, tsr_status st, const struct tsr_err *err,
                             bool *said)
{
    uint64_t until = tsr_now_us() + LAST_US;
    (void)pthread_mutex_lock(&m->lock);
    bool known = m->failed;
    if (st != TSR_OK && st != TSR_E_CANCELLED && !known) {
        struct tsr_err_sent why;
        tsr_err_send(&why, st, err);
        tsr_runtime_peers_note(m, m->rank, &why);
    }
    m->state++;
    if (m->rank == 0) {
        m->over = true;
        while (!all_notified(m) && tsr_now_us() < until)
            tsr_runtime_peers_wait_news(m);
        *said = false;
    } else {
        m->done = m->done || st == TSR_OK || st == TSR_E_CANCELLED;
        if (st != TSR_E_CANCELLED)
            until = tsr_now_us() + m->stall_us;
        bool last = false; /* rank 0 has failed: it says that it is over, or it is gone */
        while (!m->over && !m->peer[0].silent && tsr_now_us() < until) {
            if (m->failed && m->failed_rank == 0 && !last) {
                until = tsr_now_us() + LAST_US;
                last = true;
            }
            tsr_runtime_peers_wait_news(m);
        }
        /* if rank 0 is unreachable, one rank of each host prints */
        *said = m->over;
        for (uint32_t r = 0; r < m->rank; r++)
            *said = *said || (same_machine(m, r) && r != m->failed_rank);
    }
    bool waits = m->rank > 0 && !m->peer[0].silent && st != TSR_OK && *said;
    (void)pthread_mutex_unlock(&m->lock);
    if (waits) /* rank 0 prints the error: mpirun ends it as soon as this process has failed */
        (void)usleep(PRINT_US);
}
