/* Beats between the processes of an MPI job. */
#include "runtime/mates.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BEAT_US  UINT64_C(200000)
#define STALL_US UINT64_C(5000000)
#define NAP_NS   3000000
#define MEET_US  UINT64_C(60000000) /* names; all have joined by then */
#define LAST_US  UINT64_C(500000)   /* for the last word of rank 0 */
#define END_US   UINT64_C(10000000)
#define MAGIC    0x48434d54u
#define NUMBERS  (sizeof(struct tsr_rank_numbers) / sizeof(uint64_t))

enum { HAS_FACTS = 1, READY = 2, DONE = 4, FAILED = 8, OVER = 16, HAS_PAGE = 32 };

/* Who is there; exchanged once. */
struct name {
    char    host[TSR_COMM_HOST], machine[96]; /* boot and process namespace */
    int32_t pid;
};

struct choice {
    uint32_t fixed, algorithm;
    char     codec[TSR_CHOICE_TEXT];
};

struct message {
    uint32_t              magic, flags;
    uint32_t              op, site;
    uint64_t              beats, step;
    int32_t               status;
    uint32_t              failed_rank;
    char                  text[800];
    uint64_t              numbers[NUMBERS];
    struct choice         choice[TSR_PHASES]; /* of the stage of the rank that is not 0 */
    struct tsr_mate_facts facts;
};

/* The other end of a conversation. */
struct mate {
    struct message in, out;
    void          *rx, *tx;
    uint64_t       heard_us, sent_us, said; /* said: the state that was sent last */
    bool           silent, has_facts, done;
};

struct tsr_mates {
    struct tsr_comm_port port;
    uint32_t             rank, ranks;
    uint64_t             stall_us;
    struct name         *name; /* [ranks] */
    char (*host)[TSR_COMM_HOST];
    int                     *pidfd; /* [ranks]; -1: elsewhere, or gone */
    struct mate             *mate;  /* [ranks]; of rank 0 all others, else rank 0 */
    pthread_t                thread;
    bool                     started;
    pthread_mutex_t          lock; /* of all below */
    pthread_cond_t           news;
    uint64_t                 state; /* grows with everything that the others should hear at once */
    struct tsr_page         *page;
    const struct tsr_layout *layout;
    struct tsr_mate_facts    facts;
    bool                     told, done, over, stop, failed, ready;
    uint32_t                 failed_rank;
    int32_t                  status;
    char                     text[800];
};

/* ---- what happened ------------------------------------------------------------ */

static bool speaks_with(const struct tsr_mates *m, uint32_t r)
{
    return r != m->rank && (m->rank == 0 || r == 0);
}

/* [lock] */
static void note_failure(struct tsr_mates *m, uint32_t rank, tsr_status st, const char *text)
{
    if (m->failed || m->over)
        return;
    m->failed = true;
    m->failed_rank = rank;
    m->status = st;
    (void)snprintf(m->text, sizeof m->text, "%s", text);
    m->state++;
    /* now: mpirun, which also saw it, leaves a second to all others */
    if (m->rank == 0 && rank > 0 && st != TSR_E_CANCELLED)
        tsr_logf(TSR_LOG_WARN, "rank %u on %s: %s", rank, m->host[rank], m->text);
    if (m->page)
        tsr_page_fail(m->page, rank, st, m->text);
    (void)pthread_cond_broadcast(&m->news);
}

/* What the page says of this process.  [lock] */
static void look_at_page(struct tsr_mates *m)
{
    if (!m->page)
        return;
    if (!m->failed && tsr_page_failed(m->page))
        note_failure(m, m->page->failed_rank, m->page->status, m->page->text);
    bool ready = atomic_load(&m->page->ready) >= (m->rank == 0 ? m->ranks : 1);
    if (ready != m->ready)
        m->state++;
    m->ready = ready;
    if (m->rank > 0) { /* a choice is waited for by others */
        uint32_t stage = tsr_layout_place(m->layout, m->rank).stage, n = 0;
        for (uint32_t k = 0; k < TSR_PHASES; k++)
            n += atomic_load(&m->page->choice[TSR_PHASES * stage + k].fixed);
        if (n > m->mate[0].out.choice[0].fixed + m->mate[0].out.choice[1].fixed)
            m->state++;
    }
}

