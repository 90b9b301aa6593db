/* export: the model as the steps before left it, in another program's format. */
#include "pipeline/step.h"

#include "checkpoint/export/export.h"
#include "quant/calibrate.h"
#include "quant/quantize.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct export_options {
    const char *to, *type, *imatrix, *backend;
    int64_t     format, dtype, shard_size;
    int32_t     allow_requantize;
};

#define MOMENTS (TSR_NEED_MEAN | TSR_NEED_VARIANCE)
#define INPUTS  (MOMENTS | TSR_NEED_HESSIAN)

#define S struct export_options
static const struct tsr_option options[] = {
    { .name = "to",
      .help = "Folder (gguf, prepacked: file) to write, which must not exist; a job's is in its "
              "folder, "
              "unless the path is absolute.",
      .type = TSR_OPT_STRING,
      .unit = "FILE|FOLDER",
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, to, const char *),
      .def = { .s = "" } },
    TSR_OPTION_ENUM(S, format, TSR_EXPORT_HF, tsr_export_formats, "The format."),
    TSR_OPTION_ENUM(S, dtype, 0, tsr_export_dtypes, "hf: what the weights become."),
    TSR_OPTION_STRING(
        S, type, "auto",
        "gguf: the tensors' type: f16, q8_0, q4_0, mxfp4; a mix: q3_k_m, q4_k_m, q5_k_m, q6_k, "
        "mxfp4_moe; or auto: the one that holds packed weights exactly, 16 bits for the others."),
    TSR_OPTION_PATH(S, imatrix, "", "FILE",
                    "gguf: an importance matrix of llama.cpp: how much the error of each column "
                    "counts. Without it a calibration before this step says so."),
    TSR_OPTION_BOOL(S, allow_requantize, 0,
                    "Quantize packed weights again where the format does not hold them exactly."),
    TSR_OPTION_INT(S, shard_size, 5000, 1, 1 << 24, "MB",
                   "Most of a safetensors file; a larger model is cut into several."),
    TSR_OPTION_STRING(S, backend, "cpu", "prepacked: the backend that lays the weights out."),
};
#undef S

static void print(const json_t *r, FILE *to)
{
    (void)fprintf(to, "exported as %s to %s: %lld tensors, %lld bytes\n",
                  json_string_value(json_object_get(r, "format")),
                  json_string_value(json_object_get(r, "output")),
                  (long long)json_integer_value(json_object_get(r, "tensors")),
                  (long long)json_integer_value(json_object_get(r, "bytes")));
    tsr_export_report_print(r, to);
}

/* ---- statistics of inputs -------------------------------------------------------------------- */

struct inputs {
    struct tsr_quant_calibration *calibration;
    struct tsr_quant_layer_stats  stats;
    uint64_t                      need, layer; /* of stats */
    bool                          open;
};

static void inputs_close(struct inputs *in)
{
    if (in->open)
        tsr_quant_layer_stats_free(&in->stats);
    in->open = false;
}

static tsr_status inputs_of_layer(void *ctx, uint64_t layer, const struct tsr_quant_stats **sites,
                                  struct tsr_err *err)
{
    struct inputs *in = ctx;
    if (!in->open || in->layer != layer) {
        inputs_close(in);
        TSR_TRY(
            tsr_quant_calibration_layer(in->calibration, layer, in->need, NULL, &in->stats, err));
        for (uint64_t i = 0; i < in->stats.sites; i++)
            if (in->stats.borrowed[i]) /* none of these tokens was its own */
                in->stats.site[i].tokens = 0;
        in->open = true;
        in->layer = layer;
    }
    *sites = in->stats.site;
    return TSR_OK;
}

static bool takes_inputs(const struct export_options *o)
{
    return o->format == TSR_EXPORT_IMATRIX ||
           (o->format == TSR_EXPORT_GGUF && !*o->imatrix && strcasecmp(o->type, "auto") != 0 &&
            strcasecmp(o->type, "f16") != 0);
}

static tsr_status need(struct tsr_pipeline_job *job, const void *opts,
                       const struct tsr_config_node *node, uint64_t *need, struct tsr_err *err)
{
    (void)job;
    (void)node;
    (void)err;
    const struct export_options *o = opts;
    *need = !takes_inputs(o) ? 0 : o->format == TSR_EXPORT_IMATRIX ? MOMENTS : INPUTS;
    return TSR_OK;
}

