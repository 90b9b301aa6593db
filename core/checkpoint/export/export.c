/* An export from beginning to end. */
#include "checkpoint/export/export.h"

#include "checkpoint/export/gguf_out.h"
#include "checkpoint/export/internal.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"

#include <stdlib.h>
#include <string.h>

const struct tsr_choice tsr_export_formats[9] = {
    { .name = "hf", .value = TSR_EXPORT_HF, .help = "a Hugging Face folder of 16-bit weights" },
    { .name = "gptq",
      .value = TSR_EXPORT_GPTQ,
      .help = "GPTQ: v1 where every zero point is in the middle, else v2" },
    { .name = "compressed-tensors",
      .value = TSR_EXPORT_CT,
      .help = "compressed-tensors, as vLLM and llm-compressor have it" },
    { .name = "awq",
      .value = TSR_EXPORT_AWQ,
      .help = "AWQ as AutoAWQ's GEMM kernels have it: 4 bits, one group size" },
    { .name = "fp8",
      .value = TSR_EXPORT_FP8,
      .help = "FP8 with a scale for each block, as DeepSeek and Qwen publish models" },
    { .name = "mxfp4",
      .value = TSR_EXPORT_MXFP4,
      .help = "gpt-oss as it is published: experts in MXFP4, everything else as it is" },
    { .name = "gguf", .value = TSR_EXPORT_GGUF, .help = "one GGUF file, as llama.cpp has it" },
    { .name = "prepacked",
      .value = TSR_EXPORT_PREPACKED,
      .help = "one file of this program's, with weights as --backend keeps them: it is mapped" },
    { .name = "imatrix",
      .value = TSR_EXPORT_IMATRIX,
      .help = "an importance matrix of llama.cpp, from the calibration of a job" },
};

const struct tsr_choice tsr_export_dtypes[3] = {
    { .name = "auto", .value = 0, .help = "the model's own, F16 if that has 32 bits" },
    { .name = "f16", .value = TSR_F16 },
    { .name = "bf16", .value = TSR_BF16 },
};

tsr_status tsr_export_check(const struct tsr_export_options *o, struct tsr_err *err)
{
    const bool gguf = o->format == TSR_EXPORT_GGUF, prepacked = o->format == TSR_EXPORT_PREPACKED;
    const bool one = o->format >= TSR_EXPORT_GGUF; /* file */
    const struct {
        bool        wrong;
        const char *name, *whose;
    } about[] = {
        { o->dtype && o->format != TSR_EXPORT_HF && o->format != TSR_EXPORT_MXFP4, "dtype",
          "hf and mxfp4" },
        { !gguf && o->type && strcmp(o->type, "auto") != 0, "type", "gguf" },
        { !gguf && o->imatrix, "imatrix", "gguf" },
        { one && o->shard_bytes && o->shard_bytes != TSR_EXPORT_SHARD_BYTES, "shard_size",
          "hf, gptq, compressed-tensors, awq, fp8 and mxfp4" },
        { !prepacked && o->on.backend && strcmp(o->on.backend, "cpu") != 0, "backend",
          "prepacked" },
    };
    for (size_t i = 0; i < sizeof about / sizeof *about; i++)
        if (about[i].wrong)
            return tsr_fail(err, TSR_E_CONFIG,
                            "'%s' is about %s and says nothing about %s; leave it out",
                            about[i].name, about[i].whose, tsr_export_formats[o->format].name);
    enum tsr_export_gguf_choice choice;
    return gguf ? tsr_export_gguf_choose(o->type, &choice, err) : TSR_OK;
}

static tsr_status look(void *ctx, const struct tsr_model_stored_view *v, struct tsr_err *err)
{
    struct tsr_export *x = ctx;
    (void)err;
    return x->kind->look(x, v);
}

tsr_status tsr_export_kind_open(struct tsr_export *x)
{
    if (x->kind->own && !(x->own = tsr_new(1, x->kind->own)))
        return tsr_fail_nomem(x->err, x->kind->own, x->kind->name);
    return x->kind->open ? x->kind->open(x) : TSR_OK;
}

void tsr_export_kind_close(struct tsr_export *x)
{
    free(x->rules.v);
    free(x->own);
    x->rules = (struct tsr_export_rules){ 0 };
    x->own = NULL;
}

