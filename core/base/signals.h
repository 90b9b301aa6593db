/* base/signals.h - which signals reach the threads of this program. */
#ifndef TSR_BASE_SIGNALS_H
#define TSR_BASE_SIGNALS_H

#include <signal.h>
#include <stddef.h>

/* The signals that threads other than the main one block: all but those of their own faults.  If a fault's
 * signal is blocked, the kernel kills the process without calling a handler.  [any] */
static inline void tsr_signals_of_others(sigset_t *set)
{
    static const int own[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP };
    (void)sigfillset(set);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        (void)sigdelset(set, own[i]);
}

#endif
