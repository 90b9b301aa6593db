/* Memory that a worker shares with its supervisor. The worker writes faults and exit codes to it. */
#include "cli/supervise_internal.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* A fault of the program, as opposed to a signal that another process sent. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    (void)context;
    if (w && (info->si_code > 0 || info->si_pid == getpid()))
        atomic_store(&w->own_fault, 1);
    (void)signal(sig, SIG_DFL);
    (void)raise(sig); /* on return */
}

void tsr_cli_take_page(struct tsr_batch_watch *w)
{
    static const int faults[] = { SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGSYS };
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        (void)sigaction(faults[i], &a, NULL);
    tsr_batch_watch_set(w);
}

void tsr_cli_tell_code(int code)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    if (!w || !atomic_load(&w->joined))
        return;
    atomic_store(&w->code, code);
    atomic_store(&w->ended, 1);
}
