/* plugin/guard.h - checks around every call of a plugin's function.
 *
 * The registry returns wrapper tables, whose functions
 *   record the plugin and the call (a crash or an exit names it, plugin/crash.c),
 *   call the plugin's function,
 *   check the floating-point mode, the status and the text,
 *   and, around infrequent calls, the rest of the process state (plugin/state.h).
 * The guard restores what it can and blames the plugin: the call fails with TSR_E_PLUGIN and a message.
 * docs/decisions/plugin-guard.md lists which checks run when, and their cost. */
#ifndef TSR_PLUGIN_GUARD_H
#define TSR_PLUGIN_GUARD_H

#include "base/err.h"
#include "plugin/state.h"

#include <stdbool.h>

/* Sanitizers have handlers and stacks of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TSR_GUARD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define TSR_GUARD_SANITIZED 1
#endif
#endif

/* Whose call: "/p/x.so: solver \"x\" of org.example.x", which outlives every frame. */
struct tsr_plugin_guarded_part {
    char *who;
};

/* One call under way in this thread. */
struct tsr_plugin_guard {
    const struct tsr_plugin_guarded_part *part;
    const char                           *call;
    struct tsr_plugin_guard              *outer;
    struct tsr_plugin_fpmode              fp;
    tsr_status                            inner; /* the failure of a nested call */
    char                                  text;  /* that err began with */
};

/* The innermost; also read by the handlers of signals and of exit. */
extern _Thread_local struct tsr_plugin_guard *tsr_guard_current;

/* The plugin and call that ended last in this thread, and the floating-point mode that its calls start
 * with.  The mode is read if it is not known yet, and around infrequent calls: reading it is most of the
 * cost of a call.  part and call stay apart: side by side, a compiler copies them from a guard by one load
 * of 16 bytes, which waits until the two stores before it are in the cache. */
struct tsr_plugin_guard_last {
    const struct tsr_plugin_guarded_part *part;
    struct tsr_plugin_fpmode              fp;
    const char                           *call;
};
extern _Thread_local struct tsr_plugin_guard_last tsr_plugin_guard_last;

/* tests/bench counts the calls of a run in a separate program. */
#ifdef TSR_GUARD_COUNT
void tsr_plugin_guard_count(const char *kind);
#define TSR_COUNT_CALL(kind) tsr_plugin_guard_count(kind)
#else
#define TSR_COUNT_CALL(kind) ((void)0)
#endif

/* ---- calls of which there are many ----------------------------------------------------------- */

static inline void tsr_guard_enter(struct tsr_plugin_guard              *g,
                                   const struct tsr_plugin_guarded_part *part, const char *call,
                                   struct tsr_err *err)
{
    g->part = part;
    g->call = call;
    g->outer = tsr_guard_current;
    g->inner = TSR_OK;
    g->text = '\0';
    if (err && err->cap) {
        g->text = err->text[0];
        err->text[0] = '\0';
    }
    if (__builtin_expect(!tsr_plugin_guard_last.part, 0))
        tsr_plugin_guard_last.fp = tsr_fpmode_get();
    g->fp = tsr_plugin_guard_last.fp;
    tsr_guard_current = g;
}

/* Restores what the plugin changed, and returns the status for the caller. */
tsr_status tsr_plugin_guard_judge(struct tsr_plugin_guard *g, tsr_status st, struct tsr_err *err);

static inline tsr_status tsr_guard_leave(struct tsr_plugin_guard *g, tsr_status st,
                                         struct tsr_err *err)
{
    TSR_COUNT_CALL("mode");
    tsr_guard_current = g->outer;
    tsr_plugin_guard_last.part = g->part;
    tsr_plugin_guard_last.call = g->call;
    if (__builtin_expect(st != TSR_OK || !tsr_fpmode_equal(g->fp, tsr_fpmode_get()), 0))
        return tsr_plugin_guard_judge(g, st, err);
    if (err && g->text && !err->text[0])
        err->text[0] = g->text;
    return st;
}

/* For calls that run thousands of times in a step and that another call completes: only that one
 * checks the mode.  Nothing is stored that only a failure needs, and a text is moved only if there is
 * one: an operation of a small model takes a microsecond.  Returns the text that err began with. */
