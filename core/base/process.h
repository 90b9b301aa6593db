/* base/process.h - runs a function in a child process with time and memory limits.
 *
 * The child is a copy of this process (fork), so f() can read all of its memory.  What f() writes is
 * lost, except for memory of tsr_process_memory().  The child's standard streams go nowhere, and fatal
 * signals end it without the host's handlers.  Only the calling thread survives in the child;
 * tsr_pool_revive() restarts a pool's threads. */
#ifndef TSR_BASE_PROCESS_H
#define TSR_BASE_PROCESS_H

#include "base/err.h"

#include <stdbool.h>

struct tsr_process {
    uint64_t time_us; /* UINT64_MAX: no limit; while this process does not run, no time passes */
    uint64_t memory_bytes; /* more than this process holds at the start; UINT64_MAX: no limit */
    bool (*stopped)(void); /* asked a hundred times a second; or NULL */
    /* Lines of tsr_process_log(), while tsr_process_run() waits; or NULL. */
    void (*log)(void *ctx, int32_t level, const char *msg);
    void *log_ctx;
};

enum tsr_process_end {
    TSR_PROCESS_DONE,    /* f() returned */
    TSR_PROCESS_EXITED,  /* exit() or the like; `code` is its exit status */
    TSR_PROCESS_SIGNAL,  /* `code` is the signal */
    TSR_PROCESS_LATE,    /* ended for its time */
    TSR_PROCESS_LARGE,   /* ended for its memory */
    TSR_PROCESS_STOPPED, /* ended because stopped() returned true */
};
struct tsr_process_outcome {
    enum tsr_process_end end;
    int                  code;
};

/* Runs f(arg) and waits until it ends for any reason.  No process is left then, including those
 * that f() started.  An error means that no process could be started.  [any] */
tsr_status tsr_process_run(const struct tsr_process *p, void (*f)(void *arg), void *arg,
                           struct tsr_process_outcome *out, struct tsr_err *err);

/* "ended its process with signal 11 (Segmentation fault)" and so on, for all but DONE and STOPPED;
 * p's limits are in it. */
#define TSR_PROCESS_TEXT 160
const char *tsr_process_text(const struct tsr_process *p, const struct tsr_process_outcome *o,
                             char buf[TSR_PROCESS_TEXT]);

/* Zeroed memory that both see, of tsr_process_run() from here on; NULL: none. */
void *tsr_process_memory(uint64_t bytes);
void  tsr_process_release(void *p, uint64_t bytes);

/* In a child process: sends one line to p->log; the signature is that of host->log.  [any] */
void tsr_process_log(void *ctx, int32_t level, const char *msg);

#endif
