/* plugin/guard.h - what the host does around every call of a plugin's function.
 *
 * The registry hands out tables of its own, whose functions
 *   note the plugin and the call (a crash or an exit is named by it, plugin/crash.c),
 *   call the plugin's function,
 *   look at the floating-point mode, the status and the text,
 *   and, around calls that are few, at the rest of the process (plugin/state.h).
 * What is wrong is put back where it can be and is the plugin's fault: the call fails with TSR_E_PLUGIN
 * and a sentence.  docs/decisions/plugin-guard.md says what is looked at when, and what it costs. */
#ifndef TSR_PLUGIN_GUARD_H
#define TSR_PLUGIN_GUARD_H

#include "base/err.h"
#include "plugin/state.h"

#include <stdbool.h>

/* Whose call: "/p/x.so: solver \"x\" of org.example.x", which outlives every frame. */
struct tsr_guarded_part {
    char *who;
};

/* One call under way in this thread. */
struct tsr_guard {
    const struct tsr_guarded_part *part;
    const char                    *call;
    struct tsr_guard              *outer;
    struct tsr_fpmode              fp;
    tsr_status                     inner; /* what a call that it made in turn has failed with */
    char                           text;  /* that err began with */
};

/* The innermost; also read by the handlers of signals and of exit. */
extern _Thread_local struct tsr_guard *tsr_guard_current;

/* Whose call ended last in this thread, and which; and the floating-point mode that its calls find, which
 * is read when there is none yet and around calls that are few: reading it is most of what a call costs. */
struct tsr_guard_last {
    const struct tsr_guarded_part *part;
    const char                    *call;
    struct tsr_fpmode              fp;
};
extern _Thread_local struct tsr_guard_last tsr_guard_last;

/* ---- calls of which there are many ----------------------------------------------------------- */

static inline void tsr_guard_enter(struct tsr_guard *g, const struct tsr_guarded_part *part,
                                   const char *call, struct tsr_err *err)
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
    if (__builtin_expect(!tsr_guard_last.part, 0))
        tsr_guard_last.fp = tsr_fpmode_get();
    g->fp = tsr_guard_last.fp;
    tsr_guard_current = g;
}

/* What is not as it should be: puts it right, and gives the status that the caller gets. */
tsr_status tsr_guard_judge(struct tsr_guard *g, tsr_status st, struct tsr_err *err);

static inline tsr_status tsr_guard_leave(struct tsr_guard *g, tsr_status st, struct tsr_err *err)
{
    tsr_guard_current = g->outer;
    tsr_guard_last.part = g->part;
    tsr_guard_last.call = g->call;
    if (__builtin_expect(st != TSR_OK || !tsr_fpmode_equal(g->fp, tsr_fpmode_get()), 0))
        return tsr_guard_judge(g, st, err);
    if (err && g->text && !err->text[0])
        err->text[0] = g->text;
    return st;
}

/* Where there are thousands in a step, and one that ends it: the mode is looked at there. */
static inline tsr_status tsr_guard_leave_queued(struct tsr_guard *g, tsr_status st,
                                                struct tsr_err *err)
{
    tsr_guard_current = g->outer;
    tsr_guard_last.part = g->part;
    tsr_guard_last.call = g->call;
    if (__builtin_expect(st != TSR_OK, 0))
        return tsr_guard_judge(g, st, err);
    if (err && g->text && !err->text[0])
        err->text[0] = g->text;
    return st;
}

/* ---- calls of which there are few: the whole process is looked at before and after -------------- */

void       tsr_guard_enter_life(struct tsr_guard *g, struct tsr_state *was,
                                const struct tsr_guarded_part *part, const char *call,
                                struct tsr_err *err);
tsr_status tsr_guard_leave_life(struct tsr_guard *g, struct tsr_state *was, tsr_status st,
                                struct tsr_err *err);

/* ---- calls that end a piece of work: as the first, and at most ten times a second as the second -- */

tsr_status tsr_guard_leave_step(struct tsr_guard *g, tsr_status st, struct tsr_err *err);

/* ---- the rest of the host ---------------------------------------------------------------------- */

/* Faults of functions that return no status, or whose caller went on all the same: the first sentence of
 * this process, NULL: none.  A command that ends well with one has failed.  [any] */
const char *tsr_guard_fault(void);
/* Forgets it; tests only. */
void tsr_guard_forget(void);

/* body() on a thread of the pool, as a part of the call `g` (NULL: of none).  [worker] */
struct tsr_guard_loop {
    struct tsr_guard *g;
    tsr_status (*body)(void *, uint64_t, uint64_t);
    void *arg;
};
tsr_status tsr_guard_chunk(void *loop, uint64_t begin, uint64_t end);

/* From now on signals that end the process and exit() name the call in which they came.  Signals that
 * somebody else handles are left to them.  Once per process.  [any] */
void tsr_guard_watch(void);
/* f is asked first about an exit() that a plugin called ("called _exit()"), and may end the process
 * itself; NULL: nobody.  [setup] */
void tsr_guard_on_exit(void (*f)(const struct tsr_guard *g, const char *what));
/* Room for the handler where the stack is full; for the calling thread, once. */
void tsr_guard_stack(void);

#endif
