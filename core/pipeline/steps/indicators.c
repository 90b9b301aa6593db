/* indicators: how much each layer suffers from each width, by several measures. */
#include "base/json.h"
#include "base/mem.h"
#include "pipeline/step.h"
#include "pipeline/steps/indicator_result.h"
#include "quant/indicator.h"

#include <stdlib.h>
#include <string.h>

#define WHAT     "step 'indicators'"
#define FILENAME "indicators.json"

struct indicators_options {
    const char                   *text, *bits;
    int64_t                       samples, seqlen, seed, sequences, step;
    double                        budget;
    int32_t                       symmetric, hessian, measured;
    const struct tsr_config_node *quantize;
};

static const struct tsr_choice steps[] = {
    { "row", "mean over the rows of the squared step of a row", TSR_QUANT_STEP_ROW },
    { "tensor", "one step for the whole matrix", TSR_QUANT_STEP_TENSOR },
};

#define S struct indicators_options
static const struct tsr_option options[] = {
    TSR_OPTION_PATH(S, text, "", "FILE",
                    "File to calibrate on; without it the calibrate step before this one."),
    TSR_OPTION_STRING(S, bits, "3,4,8,16", "Widths, ascending; 16: the original weights, 0."),
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
                   "Sequences of the calibration that losses are measured on; 0: all."),
    TSR_OPTION_INT(S, samples, 128, 1, 1000000, NULL, "With text: sequences taken from it."),
    TSR_OPTION_INT(S, seqlen, 0, 0, 1 << 30, "tokens",
                   "With text: tokens in each; 0: 2048, at most the model's maximum."),
    TSR_OPTION_INT(S, seed, -1, -1, INT64_MAX, NULL,
                   "Draws the places and 'random'; -1: the job's seed."),
};
#undef S

/* The schemes of all widths: the user's map with `bits` added. */
struct widths {
    uint32_t                 bits[TSR_INDICATOR_BITS], n;
    char                     text[TSR_INDICATOR_BITS][8];
    struct tsr_config_node   map[TSR_INDICATOR_BITS], key, value[TSR_INDICATOR_BITS];
    struct tsr_config_node   use_key, use_value;
    struct tsr_config_node **lists[TSR_INDICATOR_BITS];
    struct tsr_quant_scheme *scheme[TSR_INDICATOR_BITS];
};

static void widths_free(struct widths *w)
{
    for (uint32_t i = 0; i < TSR_INDICATOR_BITS; i++) {
        tsr_quant_scheme_destroy(w->scheme[i]);
        free(w->lists[i]);
    }
}

/* "3,4,8,16" */
static bool read_bits(struct widths *w, const char *text)
{
    for (const char *s = text;; s++) {
        char *end;
        if (*s < '0' || *s > '9' || w->n == TSR_INDICATOR_BITS)
            return false;
        unsigned long v = strtoul(s, &end, 10);
        if (!((v >= 2 && v <= 8) || v == 16) || (w->n && v <= w->bits[w->n - 1]))
            return false;
        w->bits[w->n++] = (uint32_t)v;
        s = end;
        if (*s == '\0')
            return true;
        if (*s != ',')
            return false;
    }
}

static struct tsr_config_node scalar(const struct tsr_config_node *at, const char *text)
{
    return (
        struct tsr_config_node){ .kind = TSR_CONFIG_NODE_SCALAR, .mark = at->mark, .text = text };
}

/* The map of width i; from NULL: {use: rtn}. */
static tsr_status make_map(struct widths *w, uint32_t i, const struct tsr_config_node *from,
                           const struct tsr_config_node *at, struct tsr_err *err)
{
    uint64_t n = from ? from->n : 1;
    w->lists[i] = tsr_new(2 * (n + 1), sizeof(struct tsr_config_node *));
    if (!w->lists[i])
        return tsr_fail_nomem(err, 2 * (n + 1) * sizeof(struct tsr_config_node *), WHAT);
    struct tsr_config_node **keys = w->lists[i], **items = keys + n + 1;
    for (uint64_t k = 0; from && k < n; k++) {
        keys[k] = from->keys[k];
        items[k] = from->items[k];
    }
    if (!from) {
        keys[0] = &w->use_key;
        items[0] = &w->use_value;
    }
    (void)snprintf(w->text[i], sizeof w->text[i], "%u", w->bits[i]);
    w->value[i] = scalar(at, w->text[i]);
    keys[n] = &w->key;
    items[n] = &w->value[i];
    w->map[i] = (struct tsr_config_node){
        .kind = TSR_CONFIG_NODE_MAP, .mark = at->mark, .n = n + 1, .items = items, .keys = keys
    };
    return TSR_OK;
}