/* Processes of this machine that have ended before the job has.  [lock] */
static void look_after(struct tsr_mates *m)
{
    for (uint32_t r = 0; r < m->ranks; r++) {
        struct pollfd p = { .fd = m->pidfd[r], .events = POLLIN };
        char          text[160];
        if (p.fd < 0 || poll(&p, 1, 0) <= 0)
            continue;
        (void)close(m->pidfd[r]);
        m->pidfd[r] = -1;
        m->mate[r].silent = true;
        if (m->done || m->over || m->mate[r].done)
            continue;
        (void)snprintf(text, sizeof text, "its process %d has ended", (int)m->name[r].pid);
        note_failure(m, r, TSR_E_DEVICE, text);
    }
}

/* ---- messages ------------------------------------------------------------------ */

/* [lock] */
static void write_message(struct tsr_mates *m, uint32_t to, struct message *o)
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
        o->status = m->status;
        memcpy(o->text, m->text, sizeof o->text);
    }
    if (!m->page)
        return;
    const struct tsr_page_rank *p = &m->page->rank[m->rank];
    o->op = atomic_load(&p->progress.op);
    o->site = atomic_load(&p->progress.site);
    o->beats = atomic_load(&p->progress.beats);
    o->step = atomic_load(&p->progress.step);
    const _Atomic uint64_t *n = &p->numbers.weights;
    for (size_t i = 0; i < NUMBERS; i++)
        o->numbers[i] = atomic_load(&n[i]);
    uint32_t stage = tsr_layout_place(m->layout, other).stage;
    for (uint32_t k = 0; k < TSR_PHASES; k++) {
        const struct tsr_page_choice *c = &m->page->choice[TSR_PHASES * stage + k];
        o->choice[k].fixed = atomic_load(&c->fixed);
        if (!o->choice[k].fixed)
            continue;
        o->choice[k].algorithm = c->algorithm;
        memcpy(o->choice[k].codec, c->codec, sizeof c->codec);
    }
}

