/* cli/supervise.h - a process that only watches the worker process.
 *
 * The supervisor has no threads, no plugins and no files. It reports how a worker ended, starts the next
 * one within the rules of batch/restart.h, and kills a worker that makes no progress. The worker dies with
 * its supervisor.
 */
#ifndef TSR_CLI_SUPERVISE_H
#define TSR_CLI_SUPERVISE_H

#include "cli/cli.h"

/* Call before any thread exists. Returns in the worker with *worker true; the worker continues normally.
 * Returns in the supervisor, at the end, with *worker false and c->code set. */
tsr_status tsr_cli_supervise(struct tsr_cli *c, bool *worker, struct tsr_err *err);

/* For rank 0 of an MPI job that a supervisor started (c->mpirun): attaches the supervisor's page, if that
 * is on this machine. Call before threads exist. */
void tsr_cli_watched(void);
/* Publishes the exit code of this process to a supervisor that watches rank 0 through mpirun. */
void tsr_cli_tell_code(int code);

#endif
