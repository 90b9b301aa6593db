#include "base/log.h"
#include "cli/jobs.h"
#include "cli/ranked.h"
#include "cli/supervise.h"

#include <string.h>

struct run_options {
    const char *out, *mpirun;
    int32_t     again;
};

static const struct tsr_option options[] = {
    TSR_OPTION_PATH(struct run_options, out, "", "FOLDER",
                    "the job folder, instead of out/<file stem>"),
    TSR_OPTION_BOOL(struct run_options, again, 0,
                    "forget what an earlier run left in the job folder and start anew"),
    TSR_OPTION_STRING(
        struct run_options, mpirun, "",
        "of a job with the step run: start its ranks by mpirun with these words, as in "
        "\"-n 4 --hostfile hosts\", and again where they end too early"),
};

/* Checked and free of errors, or TSR_E_INPUT with the diagnostics on stderr. */
static tsr_status checked(struct tsr_cli *c, struct tsr_pipeline_job *job, const char *what,
                          struct tsr_diag *d, struct tsr_err *err)
{
    TSR_TRY(tsr_cli_check_job(c, job, d, err));
    return tsr_cli_diag(c, d, what, err);
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct run_options       *o = opts;
    struct tsr_pipeline_job_options jo = { .out = *o->out ? o->out : NULL,
                                           .sets = c->sets,
                                           .n_sets = c->n_sets,
                                           .json = c->json,
                                           .quiet = c->quiet,
                                           .threads = c->threads,
                                           .again = o->again != 0 };
    struct tsr_diag                *d = NULL;
    struct tsr_pipeline_job        *job = NULL;
    (void)n_args;
    TSR_TRY(tsr_config_diag_create(&d, err));
    jo.launched = tsr_cli_launched();
    tsr_status st = tsr_pipeline_job_load(&job, args[0], &jo, d, err);
    bool       worker = true, batch = st == TSR_OK && tsr_pipeline_job_has_step(job, "run");
    c->mpirun = *o->mpirun ? o->mpirun : NULL;
    if (batch && jo.launched) {
        st = tsr_cli_check_job(c, job, d, err);
        st = tsr_cli_ranked(c, job, d, args[0], st, err);
        tsr_pipeline_job_destroy(job);
        tsr_config_diag_destroy(d);
        return st;
    }
    if (batch) /* threads do not exist yet */
        st = tsr_cli_supervise(c, &worker, err);
    if (st == TSR_OK && worker)
        st = checked(c, job, args[0], d, err);
    else if (st != TSR_OK && tsr_config_diag_errors(d))
        st = tsr_cli_diag(c, d, args[0], err);
    if (st == TSR_OK && worker)
        st = tsr_cli_run_job(c, job, err);
    tsr_pipeline_job_destroy(job);
    tsr_config_diag_destroy(d);
    return st;
}

const struct tsr_verb tsr_verb_run = {
    .name = "run",
    .summary = "runs a job: a YAML file with a model and a list of steps",
    .args = "JOB.yaml",
    .min_args = 1,
    .max_args = 1,
    .details = "All errors of the file are said before anything runs.  The job folder gets\n"
               "manifest.json, results.json and what the steps write; the same command again\n"
               "says that all is done, and a job that was interrupted is run again.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct run_options),
    .run = run,
    .jobs = true,
};
