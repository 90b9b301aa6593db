/* tessera batch: the step `run` of a job, on files of the command line. */
#include "cli/jobs.h"
#include "cli/ranked.h"
#include "cli/supervise.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

extern const struct tsr_step tsr_step_run;

struct batch_options {
    const char *input, *output, *shard, *mpirun;
    int64_t     limit;
    int32_t     retry_errors, fail_on_errors;
};

#define S struct batch_options
static const struct tsr_option options[] = {
    { .name = "input",
      .help = "file of requests, one JSON object a line, as for the OpenAI batch API",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, input, const char *),
      .def = { .s = "" } },
    { .name = "output",
      .help = "file of answers; OUTPUT.job beside it is the job's folder",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, output, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(S, limit, 0, 0, INT64_MAX, "lines", "take the first lines only; 0 takes all"),
    TSR_OPTION_STRING(S, shard, "1/1",
                      "I/N: the I-th of N stretches of the input; their outputs one behind the "
                      "other are that of the whole"),
    TSR_OPTION_BOOL(S, retry_errors, 0, "run the records again that became error lines"),
    TSR_OPTION_BOOL(
        S, fail_on_errors, 0,
        "exit with code 1 when a record became an error line; the output is whole all the same"),
    TSR_OPTION_STRING(S, mpirun, "",
                      "start the ranks of the job's plan by mpirun with these words, as in "
                      "\"-n 4 --hostfile hosts\", and again where they end too early"),
};
#undef S

#define MAX_PAIRS 6

/* One run of the verb. */
struct batch_call {
    const struct batch_options *o;
    char                       *input, *output, *folder;
    char                       *texts[MAX_PAIRS];
    struct tsr_step_pair        pairs[MAX_PAIRS];
    uint64_t                    n;
};

/* "key=value" with the value as a YAML string, whatever is in it. */
static tsr_status add(struct batch_call *b, const char *key, const char *value, bool quote,
                      struct tsr_err *err)
{
    json_t  *j = json_string(value);
    char    *quoted = NULL;
    uint64_t len;
    if (!j)
        return tsr_fail(err, TSR_E_INPUT, "--%s: '%s' is no UTF-8", key, value);
    tsr_status st = tsr_json_text(j, JSON_ENCODE_ANY, &quoted, &len, err);
    json_decref(j);
    TSR_TRY(st);
    uint64_t bytes = strlen(key) + len + strlen(value) + 2;
    char    *text = tsr_new(bytes, 1);
    if (text)
        (void)snprintf(text, bytes, "%s=%s", key, quote ? quoted : value);
    free(quoted);
    if (!text)
        return tsr_fail_nomem(err, bytes, "an option");
    b->texts[b->n] = text;
    b->pairs[b->n++] = (struct tsr_step_pair){ &tsr_step_run, text };
    return TSR_OK;
}

/* Paths of the command line start at the current folder, those of a job at its file. */
static tsr_status absolute(const char *path, char **out, struct tsr_err *err)
{
    char *here = *path == '/' ? tsr_strdup("") : realpath(".", NULL);
    *out = here ? tsr_path_join(here, path) : NULL;
    free(here);
    return *out ? TSR_OK : tsr_fail_nomem(err, strlen(path), "a path");
}

static tsr_status read_call(struct batch_call *b, struct tsr_err *err)
{
    char limit[24];
    TSR_TRY(absolute(b->o->input, &b->input, err));
    TSR_TRY(absolute(b->o->output, &b->output, err));
    if (strcmp(b->input, b->output) == 0)
        return tsr_fail(err, TSR_E_INPUT, "input and output are the same file, %s", b->input);
    if (tsr_path_is_dir(b->output))
        return tsr_fail(err, TSR_E_INPUT, "%s: is a folder; name a file", b->output);
    uint64_t n = strlen(b->output) + 5;
    b->folder = tsr_new(n, 1);
    if (!b->folder)
        return tsr_fail_nomem(err, n, "a path");
    (void)snprintf(b->folder, n, "%s.job", b->output);
    (void)snprintf(limit, sizeof limit, "%lld", (long long)b->o->limit);
    TSR_TRY(add(b, "input", b->input, true, err));
    TSR_TRY(add(b, "output", b->output, true, err));
    if (b->o->limit)
        TSR_TRY(add(b, "limit", limit, false, err));
    if (strcmp(b->o->shard, "1/1") != 0)
        TSR_TRY(add(b, "shard", b->o->shard, true, err));
    if (b->o->fail_on_errors)
        TSR_TRY(add(b, "fail_on_errors", "true", false, err));
    return b->o->retry_errors ? add(b, "retry_errors", "true", false, err) : TSR_OK;
}

