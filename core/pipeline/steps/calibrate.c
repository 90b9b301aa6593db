/* calibrate: runs the original model over text and keeps statistics of every linear's inputs. */
#include "quant/calibrate.h"
#include "pipeline/codecs.h"
#include "pipeline/job.h"
#include "pipeline/step.h"
#include "pipeline/steps/quantize.h"

#include <stdlib.h>

struct calibrate_options {
    const char                   *text;
    const struct tsr_config_node *codecs;
    int64_t                       samples, seqlen, seed, input_rows;
};

#define S struct calibrate_options
static const struct tsr_option options[] = {
    { .name = "text",
      .help = "File to calibrate on.",
      .type = TSR_OPT_STRING,
      .unit = "FILE",
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, text, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(S, samples, 128, 1, 1000000, NULL, "Sequences taken from the text."),
    TSR_OPTION_INT(S, seqlen, 0, 0, 1 << 30, "tokens",
                   "Tokens in each; 0: 2048, at most the model's maximum."),
    TSR_OPTION_INT(S, seed, -1, -1, INT64_MAX, NULL, "Draws the places; -1: the job's seed."),
    TSR_OPTION_INT(S, input_rows, TSR_INPUT_ROWS, 1, 1 << 30, "tokens",
                   "Most tokens whose inputs are recorded for plugins that ask; whole sequences."),
    TSR_OPTION_NODE(
        S, codecs,
        "Calibrate codecs on the model as it is here instead: {use: [int4_bf16], tp: 8}."),
};
#undef S

/* "calibration" in the job folder, "calibration-2" for the second such step, and so on. */
static tsr_status folder_of(const struct tsr_pipeline_job *job, char **folder, struct tsr_err *err)
{
    char name[40] = "calibration";
    if (job->at->nth > 1)
        (void)snprintf(name, sizeof name, "calibration-%llu", (unsigned long long)job->at->nth);
    return tsr_pipeline_job_output(job, name, folder, err);
}

/* For each layer with experts the tokens that each took, 0 for one whose statistics are borrowed; NULL: out of memory. */
static json_t *experts_json(const struct tsr_quant_calibration *c, const struct tsr_model *m)
{
    json_t *layers = json_array();
    bool    ok = layers != NULL;
    for (uint64_t l = 0; ok && l < c->layers; l++) {
        json_t *tokens = m->hp.sparse[l] ? json_array() : NULL;
        for (uint64_t e = 0; ok && tokens && e < m->hp.experts; e++) {
            enum tsr_site s = tsr_model_expert_site(e, TSR_MODEL_SITE_FFN_IN);
            uint64_t      n = c->borrowed[l][s] ? 0 : c->site[l][s].tokens;
            ok = json_array_append_new(tokens, json_integer((json_int_t)n)) == 0;
        }
        if (tokens)
            ok = ok && json_array_append_new(layers, json_pack("{s:I, s:O}", "layer", (json_int_t)l,
                                                               "tokens", tokens)) == 0;
        json_decref(tokens);
    }
    if (ok)
        return layers;
    json_decref(layers);
    return NULL;
}

static json_t *result(const struct calibrate_options *o, const struct tsr_quant_calibration *c,
                      const struct tsr_model *m, uint64_t seed)
{
    json_t *j = json_object();
    if (tsr_pipeline_json_put_text(j, "text", o->text) &&
        tsr_pipeline_json_put_int(j, "samples", c->sequences) &&
        tsr_pipeline_json_put_int(j, "tokens", c->tokens) &&
        tsr_pipeline_json_put_int(j, "seed", seed) &&
        tsr_pipeline_json_put_text(j, "hash", c->hash) &&
        (!m->hp.experts || tsr_pipeline_json_put(j, "experts", experts_json(c, m))))
        return j;
    json_decref(j);
    return NULL;
}

tsr_status tsr_step_calibrate_step_options(struct tsr_pipeline_job *job, const void *opts,
                                           struct tsr_quant_calibrate_options *out, char **text,
                                           struct tsr_err *err)
{
    const struct calibrate_options *o = opts;
    TSR_TRY(tsr_pipeline_step_need_tokenizer(job, "step 'calibrate'", err));
    uint64_t max = job->model->hp.max_positions;
    *text = tsr_pipeline_job_input(job, o->text);
    if (!*text)
        return tsr_fail_nomem(err, 0, "a path");
    *out = (struct tsr_quant_calibrate_options){
        .text = *text,
        .samples = (uint64_t)o->samples,
        .seqlen = o->seqlen    ? (uint64_t)o->seqlen
                  : max < 2048 ? max
                               : 2048,
        .seed = o->seed < 0 ? job->seed : (uint64_t)o->seed,
        .input_rows = (uint64_t)o->input_rows,
        .on = job->on,
    };
    return TSR_OK;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct calibrate_options    *o = opts;
    struct tsr_quant_calibration      *c = NULL;
    struct tsr_quant_calibrate_options co;
    char                              *folder = NULL, *text = NULL;
    (void)node;
    TSR_TRY(tsr_pipeline_step_need_tokenizer(job, "step 'calibrate'", err));
    if (o->codecs) {
        json_t    *found = NULL;
        tsr_status st = tsr_step_calibrate_step_options(job, opts, &co, &text, err);
        if (st == TSR_OK)
            st = tsr_pipeline_codecs_calibrate(job, o->codecs, &co, &found, err);
        free(text);
        return st == TSR_OK ? tsr_pipeline_step_result(job, "calibrate", found, err) : st;
    }
    TSR_TRY(folder_of(job, &folder, err));
    tsr_status st = tsr_step_calibrate_step_options(job, opts, &co, &text, err);
    co.need = job->at->need;
    co.folder = folder;
    if (st == TSR_OK)
        st = tsr_quant_calibrate(&c, job->registry, job->model, job->tokenizer, &co, err);
    free(text);
    free(folder);
    if (st != TSR_OK)
        return st;
    tsr_quant_calibration_destroy(job->calibration);
    job->calibration = c;
    return tsr_pipeline_step_result(job, "calibrate", result(o, c, job->model, co.seed), err);
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct calibrate_options *o = opts;
    (void)err;
    tsr_pipeline_check_input(job, node, "text", d);
    if (o->codecs)
        tsr_pipeline_codecs_check(job, o->codecs, d);
    return TSR_OK;
}

const struct tsr_pipeline_step tsr_step_calibrate = {
    .name = "calibrate",
    .summary = "collects statistics of the inputs of every linear",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct calibrate_options),
    .check = check,
    .run = run,
    .streams = true,
    .later = true, /* its output is for later steps */
};
