/* Starts, watches and ends the ranks. */
#include "base/log.h"
#include "base/mem.h"
#include "batch/watch.h"
#include "runtime/crew_internal.h"
#include "runtime/mates.h"
#include "runtime/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_TOKENS 4096u /* of a micro-batch */
#define STALL_US    UINT64_C(5000000)
#define END_NS      UINT64_C(10000000000) /* for a process to end when it was told to */

static void nap(void)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    tsr_watch_beat();
}

/* ---- ranks ------------------------------------------------------------------- */

static void *run_thread(void *arg)
{
    struct tsr_member *m = arg;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    (void)tsr_rank_run(&m->crew->plan, m->rank, m->rank == 0 ? &m->crew->hooks : NULL, &e.err);
    return NULL;
}

_Noreturn static void run_process(const struct tsr_member *m, pid_t parent)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)signal(SIGINT, SIG_IGN); /* the coordinator decides */
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    _exit(tsr_rank_run(&m->crew->plan, m->rank, NULL, &e.err) == TSR_OK ? 0 : 1);
}

static tsr_status start_rank(struct tsr_member *m, struct tsr_err *err)
{
    if (m->rank > 0 && m->crew->plan.processes && !m->crew->plan.mates) {
        pid_t parent = getpid();
        m->pid = fork();
        if (m->pid == 0)
            run_process(m, parent);
        if (m->pid < 0) {
            m->pid = 0;
            return tsr_fail(err, TSR_E_NOMEM, "cannot start the process of rank %u: %s", m->rank,
                            strerror(errno));
        }
    } else {
        TSR_TRY(tsr_thread_start(&m->thread, run_thread, m, err));
    }
    m->started = true;
    return TSR_OK;
}

/* Said at once: the error comes when all ranks have been ended. */
static void fail_rank(struct tsr_crew *c, uint32_t rank, const char *text)
{
    if (!tsr_page_failed(c->plan.page))
        tsr_logf(TSR_LOG_WARN, "rank %u: %s", rank, text);
    tsr_page_fail(c->plan.page, rank, TSR_E_DEVICE, text);
}

/* Notes ended processes; the first that a signal ended is what went wrong. */
static void look_after(struct tsr_crew *c)
{
    for (uint32_t i = 0; i < c->ranks; i++) {
        struct tsr_member *m = &c->member[i];
        char               text[160];
        if (!m->started || !m->pid || m->gone || waitpid(m->pid, &m->exit, WNOHANG) != m->pid)
            continue;
        m->gone = true;
        if (WIFSIGNALED(m->exit))
            (void)snprintf(text, sizeof text, "its process %d was ended by signal %d (%s)",
                           (int)m->pid, WTERMSIG(m->exit), strsignal(WTERMSIG(m->exit)));
        else if (!c->stopped)
            (void)snprintf(text, sizeof text, "its process %d ended too early", (int)m->pid);
        else
            continue;
        fail_rank(c, m->rank, text);
    }
}

/* Of two ranks that stand still: one that is in a sum may only be waiting for the other, and who has
 * stood longer was waited for. */
static bool more_to_blame(const struct tsr_crew *c, uint32_t a, uint32_t b)
{
    const struct tsr_progress *p = &c->plan.page->rank[a].progress;
    const struct tsr_progress *q = &c->plan.page->rank[b].progress;
    bool                       p_waits = atomic_load(&p->op) == TSR_RANK_SUMS,
         q_waits = atomic_load(&q->op) == TSR_RANK_SUMS;
    return p_waits != q_waits ? q_waits : atomic_load(&p->ns) < atomic_load(&q->ns);
}

tsr_status tsr_crew_check(struct tsr_crew *c, struct tsr_err *err)
{
    uint64_t now = tsr_now_ns(), stall = (c->opt.stall_us ? c->opt.stall_us : STALL_US) * 1000u;
    uint32_t late = c->ranks;
    look_after(c);
    /* who did not run for long was stopped, perhaps with all others: they begin anew */
    if (now - c->checked_ns > stall / 2)
        c->anew_ns = now;
    c->checked_ns = now;
    for (uint32_t i = 0; i < c->ranks && !tsr_page_failed(c->plan.page); i++)
        if (now - c->anew_ns > stall &&
            tsr_progress_stalled(&c->plan.page->rank[i].progress, now, stall) &&
            (late == c->ranks || more_to_blame(c, i, late)))
            late = i;
    if (late < c->ranks) {
        char text[200];
        tsr_progress_describe(&c->plan.page->rank[late].progress, late, now, text, sizeof text);
        fail_rank(c, late, text);
    }
    return tsr_page_failure(c->plan.page, err);
}

