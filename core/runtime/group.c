/* Starts the ranks (group_watch.c watches them, group_end.c ends them). */
#include "base/log.h"
#include "base/mem.h"
#include "plan/cost/workload.h"
#include "runtime/group_internal.h"
#include "runtime/peers.h"
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

#define STALL_US UINT64_C(5000000)
#define WAIT_US  UINT64_C(10000000)

/* ---- ranks ------------------------------------------------------------------- */

static void *run_thread(void *arg)
{
    struct tsr_runtime_member *m = arg;
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    (void)tsr_runtime_rank_run(&m->group->plan, m->rank, m->rank == 0 ? &m->group->hooks : NULL,
                               &e.err);
    atomic_store(&m->returned, 1);
    return NULL;
}

_Noreturn static void run_process(const struct tsr_runtime_member *m, pid_t parent)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)signal(SIGINT, SIG_IGN); /* the coordinator decides */
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    _exit(tsr_runtime_rank_run(&m->group->plan, m->rank, NULL, &e.err) == TSR_OK ? 0 : 1);
}

static tsr_status start_rank(struct tsr_runtime_member *m, struct tsr_err *err)
{
    struct tsr_runtime_progress *p = &m->group->plan.page->rank[m->rank].progress;
    tsr_runtime_progress_beat(p, TSR_RUNTIME_RANK_STARTS,
                              0); /* before its own first step a rank may also make no progress */
    if (m->rank > 0 && m->group->plan.processes && !m->group->plan.peers) {
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
        TSR_TRY(tsr_runtime_thread_start(&m->thread, run_thread, m, err));
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
static bool as_processes(const struct tsr_runtime_group_options *opt,
                         const struct tsr_runtime_layout        *l)
{
    const char *backend = opt->on.backend;
    for (uint32_t i = 0; i < tsr_runtime_layout_ranks(l); i++) {
        const char *own = tsr_runtime_layout_backend(l, i);
        if (own && strcmp(own, TSR_PLUGIN_DEFAULT_BACKEND) != 0)
            backend = own;
    }
    if (opt->peers || opt->ranks != TSR_RUNTIME_RANKS_PROCESSES)
        return opt->peers != NULL;
    if (!backend || strcmp(backend, TSR_PLUGIN_DEFAULT_BACKEND) == 0 ||
        !tsr_plugin_spec_backend_made())
        return true;
    tsr_logf(TSR_LOG_INFO,
             "ranks are threads: this process has used backend '%s' already, whose driver does "
             "not work in a process that is forked afterwards",
             backend);
    return false;
}

static struct tsr_runtime_frame_limits limits_of(const struct tsr_runtime_layout *l,
                                                 const struct tsr_model          *m)
{
    uint32_t most = TSR_PLAN_MOST_TOKENS;
    if (most < l->decode_mb)
        most = l->decode_mb;
    return (struct tsr_runtime_frame_limits){ .tokens = most,
                                              .slots = tsr_runtime_layout_engine_slots(l),
                                              .hidden = m->hp.hidden,
                                              .vocab = m->hp.vocab };
}

static tsr_status begin(struct tsr_runtime_group *c, struct tsr_registry *r, struct tsr_err *err)
{
    c->member = tsr_new(c->ranks, sizeof *c->member);
    if (!c->member)
        return tsr_fail_nomem(err, c->ranks * sizeof *c->member, "ranks");
    TSR_TRY(tsr_runtime_page_create(&c->plan.page, c->ranks, c->plan.layout->n_stages, c->opt.spans,
                                    c->plan.epoch, err));
    TSR_TRY(tsr_runtime_group_links(c, r, err));
    if (c->plan.peers)
        tsr_runtime_peers_attach(c->plan.peers, c->plan.page, c->plan.layout);
    for (uint32_t i = c->ranks; i-- > 0;) { /* processes first, then threads */
        c->member[i] = (struct tsr_runtime_member){ .group = c, .rank = i };
        if (!c->plan.peers || tsr_runtime_peers_rank(c->plan.peers) == i)
            TSR_TRY(start_rank(&c->member[i], err));
        else /* it is heard from now on */
            tsr_runtime_progress_beat(&c->plan.page->rank[i].progress, TSR_RUNTIME_RANK_STARTS, 0);
    }
    if (c->plan.peers && tsr_runtime_peers_rank(c->plan.peers) > 0)
        return TSR_OK;
    TSR_TRY(tsr_runtime_group_feed(c, err));
    return tsr_runtime_group_wait_ready(c, err);
}

tsr_status tsr_runtime_group_start(struct tsr_runtime_group **out, struct tsr_registry *r,
                                   const struct tsr_model *m, const struct tsr_model_overlay *o,
                                   const struct tsr_runtime_layout        *layout,
                                   const struct tsr_runtime_group_options *opt, struct tsr_err *err)
{
    if (opt->peers && tsr_runtime_peers_rank(opt->peers) > 0)
        tsr_model_context_quiet(m);
    TSR_TRY(tsr_model_context(m, opt->context, err)); /* once, not on each rank */
    struct tsr_runtime_group *c = tsr_new(1, sizeof *c);
    if (!c)
        return tsr_fail_nomem(err, sizeof *c, "ranks");
    c->opt = *opt;
    c->opt.stall_us = opt->stall_us ? opt->stall_us : STALL_US;
    c->ranks = tsr_runtime_layout_ranks(layout);
    c->plan = (struct tsr_runtime_group_plan){
        .layout = layout,
        .model = m,
        .overlay = o,
        .scheme = opt->scheme,
        .compensate = opt->compensate,
        .registry = r,
        .on = opt->on,
        .transport = opt->transport ? opt->transport : "local",
        .act = opt->act,
        .kv_dtype = opt->kv_dtype,
        .kv_layers = opt->kv_layers,
        .context = opt->context ? opt->context : m->hp.max_positions,
        .deadline_us = opt->deadline_us ? opt->deadline_us : WAIT_US,
        .threads =
            threads_each(opt->threads, opt->peers ? tsr_runtime_peers_here(opt->peers) : c->ranks),
        .processes = as_processes(opt, layout),
        .peers = opt->peers,
        .epoch = opt->peers ? opt->epoch : tsr_runtime_now_ns(),
        .limits = limits_of(layout, m),
        .pacing = opt->pacing
    };
    (void)pthread_mutex_init(&c->handle.lock, NULL);
    c->plan.handle = &c->handle;
    (void)pthread_mutex_init(&c->loading, NULL);
    c->plan.loading = c->plan.processes ? NULL : &c->loading;
    tsr_runtime_queue_init(&c->work);
    c->hooks = (struct tsr_runtime_rank_hooks){ .work = &c->work,
                                                .deliver = tsr_runtime_group_deliver,
                                                .ctx = c };
    tsr_status st = tsr_runtime_group_slot_sets(c, err);
    if (st == TSR_OK)
        st = begin(c, r, err);
    if (st != TSR_OK) {
        tsr_runtime_group_destroy(c);
        return st;
    }
    *out = c;
    return TSR_OK;
}

bool tsr_runtime_group_choice(const struct tsr_runtime_group *c, uint32_t stage, int phase,
                              const char **codec, enum tsr_comm_algorithm *algorithm)
{
    const struct tsr_runtime_page_choice *v =
        &c->plan.page->choice[TSR_PLAN_PHASES * stage + (uint32_t)phase];
    if (!atomic_load(&v->fixed))
        return false;
    *codec = v->codec;
    *algorithm = (enum tsr_comm_algorithm)v->algorithm;
    return true;
}

struct tsr_runtime_page *tsr_runtime_group_page(struct tsr_runtime_group *c)
{
    return c->plan.page;
}
