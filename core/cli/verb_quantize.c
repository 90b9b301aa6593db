/* tessera quantize: the step as a verb, with a calibrate step before it, into a packed model. */
#include "cli/cli.h"
#include "cli/jobs.h"

#include "base/mem.h"
#include "pipeline/quantize.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PAIRS 128

/* What the verb itself reads; the rest belongs to the steps. */
struct quantize_call {
    const char          *out;
    bool                 again, dry_run, text, to;
    struct tsr_step_pair pairs[MAX_PAIRS];
    uint64_t             n;
};

extern const struct tsr_step tsr_step_calibrate, tsr_step_quantize;

/* Keys of the calibrate step that the verb takes. */
static const char *const calibrate_keys[] = { "text", "samples", "seqlen", "seed", "input_rows" };

static bool key_is(const char *pair, const char *key)
{
    size_t n = strlen(key);
    return strncmp(pair, key, n) == 0 && pair[n] == '=';
}

static const char *calibrate_key(const char *pair)
{
    for (size_t i = 0; i < sizeof calibrate_keys / sizeof *calibrate_keys; i++)
        if (key_is(pair, calibrate_keys[i]))
            return calibrate_keys[i];
    return NULL;
}

static tsr_status sort(struct quantize_call *q, const struct tsr_strings *all, struct tsr_err *err)
{
    const char *stray = NULL;
    q->pairs[q->n++] = (struct tsr_step_pair){ &tsr_step_quantize, "to=." };
    for (uint64_t i = 0; i < all->n; i++) {
        const char *pair = all->v[i], *key = calibrate_key(pair);
        if (key_is(pair, "out")) {
            q->out = pair + 4;
        } else if (strcmp(pair, "again=true") == 0) {
            q->again = true;
        } else if (strcmp(pair, "dry_run=true") == 0) {
            q->dry_run = true;
        } else if (q->n == MAX_PAIRS) {
            return tsr_fail(err, TSR_E_INPUT, "more than %d options", MAX_PAIRS);
        } else {
            q->text = q->text || key_is(pair, "text");
            stray = key ? key : stray;
            q->pairs[q->n++] =
                (struct tsr_step_pair){ key ? &tsr_step_calibrate : &tsr_step_quantize, pair };
        }
    }
    if (stray && !q->text)
        return tsr_fail(err, TSR_E_INPUT,
                        "--%s is about calibration; give the file to calibrate on with --text",
                        stray);
    if (!q->out && !q->dry_run)
        return tsr_fail(err, TSR_E_INPUT, "-o OUT is missing: the folder for the packed model");
    return TSR_OK;
}

static tsr_status print_statement(const struct tsr_cli *c, const char *model,
                                  const struct tsr_quantize_memory *m, struct tsr_err *err)
{
    if (c->json)
        return tsr_cli_print_json(json_pack("{s:s, s:s, s:{s:I, s:I, s:I, s:I, s:I}}", "format",
                                            "tessera.dry-run/1", "model", model, "memory",
                                            "process", (json_int_t)m->process, "calibrate",
                                            (json_int_t)m->calibrate, "quantize",
                                            (json_int_t)m->quantize, "finish",
                                            (json_int_t)m->finish, "peak", (json_int_t)m->peak),
                                  err);
    const struct {
        const char *what;
        uint64_t    bytes;
    } rows[] = {
        { "in memory before: program, tokenizer, embedding", m->process },
        { "calibrating adds at most", m->calibrate },
        { "quantizing adds at most", m->quantize },
        { "finishing adds at most", m->finish },
        { "at most in all", m->peak },
    };
    char text[TSR_BYTES_TEXT];
    (void)printf("memory to quantize %s; nothing was run\n", model);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        (void)printf("  %-50s %s\n", rows[i].what,
                     tsr_format_bytes(text, sizeof text, rows[i].bytes));
    return tsr_cli_flush(err);
}