/* In a streaming job, the output of `quantize` is on disk only. */
static tsr_status export_model(struct tsr_pipeline_job *job, const char *path,
                               const struct tsr_export_options *eo, struct tsr_export_report *r,
                               struct tsr_err *err)
{
    struct tsr_model *packed = NULL;
    if (!job->packed || job->overlay)
        return tsr_export(job->model, job->overlay, path, eo, r, err);
    TSR_TRY(tsr_model_load_streamed(&packed, job->packed, err));
    tsr_status st = tsr_export(packed, NULL, path, eo, r, err);
    tsr_model_destroy(packed);
    return st;
}

static struct tsr_export_options options_of(const struct tsr_pipeline_job *job,
                                            const struct export_options   *o)
{
    return (
        struct tsr_export_options){ .format = (enum tsr_export_format)o->format,
                                    .dtype = (uint32_t)o->dtype,
                                    .type = o->type,
                                    .imatrix = *o->imatrix ? o->imatrix : NULL,
                                    .allow_requantize = o->allow_requantize != 0,
                                    .replace = !job->loose && *o->to != '/',
                                    .shard_bytes = (uint64_t)o->shard_size * 1000000,
                                    .registry = job->registry,
                                    .on = { .backend = o->backend, .numerics = job->on.numerics },
                                    .compensation = job->packed };
}

/* A type of gguf where a format belongs: the way to write it. */
static void hint_at_type(const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node   *at = tsr_config_node_get(node, "format");
    const struct tsr_export_options gguf = {
        .format = TSR_EXPORT_GGUF, .type = at && at->kind == TSR_CONFIG_NODE_SCALAR ? at->text : ""
    };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (*gguf.type && strcasecmp(gguf.type, "mxfp4") != 0 && /* a format too */
        tsr_export_check(&gguf, &e.err) == TSR_OK)
        tsr_config_diag_error(d, &at->mark, "as a verb: --to gguf --type TYPE",
                              "'%.40s' is a type of the format gguf; write format: gguf, "
                              "type: %.40s",
                              at->text, at->text);
}

/* Before the steps that take hours run. */
static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_export_options eo = options_of(job, opts);
    if (!tsr_pipeline_after(job, "export")) /* which may write it */
        tsr_pipeline_check_input(job, node, "imatrix", d);
    hint_at_type(node, d);
    if (tsr_config_diag_errors(d))
        return TSR_OK;
    const struct tsr_config_node *type = tsr_config_node_get(node, "type");
    tsr_status                    st = tsr_export_check(&eo, err);
    if (st == TSR_OK || !type)
        return st;
    tsr_config_diag_failure(d, &type->mark, err);
    return TSR_OK;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct export_options *o = opts;
    struct tsr_export_report     r;
    struct tsr_export_options    eo = options_of(job, o);
    char                        *path = NULL;
    struct inputs                in = { .calibration = job->calibration,
                                        .need = o->format == TSR_EXPORT_IMATRIX ? MOMENTS : INPUTS };
    char                        *imatrix = NULL;
    (void)node;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    if (job->calibration && takes_inputs(o))
        eo.inputs = (struct tsr_export_layer_inputs){ .layer = inputs_of_layer,
                                                      .ctx = &in,
                                                      .text = job->calibration->hash,
                                                      .sequences = job->calibration->sequences,
                                                      .seqlen = job->calibration->seqlen };
    if (*o->imatrix && !(imatrix = tsr_pipeline_job_input(job, o->imatrix)))
        return tsr_fail_nomem(err, strlen(o->imatrix), "a path");
    eo.imatrix = imatrix;
    tsr_status st = tsr_pipeline_job_output(job, o->to, &path, err);
    if (st == TSR_OK)
        st = export_model(job, path, &eo, &r, err);
    inputs_close(&in);
    free(imatrix);
    json_t *j = st == TSR_OK ? tsr_export_report_json(&r, path) : NULL;
    free(path);
    TSR_TRY(st);
    if (j && (!tsr_pipeline_json_put_text(j, "format", tsr_export_formats[o->format].name) ||
              (job->loose &&
               !tsr_pipeline_json_put_int(j, "peak_memory_bytes", tsr_quant_memory_peak())))) {
        json_decref(j);
        j = NULL;
    }
    if (j && !job->json)
        print(j, stdout);
    return tsr_pipeline_step_result(job, "export", j, err);
}

const struct tsr_pipeline_step tsr_step_export = {
    .name = "export",
    .summary = "writes the model in another program's format, or prepacked",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct export_options),
    .check = check,
    .run = run,
    .need = need,
    .print = print,
    .streams = true,
};
