/* Messages between peers, and the reactions to them. */
#include "base/clock.h"
#include "base/event.h"
#include "base/held.h"
#include "base/mem.h"
#include "runtime/peers_internal.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BEAT_US UINT64_C(200000)
#define NAP_NS  3000000
#define MAGIC   0x48434d54u

enum { HAS_FACTS = 1, READY = 2, DONE = 4, FAILED = 8, OVER = 16, HAS_PAGE = 32 };

/* ---- events ------------------------------------------------------------------- */

void tsr_runtime_peers_note(struct tsr_runtime_peers *m, uint32_t rank,
                            const struct tsr_err_sent *why)
{
    if (m->failed || m->over)
        return;
    m->failed = true;
    m->failed_rank = rank;
    m->why = *why;
    m->state++;
    /* now: mpirun, which also saw it, leaves a second to all others */
    if (m->rank == 0 && rank > 0 && why->status != TSR_E_CANCELLED) {
        const struct tsr_event e = {
            .kind = "rank-failed",
            .has_rank = true,
            .rank = rank,
            .host = m->host[rank],
            .process = m->name[rank].pid,
            .doing = m->page ? tsr_runtime_progress_doing(&m->page->rank[rank].progress) : NULL
        };
        tsr_event_say(&e, "rank %u on %s: %s", rank, m->host[rank], m->why.text);
    }
    if (m->page)
        tsr_runtime_page_fail(m->page, rank, &m->why);
    (void)pthread_cond_broadcast(&m->news);
}

static void note(struct tsr_runtime_peers *m, uint32_t rank, tsr_status st, const char *text)
{
    struct tsr_err_sent why = { .status = st };
    (void)snprintf(why.text, sizeof why.text, "%s", text);
    tsr_runtime_peers_note(m, rank, &why);
}

void tsr_runtime_peers_lost(struct tsr_runtime_peers *m, uint32_t rank, const char *text)
{
    note(m, rank, TSR_E_DEVICE, text);
}

void tsr_runtime_peers_look(struct tsr_runtime_peers *m)
{
    if (!m->page)
        return;
    if (!m->failed && tsr_runtime_page_failed(m->page))
        tsr_runtime_peers_note(m, m->page->failed_rank, &m->page->why);
    bool ready = atomic_load(&m->page->ready) >= (m->rank == 0 ? m->ranks : 1);
    if (ready != m->ready)
        m->state++;
    m->ready = ready;
    if (m->rank > 0) { /* a choice is waited for by others */
        uint32_t stage = tsr_runtime_layout_place(m->layout, m->rank).stage, n = 0;
        for (uint32_t k = 0; k < TSR_PLAN_PHASES; k++)
            n += atomic_load(&m->page->choice[TSR_PLAN_PHASES * stage + k].fixed);
        if (n > m->peer[0].out.choice[0].fixed + m->peer[0].out.choice[1].fixed)
            m->state++;
    }
}

/* Processes of this machine that have ended before the job has.  [lock] */
static void look_after(struct tsr_runtime_peers *m)
{
    for (uint32_t r = 0; r < m->ranks; r++) {
        struct pollfd p = { .fd = m->pidfd[r], .events = POLLIN };
        char          text[160];
        if (p.fd < 0 || poll(&p, 1, 0) <= 0)
            continue;
        (void)tsr_held_close(m->pidfd[r]);
        m->pidfd[r] = -1;
        m->peer[r].silent = true;
        if (m->done || m->over || m->peer[r].done)
            continue;
        (void)snprintf(text, sizeof text, "its process %d has ended", (int)m->name[r].pid);
        tsr_runtime_peers_lost(m, r, text);
    }
}

/* ---- messages ------------------------------------------------------------------ */

/* [lock] */
static void write_message(struct tsr_runtime_peers *m, uint32_t to,
                          struct tsr_runtime_peer_message *o)
{
    uint32_t other = m->rank == 0 ? to : m->rank;
    memset(o, 0, sizeof *o);
    o->magic = MAGIC;
    o->flags = (m->told ? HAS_FACTS : 0) | (m->done ? DONE : 0) | (m->failed ? FAILED : 0) |
               (m->over ? OVER : 0) | (m->ready ? READY : 0) | (m->page ? HAS_PAGE : 0);
    if (m->told)
        o->facts = m->facts;
    if (m->failed) {
        o->failed_rank = m->failed_rank;
        o->why = m->why;
    }
    if (!m->page) {
        o->beats = tsr_runtime_clock_spent(m->clock);
        return;
    }
    const struct tsr_runtime_page_rank *p = &m->page->rank[m->rank];
    o->op = atomic_load(&p->progress.op);
    o->site = atomic_load(&p->progress.site);
    o->beats = atomic_load(&p->progress.beats);
    o->step = atomic_load(&p->progress.step);
    const _Atomic uint64_t *n = &p->numbers.weights;
    for (size_t i = 0; i < TSR_PEERS_NUMBERS; i++)
        o->numbers[i] = atomic_load(&n[i]);
    uint32_t stage = tsr_runtime_layout_place(m->layout, other).stage;
    for (uint32_t k = 0; k < TSR_PLAN_PHASES; k++) {
        const struct tsr_runtime_page_choice *c = &m->page->choice[TSR_PLAN_PHASES * stage + k];
        o->choice[k].fixed = atomic_load(&c->fixed);
        if (!o->choice[k].fixed)
            continue;
        o->choice[k].algorithm = c->algorithm;
        memcpy(o->choice[k].codec, c->codec, sizeof c->codec);
    }
}