static tsr_status run_checked(struct tsr_cli *c, const struct quantize_call *q, struct tsr_job *job,
                              struct tsr_err *err)
{
    struct tsr_quantize_memory m;
    if (!q->dry_run)
        return tsr_cli_run_job(c, job, err);
    TSR_TRY(tsr_quantize_statement(job, &m, err));
    return print_statement(c, job->model_path, &m, err);
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct tsr_step *steps[2] = { &tsr_step_calibrate, &tsr_step_quantize };
    struct quantize_call   q = { 0 };
    struct tsr_diag       *d = NULL;
    struct tsr_job        *job = NULL;
    (void)n_args;
    /* glibc would raise these with every large block that is freed, up to 64 MiB that are kept:
     * what a layer gave back is to be gone, or the statement of memory would not hold.  Its first
     * values, now fixed: every arena keeps freed blocks below them (docs/decisions/memory.md). */
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
    (void)mallopt(M_TRIM_THRESHOLD, 128 << 10);
    TSR_TRY(tsr_cli_switches(c, &tsr_step_quantize, opts, err));
    TSR_TRY(sort(&q, opts, err));
    struct tsr_job_options jo = { .out = q.out,
                                  .sets = c->sets,
                                  .n_sets = c->n_sets,
                                  .json = c->json,
                                  .quiet = c->quiet,
                                  .again = q.again };
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = tsr_job_make_steps(&job, args[0], q.text ? steps : steps + 1, q.text ? 2 : 1,
                                       q.pairs, q.n, &jo, d, err);
    if (st == TSR_OK) {
        st = tsr_cli_check_job(c, job, d, err);
        if (st == TSR_OK)
            st = tsr_cli_diag(c, d, "quantize", err);
    } else if (tsr_diag_errors(d)) {
        st = tsr_cli_diag(c, d, "quantize", err);
    }
    if (st == TSR_OK)
        st = run_checked(c, &q, job, err);
    tsr_job_destroy(job);
    tsr_diag_destroy(d);
    return st;
}

static const struct tsr_option options[] = {
    { .name = "use", .help = "The quantizer plugin.", .type = TSR_OPT_STRING, .def = { .s = "" } },
    { .name = "out",
      .help = "Folder for the packed model; the job's results are there too.",
      .type = TSR_OPT_STRING,
      .def = { .s = "" } },
    { .name = "text",
      .help = "File to calibrate on, for quantizers that need statistics.",
      .type = TSR_OPT_STRING,
      .def = { .s = "" } },
    { .name = "samples",
      .help = "Sequences taken from the text.",
      .type = TSR_OPT_INT,
      .def = { .i = 128 },
      .min = { .i = 1 },
      .max = { .i = 1000000 } },
    { .name = "seqlen",
      .help = "Tokens in each; 0: 2048, at most the model's maximum.",
      .unit = "tokens",
      .type = TSR_OPT_INT,
      .max = { .i = 1 << 30 } },
    { .name = "seed",
      .help = "Draws the places in the text.",
      .type = TSR_OPT_INT,
      .max = { .i = INT64_MAX } },
    { .name = "input_rows",
      .help = "Most tokens whose inputs are recorded for plugins that ask; whole sequences.",
      .unit = "tokens",
      .type = TSR_OPT_INT,
      .def = { .i = TSR_INPUT_ROWS },
      .min = { .i = 1 },
      .max = { .i = 1 << 30 } },
    { .name = "rules",
      .help = "Exceptions by layer or name, as in a job; later ones win.",
      .type = TSR_OPT_NODE },
    { .name = "on_unsupported",
      .help = "What to do with a linear that the plugin cannot quantize.",
      .type = TSR_OPT_ENUM,
      .choices = tsr_unsupported_choices,
      .n_choices = 2 },
    { .name = "sequential",
      .help = "Take a layer's statistics behind the already quantized layers.",
      .type = TSR_OPT_BOOL },
    { .name = "dry_run",
      .help = "Say how much memory it takes at most, and do nothing.",
      .type = TSR_OPT_BOOL },
    { .name = "again",
      .help = "Forget what an earlier run left in the folder and start anew.",
      .type = TSR_OPT_BOOL },
};

const struct tsr_verb tsr_verb_quantize = {
    .name = "quantize",
    .summary = "quantizes a model layer by layer into a folder that loads as a model",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "A job of a calibrate step (where --text is given) and a quantize step; OUT is its folder "
        "and the packed model (tessera.packed/1), which eval, generate, logits and `model:` read.  "
        "Further --key VALUE are options of the plugin: --bits 4 --group 128; its switches are "
        "--KEY "
        "and --no-KEY, as in --use awq --no-clip.\n"
        "One decoder layer at a time is in memory in full precision.  Each layer is on disk when "
        "it is done: killed at any moment, the same command goes on and gives the same bytes.  "
        "With other options, model or text it is refused, unless --again.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
    .jobs = true,
    .step = &tsr_step_quantize,
};
