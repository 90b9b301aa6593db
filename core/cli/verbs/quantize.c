/* tessera quantize: the step as a verb, with a calibrate step before it, into a packed model. */
#include "cli/jobs.h"

#include "base/mem.h"
#include "pipeline/steps/quantize.h"

#include <string.h>

extern const struct tsr_pipeline_step tsr_step_calibrate, tsr_step_quantize;

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

static bool is_on(const struct tsr_cli_strings *all, const char *key)
{
    const char *value = tsr_cli_own(all, key);
    return value && strcmp(value, "true") == 0;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct tsr_quantize_memory m;
    struct tsr_cli_step        s = { 0 };
    if (!is_on(opts, "dry_run")) {
        if (!tsr_cli_own(opts, "out"))
            return tsr_fail(err, TSR_E_INPUT, "-o OUT is missing: the folder for the packed model");
        return tsr_cli_run_step(c, opts, args, n_args, err);
    }
    tsr_status st = tsr_cli_step_open(c, &s, opts, args[0], err);
    st = tsr_cli_step_said(c, &s, st, c->verb->name, err);
    if (st == TSR_OK)
        st = tsr_step_quantize_statement(s.job, &m, err);
    if (st == TSR_OK)
        st = print_statement(c, s.job->model_path, &m, err);
    tsr_cli_step_close(&s);
    return st;
}

static const struct tsr_option own[] = {
    { .name = "out",
      .help = "Folder for the packed model; the job's results are there too.",
      .unit = "FOLDER",
      .type = TSR_OPT_STRING,
      .def = { .s = "" } },
    { .name = "dry_run",
      .help = "Say how much memory it takes at most, and do nothing.",
      .type = TSR_OPT_BOOL },
    { .name = "again",
      .help = "Forget what an earlier run left in the folder and start anew.",
      .type = TSR_OPT_BOOL },
};
static const char *const presets[] = { "to=.", NULL };

const struct tsr_verb tsr_verb_quantize = {
    .name = "quantize",
    .summary = "quantizes a model layer by layer into a folder that loads as a model",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "Runs a job of a calibrate step (if --text is given) and a quantize step. OUT is its "
        "folder and the packed model (tessera.packed/1), which eval, generate, logits and "
        "`model:` read. Further --key VALUE are options of the plugin: --bits 4 --group 128. "
        "Its switches are --KEY and --no-KEY, as in --use awq --no-clip.\n"
        "\n"
        "One decoder layer at a time is in memory in full precision. Each layer is written "
        "when it is finished. After a kill the same command resumes, with a byte-identical "
        "result. With other options, model or text it is refused, unless --again.",
    .run = run,
    .jobs = true,
    .step = &tsr_step_quantize,
    .before = &tsr_step_calibrate,
    .when = "text",
    .own = own,
    .n_own = sizeof own / sizeof *own,
    .presets = presets,
    .product = "the packed model is",
    .lean = true,
};