/* [lock] */
static void take_page(struct tsr_runtime_peers *m, uint32_t from,
                      const struct tsr_runtime_peer_message *i)
{
    uint32_t stage = tsr_runtime_layout_place(m->layout, m->rank == 0 ? from : m->rank).stage;
    struct tsr_runtime_page_rank *p = &m->page->rank[from];
    for (uint32_t k = 0; k < TSR_PLAN_PHASES; k++) {
        struct tsr_runtime_page_choice *c = &m->page->choice[TSR_PLAN_PHASES * stage + k];
        if (!i->choice[k].fixed || atomic_load(&c->fixed))
            continue;
        c->algorithm = i->choice[k].algorithm;
        memcpy(c->codec, i->choice[k].codec, sizeof c->codec);
        c->codec[sizeof c->codec - 1] = '\0';
        atomic_store(&c->fixed, 1);
        m->state++;
    }
    if (m->rank > 0)
        return;
    if ((i->flags & READY) && !(m->peer[from].in.flags & READY))
        atomic_fetch_add(&m->page->ready, 1);
    _Atomic uint64_t *n = &p->numbers.weights;
    for (size_t k = 0; k < TSR_PEERS_NUMBERS; k++)
        atomic_store(&n[k], i->numbers[k]);
    atomic_store(&p->progress.pid, m->name[from].pid);
    if (i->beats == atomic_load(&p->progress.beats))
        return;
    atomic_store(&p->progress.op, i->op);
    atomic_store(&p->progress.site, i->site);
    atomic_store(&p->progress.step, i->step);
    atomic_store(&p->progress.ns, tsr_runtime_now_ns()); /* clocks of hosts differ */
    atomic_store(&p->progress.beats, i->beats);
}

/* A message that has come.  [lock] */
static void take_message(struct tsr_runtime_peers *m, uint32_t from,
                         struct tsr_runtime_peer_message *i)
{
    struct tsr_runtime_peer *a = &m->peer[from];
    a->heard_us = tsr_now_us();
    if (i->magic != MAGIC) {
        note(m, from, TSR_E_INPUT, "speaks another version of Tessera");
        return;
    }
    i->why.text[sizeof i->why.text - 1] = '\0';
    if (i->flags & HAS_FACTS) {
        struct tsr_runtime_peer_facts *f = &i->facts;
        f->version[sizeof f->version - 1] = f->plan[sizeof f->plan - 1] = '\0';
        f->model[sizeof f->model - 1] = f->plugins[sizeof f->plugins - 1] = '\0';
        f->links[sizeof f->links - 1] = '\0';
        a->has_facts = true;
    }
    if (m->page && (i->flags & HAS_PAGE)) {
        take_page(m, from, i);
    } else if (i->beats != a->in.beats) { /* it reads the job, or its model */
        a->active_us = tsr_now_us();
        if (m->page && m->rank == 0 && !(i->flags & HAS_PAGE))
            tsr_runtime_progress_touch(&m->page->rank[from].progress);
    }
    if ((i->flags & FAILED) && i->failed_rank < m->ranks)
        tsr_runtime_peers_note(m, i->failed_rank, &i->why);
    a->done = a->done || (i->flags & (DONE | OVER));
    m->over = m->over || (m->rank > 0 && (i->flags & OVER));
    uint32_t ready = m->page ? i->flags & READY : 0; /* heard before the page was there: again */
    i->flags = (i->flags & ~(uint32_t)READY) | ready;
    a->in = *i;
    (void)pthread_cond_broadcast(&m->news);
}