/* Errors go to d. w must not move while its schemes live. */
static tsr_status read_widths(struct widths *w, struct tsr_pipeline_job *job,
                              const struct indicators_options *o,
                              const struct tsr_config_node *node, struct tsr_diag *d,
                              struct tsr_err *err)
{
    const struct tsr_config_node *map = o->quantize, *at = tsr_config_node_get(node, "bits");
    if (!read_bits(w, o->bits)) {
        tsr_config_diag_error(
            d, at ? &at->mark : &node->mark, "write bits: \"3,4,8,16\"",
            "'bits' is not an ascending list of at most %d widths of 2 to 8 or 16",
            TSR_INDICATOR_BITS);
        return TSR_OK;
    }
    if (map && map->kind == TSR_CONFIG_NODE_NULL)
        map = NULL;
    if (map && map->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(d, &map->mark, "write quantize: {use: rtn}",
                              "'quantize' is not a map");
        return TSR_OK;
    }
    const struct tsr_config_node *bits = map ? tsr_config_node_get(map, "bits") : NULL;
    if (bits) {
        tsr_config_diag_error(d, &bits->mark, "the widths are the step's own 'bits'",
                              "'bits' inside 'quantize'");
        return TSR_OK;
    }
    const struct tsr_config_node *mark = map ? map : node;
    w->key = scalar(mark, "bits");
    w->use_key = scalar(mark, "use");
    w->use_value = scalar(mark, "rtn");
    for (uint32_t i = 0; i < w->n; i++) {
        uint64_t before = tsr_config_diag_errors(d);
        if (w->bits[i] == 16)
            continue;
        TSR_TRY(make_map(w, i, map, mark, err));
        TSR_TRY(
            tsr_quant_scheme_create(&w->scheme[i], job->registry, &w->map[i], NULL, WHAT, d, err));
        if (tsr_config_diag_errors(d) != before)
            break; /* the other bit widths would report the same */
    }
    return TSR_OK;
}

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
    struct widths                   *w = tsr_new(1, sizeof *w);
    if (!w)
        return tsr_fail_nomem(err, sizeof *w, WHAT);
    tsr_status st = read_widths(w, job, o, node, d, err);
    widths_free(w);
    free(w);
    if (o->text[0])
        tsr_pipeline_check_input(job, node, "text", d);
    return st;
}

/* The needs of the plugins at any bit width, and those of the indicators. */
static tsr_status needs(const struct widths *w, const struct indicators_options *o,
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

/* Reads the widths of a step that check() has passed. */
static tsr_status open_widths(struct widths **out, struct tsr_pipeline_job *job,
                              const struct indicators_options *o,
                              const struct tsr_config_node *node, struct tsr_err *err)
{
    struct widths   *w = tsr_new(1, sizeof *w);
    struct tsr_diag *d = NULL;
    if (!w)
        return tsr_fail_nomem(err, sizeof *w, WHAT);
    tsr_status st = tsr_config_diag_create(&d, err);
    if (st == TSR_OK)
        st = read_widths(w, job, o, node, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    if (st != TSR_OK) {
        widths_free(w);
        free(w);
        return st;
    }
    *out = w;
    return TSR_OK;
}

static tsr_status need(struct tsr_pipeline_job *job, const void *opts,
                       const struct tsr_config_node *node, uint64_t *need, struct tsr_err *err)
{
    const struct indicators_options *o = opts;
    struct widths                   *w = NULL;
    *need = 0;
    if (o->text[0])
        return TSR_OK; /* a separate calibration */
    TSR_TRY(open_widths(&w, job, o, node, err));
    tsr_status st = needs(w, o, job, need, err);
    widths_free(w);
    free(w);
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
    TSR_TRY(tsr_pipeline_job_output(job, FILENAME, &path, err));
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

static tsr_status run_with(struct tsr_pipeline_job *job, const struct indicators_options *o,
                           struct widths *w, struct tsr_quant_calibration *c, uint64_t seed,
                           struct tsr_err *err)
{
    struct tsr_quant_indicators        t;
    struct tsr_quant_indicator_options io = { .n_bits = w->n,
                                              .schemes = w->scheme,
                                              .kinds = kinds(o),
                                              .step = (enum tsr_indicator_step)o->step,
                                              .symmetric = o->symmetric != 0,
                                              .seed = seed,
                                              .sequences = (uint64_t)o->sequences };
    memcpy(io.bits, w->bits, sizeof io.bits);
    TSR_TRY(tsr_quant_indicators_run(&t, job->registry, job->model, c, &io, err));
    json_t *quantizer = quantizer_json(o);
    json_t *j = quantizer ? tsr_quant_indicators_json(&t, job->model, c, &io, quantizer) : NULL;
    json_decref(quantizer);
    tsr_quant_indicators_free(&t);
    if (!j)
        return tsr_fail_nomem(err, 0, "the indicators");
    tsr_status st = write_file(job, j, err);
    if (st == TSR_OK && o->budget > 0)
        st = tsr_step_indicator_plans_write(job, j, o->budget, err);
    if (st != TSR_OK || !tsr_pipeline_json_put_text(j, "file", FILENAME)) {
        json_decref(j);
        return st != TSR_OK ? st : tsr_fail_nomem(err, 0, "the indicators");
    }
    if (!job->json)
        tsr_step_indicators_print(j, stdout);
    return tsr_pipeline_step_result(job, "indicators", j, err);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct indicators_options *o = opts;
    struct tsr_quant_calibration    *c = NULL;
    struct widths                   *w = NULL;
    uint64_t                         seed = o->seed < 0 ? job->seed : (uint64_t)o->seed;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    if (!o->text[0] && !job->calibration)
        return tsr_fail(err, TSR_E_INPUT, "indicators need inputs; %s",
                        job->verb ? "give --text FILE"
                                  : "give 'text', or put a calibrate step before");
    TSR_TRY(open_widths(&w, job, o, node, err));
    tsr_status st = o->text[0] ? calibrate(job, o, seed, &c, err) : TSR_OK;
    if (st == TSR_OK)
        st = run_with(job, o, w, c ? c : job->calibration, seed, err);
    tsr_quant_calibration_destroy(c);
    widths_free(w);
    free(w);
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
    .print = tsr_step_indicators_print,
};
