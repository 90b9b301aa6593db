/* tessera plan: sorts its options and takes the form that they make. */
#include "cli/jobs.h"
#include "cli/plan/plan_verb.h"

#include "base/mem.h"
#include "planning/options.h"

#include <stdlib.h>
#include <string.h>

extern const struct tsr_pipeline_step tsr_step_plan;

static const struct tsr_choice exports[] = {
    { "none", "the table", TSR_PLAN_EXPORT_NONE },
    { "vllm", "VLLM_PP_LAYER_PARTITION and bits of each layer", TSR_PLAN_EXPORT_VLLM },
    { "llamacpp", "--tensor-split and --tensor-type of llama.cpp", TSR_PLAN_EXPORT_LLAMACPP },
};

#define S struct tsr_plan_call
// clang-format off
#define OWN_OPTIONS \
    TSR_OPTION_PATH(S, instance, "", "FILE", "A raw problem instead of a job, tessera.instance."), \
    TSR_OPTION_PATH(S, output, "", "FILE", "The plan file; by default plan.yaml in the job's folder. --out is the same."), \
    TSR_OPTION_PATH(S, cluster, "", "FILE", "With a model instead of a job: the machines."), \
    { .name = "workload", \
      .help = "With a model: the work, {prompt: 512, generate: 100, batch: 32}.", \
      .type = TSR_OPT_STRING, \
      .offset = TSR_FIELD(S, workload, const char *), \
      .def = { .s = "" } }, \
    TSR_OPTION_PATH(S, check, "", "FILE", "A plan file that is checked and priced instead of a search."), \
    TSR_OPTION_BOOL(S, explain, 0, \
                    "Also print the bottleneck, and the gain of 4 GiB, a device and other changes, each with the most that it can be."), \
    TSR_OPTION_BOOL(S, front, 0, "Also print what speed costs in quality: up to 14 plans, each the fastest for its omega."), \
    TSR_OPTION_PATH(S, chart, "", "FILE", "The front as a picture: FILE.svg."), \
    TSR_OPTION_BOOL(S, diff, 0, "Two plan files: what differs."), \
    { .name = "export", \
      .help = "The plan for another program, on standard output.", \
      .type = TSR_OPT_ENUM, \
      .offset = TSR_FIELD(S, export_to, int64_t), \
      .choices = exports, \
      .n_choices = 3 }, \
    TSR_OPTION_BOOL(S, simulate, 0, "Also plays the plan, micro-batch by micro-batch."), \
    TSR_OPTION_PATH(S, gantt, "", "FILE", "The plan played, as a picture: FILE.svg.")
// clang-format on
static const struct tsr_option own[] = { OWN_OPTIONS };
/* What the raw form reads of the options that both have. */
static const struct tsr_option raw[] = {
    TSR_OPTION_STRING(S, solver, "exact", "solver"),
    TSR_OPTION_REAL(S, gap, 1e-4, 0.0, 1.0, NULL, "gap"),
    TSR_OPTION_REAL(S, time_limit, 0.0, 0.0, 1e6, "s", "limit"),
    TSR_OPTION_INT(S, seed, 0, 0, INT64_MAX, NULL, "seed"),
};
static const struct tsr_option all_options[] = { OWN_OPTIONS, TSR_PLAN_OPTION_LIST };
#undef S
#define COUNT(t) (sizeof(t) / sizeof *(t))

static const struct tsr_option *find(const struct tsr_option *t, size_t n, const char *pair)
{
    size_t len = strcspn(pair, "=");
    for (size_t i = 0; i < n; i++)
        if (strlen(t[i].name) == len && strncmp(t[i].name, pair, len) == 0)
            return &t[i];
    return NULL;
}

/* Stores "key=value" with the words that the command line has for it. */
static tsr_status store(const struct tsr_option *o, struct tsr_plan_call *call, const char *pair,
                        struct tsr_err *err)
{
    struct tsr_option named = *o;
    char              flag[80];
    (void)snprintf(flag, sizeof flag, "--%s", o->name);
    for (char *s = flag; *s; s++)
        *s = *s == '_' ? '-' : *s;
    named.name = flag;
    return tsr_config_option_set(&named, call, pair + strcspn(pair, "=") + 1, err);
}

