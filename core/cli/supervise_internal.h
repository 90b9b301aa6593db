/* cli/supervise_internal.h - declarations shared by the files of the supervisor. */
#ifndef TSR_CLI_SUPERVISE_INTERNAL_H
#define TSR_CLI_SUPERVISE_INTERNAL_H

#include "batch/restart.h"
#include "batch/watch.h"
#include "cli/supervise.h"

#include <sys/types.h>

/* This process is the worker: it tells its faults there from now on. */
void tsr_cli_take_page(struct tsr_batch_watch *w);
/* `mpirun WORDS tessera <this command line>`; returns only when that cannot be started. */
void tsr_cli_become_mpirun(const struct tsr_cli *c, const struct tsr_batch_watch *w, int fd);
/* Says how the worker ended, and what follows. */
void tsr_cli_say_end(pid_t pid, bool mpirun, const struct tsr_batch_ending *e,
                     enum tsr_after after);

#endif
