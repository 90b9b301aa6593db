/* logits: the logits after every token of a sequence, as a safetensors file. */
#include "pipeline/step.h"

#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"

#include <stdlib.h>

struct logits_keys {
    const char                      *tokens, *output;
    int32_t                          step;
    struct tsr_pipeline_running_keys run;
};

#define S struct logits_keys
static const struct tsr_option options[] = {
    { .name = "tokens",
      .help = "Token ids, separated by commas.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
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
    TSR_PIPELINE_RUNNING_OPTIONS(S, run, TSR_ACT_F32, TSR_PIPELINE_POSITIONS_ALL, 0),
};
#undef S

/* One call. */
struct call {
    struct tsr_pipeline_job  *job;
    const struct logits_keys *o;
    uint32_t                 *ids;
    uint64_t                  n;
};

/* Runs the tokens as one sequence; logits [n, vocab]. */
static tsr_status run_tokens(const struct call *c, struct tsr_engine *e, float *logits,
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

static tsr_status with_engine(const struct call *c, const struct tsr_pipeline_running *how,
                              struct tsr_engine *e, struct tsr_err *err)
{
    uint64_t vocab = tsr_engine_vocab(e), floats;
    float *logits = tsr_mul(c->n, vocab, &floats) ? tsr_new_aligned(floats, sizeof *logits) : NULL;
    char  *path = NULL;
    if (!logits)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: logits of %llu tokens",
                        (unsigned long long)c->n);
    tsr_status st = run_tokens(c, e, logits, err);
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

static tsr_status with_tokens(const struct call *c, struct tsr_err *err)
{
    struct tsr_pipeline_job    *job = c->job;
    struct tsr_pipeline_running how;
    struct tsr_engine          *e = NULL;
    if (c->n == 0)
        return tsr_fail(err, TSR_E_INPUT, "tokens: give at least one token id");
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    tsr_status st =
        tsr_pipeline_running_open(&how, job, &c->o->run, job->model, job->packed, job->seed, err);
    how.eo.context = c->n;
    if (st == TSR_OK)
        st = tsr_engine_create(&e, job->registry, job->model, job->overlay, &how.eo, err);
    if (st == TSR_OK)
        st = with_engine(c, &how, e, err);
    tsr_engine_destroy(e);
    tsr_pipeline_running_close(&how);
    return st;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct call c = { .job = job, .o = opts };
    (void)node;
    TSR_TRY(tsr_pipeline_step_ids(c.o->tokens, &c.ids, &c.n, err));
    tsr_status st = with_tokens(&c, err);
    free(c.ids);
    TSR_TRY(st);
    json_t *j = json_object();
    if (!tsr_pipeline_json_put_text(j, "output", c.o->output) ||
        !tsr_pipeline_json_put_int(j, "tokens", c.n) ||
        !tsr_pipeline_json_put_int(j, "vocabulary", job->model->hp.vocab)) {
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
    .run = run,
};
