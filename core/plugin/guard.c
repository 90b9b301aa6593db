/* The verdict on a call of a plugin, and the faults of the process. */
#include "plugin/guard.h"

#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOOK_NS INT64_C(100000000) /* between two looks at the whole process from one thread */

_Thread_local struct tsr_guard     *tsr_guard_current;
_Thread_local struct tsr_guard_last tsr_guard_last;

/* The process as this thread last saw it, without copies of streams. */
static _Thread_local struct {
    bool             valid;
    int64_t          at_ns;
    struct tsr_state state;
} settled;

/* ---- faults --------------------------------------------------------------------------------- */

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static char            fault_text[sizeof((struct tsr_errbuf *)0)->text];
static _Atomic int     fault_there;

const char *tsr_guard_fault(void)
{
    return atomic_load(&fault_there) ? fault_text : NULL;
}

void tsr_guard_forget(void)
{
    atomic_store(&fault_there, 0);
}

/* Kept for the end of the command, logged where nobody else will say it, and put into err. */
static tsr_status fault(const struct tsr_guarded_part *part, const char *call, const char *what,
                        struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)tsr_fail(&e.err, TSR_E_PLUGIN,
                   "%s: %s() %s; this is the plugin's fault, and its "
                   "results cannot be trusted",
                   part->who, call, what);
    pthread_mutex_lock(&fault_lock);
    if (!atomic_load(&fault_there)) {
        memcpy(fault_text, e.text, sizeof fault_text);
        atomic_store(&fault_there, 1);
    }
    pthread_mutex_unlock(&fault_lock);
    if (!err || !err->cap)
        tsr_logf(TSR_LOG_WARN, "%s", e.text);
    return tsr_fail(err, TSR_E_PLUGIN, "%s", e.text);
}

/* ---- one call ---------------------------------------------------------------------------------- */

/* Statuses of plugin.h; those of the host come back only from its own functions that the plugin called. */
static bool known(const struct tsr_guard *g, tsr_status st)
{
    return (st <= TSR_OK && st >= TSR_E_CANCELLED) || (g->inner != TSR_OK && st == g->inner);
}

static tsr_status check_status(const struct tsr_guard *g, tsr_status st, struct tsr_err *err)
{
    static const char *const names[] = {
        "TSR_OK",   "TSR_E_INVAL",  "TSR_E_CONFIG",  "TSR_E_UNSUPPORTED", "TSR_E_NOMEM",
        "TSR_E_IO", "TSR_E_DEVICE", "TSR_E_NUMERIC", "TSR_E_CANCELLED"
    };
    bool said = err && err->cap && err->text[0];
    char what[700];
    if (!known(g, st)) {
        (void)snprintf(what, sizeof what,
                       "answered %d, which is no status of tessera/plugin.h%s%.500s", (int)st,
                       said ? ", and said: " : "", said ? err->text : "");
        return fault(g->part, g->call, what, err);
    }
    if (st != TSR_OK && !said && st >= TSR_E_CANCELLED)
        return tsr_fail(err, st, "%s: %s() failed with %s and gave no reason", g->part->who,
                        g->call, names[-st]);
    return st;
}

/* A host that goes on has the status of the call that failed inside of this one. */
static tsr_status pass(struct tsr_guard *g, tsr_status st)
{
    if (st != TSR_OK && g->outer)
        g->outer->inner = st;
    return st;
}

tsr_status tsr_guard_judge(struct tsr_guard *g, tsr_status st, struct tsr_err *err)
{
    struct tsr_fpmode now = tsr_fpmode_get();
    if (!tsr_fpmode_equal(g->fp, now)) {
        char what[120];
        tsr_fpmode_set(g->fp);
        (void)snprintf(what, sizeof what,
                       "changed the processor's floating-point mode from %x/%x to %x/%x",
                       g->fp.vector, g->fp.scalar, now.vector, now.scalar);
        return pass(g, fault(g->part, g->call, what, err));
    }
    st = check_status(g, st, err);
    if (st == TSR_OK && err && g->text && !err->text[0])
        err->text[0] = g->text;
    return pass(g, st);
}

/* ---- the whole process --------------------------------------------------------------------------- */

static int64_t coarse_ns(void)
{
    struct timespec t = { 0, 0 };
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void settle(const struct tsr_state *as)
{
    if (as) {
        settled.state = *as;
        settled.state.copy[0] = settled.state.copy[1] = settled.state.copy[2] = -1;
    } else {
        tsr_state_take(&settled.state);
        tsr_state_free(&settled.state);
    }
    settled.at_ns = coarse_ns();
    settled.valid = true;
}

/* A child of fork() gets streams and handlers of its own; where a call made it, its end is not the
 * call's. */
static void after_fork(void)
{
    tsr_guard_current = NULL;
    settled.valid = false;
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork);
}

void tsr_guard_enter_life(struct tsr_guard *g, struct tsr_state *was,
                          const struct tsr_guarded_part *part, const char *call,
                          struct tsr_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char                  what[1200];
    (void)pthread_once(&once, watch_forks);
    tsr_guard_stack();
    if (settled.valid && tsr_state_compare_later(&settled.state, what, sizeof what))
        (void)fault(tsr_guard_last.part ? tsr_guard_last.part : part,
                    tsr_guard_last.part ? tsr_guard_last.call : call, what, NULL);
    tsr_state_take(was);
    tsr_guard_last.part = part;
    tsr_guard_last.call = call;
    tsr_guard_last.fp = was->fp;
    tsr_guard_enter(g, part, call, err);
}

tsr_status tsr_guard_leave_life(struct tsr_guard *g, struct tsr_state *was, tsr_status st,
                                struct tsr_err *err)
{
    char     what[1200];
    unsigned n = tsr_state_compare(was, what, sizeof what);
    tsr_guard_current = g->outer;
    tsr_state_free(was);
    settle(n ? NULL : was);
    tsr_guard_last.part = g->part;
    tsr_guard_last.call = g->call;
    if (n)
        return pass(g, fault(g->part, g->call, what, err));
    return tsr_guard_judge(g, st, err);
}

tsr_status tsr_guard_leave_step(struct tsr_guard *g, tsr_status st, struct tsr_err *err)
{
    char what[1200];
    st = tsr_guard_leave(g, st, err);
    if (settled.valid && coarse_ns() - settled.at_ns < LOOK_NS)
        return st;
    if (settled.valid && tsr_state_compare_later(&settled.state, what, sizeof what)) {
        st = pass(g, fault(g->part, g->call, what, err));
        settled.valid = false;
    }
    if (!settled.valid)
        settle(NULL);
    settled.at_ns = coarse_ns();
    return st;
}

/* ---- threads of the pool ------------------------------------------------------------------------- */

tsr_status tsr_guard_chunk(void *loop, uint64_t begin, uint64_t end)
{
    const struct tsr_guard_loop *l = loop;
    struct tsr_guard             g;
    if (!l->g)
        return l->body(l->arg, begin, end);
    tsr_guard_stack();
    g = *l->g;
    g.outer = tsr_guard_current;
    g.fp = tsr_fpmode_get();
    tsr_guard_current = &g;
    tsr_status        st = l->body(l->arg, begin, end);
    struct tsr_fpmode now = tsr_fpmode_get();
    tsr_guard_current = g.outer;
    if (tsr_fpmode_equal(g.fp, now))
        return st;
    g.text = '\0';
    return tsr_guard_judge(&g, st, NULL);
}
