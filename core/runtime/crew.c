/* Starts the ranks (crew_watch.c watches them, crew_end.c ends them). */
#include "base/log.h"
#include "base/mem.h"
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
#define WAIT_US     UINT64_C(10000000)

/* ---- ranks ------------------------------------------------------------------- */

static void *run_thread(void *arg)
{
    struct tsr_member *m = arg;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    (void)tsr_rank_run(&m->crew->plan, m->rank, m->rank == 0 ? &m->crew->hooks : NULL, &e.err);
    atomic_store(&m->returned, 1);
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
    struct tsr_progress *p = &m->crew->plan.page->rank[m->rank].progress;
    tsr_progress_beat(p, TSR_RANK_STARTS, 0); /* before its own first one it may stand still too */
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
        atomic_store(&p->pid, (int32_t)m->pid);
    } else {
        TSR_TRY(tsr_thread_start(&m->thread, run_thread, m, err));
    }
    m->started = true;
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
        else /* it is heard from now on */
            tsr_progress_beat(&c->plan.page->rank[i].progress, TSR_RANK_STARTS, 0);
    }
    if (c->plan.mates && tsr_mates_rank(c->plan.mates) > 0)
        return TSR_OK;
    TSR_TRY(tsr_crew_feed(c, err));
    return tsr_crew_wait_ready(c, err);
}

tsr_status tsr_crew_start(struct tsr_crew **out, struct tsr_registry *r, const struct tsr_model *m,
                          const struct tsr_overlay *o, const struct tsr_layout *layout,
                          const struct tsr_crew_options *opt, struct tsr_err *err)
{
    struct tsr_crew *c = tsr_new(1, sizeof *c);
    if (!c)
        return tsr_fail_nomem(err, sizeof *c, "ranks");
    c->opt = *opt;
    c->opt.stall_us = opt->stall_us ? opt->stall_us : STALL_US;
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
        .deadline_us = opt->deadline_us ? opt->deadline_us : WAIT_US,
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
