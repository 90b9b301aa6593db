/* Runs of the model for a plugin's step: tokens, logits, evaluations. */
#include "pipeline/steps/external_step.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Those of the step `eval` without keys of its own: what the job's head says, F32, no compensation. */
static tsr_status make_engine(struct external_call *c, const struct tsr_model_overlay *o,
                              uint64_t context, struct tsr_engine **e, struct tsr_err *err)
{
    struct tsr_engine_options eo = {
        .on = c->job->on, .act = TSR_ACT_F32, .kv_dtype = TSR_F32, .slots = 1, .context = context
    };
    return tsr_engine_create(e, c->job->registry, c->job->model, o, &eo, err);
}

static tsr_status declared(const struct external_call *c, const char *function, uint64_t need,
                           struct tsr_err *err)
{
    if (c->table->needs & need)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INVAL, "%s of step '%s': its table does not need %s", function,
                    c->name, need == TSR_STEP_MODEL ? "TSR_STEP_MODEL" : "TSR_STEP_TOKENIZER");
}

/* ---- logits ------------------------------------------------------------------------------------ */

static tsr_status feed(struct external_call *c, const uint32_t *tokens, uint64_t n, float *out,
                       struct tsr_err *err)
{
    struct tsr_engine_token *t = tsr_new(n, sizeof *t);
    if (!t)
        return tsr_fail_nomem(err, n * sizeof *t, "tokens");
    for (uint64_t i = 0; i < n; i++)
        t[i] = (struct tsr_engine_token){ .id = tokens[i], .logits = true };
    tsr_engine_reset(c->engine, 0);
    tsr_status st = tsr_engine_forward(c->engine, t, n, out, err);
    free(t);
    return st;
}

static tsr_status run_logits(struct external_call *c, const uint32_t *tokens, uint64_t n,
                             float *out, struct tsr_err *err)
{
    TSR_TRY(declared(c, "logits()", TSR_STEP_MODEL, err));
    uint64_t vocab = c->job->model->hp.vocab;
    if (n == 0 || !tokens || !out)
        return tsr_fail(err, TSR_E_INVAL, "logits() of step '%s': no tokens", c->name);
    for (uint64_t i = 0; i < n; i++)
        if (tokens[i] >= vocab)
            return tsr_fail(err, TSR_E_INVAL,
                            "logits() of step '%s': token %u; the vocabulary has %llu", c->name,
                            tokens[i], (unsigned long long)vocab);
    TSR_TRY(tsr_model_context(c->job->model, n, err));
    if (c->engine && tsr_engine_context(c->engine) < n) {
        tsr_engine_destroy(c->engine);
        c->engine = NULL;
    }
    if (!c->engine)
        TSR_TRY(make_engine(c, c->job->overlay, n, &c->engine, err));
    return feed(c, tokens, n, out, err);
}

static tsr_status logits(void *ctx, const uint32_t *tokens, uint64_t n, float *out,
                         struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "logits()", true, run_logits(c, tokens, n, out, err));
}

/* ---- tokens ------------------------------------------------------------------------------------ */

static tsr_status run_tokens(struct external_call *c, const char *text, uint64_t bytes,
                             const uint32_t **ids, uint64_t *n, struct tsr_err *err)
{
    struct tsr_tokenizer_ids list = { 0 };
    TSR_TRY(declared(c, "tokens()", TSR_STEP_TOKENIZER, err));
    tsr_status st = tsr_tokenize(c->job->tokenizer, text ? text : "", text ? bytes : 0,
                                 TSR_TOKENIZER_SPECIAL, &list, err);
    if (st != TSR_OK) {
        tsr_tokenizer_ids_free(&list);
        return st;
    }
    *ids = list.v;
    *n = list.n;
    return external_keep(c, list.v, err);
}

static tsr_status tokens(void *ctx, const char *text, uint64_t bytes, const uint32_t **ids,
                         uint64_t *n, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "tokens()", true, run_tokens(c, text, bytes, ids, n, err));
}

/* ---- evaluations -------------------------------------------------------------------------------- */

static tsr_status protocol_of(const struct external_call *c, const char *name, int64_t *value,
                              struct tsr_err *err)
{
    for (size_t i = 0; i < sizeof tsr_protocol_choices / sizeof *tsr_protocol_choices; i++)
        if (name && strcmp(tsr_protocol_choices[i].name, name) == 0) {
            *value = tsr_protocol_choices[i].value;
            return TSR_OK;
        }
    return tsr_fail(err, TSR_E_CONFIG,
                    "evaluate() of step '%s': there is no protocol '%.60s'; expected gptq-2048, "
                    "llamacpp-512 or lm-eval-wikitext",
                    c->name, name ? name : "");
}

static tsr_status measure(struct external_call *c, const struct tsr_eval_windows *w, bool kl,
                          struct tsr_eval_result *r, struct tsr_err *err)
{
    struct tsr_engine *e = NULL, *reference = NULL;
    tsr_status         st = make_engine(c, c->job->overlay, w->window, &e, err);
    if (st == TSR_OK && kl)
        st = make_engine(c, NULL, w->window, &reference, err);
    if (st == TSR_OK)
        st = tsr_eval_run(e, reference, tsr_plugin_registry_pool(c->job->registry), w, r, err);
    tsr_engine_destroy(reference);
    tsr_engine_destroy(e);
    return st;
}

static tsr_status run_evaluate(struct external_call *c, struct tsr_step_evaluation *e,
                               struct tsr_err *err)
{
    struct tsr_pipeline_eval_keys k = { .text = e->text,
                                        .join = "\\n\\n",
                                        .rows = TSR_EVAL_ROWS_FILE,
                                        .window = (int64_t)e->window,
                                        .max_windows = (int64_t)e->max_windows,
                                        .add_bos = 1 };
    struct tsr_eval_windows      *w = NULL;
    struct tsr_eval_result        r = { .perplexity = (double)NAN };
    TSR_TRY(declared(c, "evaluate()", TSR_STEP_TOKENIZER, err));
    TSR_TRY(protocol_of(c, e->protocol, &k.protocol, err));
    if (!e->text || !*e->text || e->window > 1u << 30 || e->max_windows > 1u << 30)
        return tsr_fail(err, TSR_E_CONFIG,
                        "evaluate() of step '%s': no text, or more than 2^30 tokens or windows",
                        c->name);
    char *path = tsr_pipeline_job_input(c->job, e->text);
    if (!path)
        return tsr_fail_nomem(err, strlen(e->text), e->text);
    tsr_status st =
        tsr_pipeline_eval_keys_windows(&k, path, c->job->tokenizer, c->job->model, &w, err);
    free(path);
    if (st == TSR_OK)
        st = measure(c, w, e->kl != 0, &r, err);
    tsr_eval_windows_destroy(w);
    TSR_TRY(st);
    e->perplexity = r.perplexity;
    e->mean_nll = r.mean_nll;
    e->kl_mean = e->kl ? r.kl_mean : (double)NAN;
    e->top1 = e->kl ? r.top1 : (double)NAN;
    e->tokens = r.tokens;
    e->scored = r.scored;
    return TSR_OK;
}

static tsr_status evaluate(void *ctx, struct tsr_step_evaluation *e, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "evaluate()", true, run_evaluate(c, e, err));
}

void external_measure_functions(struct tsr_step_job *j)
{
    j->logits = logits;
    j->tokens = tokens;
    j->evaluate = evaluate;
}
