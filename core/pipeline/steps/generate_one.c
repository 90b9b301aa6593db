/* Continues one prompt, and prints each piece of text as soon as it is final. */
#include "pipeline/steps/generate_step.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stdout.h"

#include <stdlib.h>
#include <string.h>

struct generation {
    struct tsr_pipeline_job     *job;
    const struct generate_keys  *o;
    uint64_t                     seed;
    struct tsr_chat             *chat; /* with o->chat */
    struct tsr_tokenizer_ids     prompt;
    uint32_t                    *tokens;
    uint64_t                     n_tokens;
    struct tsr_pipeline_running  running;
    struct tsr_pipeline_samplers samplers;
    uint64_t                     ran[3];
    struct tsr_pipeline_drafting drafting;
    struct tsr_engine_drafted    drafts;
    /* streamed text */
    struct tsr_detok         *stream;
    struct tsr_tokenizer_text piece;
    tsr_status                failed; /* of printing; the sentence is in err */
    struct tsr_err           *err;
};

/* ---- the prompt --------------------------------------------------------------------- */

/* Special strings in typed text are plain text, as in a batch. */
static tsr_status read_chat(struct generation *g, struct tsr_err *err)
{
    const struct generate_keys *o = g->o;
    json_t                     *list = json_array();
    if (*o->system)
        tsr_json_add(&list, json_pack("{s:s, s:s}", "role", "system", "content", o->system));
    tsr_json_add(&list, json_pack("{s:s, s:s}", "role", "user", "content", o->prompt));
    tsr_status st = tsr_pipeline_chat_load(g->job, &o->talk, &g->chat, err);
    if (st == TSR_OK && !list)
        st = tsr_fail(err, TSR_E_INPUT, "prompt: a message is not UTF-8 text");
    if (st == TSR_OK)
        st = tsr_tokenizer_chat_render(g->chat, list, NULL, NULL, false, &g->prompt, err);
    json_decref(list);
    return st;
}

static tsr_status read_prompt(struct generation *g, struct tsr_err *err)
{
    const struct generate_keys *o = g->o;
    if (*o->prompt)
        TSR_TRY(tsr_pipeline_step_need_tokenizer(g->job, "a prompt", err));
    if (o->chat)
        TSR_TRY(read_chat(g, err));
    else if (*o->prompt)
        TSR_TRY(tsr_tokenize(g->job->tokenizer, o->prompt, strlen(o->prompt), TSR_TOKENIZER_SPECIAL,
                             &g->prompt, err));
    else
        TSR_TRY(tsr_pipeline_step_ids(o->tokens, &g->prompt.v, &g->prompt.n, err));
    return g->prompt.n ? TSR_OK : tsr_fail(err, TSR_E_INPUT, "prompt: the text has no tokens");
}

/* ---- the text ----------------------------------------------------------------------- */

static tsr_status print_piece(struct generation *g)
{
    if (g->piece.n)
        (void)fwrite(g->piece.v, 1, g->piece.n, stdout);
    g->piece.n = 0;
    return tsr_stdout_flush(g->err);
}

/* tsr_engine_request.on_token: the text that the new token makes certain, or its id. */
static tsr_status on_token(void *ctx, uint64_t request, uint32_t id)
{
    struct generation *g = ctx;
    (void)request;
    if (g->stream) {
        g->failed = tsr_tokenizer_detok_push(g->stream, id, &g->piece, g->err);
    } else {
        char number[16];
        int  n = snprintf(number, sizeof number, "%u\n", id);
        g->failed = tsr_tokenizer_text_append(&g->piece, number, (uint64_t)n, g->err);
    }
    if (g->failed == TSR_OK)
        g->failed = print_piece(g);
    return g->failed;
}

static tsr_status end_stream(struct generation *g)
{
    TSR_TRY(g->failed);
    if (g->stream) {
        TSR_TRY(tsr_tokenizer_detok_flush(g->stream, &g->piece, g->err));
        TSR_TRY(tsr_tokenizer_text_append(&g->piece, "\n", 1, g->err));
    }
    return print_piece(g);
}

/* ---- the engine --------------------------------------------------------------------- */

