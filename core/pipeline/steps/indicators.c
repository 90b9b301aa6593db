/* indicators: how much each layer suffers from each width, by several measures. */
#include "base/json.h"
#include "base/mem.h"
#include "pipeline/steps/indicator_result.h"
#include "pipeline/steps/indicators_step.h"

#include <stdlib.h>
#include <string.h>

#define WHAT "step 'indicators'"

static const struct tsr_choice measures[] = {
    { "tables", "several indicators, by bit width", TSR_STEP_MEASURE_TABLES },
    { "kl", "KL to the original in nats per token, by scheme, cache and codec",
      TSR_STEP_MEASURE_KL },
};
static const struct tsr_choice steps[] = {
    { "row", "mean over the rows of the squared step of a row", TSR_QUANT_STEP_ROW },
    { "tensor", "one step for the whole matrix", TSR_QUANT_STEP_TENSOR },
};

#define S struct indicators_options
static const struct tsr_option options[] = {
    TSR_OPTION_PATH(S, text, "", "FILE",
                    "File to calibrate on; without it the calibrate step before this one."),
    TSR_OPTION_LIST(S, bits, "3,4,8,16", "Widths, ascending; 16: the original weights, 0."),
    TSR_OPTION_NODE(S, quantize,
                    "The quantizer of 'hessian' and 'measured' without its bits: {use: rtn}."),
    TSR_OPTION_ENUM(S, step, TSR_QUANT_STEP_ROW, steps, "The step S of the variance indicators."),
    TSR_OPTION_BOOL(S, symmetric, 0, "A symmetric step for the variance indicators."),
    TSR_OPTION_BOOL(S, hessian, 1, "Make the Hessian indicator."),
    TSR_OPTION_BOOL(S, measured, 1, "Measure the loss with one layer quantized at a time."),
    TSR_OPTION_REAL(S, budget, 0, 0, 16, "bits",
                    "Write for each indicator the plan with its smallest sum at this mean width; "
                    "0: none."),
    TSR_OPTION_INT(S, sequences, 16, 0, 1000000, NULL,
                   "Sequences of the calibration that losses, or KL, are measured on; 0: all."),
    TSR_OPTION_ENUM(S, measure, TSR_STEP_MEASURE_TABLES, measures, "What is measured."),
    TSR_OPTION_NODE(
        S, schemes,
        "Of measure: kl: [{use: gptq, bits: 4}, {use: rtn, bits: 4}], coarse ones first; "
        "by default 'quantize' at each of the 'bits'."),
    TSR_OPTION_LIST(S, kv, "f16,int8", "Of measure: kl: types of the KV cache, or none."),
    TSR_OPTION_NODE(S, codecs,
                    "Of measure: kl: codecs between stages; by default [plain:dtype=bf16]."),
    TSR_OPTION_NODE(S, sums,
                    "Of measure: kl: codecs inside a stage of two devices; by default none."),
    TSR_OPTION_NODE(S, ends,
                    "Of measure: kl: quantizers of embedding and head, [{use: rtn, bits: 8}]; by "
                    "default none."),
    TSR_OPTION_LIST(S, compensate, "none",
                    "Of measure: kl: channels of 1,024 that are compensated, \"8,32\": what that "
                    "leaves of each scheme's KL. Packs the whole model by each of them."),
    TSR_OPTION_INT(S, probes, 12, 1, 10000, "layers",
                   "Of measure: kl: most layers that are measured one at a time."),
    TSR_OPTION_INT(S, plans, 8, 0, 32, NULL,
                   "Of measure: kl: random whole plans that check the sums."),
    TSR_OPTION_INT(S, samples, 128, 1, 1000000, NULL, "With text: sequences taken from it."),
    TSR_OPTION_INT(S, seqlen, 0, 0, 1 << 30, "tokens",
                   "With text: tokens in each; 0: 2048, at most the model's maximum."),
    TSR_OPTION_INT(S, seed, -1, -1, INT64_MAX, NULL,
                   "Draws the places and 'random'; -1: the job's seed."),
};
#undef S