/* Whether the operation *q has ended; it is forgotten then. */
static tsr_status test(struct tsr_runtime_peers *m, void **q, int32_t *done, struct tsr_err *err)
{
    void *under_way = *q;
    *done = 0;
    (void)pthread_mutex_unlock(&m->lock);
    tsr_status st = m->port.iface->test(m->port.self, under_way, done, err);
    (void)pthread_mutex_lock(&m->lock);
    if (st != TSR_OK || *done)
        *q = NULL;
    return st;
}

/* The current state to rank r. */
static tsr_status say(struct tsr_runtime_peers *m, uint32_t r, uint64_t now, struct tsr_err *err)
{
    struct tsr_runtime_peer *a = &m->peer[r];
    uint64_t                 state = m->state;
    void                    *tx = NULL;
    write_message(m, r, &a->out);
    a->sent_us = now;
    (void)pthread_mutex_unlock(&m->lock);
    tsr_status st = m->port.iface->send(m->port.self, NULL, r, &a->out, sizeof a->out, &tx, err);
    (void)pthread_mutex_lock(&m->lock);
    a->said = state;
    a->tx = tx;
    return st;
}

static tsr_status listen(struct tsr_runtime_peers *m, uint32_t r,
                         struct tsr_runtime_peer_message *buf, struct tsr_err *err)
{
    void *rx = NULL;
    (void)pthread_mutex_unlock(&m->lock);
    tsr_status st = m->port.iface->recv(m->port.self, NULL, r, buf, sizeof *buf, &rx, err);
    (void)pthread_mutex_lock(&m->lock);
    m->peer[r].rx = rx;
    return st;
}

/* One round with one rank. buf: receive buffer.  The lock is held, except in the calls of the transport: where one
 * of them does not return, the other threads of this process still can say so and end. */
static void converse(struct tsr_runtime_peers *m, uint32_t r, struct tsr_runtime_peer_message *buf)
{
    struct tsr_runtime_peer *a = &m->peer[r];
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    tsr_status               st = TSR_OK;
    int32_t                  done = 0;
    uint64_t                 now = tsr_now_us();
    if (a->silent)
        return;
    if (a->rx) {
        st = test(m, &a->rx, &done, &e.err);
        if (st == TSR_OK && done)
            take_message(m, r, buf);
    }
    if (st == TSR_OK && !a->rx)
        st = listen(m, r, buf, &e.err);
    if (st == TSR_OK && a->tx)
        st = test(m, &a->tx, &done, &e.err);
    if (st == TSR_OK && !a->tx && (a->said != m->state || now - a->sent_us >= BEAT_US))
        st = say(m, r, now, &e.err);
    if (st != TSR_OK)
        a->silent = true;
    if (st != TSR_OK && !a->done)
        tsr_runtime_peers_lost(m, r, e.text);
    if (!a->silent && !a->done && now > a->heard_us + m->stall_us) {
        char text[200];
        (void)snprintf(text, sizeof text,
                       "its process %d has not been heard for %.1f s: it is frozen, or its host or "
                       "the link to it is down",
                       (int)m->name[r].pid, (double)(now - a->heard_us) / 1e6);
        a->silent = true;
        tsr_runtime_peers_lost(m, r, text);
    }
}

/* Time in which this process itself did not run is not counted against peers: all may have been stopped,
 * or the machine was busy. [lock] */
static void forgive(struct tsr_runtime_peers *m, uint64_t *last_us)
{
    uint64_t now = tsr_now_us(), gap = now - *last_us;
    *last_us = now;
    for (uint32_t r = 0; gap > m->stall_us / 8 && r < m->ranks; r++) {
        m->peer[r].heard_us += gap;
        m->peer[r].active_us += gap;
    }
}

void *tsr_runtime_peers_beat(void *arg)
{
    struct tsr_runtime_peers        *m = arg;
    struct tsr_runtime_peer_message *bufs = tsr_new(m->ranks, sizeof *bufs);
    uint64_t                         last_us = tsr_now_us();
    bool                             stop = false;
    (void)pthread_mutex_lock(&m->lock);
    if (!bufs)
        note(m, m->rank, TSR_E_NOMEM, "out of memory: messages of ranks");
    while (bufs && !stop) {
        forgive(m, &last_us);
        tsr_runtime_peers_look(m);
        look_after(m);
        for (uint32_t r = 0; r < m->ranks; r++)
            if (tsr_peers_speak(m, r))
                converse(m, r, &bufs[r]);
        stop = m->stop;
        (void)pthread_mutex_unlock(&m->lock);
        (void)nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
        (void)pthread_mutex_lock(&m->lock);
    }
    (void)pthread_mutex_unlock(&m->lock);
    /* pending receives write into it until the transport is destroyed */
    m->port.iface->destroy(m->port.self);
    m->port.self = NULL;
    free(bufs);
    return NULL;
}
