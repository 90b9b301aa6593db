#include "pipeline/sample.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct batch {
    struct tsr_tokenizer_ids  *ids;  /* [n] */
    struct tsr_engine_request *reqs; /* [n] */
    uint64_t                   n;
};

static void batch_free(struct batch *b)
{
    for (uint64_t i = 0; i < b->n; i++) {
        if (b->ids)
            tsr_tokenizer_ids_free(&b->ids[i]);
        if (b->reqs)
            free(b->reqs[i].tokens);
    }
    free(b->ids);
    free(b->reqs);
}

static tsr_status batch_fill(struct batch *b, struct tsr_pipeline_job *job,
                             const struct tsr_config_node          *prompts,
                             const struct tsr_pipeline_sample_keys *k, bool ignore_eos,
                             uint64_t seed, struct tsr_engine_samplers *samplers, uint64_t *longest,
                             struct tsr_err *err)
{
    b->n = prompts->n;
    b->ids = tsr_new(b->n, sizeof *b->ids);
    b->reqs = tsr_new(b->n, sizeof *b->reqs);
    if (!b->ids || !b->reqs)
        return tsr_fail_nomem(err, b->n * sizeof *b->reqs, "prompts");
    for (uint64_t i = 0; i < b->n; i++) {
        const char *text = prompts->items[i]->text;
        TSR_TRY(tsr_tokenize(job->tokenizer, text, strlen(text), TSR_TOKENIZER_SPECIAL, &b->ids[i],
                             err));
        *longest = b->ids[i].n > *longest ? b->ids[i].n : *longest;
        struct tsr_engine_request *r = &b->reqs[i];
        *r = (struct tsr_engine_request){ .prompt = b->ids[i].v,
                                          .n_prompt = b->ids[i].n,
                                          .max_tokens = (uint64_t)k->max_tokens,
                                          .ignore_eos = ignore_eos,
                                          .record = i,
                                          .samplers = samplers,
                                          .sampling = { .temperature = k->temperature,
                                                        .top_k = (uint64_t)k->top_k,
                                                        .top_p = k->top_p,
                                                        .min_p = k->min_p,
                                                        .repetition_penalty = k->repetition_penalty,
                                                        .seed = seed } };
        r->tokens = tsr_new(r->max_tokens, sizeof *r->tokens);
        if (!r->tokens)
            return tsr_fail_nomem(err, r->max_tokens * sizeof *r->tokens, "generated tokens");
    }
    return TSR_OK;
}

static tsr_status put_text(struct tsr_pipeline_job *job, const struct tsr_engine_request *r,
                           const char *prompt, json_t *texts, struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    TSR_TRY(tsr_detokenize(job->tokenizer, r->tokens, r->n_tokens, true, &text, err));
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "prompt", prompt) &&
              tsr_pipeline_json_put(j, "text", json_stringn(text.v ? text.v : "", text.n)) &&
              tsr_pipeline_json_put_int(j, "tokens", r->n_tokens) &&
              tsr_pipeline_json_put(j, "stopped", json_boolean(r->stopped));
    tsr_tokenizer_text_free(&text);
    ok = json_array_append_new(texts, j) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "the results");
}

static tsr_status run_batch(struct tsr_pipeline_job *job, const struct tsr_model *model,
                            const struct tsr_model_overlay *overlay, struct batch *b,
                            const struct tsr_pipeline_draft_keys *drafting,
                            const struct tsr_engine_options *how, uint64_t context, uint64_t ran[3],
                            struct tsr_engine_drafted *drafts, struct tsr_err *err)
{
    struct tsr_engine_generate_timing t = { 0 };
    struct tsr_engine                *e = NULL;
    struct tsr_engine_options         eo = *how;
    struct tsr_pipeline_drafting      d = { 0 };
    eo.context = context;
    eo.slots = b->n < 8 ? (uint32_t)b->n : 8;
    TSR_TRY(tsr_engine_create(&e, job->registry, model, overlay, &eo, err));
    tsr_engine_acts(e, ran);
    tsr_status st =
        drafting ? tsr_pipeline_drafting_on(&d, job, drafting, &eo, model, overlay, err) : TSR_OK;
    for (uint64_t i = 0; i < b->n; i++)
        b->reqs[i].draft = d.draft;
    if (st == TSR_OK)
        st = tsr_engine_generate_drafted(e, d.by, b->reqs, b->n, &t, err);
    if (drafts)
        *drafts = t.drafts;
    tsr_pipeline_drafting_close(&d);
    tsr_engine_destroy(e);
    return st;
}

tsr_status tsr_pipeline_sample_texts(struct tsr_pipeline_job *job, const struct tsr_model *model,
                                     const struct tsr_model_overlay        *overlay,
                                     const struct tsr_config_node          *prompts,
                                     const struct tsr_pipeline_sample_keys *k, bool ignore_eos,
                                     uint64_t seed, const struct tsr_engine_options *how,
                                     json_t *texts, uint64_t ran[3],
                                     struct tsr_engine_drafted *drafts, struct tsr_err *err)
{
    struct batch                 b = { 0 };
    uint64_t                     longest = 0;
    struct tsr_pipeline_samplers samplers;
    if (!prompts || prompts->n == 0)
        return TSR_OK;
    tsr_status st = tsr_pipeline_samplers_open(&samplers, job, k->samplers, err);
    if (st == TSR_OK)
        st = batch_fill(&b, job, prompts, k, ignore_eos, seed, samplers.list, &longest, err);
    uint64_t context = longest + (uint64_t)k->max_tokens;
    if (st == TSR_OK)
        st = run_batch(job, model, overlay, &b, k->drafting, how, context, ran, drafts, err);
    for (uint64_t i = 0; i < b.n && st == TSR_OK; i++)
        st = put_text(job, &b.reqs[i], prompts->items[i]->text, texts, err);
    batch_free(&b);
    tsr_pipeline_samplers_close(&samplers);
    return st;
}