static uint32_t kinds(const struct indicators_options *o)
{
    uint32_t k = 1u << TSR_QUANT_IND_VARIANCE | 1u << TSR_QUANT_IND_VARIANCE_STOCHASTIC |
                 1u << TSR_QUANT_IND_RANDOM;
    if (o->hessian)
        k |= 1u << TSR_QUANT_IND_HESSIAN;
    if (o->measured)
        k |= 1u << TSR_QUANT_IND_MEASURED;
    return k;
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct indicators_options *o = opts;
    struct indicator_widths         *w = tsr_new(1, sizeof *w);
    if (!w)
        return tsr_fail_nomem(err, sizeof *w, WHAT);
    bool       kl = o->measure == TSR_STEP_MEASURE_KL;
    tsr_status st = kl ? tsr_step_kl_check(job, o, node, d, err) : TSR_OK;
    if (!kl)
        tsr_step_kl_none(o, d);
    if (st == TSR_OK && !(kl && o->schemes))
        st = tsr_step_widths_read(w, job, o, node, d, err);
    tsr_step_widths_close(w);
    if (o->text[0])
        tsr_pipeline_check_input(job, node, "text", d);
    return st;
}

/* The needs of the plugins at any bit width, and those of the indicators. */
static tsr_status needs(const struct indicator_widths *w, const struct indicators_options *o,
                        struct tsr_pipeline_job *job, uint64_t *need, struct tsr_err *err)
{
    *need = TSR_NEED_MEAN | TSR_NEED_VARIANCE | (o->hessian ? TSR_NEED_TOP : 0);
    for (uint32_t i = 0; i < w->n; i++) {
        uint64_t one = 0;
        if (w->scheme[i] && (o->hessian || o->measured))
            TSR_TRY(tsr_quant_scheme_needs(w->scheme[i], job->registry, job->model, &one, err));
        *need |= one;
    }
    return TSR_OK;
}

static tsr_status need(struct tsr_pipeline_job *job, const void *opts,
                       const struct tsr_config_node *node, uint64_t *need, struct tsr_err *err)
{
    const struct indicators_options *o = opts;
    struct indicator_widths         *w = NULL;
    *need = 0;
    if (o->text[0])
        return TSR_OK; /* a separate calibration */
    if (o->measure == TSR_STEP_MEASURE_KL)
        return tsr_step_kl_need(job, o, node, need, err);
    TSR_TRY(tsr_step_widths_open(&w, job, o, node, err));
    tsr_status st = needs(w, o, job, need, err);
    tsr_step_widths_close(w);
    return st;
}

/* The calibration of the step's own text: layer by layer as the indicators go. */
static tsr_status calibrate(struct tsr_pipeline_job *job, const struct indicators_options *o,
                            uint64_t seed, struct tsr_quant_calibration **c, struct tsr_err *err)
{
    TSR_TRY(tsr_pipeline_step_need_tokenizer(job, WHAT, err));
    uint64_t max = job->model->hp.max_positions;
    char    *text = tsr_pipeline_job_input(job, o->text);
    if (!text)
        return tsr_fail_nomem(err, 0, "a path");
    struct tsr_quant_calibrate_options co = { .text = text,
                                              .samples = (uint64_t)o->samples,
                                              .seqlen = o->seqlen    ? (uint64_t)o->seqlen
                                                        : max < 2048 ? max
                                                                     : 2048,
                                              .seed = seed,
                                              .on = job->on,
                                              .defer = true };
    tsr_status st = tsr_quant_calibrate(c, job->registry, job->model, job->tokenizer, &co, err);
    free(text);
    return st;
}

static tsr_status write_file(struct tsr_pipeline_job *job, const json_t *j, struct tsr_err *err)
{
    char *path = NULL;
    TSR_TRY(tsr_pipeline_job_output(job, TSR_STEP_INDICATORS_FILE, &path, err));
    tsr_status st = tsr_json_store(path, j, JSON_INDENT(1) | JSON_REAL_PRECISION(17), err);
    free(path);
    return st;
}

