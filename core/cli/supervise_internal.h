/* cli/supervise_internal.h - declarations shared by the files of the supervisor. */
#ifndef TSR_CLI_SUPERVISE_INTERNAL_H
#define TSR_CLI_SUPERVISE_INTERNAL_H

#include "batch/watch.h"
#include "cli/supervise.h"

/* This process is the worker: it tells its faults there from now on. */
void tsr_cli_take_page(struct tsr_batch_watch *w);
/* `mpirun WORDS tessera <this command line>`; returns only when that cannot be started. */
void tsr_cli_become_mpirun(const struct tsr_cli *c, const struct tsr_batch_watch *w, int fd);

#endif