static tsr_status write(struct tsr_export *x, const char *path)
{
    struct tsr_output_folder f;
    if (x->kind->look)
        TSR_TRY(tsr_model_visit(x->m, x->o, x->m->packed != NULL, look, x, x->err));
    if (x->kind->decide)
        TSR_TRY(x->kind->decide(x));
    TSR_TRY(tsr_output_folder_begin(&f, path, x->opt->replace, x->err));
    tsr_status st = tsr_export_tensors(x, f.part);
    if (st == TSR_OK)
        st = tsr_export_put_texts(x, f.part);
    if (st == TSR_OK)
        return tsr_output_folder_commit(&f, x->err);
    tsr_output_folder_abort(&f);
    return st;
}

/* What stays unpacked is 16-bit if it was, and is made so for hf; what is widened has 16 bits for these formats. */
static uint32_t dtype_of(const struct tsr_model *m, const struct tsr_export_options *opt)
{
    if (opt->dtype)
        return opt->dtype;
    if (m->embed.dtype != TSR_F32)
        return m->embed.dtype;
    return opt->format == TSR_EXPORT_HF      ? TSR_F16
           : opt->format == TSR_EXPORT_MXFP4 ? TSR_BF16
                                             : TSR_F32;
}

tsr_status tsr_export(const struct tsr_model *m, const struct tsr_model_overlay *o,
                      const char *path, const struct tsr_export_options *opt,
                      struct tsr_export_report *report, struct tsr_err *err)
{
    static const struct tsr_export_kind *const kinds[] = { &tsr_export_hf,  &tsr_export_gptq,
                                                           &tsr_export_ct,  &tsr_export_awq,
                                                           &tsr_export_fp8, &tsr_export_mxfp4 };
    memset(report, 0, sizeof *report);
    TSR_TRY(tsr_export_check(opt, err));
    TSR_TRY(tsr_model_plain(m, "converted", err));
    if (tsr_model_is_online(&m->hp) && opt->format != TSR_EXPORT_PREPACKED)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: it runs with transforms of its keys or of the inputs of down_proj "
                        "(rotate: {online: ...}), which %s cannot say; prepacked can",
                        m->path, tsr_export_formats[opt->format].name);
    const struct tsr_model_overlay *packed = o ? o : m->packed;
    if (packed && tsr_model_overlay_is_online(packed))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: layers of it run with transforms that its quantizer chose, which only "
                        "packed folders can say",
                        m->path);
    struct tsr_export x = { .m = m,
                            .o = o,
                            .opt = opt,
                            .kind = opt->format >= TSR_EXPORT_GGUF ? NULL : kinds[opt->format],
                            .report = report,
                            .path = path,
                            .dtype = dtype_of(m, opt),
                            .err = err };
    if (tsr_path_exists(path) && !opt->replace)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: exists already; remove it, or name another place for the export",
                        path);
    if (!x.kind)
        return opt->format == TSR_EXPORT_GGUF        ? tsr_export_gguf(&x)
               : opt->format == TSR_EXPORT_PREPACKED ? tsr_export_prepacked(&x)
                                                     : tsr_export_imatrix(&x);
    tsr_status st = tsr_export_kind_open(&x);
    if (st == TSR_OK)
        st = write(&x, path);
    tsr_export_kind_close(&x);
    return st;
}

json_t *tsr_export_report_json(const struct tsr_export_report *r, const char *path)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "output", path, "tensors",
                     (json_int_t)r->tensors, "bytes", (json_int_t)r->bytes, "unused",
                     (json_int_t)r->unused, "packed", (json_int_t)r->packed, "widened",
                     (json_int_t)r->widened, "quantized", (json_int_t)r->quantized, "requantized",
                     (json_int_t)r->requantized, "rounded", (json_int_t)r->rounded);
}

void tsr_export_report_print(const json_t *r, FILE *to)
{
    static const struct {
        const char *key, *what;
    } lines[] = {
        { "unused", "tensors that the model does not run, as they were" },
        { "packed", "packed matrices with the codes and scales that they had" },
        { "widened", "packed matrices as 16-bit weights" },
        { "quantized", "matrices quantized for the format" },
        { "requantized", "packed matrices quantized a second time" },
        { "rounded", "values rounded to 16 bits" },
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        long long n = json_integer_value(json_object_get(r, lines[i].key));
        if (n > 0)
            (void)fprintf(to, "  %lld %s\n", n, lines[i].what);
    }
}
