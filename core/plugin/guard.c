/* The verdict on a call of a plugin, and the faults of the process. */
#include "plugin/guard.h"

#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOOK_NS  INT64_C(100000000)  /* between two checks of the whole process from one thread */
#define UMASK_NS INT64_C(1000000000) /* between two that read the umask */

_Thread_local struct tsr_plugin_guard     *tsr_guard_current;
_Thread_local struct tsr_plugin_guard_last tsr_plugin_guard_last;

/* The process as this thread last saw it, without copies of streams. */
static _Thread_local struct {
    bool                    valid;
    int64_t                 at_ns, umask_ns;
    struct tsr_plugin_state state;
} settled;

/* ---- faults --------------------------------------------------------------------------------- */

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static char            fault_text[sizeof((struct tsr_errbuf *)0)->text];
static _Atomic int     fault_there;

const char *tsr_plugin_guard_fault(void)
{
    return atomic_load(&fault_there) ? fault_text : NULL;
}

void tsr_plugin_guard_forget(void)
{
    atomic_store(&fault_there, 0);
}

/* Stored for the end of the command, logged if nothing else reports it, and put into err. */
static tsr_status fault(const struct tsr_plugin_guarded_part *part, const char *call,
                        const char *what, struct tsr_err *err)
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
    return tsr_err_copy(err, TSR_E_PLUGIN, &e.err);
}

/* ---- one call ---------------------------------------------------------------------------------- */

/* Statuses of plugin.h; those of the host come back only from its own functions that the plugin called. */
static bool known(const struct tsr_plugin_guard *g, tsr_status st)
{
    return (st <= TSR_OK && st >= TSR_E_CANCELLED) || (g->inner != TSR_OK && st == g->inner);
}

static tsr_status check_status(const struct tsr_plugin_guard *g, tsr_status st, struct tsr_err *err)
{
    static const char *const names[] = {
        "TSR_OK",   "TSR_E_INVAL",  "TSR_E_CONFIG",  "TSR_E_UNSUPPORTED", "TSR_E_NOMEM",
        "TSR_E_IO", "TSR_E_DEVICE", "TSR_E_NUMERIC", "TSR_E_CANCELLED"
    };
    bool said = err && err->cap && err->text[0];
    char what[700];
    if (!known(g, st)) {
        (void)snprintf(what, sizeof what,
                       "answered %d, which is not a status of tessera/plugin.h%s%.500s", (int)st,
                       said ? ", and said: " : "", said ? err->text : "");
        return fault(g->part, g->call, what, err);
    }
    if (st != TSR_OK && !said && st >= TSR_E_CANCELLED)
        return tsr_fail(err, st, "%s: %s() failed with %s and gave no reason", g->part->who,
                        g->call, names[-st]);
    return st;
}

/* A host that goes on has the status of the call that failed inside of this one. */
static tsr_status pass(struct tsr_plugin_guard *g, tsr_status st)
{
    if (st != TSR_OK && g->outer)
        g->outer->inner = st;
    return st;
}

tsr_status tsr_plugin_guard_judge(struct tsr_plugin_guard *g, tsr_status st, struct tsr_err *err)
{
    struct tsr_plugin_fpmode now = tsr_fpmode_get();
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

static void settle(const struct tsr_plugin_state *as)
{
    if (as) {
        settled.state = *as;
        settled.state.copy[0] = settled.state.copy[1] = settled.state.copy[2] = -1;
    } else {
        tsr_plugin_state_take(&settled.state);
        tsr_plugin_state_free(&settled.state);
    }
    settled.at_ns = settled.umask_ns = coarse_ns();
    settled.valid = true;
}

/* A forked child sets its own streams and handlers; if a plugin call forked it, its exit does not
 * end that call. */
static void after_fork(void)
{
    tsr_guard_current = NULL;
    settled.valid = false;
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork);
}

/* ---- descriptors of the host ---------------------------------------------------------------------- */

/* The last call, in any thread, that ended with a check of the process. */
static struct {
    const struct tsr_plugin_guarded_part *part;
    const char                           *call;
} looked;

static void note_look(const struct tsr_plugin_guard *g)
{
    pthread_mutex_lock(&fault_lock);
    looked.part = g->part;
    looked.call = g->call;
    pthread_mutex_unlock(&fault_lock);
}

/* Whose call it most likely was: the one under way here, the one that ended last here, or elsewhere. */
static bool find_suspect(const struct tsr_plugin_guarded_part **part, const char **call)
{
    if (tsr_guard_current) {
        *part = tsr_guard_current->part;
        *call = tsr_guard_current->call;
    } else if (tsr_plugin_guard_last.part) {
        *part = tsr_plugin_guard_last.part;
        *call = tsr_plugin_guard_last.call;
    } else {
        pthread_mutex_lock(&fault_lock);
        *part = looked.part;
        *call = looked.call;
        pthread_mutex_unlock(&fault_lock);
    }
    return *part != NULL;
}

/* An unchecked call, or an earlier one, caused a loss that was found later. */
static bool find_loss(char *what, size_t cap)
{
    char found[1100];
    bool some = tsr_plugin_state_compare_held(found, sizeof found) > 0;
    (void)snprintf(what, cap, "or a call before it %s", found);
    return some;
}