/* The raw form takes no plugin options, so a remaining pair is a mistake. */
static tsr_status stray(const char *pair, struct tsr_err *err)
{
    const char *names[COUNT(own) + COUNT(raw)];
    char        key[64];
    uint64_t    n = 0;
    for (size_t i = 0; i < COUNT(own); i++)
        names[n++] = own[i].name;
    for (size_t i = 0; i < COUNT(raw); i++)
        names[n++] = raw[i].name;
    (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(pair, "="), pair);
    const char *near = tsr_config_nearest(key, names, n);
    for (char *s = key; *s; s++)
        *s = *s == '_' ? '-' : *s;
    if (near)
        return tsr_fail(err, TSR_E_INPUT, "unknown option --%s; did you mean --%s?", key, near);
    return tsr_fail(err, TSR_E_INPUT, "--%s has no meaning with --instance or --diff", key);
}

static tsr_status sort(struct tsr_plan_call *call, const struct tsr_cli_strings *all,
                       struct tsr_err *err)
{
    struct tsr_config_optset sets[] = { { own, COUNT(own), sizeof *own, call },
                                        { raw, COUNT(raw), sizeof *raw, call } };
    tsr_config_options_defaults(&sets[0]);
    tsr_config_options_defaults(&sets[1]);
    call->pairs = tsr_new(all->n, sizeof *call->pairs);
    if (!call->pairs)
        return tsr_fail_nomem(err, all->n * sizeof *call->pairs, "options");
    for (uint64_t i = 0; i < all->n; i++) {
        bool                     out = strncmp(all->v[i], "out=", 4) == 0; /* as other verbs say */
        const struct tsr_option *o = find(own, COUNT(own), out ? "output=" : all->v[i]);
        if (o)
            TSR_TRY(store(o, call, all->v[i], err));
        else
            call->pairs[call->n_pairs++] =
                (struct tsr_pipeline_step_pair){ .step = &tsr_step_plan, .text = all->v[i] };
    }
    return TSR_OK;
}

static tsr_status raw_form(struct tsr_cli *c, struct tsr_plan_call *call, struct tsr_err *err)
{
    for (uint64_t i = 0; i < call->n_pairs; i++) {
        const struct tsr_option *o = find(raw, COUNT(raw), call->pairs[i].text);
        TSR_TRY(o ? store(o, call, call->pairs[i].text, err) : stray(call->pairs[i].text, err));
    }
    return tsr_cli_plan_instance(c, call, err);
}

static tsr_status form(struct tsr_cli *c, struct tsr_plan_call *call, char **args, int n,
                       struct tsr_err *err)
{
    if (*call->instance) {
        if (n)
            return tsr_fail(err, TSR_E_INPUT, "--instance is a whole problem; leave '%s' out",
                            args[0]);
        return raw_form(c, call, err);
    }
    if (call->diff) {
        if (n != 2)
            return tsr_fail(err, TSR_E_INPUT, "--diff needs two plan files");
        return tsr_cli_plan_diff(c, args[0], args[1], err);
    }
    if (n != 1)
        return tsr_fail(err, TSR_E_INPUT, "plan needs %s; 'tessera help plan' explains",
                        n ? "one JOB.yaml or MODEL" : "JOB.yaml, a MODEL or --instance FILE");
    return tsr_cli_plan_job(c, call, args[0], err);
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct tsr_plan_call call = { 0 };
    tsr_status           st = sort(&call, opts, err);
    if (st == TSR_OK)
        st = form(c, &call, args, n_args, err);
    free(call.pairs);
    return st;
}

const struct tsr_verb tsr_verb_plan = {
    .name = "plan",
    .summary = "plans bit widths, devices and micro-batches for a cluster",
    .args = "[JOB.yaml | MODEL]",
    .min_args = 0,
    .max_args = 2,
    .details =
        "Takes the step 'plan' of a job, with its model, cluster and workload, or a MODEL "
        "with --cluster and --workload. Reads headers only; config.json alone is a model too.\n"
        "\n"
        "Writes the plan (docs/formats/plan.md) and prints layers, bit widths, bytes and "
        "times of each device, latency, quality and the bound that the solver proved. Also "
        "the same work under other policies, why nothing wider fits, and what else would fit. "
        "--check PLAN prices a plan that was written or edited by hand; --diff A B compares "
        "two.\n"
        "\n"
        "--instance FILE solves a raw problem (docs/formats/instance.md), without a time "
        "limit unless one is given. With --json the solution is one object of "
        "tessera.solution/1. Exit code 3: no plan exists, which is proved; the sentence says "
        "what would help.",
    .options = all_options,
    .n_options = sizeof all_options / sizeof *all_options,
    .run = run,
    .jobs = true,
    .step = &tsr_step_plan,
};