/* [lock] */
static void take_page(struct tsr_mates *m, uint32_t from, const struct message *i)
{
    uint32_t              stage = tsr_layout_place(m->layout, m->rank == 0 ? from : m->rank).stage;
    struct tsr_page_rank *p = &m->page->rank[from];
    for (uint32_t k = 0; k < TSR_PHASES; k++) {
        struct tsr_page_choice *c = &m->page->choice[TSR_PHASES * stage + k];
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
    if ((i->flags & READY) && !(m->mate[from].in.flags & READY))
        atomic_fetch_add(&m->page->ready, 1);
    _Atomic uint64_t *n = &p->numbers.weights;
    for (size_t k = 0; k < NUMBERS; k++)
        atomic_store(&n[k], i->numbers[k]);
    atomic_store(&p->progress.pid, m->name[from].pid);
    if (i->beats == atomic_load(&p->progress.beats))
        return;
    atomic_store(&p->progress.op, i->op);
    atomic_store(&p->progress.site, i->site);
    atomic_store(&p->progress.step, i->step);
    atomic_store(&p->progress.ns, tsr_now_ns()); /* clocks of hosts differ */
    atomic_store(&p->progress.beats, i->beats);
}

/* A message that has come.  [lock] */
static void take_message(struct tsr_mates *m, uint32_t from, struct message *i)
{
    struct mate *a = &m->mate[from];
    a->heard_us = tsr_now_us();
    if (i->magic != MAGIC) {
        note_failure(m, from, TSR_E_INPUT, "speaks another version of Tessera");
        return;
    }
    i->text[sizeof i->text - 1] = '\0';
    if (i->flags & HAS_FACTS) {
        struct tsr_mate_facts *f = &i->facts;
        f->version[sizeof f->version - 1] = f->plan[sizeof f->plan - 1] = '\0';
        f->model[sizeof f->model - 1] = f->plugins[sizeof f->plugins - 1] = '\0';
        f->links[sizeof f->links - 1] = '\0';
        a->has_facts = true;
    }
    if (m->page && (i->flags & HAS_PAGE))
        take_page(m, from, i);
    if ((i->flags & FAILED) && i->failed_rank < m->ranks)
        note_failure(m, i->failed_rank, i->status, i->text);
    a->done = a->done || (i->flags & (DONE | OVER));
    m->over = m->over || (m->rank > 0 && (i->flags & OVER));
    uint32_t ready = m->page ? i->flags & READY : 0; /* heard before the page was there: again */
    i->flags = (i->flags & ~(uint32_t)READY) | ready;
    a->in = *i;
    (void)pthread_cond_broadcast(&m->news);
}

/* One round with one rank.  buf: what is being received goes there.  [lock] */
static void converse(struct tsr_mates *m, uint32_t r, struct message *buf)
{
    const struct tsr_transport_v1 *f = m->port.iface;
    struct mate                   *a = &m->mate[r];
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    tsr_status                     st = TSR_OK;
    int32_t                        done = 0;
    uint64_t                       now = tsr_now_us();
    if (a->silent)
        return;
    if (a->rx) {
        st = f->test(m->port.self, a->rx, &done, &e.err);
        if (st != TSR_OK || done)
            a->rx = NULL;
        if (st == TSR_OK && done)
            take_message(m, r, buf);
    }
    if (st == TSR_OK && !a->rx)
        st = f->recv(m->port.self, NULL, r, buf, sizeof *buf, &a->rx, &e.err);
    if (st == TSR_OK && a->tx) {
        st = f->test(m->port.self, a->tx, &done, &e.err);
        if (st != TSR_OK || done)
            a->tx = NULL;
    }
    if (st == TSR_OK && !a->tx && (a->said != m->state || now - a->sent_us >= BEAT_US)) {
        write_message(m, r, &a->out);
        a->said = m->state;
        a->sent_us = now;
        st = f->send(m->port.self, NULL, r, &a->out, sizeof a->out, &a->tx, &e.err);
    }
    if (st != TSR_OK)
        a->silent = true;
    if (st != TSR_OK && !a->done)
        note_failure(m, r, TSR_E_DEVICE, e.text);
    if (!a->silent && !a->done && now > a->heard_us + m->stall_us) {
        char text[200];
        (void)snprintf(text, sizeof text,
                       "its process %d has not been heard for %.1f s: it is frozen, or its host or "
                       "the link to it is down",
                       (int)m->name[r].pid, (double)(now - a->heard_us) / 1e6);
        a->silent = true;
        note_failure(m, r, TSR_E_DEVICE, text);
    }
}

/* Time in which this process itself did not run says nothing about the others: all may have been
 * stopped, or the machine was busy with something else.  [lock] */
static void forgive(struct tsr_mates *m, uint64_t *last_us)
{
    uint64_t now = tsr_now_us(), gap = now - *last_us;
    *last_us = now;
    for (uint32_t r = 0; gap > m->stall_us / 8 && r < m->ranks; r++)
        m->mate[r].heard_us += gap;
}

static void *beat(void *arg)
{
    struct tsr_mates *m = arg;
    struct message   *bufs = tsr_new(m->ranks, sizeof *bufs);
    uint64_t          last_us = tsr_now_us();
    bool              stop = false;
    (void)pthread_mutex_lock(&m->lock);
    if (!bufs)
        note_failure(m, m->rank, TSR_E_NOMEM, "out of memory: messages of ranks");
    while (bufs && !stop) {
        forgive(m, &last_us);
        look_at_page(m);
        look_after(m);
        for (uint32_t r = 0; r < m->ranks; r++)
            if (speaks_with(m, r))
                converse(m, r, &bufs[r]);
        stop = m->stop;
        (void)pthread_mutex_unlock(&m->lock);
        (void)nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
        (void)pthread_mutex_lock(&m->lock);
    }
    (void)pthread_mutex_unlock(&m->lock);
    /* receives that are under way write into it until the transport has gone */
    m->port.iface->destroy(m->port.self);
    m->port.self = NULL;
    free(bufs);
    return NULL;
}

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

static bool same_machine(const struct tsr_mates *m, uint32_t r)
{
    return strcmp(m->name[r].host, m->name[m->rank].host) == 0 &&
           strcmp(m->name[r].machine, m->name[m->rank].machine) == 0;
}

/* Everybody's name to everybody. */
static tsr_status exchange_names(struct tsr_mates *m, struct tsr_err *err)
{
    struct name mine;
    void       *q = NULL;
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
        struct name *n = &m->name[r];
        n->host[sizeof n->host - 1] = n->machine[sizeof n->machine - 1] = '\0';
        for (char *c = n->host; *c; c++)
            if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f)
                *c = '_';
        memcpy(m->host[r], n->host, sizeof n->host);
        m->mate[r].heard_us = tsr_now_us();
        if (r != m->rank && same_machine(m, r))
            m->pidfd[r] = (int)syscall(SYS_pidfd_open, n->pid, 0);
    }
    return TSR_OK;
}

