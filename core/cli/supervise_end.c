/* How a worker ended, and what follows. */
#include "cli/supervise_internal.h"

#include "base/event.h"

#include <stdio.h>
#include <string.h>

void tsr_cli_say_end(pid_t pid, bool mpirun, const struct tsr_batch_ending *e, enum tsr_after after)
{
    static const char *const then[] = { "stop", "restart", "give-up" };
    static const char *const sentence[] = {
        "it had been asked to stop: run the same command again", "another one goes on",
        "too often without progress: run the same command again"
    };
    const int   next = tsr_plugin_cancelled() ? 0 : after == TSR_BATCH_AFTER_RESTART ? 1 : 2;
    const char *cause = e->stalled     ? "supervisor"
                        : e->memory    ? "memory"
                        : e->own_fault ? "own-fault"
                                       : NULL;
    const char *why = !cause       ? ""
                      : e->stalled ? ", by its supervisor"
                      : e->memory  ? ", for memory"
                                   : ", by its own fault";
    const struct tsr_event event = { .kind = "worker-ended",
                                     .process = pid,
                                     .has_code = e->exited,
                                     .code = e->code,
                                     .signal = e->signal,
                                     .cause = cause,
                                     .then = then[next] };
    char                   how[120];
    if (e->exited)
        (void)snprintf(how, sizeof how, "ended with code %d%s", e->code, why);
    else
        (void)snprintf(how, sizeof how, "was ended by signal %d (%s)%s", e->signal,
                       strsignal(e->signal), why);
    tsr_event_say(&event, "the worker (%sprocess %d) %s; %s", mpirun ? "mpirun, " : "", (int)pid,
                  how, sentence[next]);
}