static tsr_status wait_ready(struct tsr_crew *c, struct tsr_err *err)
{
    while (atomic_load(&c->plan.page->ready) < c->ranks) {
        look_after(c);
        TSR_TRY(tsr_page_failure(c->plan.page, err));
        if (tsr_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        nap();
    }
    return TSR_OK;
}

/* ---- life -------------------------------------------------------------------- */

static unsigned threads_each(unsigned asked, uint32_t ranks)
{
    cpu_set_t set;
    if (asked)
        return asked;
    int      n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    unsigned each = (unsigned)n / ranks;
    return each ? each : 1;
}

/* A device that this process has used is of no use to processes that are forked from it: an earlier step's,
 * or rank 0's of an earlier run. */
static bool as_processes(const struct tsr_crew_options *opt, const struct tsr_registry *r,
                         const struct tsr_layout *l)
{
    uint64_t    all;
    const char *backend = opt->backend ? opt->backend : tsr_registry_backend(r, &all);
    for (uint32_t i = 0; i < tsr_layout_ranks(l); i++) {
        const char *own = tsr_layout_backend(l, i);
        if (own && strcmp(own, TSR_DEFAULT_BACKEND) != 0)
            backend = own;
    }
    if (opt->mates || opt->ranks != TSR_RANKS_PROCESSES)
        return opt->mates != NULL;
    if (!backend || strcmp(backend, TSR_DEFAULT_BACKEND) == 0 || !tsr_spec_backend_made())
        return true;
    tsr_logf(TSR_LOG_INFO,
             "ranks are threads: this process has used backend '%s' already, whose driver does "
             "not work in a process that is forked afterwards",
             backend);
    return false;
}

static struct tsr_frame_limits limits_of(const struct tsr_layout *l, const struct tsr_model *m)
{
    uint32_t most = MOST_TOKENS;
    if (most < l->decode_mb)
        most = l->decode_mb;
    return (struct tsr_frame_limits){ .tokens = most,
                                      .slots = tsr_layout_engine_slots(l),
                                      .hidden = m->hp.hidden,
                                      .vocab = m->hp.vocab };
}

static tsr_status begin(struct tsr_crew *c, struct tsr_registry *r, struct tsr_err *err)
{
    c->member = tsr_new(c->ranks, sizeof *c->member);
    if (!c->member)
        return tsr_fail_nomem(err, c->ranks * sizeof *c->member, "ranks");
    TSR_TRY(tsr_page_create(&c->plan.page, c->ranks, c->plan.layout->n_stages, c->opt.spans,
                            c->plan.epoch, err));
    TSR_TRY(tsr_crew_links(c, r, err));
    if (c->plan.mates)
        tsr_mates_attach(c->plan.mates, c->plan.page, c->plan.layout);
    for (uint32_t i = c->ranks; i-- > 0;) { /* processes first, then threads */
        c->member[i] = (struct tsr_member){ .crew = c, .rank = i };
        if (!c->plan.mates || tsr_mates_rank(c->plan.mates) == i)
            TSR_TRY(start_rank(&c->member[i], err));
    }
    if (c->plan.mates && tsr_mates_rank(c->plan.mates) > 0)
        return TSR_OK;
    TSR_TRY(tsr_crew_feed(c, err));
    return wait_ready(c, err);
}

tsr_status tsr_crew_start(struct tsr_crew **out, struct tsr_registry *r, const struct tsr_model *m,
                          const struct tsr_overlay *o, const struct tsr_layout *layout,
                          const struct tsr_crew_options *opt, struct tsr_err *err)
{
    struct tsr_crew *c = tsr_new(1, sizeof *c);
    if (!c)
        return tsr_fail_nomem(err, sizeof *c, "ranks");
    c->opt = *opt;
    c->ranks = tsr_layout_ranks(layout);
    c->plan = (struct tsr_crew_plan){
        .layout = layout,
        .model = m,
        .overlay = o,
        .scheme = opt->scheme,
        .compensate = opt->compensate,
        .registry = r,
        .backend = opt->backend,
        .transport = opt->transport ? opt->transport : "local",
        .act = opt->act,
        .kv_dtype = opt->kv_dtype,
        .context = opt->context ? opt->context : m->hp.max_positions,
        .deadline_us = opt->deadline_us,
        .threads = threads_each(opt->threads, opt->mates ? tsr_mates_here(opt->mates) : c->ranks),
        .processes = as_processes(opt, r, layout),
        .mates = opt->mates,
        .epoch = opt->mates ? opt->epoch : tsr_now_ns(),
        .limits = limits_of(layout, m),
        .pacing = opt->pacing
    };
    (void)pthread_mutex_init(&c->handle.lock, NULL);
    c->plan.handle = &c->handle;
    (void)pthread_mutex_init(&c->loading, NULL);
    c->plan.loading = c->plan.processes ? NULL : &c->loading;
    tsr_queue_init(&c->work);
    c->hooks = (struct tsr_rank_hooks){ .work = &c->work, .deliver = tsr_crew_deliver, .ctx = c };
    tsr_status st = tsr_crew_lanes(c, err);
    if (st == TSR_OK)
        st = begin(c, r, err);
    if (st != TSR_OK) {
        tsr_crew_destroy(c);
        return st;
    }
    *out = c;
    return TSR_OK;
}

/* Waits for a rank that was told to end. */
static void join(struct tsr_crew *c, struct tsr_member *m, uint64_t until_ns)
{
    if (!m->started || m->gone)
        return;
    if (!m->pid) {
        (void)pthread_join(m->thread, NULL);
        m->gone = true;
        return;
    }
    while (!m->gone && tsr_now_ns() < until_ns) {
        look_after(c);
        nap();
    }
    if (!m->gone) {
        (void)kill(m->pid, SIGKILL);
        while (waitpid(m->pid, &m->exit, 0) < 0 && errno == EINTR) {
        }
        m->gone = true;
        tsr_page_fail(c->plan.page, m->rank, TSR_E_DEVICE, "did not end when it was told to");
    }
}

static void join_all(struct tsr_crew *c, uint64_t grace_ns)
{
    uint64_t until = tsr_now_ns() + grace_ns;
    for (uint32_t i = 0; c->member && i < c->ranks; i++)
        join(c, &c->member[i], until);
    for (uint32_t i = 0; i < c->n_feeders; i++)
        if (c->feeder[i].started) {
            (void)pthread_join(c->feeder[i].thread, NULL);
            c->feeder[i].started = false;
        }
}

tsr_status tsr_crew_stop(struct tsr_crew *c, struct tsr_err *err)
{
    TSR_TRY(tsr_crew_check(c, err));
    c->stopped = true;
    for (uint32_t r = 0; r < c->plan.layout->replicas; r++) {
        struct tsr_portion *b = tsr_new(1, sizeof *b);
        if (!b)
            return tsr_fail_nomem(err, sizeof *b, "the end");
        tsr_frame_make(&b->head, TSR_FRAME_STOP);
        tsr_queue_put(tsr_crew_entry(c, r), b);
    }
    join_all(c, END_NS);
    if (c->plan.mates)
        TSR_TRY(tsr_mates_done(c->plan.mates, err));
    return tsr_page_failure(c->plan.page, err);
}

/* Wakes every rank that waits for another one, also those that never came to talk. */
static void abort_all(struct tsr_crew *c)
{
    struct tsr_errbuf ignored = TSR_ERRBUF(ignored);
    tsr_queue_close(&c->work);
    tsr_rank_abort(&c->handle);
    for (uint32_t i = 0; i < c->n_feeders; i++) {
        tsr_queue_close(&c->feeder[i].queue);
        tsr_edge_abort(&c->feeder[i].end);
    }
    for (uint32_t i = 0; i < c->plan.n_edges; i++) {
        struct tsr_edge_end end = { 0 };
        if (c->edges[i].heads.bytes == 0)
            continue;
        (void)tsr_edge_open(&end, &c->edges[i], true, 0, c->plan.registry, &ignored.err);
        tsr_edge_abort(&end);
        tsr_edge_close(&end);
    }
}

void tsr_crew_destroy(struct tsr_crew *c)
{
    if (!c)
        return;
    bool left = c->n_feeders && c->feeder[0].started;
    for (uint32_t i = 0; c->member && i < c->ranks; i++)
        left = left || (c->member[i].started && !c->member[i].gone);
    if (c->plan.mates && c->plan.page)
        tsr_mates_detach(c->plan.mates);
    if (left) {
        abort_all(c);
        c->stopped = true;
        join_all(c, UINT64_C(500000000));
    }
    for (uint32_t i = 0; i < c->n_feeders; i++)
        if (c->feeder[i].made) {
            tsr_edge_close(&c->feeder[i].end);
            tsr_queue_free(&c->feeder[i].queue);
        }
    for (uint32_t i = 0; i < c->plan.n_edges; i++)
        tsr_edge_free(&c->edges[i]);
    for (uint32_t i = 0; c->plan.groups && i < c->plan.layout->replicas * c->plan.layout->n_stages;
         i++)
        if (c->plan.groups[i].bytes)
            tsr_comm_world_close(&c->plan.groups[i]);
    tsr_queue_free(&c->work);
    (void)pthread_mutex_destroy(&c->loading);
    (void)pthread_mutex_destroy(&c->handle.lock);
    free(c->plan.group_over);
    tsr_crew_lanes_free(c);
    tsr_page_destroy(c->plan.page);
    free(c->plan.groups);
    free(c->edges);
    free(c->feeder);
    free(c->member);
    free(c);
}

bool tsr_crew_choice(const struct tsr_crew *c, uint32_t stage, int phase, const char **codec,
                     enum tsr_comm_algorithm *algorithm)
{
    const struct tsr_page_choice *v = &c->plan.page->choice[TSR_PHASES * stage + (uint32_t)phase];
    if (!atomic_load(&v->fixed))
        return false;
    *codec = v->codec;
    *algorithm = (enum tsr_comm_algorithm)v->algorithm;
    return true;
}

struct tsr_page *tsr_crew_page(struct tsr_crew *c)
{
    return c->plan.page;
}