static tsr_status start(struct tsr_mates *m, struct tsr_err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&m->thread, NULL, beat, m);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    m->started = rc == 0;
    return rc == 0 ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "cannot start a thread");
}

tsr_status tsr_mates_join(struct tsr_mates **out, struct tsr_registry *r, uint32_t rank,
                          uint32_t ranks, uint64_t stall_us, struct tsr_err *err)
{
    struct tsr_comm_place place = { .transport = "mpi", .rank = rank, .ranks = ranks };
    pthread_condattr_t    a;
    *out = NULL;
    if (ranks > TSR_MATES_MOST)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%u processes were started for one job; up to %u ranks under mpirun are "
                        "possible",
                        ranks, TSR_MATES_MOST);
    struct tsr_mates *m = tsr_new(1, sizeof *m);
    if (!m)
        return tsr_fail_nomem(err, sizeof *m, "ranks");
    m->rank = rank;
    m->ranks = ranks;
    m->stall_us = stall_us ? stall_us : STALL_US;
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_condattr_init(&a);
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&m->news, &a);
    (void)pthread_condattr_destroy(&a);
    m->name = tsr_new(ranks, sizeof *m->name);
    m->host = tsr_new(ranks, sizeof *m->host);
    m->pidfd = tsr_new(ranks, sizeof *m->pidfd);
    m->mate = tsr_new(ranks, sizeof *m->mate);
    for (uint32_t i = 0; m->pidfd && i < ranks; i++)
        m->pidfd[i] = -1;
    tsr_status st = m->name && m->host && m->pidfd && m->mate
                        ? tsr_comm_port_open(&m->port, r, &place, err)
                        : tsr_fail_nomem(err, ranks * sizeof *m->mate, "ranks");
    if (st == TSR_OK)
        st = exchange_names(m, err);
    if (st == TSR_OK)
        st = start(m, err);
    if (st != TSR_OK) {
        tsr_mates_destroy(m);
        return st;
    }
    *out = m;
    return TSR_OK;
}

void tsr_mates_destroy(struct tsr_mates *m)
{
    if (!m)
        return;
    if (m->started) {
        (void)pthread_mutex_lock(&m->lock);
        m->stop = true;
        (void)pthread_mutex_unlock(&m->lock);
        (void)pthread_join(m->thread, NULL);
    } else if (m->port.self) {
        m->port.iface->destroy(m->port.self);
    }
    m->port.iface = NULL; /* it has gone */
    tsr_comm_port_close(&m->port);
    for (uint32_t i = 0; m->pidfd && i < m->ranks; i++)
        if (m->pidfd[i] >= 0)
            (void)close(m->pidfd[i]);
    (void)pthread_cond_destroy(&m->news);
    (void)pthread_mutex_destroy(&m->lock);
    free(m->name);
    free(m->host);
    free(m->pidfd);
    free(m->mate);
    free(m);
}