static inline char tsr_guard_enter_queued(struct tsr_plugin_guard              *g,
                                          const struct tsr_plugin_guarded_part *part,
                                          const char *call, struct tsr_err *err)
{
    char text = '\0';
    g->part = part;
    g->call = call;
    g->outer = tsr_guard_current;
    g->inner = TSR_OK;
    if (err && err->cap && __builtin_expect(err->text[0], 0)) {
        text = err->text[0];
        err->text[0] = '\0';
    }
    if (__builtin_expect(!tsr_plugin_guard_last.part, 0))
        tsr_plugin_guard_last.fp = tsr_fpmode_get();
    tsr_guard_current = g;
    return text;
}

static inline tsr_status tsr_guard_leave_queued(struct tsr_plugin_guard *g, char text,
                                                tsr_status st, struct tsr_err *err)
{
    TSR_COUNT_CALL("queued");
    tsr_guard_current = g->outer;
    tsr_plugin_guard_last.part = g->part;
    tsr_plugin_guard_last.call = g->call;
    if (__builtin_expect(st != TSR_OK || text, 0)) {
        g->text = text;
        g->fp = tsr_plugin_guard_last.fp;
        return tsr_plugin_guard_judge(g, st, err);
    }
    return st;
}

/* ---- functions of the host that a plugin calls ---------------------------------------------- */

/* Between the two the host works for itself: a crash is not the plugin's.  resume() takes the guard that pause() returned and
 * the status that the plugin gets, which it may return although plugin.h does not define it. */
static inline struct tsr_plugin_guard *tsr_guard_pause(void)
{
    struct tsr_plugin_guard *g = tsr_guard_current;
    tsr_guard_current = NULL;
    return g;
}
static inline tsr_status tsr_guard_resume(struct tsr_plugin_guard *g, tsr_status st)
{
    tsr_guard_current = g;
    if (g && st != TSR_OK)
        g->inner = st;
    return st;
}

/* ---- infrequent calls: the whole process state is checked before and after -------------- */

void       tsr_plugin_guard_enter_life(struct tsr_plugin_guard *g, struct tsr_plugin_state *was,
                                       const struct tsr_plugin_guarded_part *part, const char *call,
                                       struct tsr_err *err);
tsr_status tsr_plugin_guard_leave_life(struct tsr_plugin_guard *g, struct tsr_plugin_state *was,
                                       tsr_status st, struct tsr_err *err);

/* ---- calls that end a piece of work: as the first, and at most ten times a second as the second -- */

tsr_status tsr_plugin_guard_leave_step(struct tsr_plugin_guard *g, tsr_status st,
                                       struct tsr_err *err);

/* ---- the rest of the host ---------------------------------------------------------------------- */

/* Faults of functions that return no status, or whose caller went on all the same: the first sentence of
 * this process, NULL: none.  A command that ends well with one has failed.  [any] */
const char *tsr_plugin_guard_fault(void);
/* Checks the host's descriptors once more and attributes a loss to the last call that ended.  For the end
 * of a command.  [any] */
void tsr_plugin_guard_look_held(void);
/* For tsr_fail_lost_by(): a use of a descriptor found that it is lost.  [any] */
tsr_status tsr_plugin_guard_tell_loss(struct tsr_err *err, const char *path, const char *op);
/* Forgets it; tests only. */
void tsr_plugin_guard_forget(void);

/* body() on a thread of the pool, as a part of the call `g` (NULL: of none).  [worker] */
struct tsr_plugin_guard_loop {
    struct tsr_plugin_guard *g;
    tsr_status (*body)(void *, uint64_t, uint64_t);
    void *arg;
};
tsr_status tsr_plugin_guard_chunk(void *loop, uint64_t begin, uint64_t end);

/* From now on fatal signals and exit() name the plugin call in which they occurred.  Signals with
 * another handler are left alone.  Once per process.  [any] */
void tsr_plugin_guard_watch(void);
/* f is called first for an exit() of a plugin ("called _exit()"), and may end the process itself;
 * NULL: none.  [setup] */
void tsr_plugin_guard_on_exit(void (*f)(const struct tsr_plugin_guard *g, const char *what));
/* An alternate stack for the handler; for the calling thread, once. */
void tsr_plugin_guard_stack(void);

#endif
