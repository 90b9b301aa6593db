/* logits: the logits after every token of a sequence, as a safetensors file. */
#include "pipeline/step.h"

#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "engine/stream.h"
#include "quant/quantize.h"

#include <stdlib.h>

struct logits_keys {
    const char                      *tokens, *output;
    int32_t                          step, by_layers;
    struct tsr_pipeline_running_keys run;
};

#define S struct logits_keys
static const struct tsr_option options[] = {
    { .name = "tokens",
      .help = "Token ids, separated by commas.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED | TSR_OPT_LIST,
      .offset = TSR_FIELD(S, tokens, const char *),
      .def = { .s = "" } },
    { .name = "output",
      .help = "File to write: F32 tensor 'logits' of [tokens, vocabulary].",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, output, const char *),
      .def = { .s = "" } },
    TSR_OPTION_BOOL(S, step, 0, "Feed one token at a time through the cache."),
    { .name = "by_layers",
      .help = "Read the weights one layer at a time, in the memory of a layer.",
      .type = TSR_OPT_BOOL,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, by_layers, int32_t) },
    TSR_PIPELINE_RUNNING_OPTIONS(S, run, TSR_ACT_F32, TSR_PIPELINE_POSITIONS_ALL, 0),
};
#undef S

/* One call. */
struct call {
    struct tsr_pipeline_job  *job;
    const struct logits_keys *o;
    const struct tsr_model   *m;
    struct tsr_model         *packed; /* by layers: what `quantize` stored; owned */
    uint32_t                 *ids;
    uint64_t                  n;
};

/* Runs the tokens as one sequence; logits [n, vocab]. */
static tsr_status feed(const struct call *c, struct tsr_engine *e, float *logits,
                       struct tsr_err *err)
{
    uint64_t                 vocab = tsr_engine_vocab(e), n = c->n;
    struct tsr_engine_token *t = tsr_new(n, sizeof *t);
    if (!t)
        return tsr_fail_nomem(err, n * sizeof *t, "tokens");
    for (uint64_t i = 0; i < n; i++)
        t[i] = (struct tsr_engine_token){ .id = c->ids[i], .logits = true };
    tsr_status st = TSR_OK;
    if (!c->o->step)
        st = tsr_engine_forward(e, t, n, logits, err);
    for (uint64_t i = 0; c->o->step && i < n && st == TSR_OK; i++)
        st = tsr_engine_forward(e, t + i, 1, logits + i * vocab, err);
    free(t);
    return st;
}

static tsr_status run_engine(const struct call *c, struct tsr_engine_options *eo, float *logits,
                             struct tsr_err *err)
{
    struct tsr_engine *e = NULL;
    eo->context = c->n;
    TSR_TRY(tsr_engine_create(&e, c->job->registry, c->m, c->job->overlay, eo, err));
    tsr_status st = feed(c, e, logits, err);
    tsr_engine_destroy(e);
    return st;
}

/* The same, one layer after the other. */
static tsr_status pass(const struct call *c, struct tsr_stream *s, float *h, float *logits,
                       struct tsr_err *err)
{
    TSR_TRY(tsr_engine_stream_embed(s, c->ids, c->n, h, err));
    for (uint64_t layer = 0; layer < c->m->hp.layers; layer++) {
        TSR_TRY(tsr_engine_stream_open_layer(s, layer, NULL, err));
        TSR_TRY(tsr_engine_stream_run(s, h, c->n, h, err));
    }
    return tsr_engine_stream_head(s, h, c->n, logits, err);
}

static tsr_status run_layers(const struct call *c, const struct tsr_engine_options *eo,
                             float *logits, struct tsr_err *err)
{
    struct tsr_stream *s = NULL;
    uint64_t           floats;
    float *h = tsr_mul(c->n, c->m->hp.hidden, &floats) ? tsr_new_aligned(floats, sizeof *h) : NULL;
    tsr_status st = h ? tsr_model_plain(c->m, "read layer by layer", err)
                      : tsr_fail(err, TSR_E_NOMEM, "out of memory: hidden states of %llu tokens",
                                 (unsigned long long)c->n);
    if (st == TSR_OK)
        st = tsr_engine_stream_create(&s, c->job->registry, c->m, c->n, eo->act, &eo->on, err);
    if (st == TSR_OK)
        st = pass(c, s, h, logits, err);
    tsr_engine_stream_destroy(s);
    free(h);
    return st;
}

