/* tessera roundtrip: every matrix of a safetensors file through a quantizer or a codec and
 * back. */
#include "cli/cli.h"

#include "checkpoint/safetensors/safetensors.h"
#include "cli/verbs/roundtrip_run.h"
#include "pipeline/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct roundtrip_options {
    const char *output;
    int64_t     kind;
};

enum { KIND_QUANTIZER, KIND_CODEC };

static const struct tsr_choice kinds[] = {
    { "quantizer", "tensors are weights", KIND_QUANTIZER },
    { "codec", "rows are messages", KIND_CODEC },
};

#define S struct roundtrip_options
static const struct tsr_option options[] = {
    { .name = "output",
      .help = "File to write: each matrix as F32 under its name.",
      .type = TSR_OPT_STRING,
      .unit = "FILE",
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, output, const char *) },
    TSR_OPTION_ENUM(S, kind, KIND_QUANTIZER, kinds, "What PLUGIN is."),
};
#undef S

static bool put_tensor(json_t *list, const struct roundtrip_item *it)
{
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_int(j, "rows", it->rows) &&
              tsr_pipeline_json_put_int(j, "cols", it->cols) &&
              tsr_pipeline_json_put_real(j, "bits_per_weight", it->bits) &&
              tsr_pipeline_json_put_real(j, "squared_error", it->squared_error) &&
              tsr_pipeline_json_put_real(j, "relative_error", it->relative_error) &&
              tsr_pipeline_json_put_text(j, "format", it->format[0] ? it->format : NULL);
    return json_object_set_new(list, it->name, j) == 0 && ok;
}

static tsr_status print_result(struct tsr_cli *c, const struct roundtrip *rt, struct tsr_err *err)
{
    if (!c->json) {
        (void)printf("%-10s %10s %12s %12s  tensor\n", "rows", "cols", "bits/weight", "rel. error");
        for (uint64_t i = 0; i < rt->n; i++)
            (void)printf("%-10llu %10llu %12.4g %12.4g  %s\n",
                         (unsigned long long)rt->items[i].rows,
                         (unsigned long long)rt->items[i].cols, rt->items[i].bits,
                         rt->items[i].relative_error, rt->items[i].name);
        return tsr_cli_flush(err);
    }
    json_t *j = json_object(), *list = json_object();
    bool    ok =
        tsr_pipeline_json_put_text(j, "plugin", rt->spec.found.component->name) &&
        tsr_pipeline_json_put_text(j, "plugin_id", rt->spec.found.info->plugin->id) &&
        tsr_pipeline_json_put_text(j, "plugin_version", rt->spec.found.info->plugin->version) &&
        tsr_pipeline_json_put_text(j, "kind", rt->codec ? "codec" : "quantizer");
    for (uint64_t i = 0; ok && i < rt->n; i++)
        ok = put_tensor(list, &rt->items[i]);
    ok = tsr_pipeline_json_put(j, "tensors", list) && ok;
    if (!ok) {
        json_decref(j);
        j = NULL;
    }
    return tsr_cli_print_json(j, err);
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct roundtrip_options *o = opts;
    struct roundtrip                rt = { .codec = o->kind == KIND_CODEC };
    (void)n_args;
    TSR_TRY(tsr_cli_registry(c, &rt.registry, err));
    tsr_status st = roundtrip_open(&rt, args[0], args[1], err);
    if (st == TSR_OK)
        st = roundtrip_run(&rt, o->output, err);
    if (st == TSR_OK)
        st = print_result(c, &rt, err);
    roundtrip_close(&rt);
    return st;
}

const struct tsr_verb tsr_verb_roundtrip = {
    .name = "roundtrip",
    .summary = "sends tensors through a quantizer or codec and back",
    .args = "PLUGIN[:key=value,...] IN.safetensors",
    .min_args = 2,
    .max_args = 2,
    .details =
        "Every 2-D tensor of IN is quantized, dequantized and written as F32 under its name. "
        "IN may also hold what a quantizer needs for a tensor NAME:\n"
        "\n"
        "NAME.hessian      columns x columns\n"
        "NAME.cross        columns x columns\n"
        "NAME.absmax       columns\n"
        "NAME.mean         columns\n"
        "NAME.var          columns\n"
        "NAME.mean_abs     columns\n"
        "NAME.sensitivity  as the tensor\n"
        "NAME.inputs       any number of rows\n"
        "\n"
        "With --kind codec each row is a message, and NAME.calibration holds rows to "
        "calibrate with. Prints bits per weight as stored, squared error, and the root of "
        "squared error over squared weights.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct roundtrip_options),
    .run = run,
};
