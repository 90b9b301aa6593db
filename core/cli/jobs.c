#include "cli/jobs.h"

#include "cli/failure.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

bool tsr_cli_is_yaml(const char *arg)
{
    size_t n = strlen(arg);
    return (n > 5 && strcmp(arg + n - 5, ".yaml") == 0) ||
           (n > 4 && strcmp(arg + n - 4, ".yml") == 0);
}

tsr_status tsr_cli_check_job(struct tsr_cli *c, struct tsr_pipeline_job *job, struct tsr_diag *d,
                             struct tsr_err *err)
{
    struct tsr_registry *r;
    c->on = job->on;
    c->threads = job->threads;
    TSR_TRY(tsr_cli_registry_bare(c, &r, err));
    TSR_TRY(tsr_pipeline_job_plugins(job, r, d, err));
    TSR_TRY(tsr_pipeline_job_families(job, d, err));
    TSR_TRY(tsr_cli_registry(c, &r, err));
    TSR_TRY(tsr_pipeline_job_check(job, r, d, err));
    return TSR_OK;
}

tsr_status tsr_cli_diag(struct tsr_cli *c, struct tsr_diag *d, const char *what,
                        struct tsr_err *err)
{
    uint64_t n = tsr_config_diag_errors(d);
    TSR_TRY(tsr_cli_failure_keep(c, d, err));
    tsr_status st = tsr_config_diag_status(d, err);
    if (st == TSR_E_INPUT)
        (void)tsr_fail(err, st, "%s: %llu error%s", what, (unsigned long long)n, n == 1 ? "" : "s");
    return st;
}

/* A loose job's result is the verb's output: the step has printed it, unless the user requested JSON. */
static tsr_status print_loose(const struct tsr_cli *c, const struct tsr_pipeline_job *job,
                              struct tsr_err *err)
{
    return c->json
               ? tsr_cli_print_json(json_incref(json_object_get(job->results, c->verb->step->name)),
                                    err)
               : tsr_cli_flush(err);
}

#define LISTED 8 /* entries of a folder that are named in one line */

static int is_product(const struct dirent *e)
{
    return e->d_name[0] != '.' && strcmp(e->d_name, "manifest.json") != 0;
}

/* The folder of a job that was run and, where they are few, what is in it. */
static void say_where(const struct tsr_cli *c, const struct tsr_pipeline_job *job)
{
    struct dirent **list = NULL;
    int             n = c->verb->product ? 0 : scandir(job->out, &list, is_product, alphasort);
    (void)fprintf(stderr, "tessera: %s in %s", c->verb->product ? c->verb->product : "results are",
                  job->out);
    for (int i = 0; i < n; i++) {
        if (n <= LISTED)
            (void)fprintf(stderr, "%s%s", i ? ", " : ": ", list[i]->d_name);
        free(list[i]);
    }
    free(list);
    (void)fputc('\n', stderr);
}

tsr_status tsr_cli_run_job(struct tsr_cli *c, struct tsr_pipeline_job *job, struct tsr_err *err)
{
    bool done;
    TSR_TRY(tsr_pipeline_job_run(job, &done, err));
    if (job->loose)
        return print_loose(c, job, err);
    if (done && !c->quiet)
        (void)fprintf(stderr, "tessera: %s: all steps are done already; these are the results\n",
                      job->out);
    if (c->json)
        TSR_TRY(tsr_cli_print_json(tsr_pipeline_job_results(job), err));
    else if (done)
        tsr_pipeline_job_print(job, stdout);
    if (!c->json)
        TSR_TRY(tsr_cli_flush(err));
    if (!c->json && !done && !c->quiet) /* after what the steps printed */
        say_where(c, job);
    if (!c->quiet)
        tsr_pipeline_job_remark(job, stderr);
    return tsr_pipeline_job_gate(job, err);
}