static json_t *quantizer_json(const struct indicators_options *o)
{
    if (o->quantize && o->quantize->kind == TSR_CONFIG_NODE_MAP)
        return tsr_config_node_json(o->quantize);
    return json_pack("{s:s}", "use", "rtn");
}

/* The tables, as the contents of the file. */
static tsr_status tables(struct tsr_pipeline_job *job, const struct indicators_options *o,
                         const struct tsr_config_node *node, struct tsr_quant_calibration *c,
                         uint64_t seed, json_t **out, struct tsr_err *err)
{
    struct indicator_widths *w = NULL;
    TSR_TRY(tsr_step_widths_open(&w, job, o, node, err));
    struct tsr_quant_indicators        t;
    struct tsr_quant_indicator_options io = { .n_bits = w->n,
                                              .schemes = w->scheme,
                                              .kinds = kinds(o),
                                              .step = (enum tsr_indicator_step)o->step,
                                              .symmetric = o->symmetric != 0,
                                              .seed = seed,
                                              .sequences = (uint64_t)o->sequences };
    memcpy(io.bits, w->bits, sizeof io.bits);
    tsr_status st = tsr_quant_indicators_run(&t, job->registry, job->model, c, &io, err);
    tsr_step_widths_close(w);
    TSR_TRY(st);
    json_t *quantizer = quantizer_json(o);
    *out = quantizer ? tsr_quant_indicators_json(&t, job->model, c, &io, quantizer) : NULL;
    json_decref(quantizer);
    tsr_quant_indicators_free(&t);
    return *out ? TSR_OK : tsr_fail_nomem(err, 0, "the indicators");
}

static void print(const json_t *r, FILE *to)
{
    if (json_object_get(r, "schemes"))
        tsr_step_kl_print(r, to);
    else
        tsr_step_indicators_print(r, to);
}

static tsr_status run_with(struct tsr_pipeline_job *job, const struct indicators_options *o,
                           const struct tsr_config_node *node, struct tsr_quant_calibration *c,
                           uint64_t seed, struct tsr_err *err)
{
    json_t *j = NULL;
    bool    kl = o->measure == TSR_STEP_MEASURE_KL;
    TSR_TRY(kl ? tsr_step_kl_run(job, o, node, c, seed, &j, err)
               : tables(job, o, node, c, seed, &j, err));
    tsr_status st = write_file(job, j, err);
    if (st == TSR_OK && !kl && o->budget > 0)
        st = tsr_step_indicator_plans_write(job, j, o->budget, err);
    if (st != TSR_OK || !tsr_pipeline_json_put_text(j, "file", TSR_STEP_INDICATORS_FILE)) {
        json_decref(j);
        return st != TSR_OK ? st : tsr_fail_nomem(err, 0, "the indicators");
    }
    if (!job->json)
        print(j, stdout);
    return tsr_pipeline_step_result(job, "indicators", j, err);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct indicators_options *o = opts;
    struct tsr_quant_calibration    *c = NULL;
    uint64_t                         seed = o->seed < 0 ? job->seed : (uint64_t)o->seed;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    if (!o->text[0] && !job->calibration)
        return tsr_fail(err, TSR_E_INPUT, "indicators need inputs; %s",
                        job->verb ? "give --text FILE"
                                  : "give 'text', or put a calibrate step before");
    tsr_status st = o->text[0] ? calibrate(job, o, seed, &c, err) : TSR_OK;
    if (st == TSR_OK)
        st = run_with(job, o, node, c ? c : job->calibration, seed, err);
    tsr_quant_calibration_destroy(c);
    return st;
}

const struct tsr_pipeline_step tsr_step_indicators = {
    .name = "indicators",
    .summary = "ranks layers by what each bit width costs them",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct indicators_options),
    .check = check,
    .run = run,
    .need = need,
    .print = print,
};