static bool is_job(const char *arg)
{
    size_t n = strlen(arg);
    return (n > 5 && strcmp(arg + n - 5, ".yaml") == 0) ||
           (n > 4 && strcmp(arg + n - 4, ".yml") == 0);
}

static tsr_status run_batch(struct tsr_cli *c, struct batch_call *b, const char *arg,
                            struct tsr_err *err)
{
    const struct tsr_step *step = &tsr_step_run;
    struct tsr_job_options jo = { .out = b->folder,
                                  .sets = c->sets,
                                  .n_sets = c->n_sets,
                                  .pairs = b->pairs,
                                  .n_pairs = b->n,
                                  .json = c->json,
                                  .quiet = c->quiet,
                                  .append = step,
                                  .launched = tsr_cli_launched() };
    struct tsr_diag       *d = NULL;
    struct tsr_job        *job = NULL;
    jo.again = b->o->retry_errors || !tsr_path_exists(b->output);
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = is_job(arg)
                        ? tsr_job_load(&job, arg, &jo, d, err)
                        : tsr_job_make_steps(&job, arg, &step, 1, b->pairs, b->n, &jo, d, err);
    if (st == TSR_OK)
        st = tsr_cli_check_job(c, job, d, err);
    if (jo.launched) {
        st = tsr_cli_ranked(c, job, d, arg, st, err);
        tsr_job_destroy(job);
        tsr_diag_destroy(d);
        return st;
    }
    if (st == TSR_OK || tsr_diag_errors(d)) {
        tsr_status said = tsr_cli_diag(c, d, arg, err);
        st = said != TSR_OK ? said : st;
    }
    if (st == TSR_OK)
        st = tsr_cli_run_job(c, job, err);
    tsr_job_destroy(job);
    tsr_diag_destroy(d);
    return st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct batch_call b = { .o = opts };
    bool              worker = tsr_cli_launched();
    tsr_status        st = TSR_OK;
    (void)n_args;
    c->mpirun = *b.o->mpirun ? b.o->mpirun : NULL;
    if (!worker)
        st = tsr_cli_supervise(c, &worker, err);
    if (st != TSR_OK || !worker)
        return st;
    st = read_call(&b, err);
    if (st == TSR_OK)
        st = run_batch(c, &b, args[0], err);
    for (uint64_t i = 0; i < b.n; i++)
        free(b.texts[i]);
    free(b.input);
    free(b.output);
    free(b.folder);
    return st;
}

const struct tsr_verb tsr_verb_batch = {
    .name = "batch",
    .summary = "answers a file of requests; no answer is lost or doubled",
    .args = "JOB.yaml|MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "Each line of the input is a request of the OpenAI batch API for /v1/completions or\n"
        "/v1/chat/completions; each gives one line of the output, in the same order. A request\n"
        "that is wrong gives an error line. Steps of the job run first (quantize, ...); options "
        "of\n"
        "the step `run` can be set in the job or with --set run.KEY=VALUE.\n"
        "\n"
        "Whatever ends the command, the same command goes on where it was, and the output has the\n"
        "same bytes; it appears when it is whole. A worker process that dies or stands still is\n"
        "replaced. Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP (a terminal that closes; not under nohup)\n"
        "stop cleanly with exit code 75.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct batch_options),
    .run = run,
    .jobs = true,
};
