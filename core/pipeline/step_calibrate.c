/* calibrate: runs the original model over text and keeps statistics of every linear's inputs. */
#include "pipeline/step.h"
#include "quant/calibrate.h"

#include <stdlib.h>

struct calibrate_options {
    const char *text;
    int64_t     samples, seqlen, seed;
};

#define S struct calibrate_options
static const struct tsr_option options[] = {
    { .name = "text",
      .help = "File to calibrate on.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, text, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(S, samples, 128, 1, 1000000, NULL, "Sequences taken from the text."),
    TSR_OPTION_INT(S, seqlen, 0, 0, 1 << 30, "tokens",
                   "Tokens in each; 0: 2048, at most the model's maximum."),
    TSR_OPTION_INT(S, seed, -1, -1, INT64_MAX, NULL, "Draws the places; -1: the job's seed."),
};
#undef S

static json_t *result(const struct calibrate_options *o, const struct tsr_calibration *c,
                      uint64_t seed)
{
    json_t *j = json_object();
    if (tsr_json_put_text(j, "text", o->text) && tsr_json_put_int(j, "samples", c->sequences) &&
        tsr_json_put_int(j, "tokens", c->tokens) && tsr_json_put_int(j, "seed", seed) &&
        tsr_json_put_text(j, "hash", c->hash))
        return j;
    json_decref(j);
    return NULL;
}

static tsr_status run(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                      struct tsr_err *err)
{
    const struct calibrate_options *o = opts;
    struct tsr_calibration         *c = NULL;
    (void)node;
    TSR_TRY(tsr_step_need_tokenizer(job, "step 'calibrate'", err));
    uint64_t max = job->model->hp.max_positions;
    char    *text = tsr_job_input(job, o->text);
    if (!text)
        return tsr_fail_nomem(err, 0, "a path");
    struct tsr_calibrate_options co = {
        .text = text,
        .samples = (uint64_t)o->samples,
        .seqlen = o->seqlen    ? (uint64_t)o->seqlen
                  : max < 2048 ? max
                               : 2048,
        .seed = o->seed < 0 ? job->seed : (uint64_t)o->seed,
    };
    tsr_status st = tsr_calibrate(&c, job->registry, job->model, job->tokenizer, &co, err);
    free(text);
    if (st != TSR_OK)
        return st;
    tsr_calibration_destroy(job->calibration);
    job->calibration = c;
    return tsr_step_result(job, "calibrate", result(o, c, co.seed), err);
}

static tsr_status check(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                        struct tsr_diag *d, struct tsr_err *err)
{
    (void)opts;
    (void)err;
    tsr_check_input(job, node, "text", d);
    return TSR_OK;
}

const struct tsr_step tsr_step_calibrate = {
    .name = "calibrate",
    .summary = "collects statistics of the inputs of every linear",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct calibrate_options),
    .check = check,
    .run = run,
    .later = true, /* what it makes is for the steps behind it */
};
