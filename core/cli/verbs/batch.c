/* tessera batch: the step `run` of a job, on files of the command line. */
#include "cli/jobs.h"
#include "cli/ranked.h"
#include "cli/supervise.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

extern const struct tsr_pipeline_step tsr_step_run;

/* Those whose paths start at the current folder, also where a job file is somewhere else. */
static const struct tsr_option own[] = {
    { .name = "input",
      .help = "File of requests, one JSON object a line, as for the OpenAI batch API.",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED },
    { .name = "output",
      .help = "File of answers; the job folder is OUTPUT.job.",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED },
    { .name = "mpirun",
      .help = "Start the ranks of the job's plan by mpirun with these words, as in \"-n 4 "
              "--hostfile hosts\", and again where they end too early.",
      .type = TSR_OPT_STRING,
      .def = { .s = "" } },
};

/* One run of the verb. */
struct batch_call {
    const struct tsr_cli_strings *all;
    char                         *input, *output, *folder, *text[2];
    struct tsr_pipeline_step_pair more[2];
};

static bool is_on(const struct tsr_cli_strings *all, const char *key)
{
    const char *value = tsr_cli_own(all, key);
    return value && strcmp(value, "true") == 0;
}

/* PATH from the current folder, prefixed with "key=". */
static tsr_status take_path(struct batch_call *b, size_t i, const char *key, char **path,
                            struct tsr_err *err)
{
    const char *given = tsr_cli_own(b->all, key);
    char       *here = *given == '/' ? tsr_strdup("") : realpath(".", NULL);
    *path = here ? tsr_path_join(here, given) : NULL;
    free(here);
    uint64_t bytes = strlen(key) + (*path ? strlen(*path) : 0) + 2;
    b->text[i] = *path ? tsr_new(bytes, 1) : NULL;
    if (!b->text[i])
        return tsr_fail_nomem(err, bytes, "a path");
    (void)snprintf(b->text[i], bytes, "%s=%s", key, *path);
    b->more[i] = (struct tsr_pipeline_step_pair){ .step = &tsr_step_run, .text = b->text[i] };
    return TSR_OK;
}

static tsr_status read_call(struct batch_call *b, struct tsr_err *err)
{
    TSR_TRY(take_path(b, 0, "input", &b->input, err));
    TSR_TRY(take_path(b, 1, "output", &b->output, err));
    if (strcmp(b->input, b->output) == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: is input and output at once", b->input);
    if (tsr_path_is_dir(b->output))
        return tsr_fail(err, TSR_E_INPUT, "%s: is a folder; name a file", b->output);
    uint64_t n = strlen(b->output) + 5;
    b->folder = tsr_new(n, 1);
    if (!b->folder)
        return tsr_fail_nomem(err, n, "a path");
    (void)snprintf(b->folder, n, "%s.job", b->output);
    return TSR_OK;
}

static tsr_status run_batch(struct tsr_cli *c, struct batch_call *b, const char *arg,
                            struct tsr_err *err)
{
    struct tsr_cli_step s = { .more = b->more, .n_more = 2 };
    s.options.out = b->folder;
    s.options.again = is_on(b->all, "retry_errors") || !tsr_path_exists(b->output);
    s.options.append = &tsr_step_run;
    s.options.launched = tsr_cli_launched();
    tsr_status st = tsr_cli_step_open(c, &s, b->all, arg, err);
    if (s.options.launched)
        st = tsr_cli_ranked(c, s.job, s.diag, arg, st, err);
    else if ((st = tsr_cli_step_said(c, &s, st, arg, err)) == TSR_OK)
        st = tsr_cli_run_job(c, s.job, err);
    tsr_cli_step_close(&s);
    return st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct batch_call b = { .all = opts };
    const char       *mpirun = tsr_cli_own(opts, "mpirun");
    bool              worker = tsr_cli_launched();
    tsr_status        st = TSR_OK;
    (void)n_args;
    c->mpirun = mpirun && *mpirun ? mpirun : NULL;
    if (!worker)
        st = tsr_cli_supervise(c, &worker, err);
    if (st != TSR_OK || !worker)
        return st;
    st = read_call(&b, err);
    if (st == TSR_OK)
        st = run_batch(c, &b, args[0], err);
    free(b.text[0]);
    free(b.text[1]);
    free(b.input);
    free(b.output);
    free(b.folder);
    return st;
}

const struct tsr_verb tsr_verb_batch = {
    .name = "batch",
    .summary = "runs a batch file; every request is answered exactly once",
    .args = "JOB.yaml|MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "Each line of the input is a request of the OpenAI batch API for /v1/completions or "
        "/v1/chat/completions. Each request gives one line of the output, in the same order. "
        "An invalid request gives an error line. Steps of the job run first (quantize, ...). "
        "Give options of the step `run` here, in the job, or with --set run.KEY=VALUE.\n"
        "\n"
        "Interrupted for any reason, the same command resumes, and the output is "
        "byte-identical to that of an uninterrupted run. The output appears when it is "
        "complete. A worker process that dies or stalls is replaced. Ctrl-C, SIGTERM, SIGUSR1 "
        "and SIGHUP (not under nohup) stop cleanly with exit code 75.",
    .run = run,
    .jobs = true,
    .step = &tsr_step_run,
    .own = own,
    .n_own = sizeof own / sizeof *own,
    .files = true,
};