uint32_t tsr_mates_rank(const struct tsr_mates *m)
{
    return m->rank;
}

uint32_t tsr_mates_ranks(const struct tsr_mates *m)
{
    return m->ranks;
}

const char *tsr_mates_host(const struct tsr_mates *m, uint32_t rank)
{
    return m->host[rank];
}

uint32_t tsr_mates_here(const struct tsr_mates *m)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < m->ranks; r++)
        n += same_machine(m, r);
    return n;
}

uint32_t tsr_mates_before(const struct tsr_mates *m)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < m->rank; r++)
        n += same_machine(m, r);
    return n;
}

/* ---- waiting -------------------------------------------------------------------- */

/* For news, or a moment.  [lock] */
static void wait_news(struct tsr_mates *m)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += 20000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&m->news, &m->lock, &t);
}

/* [lock] */
static tsr_status failure(const struct tsr_mates *m, struct tsr_err *err)
{
    return m->failed ? tsr_fail(err, m->status, "rank %u on %s: %s", m->failed_rank,
                                m->host[m->failed_rank], m->text)
                     : TSR_OK;
}

/* Whether all that can hear have got the state that is now.  [lock] */
static bool all_told(const struct tsr_mates *m)
{
    for (uint32_t r = 0; r < m->ranks; r++) {
        const struct mate *a = &m->mate[r];
        if (speaks_with(m, r) && !a->silent && (a->said != m->state || a->tx))
            return false;
    }
    return true;
}

void tsr_mates_tell(struct tsr_mates *m, const struct tsr_mate_facts *facts)
{
    (void)pthread_mutex_lock(&m->lock);
    m->facts = *facts;
    m->told = true;
    m->state++;
    (void)pthread_mutex_unlock(&m->lock);
}

/* What rank r says against rank 0. */
static tsr_status compare(const struct tsr_mates *m, uint32_t r, const struct tsr_mate_facts *f,
                          const struct tsr_mate_facts *zero, struct tsr_err *err)
{
    const struct {
        const char *what, *mine, *his, *hint;
    } all[] = {
        { "version of Tessera", f->version, zero->version, "install the same everywhere" },
        { "set of plugins", f->plugins, zero->plugins, "install the same files everywhere" },
        { "plan", f->plan, zero->plan, "copy rank 0's, with the calibrations that it names" },
        { "model", f->model, zero->model, "copy rank 0's, or name its place there by model_at" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].mine, all[i].his) != 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "rank %u on %s has another %s than rank 0 on %s (%s, %s); %s", r,
                            m->host[r], all[i].what, m->host[0], all[i].mine, all[i].his,
                            all[i].hint);
    return TSR_OK;
}

tsr_status tsr_mates_meet(struct tsr_mates *m, struct tsr_mate_facts *zero, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    uint32_t   missing = 1;
    (void)pthread_mutex_lock(&m->lock);
    while (missing && st == TSR_OK) {
        missing = 0;
        for (uint32_t r = 0; r < m->ranks; r++)
            missing += speaks_with(m, r) && !m->mate[r].has_facts;
        st = failure(m, err);
        if (st == TSR_OK && (tsr_cancelled() || m->over))
            st = tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        if (missing && st == TSR_OK)
            wait_news(m);
    }
    *zero = m->rank == 0 ? m->facts : m->mate[0].in.facts;
    if (st == TSR_OK && m->rank > 0)
        st = compare(m, m->rank, &m->facts, zero, err);
    for (uint32_t r = 1; m->rank == 0 && st == TSR_OK && r < m->ranks; r++)
        st = compare(m, r, &m->mate[r].in.facts, zero, err);
    (void)pthread_mutex_unlock(&m->lock);
    return st;
}