static tsr_status write_logits(const char *path, const float *logits, uint64_t n, uint64_t vocab,
                               struct tsr_err *err)
{
    struct tsr_st_out *o = NULL;
    const uint64_t     shape[2] = { n, vocab };
    TSR_TRY(tsr_safetensors_create(&o, path, err));
    tsr_status st = tsr_safetensors_declare(o, "logits", TSR_F32, 2, shape, err);
    if (st == TSR_OK)
        st = tsr_safetensors_begin(o, err);
    if (st != TSR_OK) {
        tsr_safetensors_abort(o);
        return st;
    }
    tsr_safetensors_put(o, logits, n * vocab * sizeof *logits);
    return tsr_safetensors_commit(o, err);
}

static tsr_status run_and_write(const struct call *c, struct tsr_pipeline_running *how,
                                struct tsr_err *err)
{
    uint64_t vocab = c->m->hp.vocab, floats;
    float *logits = tsr_mul(c->n, vocab, &floats) ? tsr_new_aligned(floats, sizeof *logits) : NULL;
    char  *path = NULL;
    if (!logits)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: logits of %llu tokens",
                        (unsigned long long)c->n);
    tsr_status st = c->o->by_layers ? run_layers(c, &how->eo, logits, err)
                                    : run_engine(c, &how->eo, logits, err);
    if (st == TSR_OK)
        st = tsr_pipeline_running_unchanged(how, err);
    if (st == TSR_OK)
        st = tsr_pipeline_job_output(c->job, c->o->output, &path, err);
    if (st == TSR_OK)
        st = write_logits(path, logits, c->n, vocab, err);
    free(path);
    free(logits);
    return st;
}

static tsr_status with_tokens(struct call *c, struct tsr_err *err)
{
    struct tsr_pipeline_job    *job = c->job;
    struct tsr_pipeline_running how;
    if (c->n == 0)
        return tsr_fail(err, TSR_E_INPUT, "tokens: give at least one token id");
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    if (c->o->by_layers && job->packed)
        TSR_TRY(tsr_model_load_streamed(&c->packed, job->packed, err));
    c->m = c->packed ? c->packed : job->model;
    tsr_status st =
        tsr_pipeline_running_open(&how, job, &c->o->run, c->m, job->packed, job->seed, err);
    if (st == TSR_OK)
        st = run_and_write(c, &how, err);
    tsr_pipeline_running_close(&how);
    return st;
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct logits_keys *o = opts;
    (void)job;
    (void)err;
    if (o->by_layers)
        tsr_pipeline_by_layers_check(&o->run, o->step ? "step" : NULL, node, d);
    return TSR_OK;
}

static bool by_layers(const void *opts)
{
    const struct logits_keys *o = opts;
    return o->by_layers != 0;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct call c = { .job = job, .o = opts };
    (void)node;
    TSR_TRY(tsr_pipeline_step_ids(c.o->tokens, &c.ids, &c.n, err));
    tsr_status st = with_tokens(&c, err);
    tsr_model_destroy(c.packed);
    free(c.ids);
    TSR_TRY(st);
    json_t *j = json_object();
    if (!tsr_pipeline_json_put_text(j, "output", c.o->output) ||
        !tsr_pipeline_json_put_int(j, "tokens", c.n) ||
        !tsr_pipeline_json_put_int(j, "vocabulary", job->model->hp.vocab) ||
        (c.o->by_layers && job->loose &&
         !tsr_pipeline_json_put_int(j, "peak_memory_bytes", tsr_quant_memory_peak()))) {
        json_decref(j);
        j = NULL;
    }
    return tsr_pipeline_step_result(job, "logits", j, err);
}

const struct tsr_pipeline_step tsr_step_logits = {
    .name = "logits",
    .summary = "writes the logits of a token sequence",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct logits_keys),
    .check = check,
    .run = run,
    .streams_with = by_layers,
};