static tsr_status run_request(struct generation *g, struct tsr_engine *e, struct tsr_err *err)
{
    const struct generate_keys            *o = g->o;
    const struct tsr_pipeline_sample_keys *k = &o->sample;
    struct tsr_engine_request              q = { .prompt = g->prompt.v,
                                                 .n_prompt = g->prompt.n,
                                                 .max_tokens = (uint64_t)k->max_tokens,
                                                 .ignore_eos = o->ignore_eos != 0,
                                                 .sampling = { .temperature = k->temperature,
                                                               .top_k = (uint64_t)k->top_k,
                                                               .top_p = k->top_p,
                                                               .min_p = k->min_p,
                                                               .repetition_penalty = k->repetition_penalty,
                                                               .seed = g->seed },
                                                 .samplers = g->samplers.list,
                                                 .draft = g->drafting.draft,
                                                 .tokens = g->tokens };
    struct tsr_engine_generate_timing      t;
    g->err = err;
    if (!g->job->json) {
        q.on_token = on_token;
        q.ctx = g;
        if (g->job->tokenizer)
            TSR_TRY(tsr_tokenizer_detok_create(&g->stream, g->job->tokenizer, true, err));
    }
    TSR_TRY(tsr_engine_generate_drafted(e, g->drafting.by, &q, 1, &t, err));
    g->n_tokens = q.n_tokens;
    g->drafts = t.drafts;
    tsr_engine_acts(e, g->ran);
    tsr_logf(TSR_LOG_INFO, "%llu prompt tokens in %.3f s, %llu decode steps in %.3f s on %s",
             (unsigned long long)t.prefill_tokens, t.prefill_s, (unsigned long long)t.decode_tokens,
             t.decode_s, tsr_engine_device(e));
    if (tsr_pipeline_draft_wanted(&o->drafting))
        tsr_logf(TSR_LOG_INFO, "%llu of %llu drafted tokens were right",
                 (unsigned long long)t.drafts.accepted, (unsigned long long)t.drafts.drafted);
    return g->job->json ? TSR_OK : end_stream(g);
}

static tsr_status generate(struct generation *g, struct tsr_err *err)
{
    struct tsr_pipeline_job *job = g->job;
    struct tsr_engine       *e = NULL;
    uint64_t                 max = (uint64_t)g->o->sample.max_tokens;
    g->tokens = tsr_new(max, sizeof *g->tokens);
    if (!g->tokens)
        return tsr_fail_nomem(err, max * sizeof *g->tokens, "new tokens");
    TSR_TRY(tsr_pipeline_running_open(&g->running, job, &g->o->run, job->model, job->packed,
                                      g->seed, err));
    g->running.eo.context = g->prompt.n + (max ? max - 1 : 0);
    tsr_status st =
        tsr_engine_create(&e, job->registry, job->model, job->overlay, &g->running.eo, err);
    if (st == TSR_OK)
        st = tsr_pipeline_drafting_on(&g->drafting, job, &g->o->drafting, &g->running.eo,
                                      job->model, job->overlay, err);
    if (st == TSR_OK)
        st = run_request(g, e, err);
    tsr_pipeline_drafting_close(&g->drafting);
    tsr_engine_destroy(e);
    return st;
}

static tsr_status make_result(const struct generation *g, json_t **out, struct tsr_err *err)
{
    const struct tsr_tokenizer *t = g->job->tokenizer;
    struct tsr_tokenizer_text   text = { 0 };
    json_t                     *j = json_object(), *ids = json_array();
    tsr_status st = t ? tsr_detokenize(t, g->tokens, g->n_tokens, true, &text, err) : TSR_OK;
    for (uint64_t i = 0; i < g->n_tokens; i++)
        tsr_json_add(&ids, json_integer(g->tokens[i]));
    bool ok = tsr_pipeline_json_put(j, "tokens", ids);
    ok = ok && tsr_pipeline_json_put(j, "text",
                                     t ? json_stringn(text.n ? text.v : "", text.n) : json_null());
    if (ok && !g->job->loose) /* the verb's result is of tokens and text alone */
        ok = tsr_pipeline_json_put_act(j, (uint32_t)g->o->run.act, g->ran) &&
             tsr_pipeline_draft_put(j, &g->o->drafting, &g->drafts);
    tsr_tokenizer_text_free(&text);
    if (st == TSR_OK && !ok)
        st = tsr_fail_nomem(err, g->n_tokens, "the result");
    if (st != TSR_OK)
        json_decref(j);
    else
        *out = j;
    return st;
}

tsr_status generate_one(struct tsr_pipeline_job *job, const struct generate_keys *o, uint64_t seed,
                        json_t **result, struct tsr_err *err)
{
    struct generation g = { .job = job, .o = o, .seed = seed };
    tsr_status        st = tsr_pipeline_job_find_tokenizer(job, err);
    if (st == TSR_OK)
        st = read_prompt(&g, err);
    if (st == TSR_OK)
        st = tsr_pipeline_samplers_open(&g.samplers, job, o->sample.samplers, err);
    if (st == TSR_OK)
        st = generate(&g, err);
    if (st == TSR_OK)
        st = tsr_pipeline_running_unchanged(&g.running, err);
    if (st == TSR_OK)
        st = make_result(&g, result, err);
    tsr_pipeline_running_close(&g.running);
    tsr_pipeline_samplers_close(&g.samplers);
    tsr_tokenizer_detok_destroy(g.stream);
    tsr_tokenizer_text_free(&g.piece);
    tsr_tokenizer_ids_free(&g.prompt);
    free(g.tokens);
    tsr_tokenizer_chat_destroy(g.chat);
    return st;
}