void tsr_mates_attach(struct tsr_mates *m, struct tsr_page *page, const struct tsr_layout *layout)
{
    (void)pthread_mutex_lock(&m->lock);
    m->page = page;
    m->layout = layout;
    page->host = m->host;
    for (uint32_t r = 0; r < m->ranks; r++)
        if (r != m->rank)
            atomic_store(&page->rank[r].progress.pid, m->name[r].pid);
    if (m->failed)
        tsr_page_fail(page, m->failed_rank, m->status, m->text);
    m->state++;
    (void)pthread_mutex_unlock(&m->lock);
}

void tsr_mates_detach(struct tsr_mates *m)
{
    (void)pthread_mutex_lock(&m->lock);
    look_at_page(m); /* its last words */
    m->page = NULL;
    (void)pthread_mutex_unlock(&m->lock);
}

bool tsr_mates_over(const struct tsr_mates *m)
{
    struct tsr_mates *v = (struct tsr_mates *)(uintptr_t)m;
    (void)pthread_mutex_lock(&v->lock);
    bool over = v->over;
    (void)pthread_mutex_unlock(&v->lock);
    return over;
}

tsr_status tsr_mates_done(struct tsr_mates *m, struct tsr_err *err)
{
    uint64_t   until = tsr_now_us() + END_US;
    uint32_t   missing = 1;
    tsr_status st = TSR_OK;
    (void)pthread_mutex_lock(&m->lock);
    m->state++;
    if (m->rank > 0) {
        m->done = true;
        missing = 0;
        while (!all_told(m) && !m->failed && tsr_now_us() < until) /* with its numbers */
            wait_news(m);
    }
    while (missing && st == TSR_OK) {
        uint32_t late = 0;
        missing = 0;
        for (uint32_t r = 1; r < m->ranks; r++)
            if (!m->mate[r].done) {
                missing++;
                late = r;
            }
        st = failure(m, err);
        if (st == TSR_OK && missing && tsr_now_us() > until)
            st = tsr_fail(err, TSR_E_DEVICE, "rank %u on %s did not end when it was told to", late,
                          m->host[late]);
        if (missing && st == TSR_OK)
            wait_news(m);
    }
    if (st == TSR_OK)
        m->done = true;
    (void)pthread_mutex_unlock(&m->lock);
    return st;
}

tsr_status tsr_mates_failure(struct tsr_mates *m, uint64_t wait_us, struct tsr_err *err)
{
    uint64_t until = tsr_now_us() + wait_us;
    (void)pthread_mutex_lock(&m->lock);
    while (!m->failed && tsr_now_us() < until)
        wait_news(m);
    tsr_status st = failure(m, err);
    (void)pthread_mutex_unlock(&m->lock);
    return st;
}

void tsr_mates_leave(struct tsr_mates *m, tsr_status st, const char *text, bool *said)
{
    uint64_t until = tsr_now_us() + LAST_US;
    (void)pthread_mutex_lock(&m->lock);
    bool known = m->failed;
    if (st != TSR_OK && st != TSR_E_CANCELLED && !known)
        note_failure(m, m->rank, st, text);
    m->state++;
    if (m->rank == 0) {
        m->over = true;
        while (!all_told(m) && tsr_now_us() < until)
            wait_news(m);
        *said = false;
    } else {
        m->done = m->done || st == TSR_OK || st == TSR_E_CANCELLED;
        if (st != TSR_E_CANCELLED)
            until = tsr_now_us() + m->stall_us;
        while (!m->over && !m->mate[0].silent && tsr_now_us() < until &&
               !(m->failed && m->failed_rank == 0))
            wait_news(m);
        /* where rank 0 is beyond reach, one rank of each host speaks */
        *said = m->over;
        for (uint32_t r = 0; r < m->rank; r++)
            *said = *said || (same_machine(m, r) && r != m->failed_rank);
    }
    (void)pthread_mutex_unlock(&m->lock);
}
