/* tessera compare: a comparison file or another job, or the step as a verb on a model. */
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/jobs.h"

#include <stdlib.h>
#include <string.h>

extern const struct tsr_step tsr_step_compare;

static bool is_file(const char *name)
{
    size_t n = strlen(name);
    return (n > 5 && strcmp(name + n - 5, ".yaml") == 0) ||
           (n > 4 && strcmp(name + n - 4, ".yml") == 0);
}

/* --key VALUE is --set compare.key=VALUE of the file's step. */
static tsr_status set_text(const char *pair, char **text, struct tsr_err *err)
{
    uint64_t bytes = strlen(pair) + sizeof "compare.";
    *text = tsr_new(bytes, 1);
    if (!*text)
        return tsr_fail_nomem(err, bytes, "an option");
    (void)snprintf(*text, bytes, "compare.%s", pair);
    return TSR_OK;
}

static tsr_status run_loaded(struct tsr_cli *c, const char *path, const struct tsr_job_options *jo,
                             struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    struct tsr_job  *job = NULL;
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = tsr_job_load(&job, path, jo, d, err);
    if (st == TSR_OK) {
        st = tsr_cli_check_job(c, job, d, err);
        if (st == TSR_OK)
            st = tsr_cli_diag(c, d, path, err);
    } else if (tsr_diag_errors(d)) {
        st = tsr_cli_diag(c, d, path, err);
    }
    if (st == TSR_OK)
        st = tsr_cli_run_job(c, job, err);
    tsr_job_destroy(job);
    tsr_diag_destroy(d);
    return st;
}

static tsr_status run_file(struct tsr_cli *c, const char *path, const struct tsr_strings *all,
                           struct tsr_err *err)
{
    struct tsr_job_options jo = { .json = c->json, .quiet = c->quiet };
    const char           **sets = tsr_new(all->n + c->n_sets, sizeof *sets);
    char                 **made = tsr_new(all->n, sizeof *made);
    uint64_t               n = 0;
    tsr_status st = sets && made ? TSR_OK : tsr_fail_nomem(err, all->n * sizeof *sets, "options");
    for (uint64_t i = 0; i < all->n && st == TSR_OK; i++) {
        if (strncmp(all->v[i], "out=", 4) == 0) {
            jo.out = all->v[i] + 4;
        } else if (strcmp(all->v[i], "again=true") == 0) {
            jo.again = true;
        } else {
            st = set_text(all->v[i], &made[i], err);
            if (st == TSR_OK)
                sets[n++] = made[i];
        }
    }
    for (uint64_t i = 0; i < c->n_sets && st == TSR_OK; i++)
        sets[n++] = c->sets[i];
    jo.sets = sets;
    jo.n_sets = n;
    if (st == TSR_OK)
        st = run_loaded(c, path, &jo, err);
    for (uint64_t i = 0; made && i < all->n; i++)
        free(made[i]);
    free(made);
    free(sets);
    return st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    if (is_file(args[0]))
        return run_file(c, args[0], opts, err);
    return tsr_cli_run_step(c, opts, args, n_args, err);
}

#define NODE(n, h)                                                                                 \
    {                                                                                              \
        .name = n, .help = h, .type = TSR_OPT_NODE                                                 \
    }
static const struct tsr_option options[] = {
    NODE("arms", "A map: arm: {quantize: {use: ...}}, {model: FOLDER}, {plan: FILE}, {set: ...}."),
    NODE("quantize", "The scheme that arms without one of their own change."),
    NODE("measure", "What to measure: perplexity, kl, speed."),
    NODE("pairs", "Arms to compare with each other: [[a, b], ...]."),
    NODE("fail_if", "What must not hold: \"kl.mean > 0.05\", or a list; exit code 5."),
    { .name = "alpha",
      .help = "1 - confidence of the intervals, and the level of the verdicts.",
      .type = TSR_OPT_REAL,
      .def = { .r = 0.05 },
      .min = { .r = 1e-6 },
      .max = { .r = 0.5 } },
    { .name = "together",
      .help = "Arms in memory at once beside the original.",
      .unit = "arms",
      .type = TSR_OPT_INT,
      .def = { .i = 1 },
      .min = { .i = 1 },
      .max = { .i = 1000 } },
    NODE("samples", "List of texts that every arm continues."),
    NODE("sampling", "How: max_tokens, temperature, ..."),
    { .name = "out",
      .help = "The job folder, instead of out/<file stem>.",
      .type = TSR_OPT_STRING,
      .def = { .s = "" } },
    { .name = "again",
      .help = "Forget what an earlier run left in the job folder and start anew.",
      .type = TSR_OPT_BOOL },
};

const struct tsr_verb tsr_verb_compare = {
    .name = "compare",
    .summary = "compares ways to quantize, and models, on the same text and machine",
    .args = "FILE.yaml|MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "FILE.yaml is a comparison - base, arms, measure - or a job with a compare step; options "
        "given here are those of its compare step.  With a MODEL it is a job of this one step.\n"
        "Every arm sees the same tokens.  For each the difference of log-perplexity to the "
        "original is given with an interval by windows, KL and top-1 agreement, throughput over "
        "the original's, and a verdict in words, corrected over the arms (Holm).  An arm that "
        "fails is reported and the others go on; run again after an interruption, finished arms "
        "are not run again.  Exit code 5: what --fail-if says holds.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
    .jobs = true,
    .step = &tsr_step_compare,
};
