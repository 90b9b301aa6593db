/* cli/jobs.h - what verbs that take jobs share. */
#ifndef TSR_CLI_JOBS_H
#define TSR_CLI_JOBS_H

#include "cli/args.h"
#include "cli/cli.h"
#include "pipeline/pipeline.h"

/* Adds the job's plugins before those of the command line and checks every step. */
tsr_status tsr_cli_check_job(struct tsr_cli *c, struct tsr_job *job, struct tsr_diag *d,
                             struct tsr_err *err);
/* "no_NAME=true" of a command line becomes "NAME=false", in place, where NAME is a switch of the quantizer that the
 * step uses ("use=PLUGIN" among the pairs, or the step's default) and "no_NAME" is nothing that it has.  With another
 * value it is TSR_E_INPUT; what the quantizer does not know is left to the step. */
tsr_status tsr_cli_switches(struct tsr_cli *c, const struct tsr_step *step,
                            const struct tsr_strings *pairs, struct tsr_err *err);
/* Prints diagnostics to stderr; TSR_E_INPUT "WHAT: N errors" if there are errors among them. */
tsr_status tsr_cli_diag(const struct tsr_cli *c, struct tsr_diag *d, const char *what,
                        struct tsr_err *err);

/* Runs a checked job and prints what it found. */
tsr_status tsr_cli_run_job(struct tsr_cli *c, struct tsr_job *job, struct tsr_err *err);

/* Options of `run` that verbs made from steps have too, and their run(). */
const struct tsr_option *tsr_cli_run_options(uint64_t *n);
tsr_status tsr_cli_run_step(struct tsr_cli *c, const void *opts, char **args, int n_args,
                            struct tsr_err *err);

/* JSON Schema of the job, or of one step; new reference. */
struct json_t *tsr_schema_job(void);
struct json_t *tsr_schema_step(const struct tsr_step *step);

#endif