void tsr_plugin_guard_look_held(void)
{
    const struct tsr_plugin_guarded_part *part;
    const char                           *call;
    char                                  what[1200];
    if (find_suspect(&part, &call) && find_loss(what, sizeof what))
        (void)fault(part, call, what, NULL);
}

tsr_status tsr_plugin_guard_tell_loss(struct tsr_err *err, const char *path, const char *op)
{
    const struct tsr_plugin_guarded_part *part;
    const char                           *call;
    char                                  what[1200];
    if (!find_suspect(&part, &call))
        return tsr_fail(err, TSR_E_BUG,
                        "%s: cannot %s: its descriptor was closed before any plugin was called",
                        path, op);
    if (find_loss(what, sizeof what))
        return fault(part, call, what, err);
    return tsr_fail(err, TSR_E_PLUGIN, "%s: cannot %s: %s", path, op,
                    tsr_plugin_guard_fault() ? tsr_plugin_guard_fault()
                                             : "a plugin closed its descriptor");
}

/* ---- calls of which there are few --------------------------------------------------------------- */

/* The state before a call.  What is found to have changed before it is another's. */
static void take_before(struct tsr_plugin_state *was, const struct tsr_plugin_guarded_part *part,
                        const char *call)
{
    char what[1200];
    bool with_umask = settled.valid && coarse_ns() - settled.umask_ns >= UMASK_NS;
    bool differs = settled.valid ? tsr_plugin_state_compare_later(&settled.state, with_umask, what,
                                                                  sizeof what) > 0
                                 : find_loss(what, sizeof what);
    if (differs) {
        const struct tsr_plugin_guarded_part *who;
        const char                           *its;
        bool                                  known = find_suspect(&who, &its);
        (void)fault(known ? who : part, known ? its : call, what, NULL);
    }
    if (settled.valid && !differs)
        tsr_plugin_state_take_known(was, &settled.state, with_umask);
    else
        tsr_plugin_state_take(was);
}

void tsr_plugin_guard_enter_life(struct tsr_plugin_guard *g, struct tsr_plugin_state *was,
                                 const struct tsr_plugin_guarded_part *part, const char *call,
                                 struct tsr_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    tsr_plugin_guard_stack();
    take_before(was, part, call);
    tsr_plugin_guard_last.part = part;
    tsr_plugin_guard_last.call = call;
    tsr_plugin_guard_last.fp = was->fp;
    tsr_guard_enter(g, part, call, err);
}

tsr_status tsr_plugin_guard_leave_life(struct tsr_plugin_guard *g, struct tsr_plugin_state *was,
                                       tsr_status st, struct tsr_err *err)
{
    char     what[1200];
    unsigned n = tsr_plugin_state_compare(was, what, sizeof what);
    TSR_COUNT_CALL("few");
    tsr_guard_current = g->outer;
    tsr_plugin_state_free(was);
    settle(n ? NULL : was);
    tsr_plugin_guard_last.part = g->part;
    tsr_plugin_guard_last.call = g->call;
    note_look(g);
    if (n)
        return pass(g, fault(g->part, g->call, what, err));
    return tsr_plugin_guard_judge(g, st, err);
}

tsr_status tsr_plugin_guard_leave_step(struct tsr_plugin_guard *g, tsr_status st,
                                       struct tsr_err *err)
{
    char what[1200];
    st = tsr_guard_leave(g, st, err);
    int64_t now = coarse_ns();
    if (settled.valid && now - settled.at_ns < LOOK_NS)
        return st;
    bool with_umask = now - settled.umask_ns >= UMASK_NS;
    TSR_COUNT_CALL(with_umask ? "umask" : "look");
    note_look(g);
    if (settled.valid
            ? tsr_plugin_state_compare_later(&settled.state, with_umask, what, sizeof what)
            : tsr_plugin_state_compare_held(what, sizeof what)) {
        st = pass(g, fault(g->part, g->call, what, err));
        settled.valid = false;
    }
    if (!settled.valid)
        settle(NULL);
    settled.at_ns = now;
    if (with_umask)
        settled.umask_ns = now;
    return st;
}

/* ---- threads of the pool ------------------------------------------------------------------------- */

tsr_status tsr_plugin_guard_chunk(void *loop, uint64_t begin, uint64_t end)
{
    const struct tsr_plugin_guard_loop *l = loop;
    struct tsr_plugin_guard             g;
    if (!l->g)
        return l->body(l->arg, begin, end);
    tsr_plugin_guard_stack();
    g = *l->g;
    g.outer = tsr_guard_current;
    g.fp = tsr_fpmode_get();
    tsr_guard_current = &g;
    tsr_status               st = l->body(l->arg, begin, end);
    struct tsr_plugin_fpmode now = tsr_fpmode_get();
    tsr_guard_current = g.outer;
    if (tsr_fpmode_equal(g.fp, now))
        return st;
    g.text = '\0';
    return tsr_plugin_guard_judge(&g, st, NULL);
}
