/* base/signals.h - which signals reach the threads of this program. */
#ifndef TSR_BASE_SIGNALS_H
#define TSR_BASE_SIGNALS_H

#include <signal.h>
#include <stddef.h>

/* What threads beside the main one block: all signals but those of their own faults, which the kernel would
 * answer by an end of the process in which no handler is asked.  [any] */
static inline void tsr_signals_of_others(sigset_t *set)
{
    static const int own[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP };
    (void)sigfillset(set);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        (void)sigdelset(set, own[i]);
}

#endif
