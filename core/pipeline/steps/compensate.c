/* compensate: stores the quantization residuals of a packed model and the statistics of its inputs. */
#include "pipeline/step.h"

#include "base/file.h"
#include "checkpoint/packed/packed_model.h"
#include "quant/residuals.h"

#include <stdlib.h>
#include <string.h>

#define WHAT "step 'compensate'"

struct compensate_options {
    const char *packed, *text;
    int64_t     bits, samples, seqlen, seed;
};

static const struct tsr_choice widths[] = {
    { "2", "codes -1 to 1", 2 },
    { "4", "codes -7 to 7", 4 },
    { "8", "codes -127 to 127", 8 },
    { "16", "F16 values", 16 },
};

#define S struct compensate_options
static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(S, bits, 4, widths, "Bits of a residual, with a scale per output channel."),
    TSR_OPTION_PATH(S, packed, "", "FOLDER",
                    "Folder of the packed model that was made from this one; without it what the "
                    "quantize step before wrote."),
    TSR_OPTION_PATH(S, text, "", "FILE",
                    "File that inputs are profiled on; without it the calibrate step before."),
    TSR_OPTION_INT(S, samples, 100, 1, 1000000, NULL, "With text: sequences taken from it."),
    TSR_OPTION_INT(S, seqlen, 0, 0, 1 << 30, "tokens",
                   "With text: tokens in each; 0: 512, at most the model's maximum."),
    TSR_OPTION_INT(S, seed, -1, -1, INT64_MAX, NULL,
                   "With text: draws the places; -1: the job's seed."),
};
#undef S

/* The sequences alone: the pass over the model is the step's own. */
static tsr_status sequences(struct tsr_pipeline_job *job, const struct compensate_options *o,
                            struct tsr_quant_calibration **c, struct tsr_err *err)
{
    TSR_TRY(tsr_pipeline_step_need_tokenizer(job, WHAT, err));
    uint64_t max = job->model->hp.max_positions;
    char    *text = tsr_pipeline_job_input(job, o->text);
    if (!text)
        return tsr_fail_nomem(err, 0, "a path");
    struct tsr_quant_calibrate_options co = { .text = text,
                                              .samples = (uint64_t)o->samples,
                                              .seqlen = o->seqlen   ? (uint64_t)o->seqlen
                                                        : max < 512 ? max
                                                                    : 512,
                                              .seed = o->seed < 0 ? job->seed : (uint64_t)o->seed,
                                              .on = job->on,
                                              .defer = true };
    tsr_status st = tsr_quant_calibrate(c, job->registry, job->model, job->tokenizer, &co, err);
    free(text);
    return st;
}

static void print(const json_t *r, FILE *to)
{
    double before = json_number_value(json_object_get(r, "squared_error"));
    double after = json_number_value(json_object_get(r, "compensated_error"));
    (void)
        fprintf(to,
                "residuals of %lld linears at %lld bits: %lld bytes; squared error %.4g, with all "
                "of them %.4g (%.2f %%)\n",
                (long long)json_integer_value(json_object_get(r, "linears")),
                (long long)json_integer_value(json_object_get(r, "bits")),
                (long long)json_integer_value(json_object_get(r, "bytes")), before, after,
                before > 0 ? 100 * after / before : 0);
}

static tsr_status report(struct tsr_pipeline_job *job, const struct compensate_options *o,
                         const char *folder, const struct tsr_quant_compensation_report *r,
                         struct tsr_err *err)
{
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "packed_model", folder) &&
              tsr_pipeline_json_put_int(j, "bits", (uint64_t)o->bits) &&
              tsr_pipeline_json_put_int(j, "linears", r->linears) &&
              tsr_pipeline_json_put_int(j, "bytes", r->bytes) &&
              tsr_pipeline_json_put_int(j, "tokens", r->tokens) &&
              tsr_pipeline_json_put_real(j, "squared_error", r->before) &&
              tsr_pipeline_json_put_real(j, "compensated_error", r->after);
    if (!ok) {
        json_decref(j);
        j = NULL;
    }
    if (j && !job->json)
        print(j, stdout);
    return tsr_pipeline_step_result(job, "compensate", j, err);
}

/* The folder of a packed model; its index, which has the hashes of the rest, is what the manifest
 * names. */
static tsr_status packed_folder(const struct tsr_pipeline_job *job, const char *path, char **folder,
                                struct tsr_err *err)
{
    char *name = tsr_path_join(path, TSR_PACKED_INDEX), *index = NULL;
    if (name)
        index = tsr_pipeline_job_input(job, name);
    free(name);
    if (index)
        *folder = tsr_path_dir(index);
    free(index);
    return *folder ? TSR_OK : tsr_fail_nomem(err, strlen(path), path);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct compensate_options     *o = opts;
    struct tsr_quant_calibration        *own = NULL;
    struct tsr_quant_compensation_report r;
    (void)node;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    char      *folder = NULL;
    tsr_status st = *o->packed ? packed_folder(job, o->packed, &folder, err) : TSR_OK;
    if (st != TSR_OK)
        return st;
    if (!folder && !job->packed)
        st = tsr_fail(err, TSR_E_INPUT, "there is no packed model; %s",
                      job->verb ? "give --packed FOLDER"
                                : "put a quantize step before, or give 'packed'");
    else if (!*o->text && !job->calibration)
        st = tsr_fail(err, TSR_E_INPUT, "inputs are profiled on a text; %s",
                      job->verb ? "give --text FILE"
                                : "give 'text', or put a calibrate step before");
    if (st == TSR_OK && *o->text)
        st = sequences(job, o, &own, err);
    const char *where = folder ? folder : job->packed;
    if (st == TSR_OK) {
        struct tsr_quant_compensation_options co = { .folder = where,
                                                     .bits = (uint32_t)o->bits,
                                                     .calibration = own ? own : job->calibration };
        st = tsr_quant_compensation_make(job->registry, job->model, &co, &r, err);
    }
    if (st == TSR_OK)
        st = report(job, o, where, &r, err);
    tsr_quant_calibration_destroy(own);
    free(folder);
    return st;
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct compensate_options *o = opts;
    const struct tsr_config_node    *at = tsr_config_node_get(node, "packed");
    char                            *folder = NULL;
    tsr_pipeline_check_input(job, node, "text", d);
    if (!*o->packed)
        return TSR_OK;
    TSR_TRY(packed_folder(job, o->packed, &folder, err));
    char *index = tsr_path_join(folder, TSR_PACKED_INDEX);
    if (index && !tsr_path_exists(index))
        tsr_config_diag_error(d, at ? &at->mark : &node->mark,
                              "give the folder that quantize wrote", "'%s' is not a packed model",
                              folder);
    free(index);
    free(folder);
    return TSR_OK;
}

const struct tsr_pipeline_step tsr_step_compensate = {
    .name = "compensate",
    .summary = "stores what quantization lost next to a packed model; decode adds a "
               "part of it",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct compensate_options),
    .check = check,
    .run = run,
    .print = print,
    .streams = true,
};
