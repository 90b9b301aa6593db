/* Watches the ranks for deaths, stalls and lost work. The watcher never waits for a rank: it polls, and
 * reports a late rank after `stall`. */
#include "base/event.h"
#include "batch/watch.h"
#include "runtime/group_internal.h"
#include "runtime/peers.h"

#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define NAP_NS    1000000
#define SAMPLE_NS UINT64_C(20000000) /* between samples of the clocks */
/* So many times `stall` a step of a load may take processor time without a beat. */
#define BUSY UINT64_C(20)

void tsr_runtime_group_nap(void)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

void tsr_runtime_group_say(const struct tsr_runtime_group *c, uint32_t rank, const char *kind,
                           const char *text)
{
    const struct tsr_runtime_progress *p = &c->plan.page->rank[rank].progress;
    const struct tsr_event             e = { .kind = kind,
                                             .has_rank = true,
                                             .rank = rank,
                                             .process = atomic_load(&p->pid),
                                             .doing = tsr_runtime_progress_doing(p) };
    tsr_event_say(&e, "rank %u: %s", rank, text);
}

/* Reported at once: the error returns when all ranks have ended. */
void tsr_runtime_group_fail(struct tsr_runtime_group *c, uint32_t rank, const char *text)
{
    if (!tsr_runtime_page_failed(c->plan.page))
        tsr_runtime_group_say(c, rank, "rank-failed", text);
    struct tsr_err_sent why = { .status = TSR_E_DEVICE };
    (void)snprintf(why.text, sizeof why.text, "%s", text);
    tsr_runtime_page_fail(c->plan.page, rank, &why);
}

/* Records ended processes; the first that a signal ended is the failure. */
void tsr_runtime_group_look_after(struct tsr_runtime_group *c)
{
    for (uint32_t i = 0; i < c->ranks; i++) {
        struct tsr_runtime_member *m = &c->member[i];
        char                       text[160];
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
        tsr_runtime_group_fail(c, m->rank, text);
    }
}

/* ---- stalled ranks ------------------------------------------------------------- */

/* Notes whether a rank takes processor time.  One that starts, loads or ends may take long for a step: there
 * it is a beat, unless that is all there is for very long. */
static void sample(struct tsr_runtime_group *c, struct tsr_runtime_member *m, uint64_t now)
{
    struct tsr_runtime_progress *p = &c->plan.page->rank[m->rank].progress;
    if (!m->started || m->gone)
        return;
    uint64_t beats = atomic_load(&p->beats) - m->touches;
    uint64_t spent = m->pid ? tsr_runtime_process_spent(m->pid) : tsr_runtime_progress_spent(p);
    if (beats != m->beats) {
        m->beats = beats;
        m->beat_ns = now;
    }
    if (spent == m->spent)
        return;
    m->spent = spent;
    m->spent_ns = now;
    if (tsr_runtime_progress_long(p) && now - m->beat_ns <= BUSY * tsr_group_stall_ns(c)) {
        m->touches++;
        tsr_runtime_progress_touch(p);
    }
}

void tsr_runtime_group_sample(struct tsr_runtime_group *c)
{
    uint64_t now = tsr_runtime_now_ns();
    if (now - c->sampled_ns < SAMPLE_NS)
        return;
    c->sampled_ns = now;
    for (uint32_t i = 0; i < c->ranks; i++)
        sample(c, &c->member[i], now);
}

/* Of two stalled ranks: one that is in a sum may only be waiting for the other; a waiting rank uses
 * processor time now and then, a frozen one does not; and the rank that stalled first made the other wait. */
static bool more_to_blame(const struct tsr_runtime_group *c, uint32_t a, uint32_t b)
{
    const struct tsr_runtime_progress *p = &c->plan.page->rank[a].progress;
    const struct tsr_runtime_progress *q = &c->plan.page->rank[b].progress;
    bool                               p_waits = atomic_load(&p->op) == TSR_RUNTIME_RANK_SUMS,
         q_waits = atomic_load(&q->op) == TSR_RUNTIME_RANK_SUMS;
    uint64_t p_ran = c->member[a].spent_ns, q_ran = c->member[b].spent_ns; /* 0: on another host */
    uint64_t apart = p_ran > q_ran ? p_ran - q_ran : q_ran - p_ran;
    if (p_waits != q_waits)
        return q_waits;
    if (p_ran && q_ran && apart > tsr_group_stall_ns(c) / 2)
        return p_ran < q_ran;
    return atomic_load(&p->ns) < atomic_load(&q->ns);
}

/* Who is in a sum may wait for one that beat a little later: that one's time is up first. */
static bool stands_still(const struct tsr_runtime_group *c, uint32_t rank, uint64_t now)
{
    const struct tsr_runtime_progress *p = &c->plan.page->rank[rank].progress;
    uint64_t                           stall = tsr_group_stall_ns(c);
    return tsr_runtime_progress_stalled(
        p, now, atomic_load(&p->op) == TSR_RUNTIME_RANK_SUMS ? stall + stall / 2 : stall);
}

