/* cli/supervise.h - a process that does nothing but watch the one that does the work.
 *
 * The supervisor has no threads, no plugins and no files.  It names how a worker ended, starts the
 * next one within the rules of batch/restart.h, and kills a worker that makes no progress.  The
 * worker dies with its supervisor.
 */
#ifndef TSR_CLI_SUPERVISE_H
#define TSR_CLI_SUPERVISE_H

#include "cli/cli.h"

/* Call before any thread is there.  Returns in the worker with *worker true; it goes on as if
 * nothing had happened.  Returns in the supervisor, at the end, with *worker false and c->code set. */
tsr_status tsr_cli_supervise(struct tsr_cli *c, bool *worker, struct tsr_err *err);

/* Of rank 0 of an MPI job that such a supervisor started (c->mpirun): takes its page, where that is on
 * this machine.  Before threads. */
void tsr_cli_watched(void);
/* What this process ends with, for whoever watches rank 0 through mpirun. */
void tsr_cli_tell_code(int code);

#endif
