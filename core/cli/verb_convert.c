/* tessera convert: a model in another program's format, or as a prepacked file. */
#include "cli/cli.h"

#include "base/f16.h"
#include "export/export.h"
#include "quant/quantize.h"

#include <malloc.h>
#include <string.h>

struct convert_options {
    const char *output, *type, *backend;
    int64_t     to, dtype, shard_size;
    int32_t     allow_requantize;
};

#define S struct convert_options
static const struct tsr_option options[] = {
    { .name = "output",
      .help = "Folder (gguf, prepacked: file) to write; it must not exist.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, output, const char *),
      .def = { .s = "" } },
    TSR_OPTION_ENUM(S, to, TSR_EXPORT_HF, tsr_export_formats, "The format."),
    TSR_OPTION_ENUM(S, dtype, 0, tsr_export_dtypes, "hf: what the weights become."),
    TSR_OPTION_STRING(
        S, type, "auto",
        "gguf: the tensors' type: f16, q8_0, q4_0, mxfp4, or auto: the one that holds "
        "packed weights exactly, 16 bits for the others."),
    TSR_OPTION_BOOL(S, allow_requantize, 0,
                    "Quantize packed weights again where the format does not hold them exactly."),
    TSR_OPTION_INT(S, shard_size, 5000, 1, 1 << 24, "MB",
                   "Most of a safetensors file; a larger model is cut into several."),
    TSR_OPTION_STRING(S, backend, "cpu", "prepacked: the backend that lays the weights out."),
};
#undef S

static tsr_status print(const struct tsr_cli *c, const struct convert_options *o,
                        const struct tsr_export_report *r, struct tsr_err *err)
{
    if (c->json) {
        json_t *j = tsr_export_report_json(r, o->output);
        if (j && json_object_set_new(j, "peak_memory_bytes",
                                     json_integer((json_int_t)tsr_memory_peak())) != 0) {
            json_decref(j);
            j = NULL;
        }
        return tsr_cli_print_json(j, err);
    }
    (void)printf("%s: %llu tensors, %llu bytes\n", o->output, (unsigned long long)r->tensors,
                 (unsigned long long)r->bytes);
    tsr_export_report_print(r, stdout);
    return tsr_cli_flush(err);
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct convert_options *o = opts;
    struct tsr_model             *m = NULL;
    struct tsr_export_report      r;
    struct tsr_export_options     eo = { .format = (enum tsr_export_format)o->to,
                                         .dtype = (uint32_t)o->dtype,
                                         .type = o->type,
                                         .allow_requantize = o->allow_requantize != 0,
                                         .shard_bytes = (uint64_t)o->shard_size * 1000000,
                                         .backend = o->backend };
    (void)n_args;
    /* what a layer gave back is to be gone, as for quantize */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 4 << 20);
    if (eo.format == TSR_EXPORT_PREPACKED)
        TSR_TRY(tsr_cli_registry(c, &eo.registry, err));
    TSR_TRY(tsr_model_load_streamed(&m, args[0], err));
    tsr_status st = tsr_export(m, NULL, o->output, &eo, &r, err);
    tsr_model_destroy(m);
    return st == TSR_OK ? print(c, o, &r, err) : st;
}

const struct tsr_verb tsr_verb_convert = {
    .name = "convert",
    .summary = "writes a model in another program's format, or as a file that is mapped",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details = "MODEL is anything that can be run: a Hugging Face folder, a packed model, @demo.\n"
               "Packed weights keep their codes and scales where the format has them, so that the\n"
               "program that owns it computes with the same numbers; what it does not have is\n"
               "refused, with the place and the reason.  The output appears under its name only\n"
               "when it is whole.  prepacked is for this program: the weights lie in the file as\n"
               "--backend keeps them, and are mapped and not read; the logits are the same bytes.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct convert_options),
    .run = run,
};