tsr_status tsr_runtime_group_check(struct tsr_runtime_group *c, struct tsr_err *err)
{
    uint64_t now = tsr_runtime_now_ns(), stall = tsr_group_stall_ns(c);
    uint32_t late = c->ranks;
    tsr_runtime_group_look_after(c);
    tsr_runtime_group_sample(c);
    /* a watcher that did not run for long was stopped, perhaps with all ranks: their timeouts start again */
    if (now - c->checked_ns > stall / 2)
        c->anew_ns = now;
    c->checked_ns = now;
    for (uint32_t i = 0; i < c->ranks && !tsr_runtime_page_failed(c->plan.page); i++)
        if (now - c->anew_ns > stall && stands_still(c, i, now) &&
            (late == c->ranks || more_to_blame(c, i, late)))
            late = i;
    if (late < c->ranks) {
        char text[200];
        tsr_runtime_progress_describe(&c->plan.page->rank[late].progress, now, text, sizeof text);
        tsr_runtime_group_fail(c, late, text);
    }
    return tsr_runtime_page_failure(c->plan.page, err);
}

/* ---- readiness ----------------------------------------------------------------- */

void tsr_runtime_group_beat(struct tsr_runtime_group *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->ranks; i++)
        sum += atomic_load(&c->plan.page->rank[i].progress.beats);
    if (sum != c->beats)
        tsr_batch_watch_beat();
    c->beats = sum;
}

tsr_status tsr_runtime_group_wait_ready(struct tsr_runtime_group *c, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    tsr_batch_watch_ranks(true);
    while (st == TSR_OK && atomic_load(&c->plan.page->ready) < c->ranks) {
        st = tsr_runtime_group_check(c, err);
        if (st == TSR_OK && tsr_plugin_cancelled())
            st = tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        tsr_runtime_group_beat(c);
        tsr_runtime_group_nap();
    }
    tsr_batch_watch_ranks(false);
    return st;
}

/* ---- work that does not come back ---------------------------------------------- */

/* Grows while a rank works or a message moves; true: a rank is at work now, which stall is the limit of. */
static bool at_work(const struct tsr_runtime_group *c, uint64_t *sum)
{
    bool any = false;
    *sum = 0;
    for (uint32_t i = 0; i < c->ranks; i++) {
        const struct tsr_runtime_page_rank *r = &c->plan.page->rank[i];
        *sum += atomic_load(&r->progress.step) + atomic_load(&r->numbers.moved);
        uint32_t op = atomic_load(&r->progress.op);
        any = any || op == TSR_RUNTIME_RANK_WORKS || op == TSR_RUNTIME_RANK_SUMS;
    }
    return any;
}

/* The first rank that has done less than the one before it in some replica; else the one that gives the results
 * of the first. */
static uint32_t who_lost(const struct tsr_runtime_group *c)
{
    const struct tsr_runtime_layout *l = c->plan.layout;
    for (uint32_t k = 0; k < l->replicas; k++)
        for (uint32_t s = 0; s < l->n_stages; s++)
            for (uint32_t t = 0; t < l->stages[s].ranks; t++) {
                uint32_t first = tsr_runtime_layout_rank(l, k, 0, 0),
                         here = tsr_runtime_layout_rank(l, k, s, t);
                if (atomic_load(&c->plan.page->rank[here].numbers.batches) <
                    atomic_load(&c->plan.page->rank[first].numbers.batches))
                    return here;
            }
    return tsr_runtime_layout_rank(l, 0, l->n_stages - 1, 0);
}

tsr_status tsr_runtime_group_check_work(struct tsr_runtime_group *c, uint64_t handed_ns,
                                        struct tsr_err *err)
{
    uint64_t now = tsr_runtime_now_ns(), sum,
             limit = 1000 * c->plan.deadline_us + tsr_group_stall_ns(c);
    TSR_TRY(tsr_runtime_group_check(c, err));
    if (at_work(c, &sum) || sum != c->work_sum || c->anew_ns == c->checked_ns) {
        c->work_sum = sum;
        c->work_ns = now;
    }
    if (c->work_ns < handed_ns)
        c->work_ns = handed_ns;
    if (now - c->work_ns > limit) {
        char text[200];
        (void)snprintf(text, sizeof text,
                       "all ranks are idle and nothing has moved between them for %.1f s while "
                       "results are awaited: a message to this rank or from it was lost",
                       (double)(now - c->work_ns) / 1e9);
        tsr_runtime_group_fail(c, who_lost(c), text);
    }
    return tsr_runtime_page_failure(c->plan.page, err);
}
