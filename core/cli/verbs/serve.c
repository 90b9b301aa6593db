/* tessera serve: the step, on a model or behind the steps of a job. */
#include "cli/jobs.h"

#include <string.h>

extern const struct tsr_pipeline_step tsr_step_serve;

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct tsr_cli_step s = { 0 };
    const char         *again = tsr_cli_own(opts, "again");
    bool                file = tsr_cli_is_yaml(args[0]);
    (void)n_args;
    s.options.loose = !file; /* a model alone leaves nothing in a folder */
    if (file) {
        s.options.out = tsr_cli_own(opts, "out");
        s.options.again = again && strcmp(again, "true") == 0;
        s.options.append = &tsr_step_serve;
    }
    tsr_status st = tsr_cli_step_open(c, &s, opts, args[0], err);
    st = tsr_cli_step_said(c, &s, st, file ? args[0] : c->verb->name, err);
    if (st == TSR_OK)
        st = tsr_cli_run_job(c, s.job, err);
    tsr_cli_step_close(&s);
    return st;
}

const struct tsr_verb tsr_verb_serve = {
    .name = "serve",
    .summary = "answers HTTP requests of the OpenAI API",
    .args = "JOB.yaml|MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "Answers POST /v1/completions, /v1/chat/completions, /tokenize and /detokenize, and GET "
        "/v1/models, /metrics and /health. Answers have the choices that `batch` gives to the same "
        "bodies, "
        "whatever else runs. Steps of a job run first (quantize, ...).\n"
        "\n"
        "Only this machine can connect unless --host says otherwise. The program tessera-http "
        "opens the socket, in a process without the model. SIGTERM and Ctrl-C end the server when "
        "the requests that have come are answered; a second one ends it at once.",
    .run = run,
    .jobs = true,
    .step = &tsr_step_serve,
    .own = tsr_cli_folder_options,
    .n_own = 2,
    .files = true,
};
