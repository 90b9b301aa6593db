/* cli/jobs.h - verbs that are jobs.
 *
 * A verb with a `step` is a job of that step: its options are the step's table (verbs.c), the command
 * line's values go into the job as if from a file, and the job runs like one from a file. A loose verb
 * keeps no folder: it prints the step's result. */
#ifndef TSR_CLI_JOBS_H
#define TSR_CLI_JOBS_H

#include "cli/args.h"
#include "cli/cli.h"
#include "pipeline/pipeline.h"
#include "pipeline/running.h"

/* Adds the job's plugins before those of the command line and checks every step. */
tsr_status tsr_cli_check_job(struct tsr_cli *c, struct tsr_pipeline_job *job, struct tsr_diag *d,
                             struct tsr_err *err);
/* Prints diagnostics to stderr; TSR_E_INPUT "WHAT: N errors" if there are errors among them. */
tsr_status tsr_cli_diag(struct tsr_cli *c, struct tsr_diag *d, const char *what,
                        struct tsr_err *err);
/* Whether an argument names a file of YAML. */
bool tsr_cli_is_yaml(const char *arg);

/* Runs a checked job and prints its results. */
tsr_status tsr_cli_run_job(struct tsr_cli *c, struct tsr_pipeline_job *job, struct tsr_err *err);

/* ---- a step as a verb ------------------------------------------------------------ */

/* The job of a command line. */
struct tsr_cli_step {
    struct tsr_pipeline_job_options      options; /* folder and the like are the verb's to set */
    const struct tsr_pipeline_step_pair *more; /* pairs in addition to the command line, or NULL */
    uint64_t                             n_more;
    struct tsr_pipeline_job             *job;
    struct tsr_diag                     *diag;
    struct tsr_pipeline_step_pair       *pairs;
    uint64_t                             n_pairs;
    char                               **made; /* texts of renamed pairs */
};
/* Sorts "key=value", makes the job of arg (a model, or a job file where the verb takes one), and checks
 * it. Errors of the request are in s->diag. Call close() even after an error. */
tsr_status tsr_cli_step_open(struct tsr_cli *c, struct tsr_cli_step *s,
                             const struct tsr_cli_strings *all, const char *arg,
                             struct tsr_err *err);
/* Prints s->diag; st, or TSR_E_INPUT where it has errors. */
tsr_status tsr_cli_step_said(struct tsr_cli *c, const struct tsr_cli_step *s, tsr_status st,
                             const char *what, struct tsr_err *err);
void       tsr_cli_step_close(struct tsr_cli_step *s);
/* The last value of an option that the verb reads itself, or NULL. */
const char *tsr_cli_own(const struct tsr_cli_strings *all, const char *key);
/* run() of a verb that only runs its step. */
tsr_status tsr_cli_run_step(struct tsr_cli *c, const void *opts, char **args, int n_args,
                            struct tsr_err *err);
/* Whether the head sets the backend and threads of models: the step's table does not. */
bool tsr_cli_takes_place(const struct tsr_pipeline_step *step);
/* The own options of a verb that keeps a job folder: out, again. */
extern const struct tsr_option tsr_cli_folder_options[2];

/* JSON Schema of the job with the steps of the registry's plugins, or of one step; new reference. */
tsr_status     tsr_cli_schema_job(struct tsr_registry *r, struct json_t **out, struct tsr_err *err);
struct json_t *tsr_cli_schema_step(const struct tsr_pipeline_step *step);

#endif
