/* One request in its slot: the next token, the text so far, stop conditions. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/candidates.h"
#include "engine/serve_internal.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_engine_server_check(const struct tsr_engine_pass          *p,
                                   const struct tsr_engine_serve_request *q, struct tsr_err *err)
{
    uint64_t total;
    if (q->n_prompt == 0)
        return tsr_fail(err, TSR_E_INPUT, "the prompt is empty; give it at least one token");
    for (uint64_t k = 0; k < q->n_prompt; k++)
        if (q->prompt[k] >= p->vocab)
            return tsr_fail(err, TSR_E_INPUT,
                            "token id %u is outside the vocabulary of %llu (ids 0 to %llu)",
                            q->prompt[k], (unsigned long long)p->vocab,
                            (unsigned long long)p->vocab - 1);
    /* the last new token is never an input */
    if (!tsr_add(q->n_prompt, q->max_tokens ? q->max_tokens - 1 : 0, &total) || total > p->context)
        return tsr_fail(err, TSR_E_INPUT,
                        "a prompt of %llu tokens and %llu new ones do not fit the context of %llu",
                        (unsigned long long)q->n_prompt, (unsigned long long)q->max_tokens,
                        (unsigned long long)p->context);
    if (q->n_stop && !q->tokenizer)
        return tsr_fail(err, TSR_E_INPUT, "stop strings need a tokenizer, and the model has none");
    for (uint32_t i = 0; i < q->n_stop; i++)
        if (q->stop_bytes[i] == 0)
            return tsr_fail(err, TSR_E_INPUT, "stop string %u is empty", i + 1);
    if (q->top > TSR_ENGINE_MAX_LOGPROBS)
        return tsr_fail(err, TSR_E_INPUT, "logprobs of %u alternatives; at most %u are given",
                        q->top, TSR_ENGINE_MAX_LOGPROBS);
    if (q->prompt_logprobs && !q->logprobs)
        return tsr_fail(err, TSR_E_INVAL, "logprobs of a prompt for a request without logprobs");
    return tsr_engine_sampling_check(&q->sampling, err);
}

/* ---- life --------------------------------------------------------------- */

static tsr_status take_stops(struct tsr_engine_serve_slot          *s,
                             const struct tsr_engine_serve_request *q, struct tsr_err *err)
{
    s->stop_bytes = tsr_new(q->n_stop, sizeof *s->stop_bytes);
    if (!s->stop_bytes)
        return tsr_fail_nomem(err, q->n_stop * sizeof *s->stop_bytes, "stop strings");
    for (uint32_t i = 0; i < q->n_stop; i++) {
        s->stop_bytes[i] = q->stop_bytes[i];
        if (q->stop_bytes[i] > s->longest_stop)
            s->longest_stop = q->stop_bytes[i];
        TSR_TRY(tsr_tokenizer_text_append(&s->stop, q->stop[i], q->stop_bytes[i], err));
    }
    return TSR_OK;
}

/* The text of the prompt comes first.  A decoder that gives its text at the end alone gives the prompt's there. */
static tsr_status take_echo(struct tsr_engine_serve_slot *s, struct tsr_err *err)
{
    struct tsr_tokenizer_text whole = { 0 };
    tsr_tokenizer_detok_show_special(s->detok, true);
    for (uint64_t i = 0; i < s->q.n_prompt; i++)
        TSR_TRY(tsr_tokenizer_detok_push(s->detok, s->ids.v[i], &s->text, err));
    tsr_tokenizer_detok_show_special(s->detok, false);
    s->echoed = s->text.n;
    if (s->echoed)
        return TSR_OK;
    tsr_status st = tsr_detokenize(s->q.tokenizer, s->ids.v, s->q.n_prompt, false, &whole, err);
    s->echoed = whole.n;
    tsr_tokenizer_text_free(&whole);
    return st;
}

tsr_status tsr_engine_slot_fill(struct tsr_engine_serve_slot          *s,
                                const struct tsr_engine_serve_request *q, uint64_t vocab,
                                struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    s->used = s->fresh = true;
    s->q = *q;
    s->q.prompt = NULL; /* the caller's may go */
    s->q.samplers = NULL;
    s->q.stop = NULL;
    s->q.stop_bytes = NULL;
    s->finish = TSR_ENGINE_FINISH_LENGTH;
    for (uint64_t i = 0; i < q->n_prompt; i++)
        TSR_TRY(tsr_tokenizer_ids_push(&s->ids, q->prompt[i], err));
    const struct tsr_sampler_request r = { .struct_size = sizeof r,
                                           .vocab = vocab,
                                           .prompt = q->prompt,
                                           .n_prompt = q->n_prompt,
                                           .seed = q->sampling.seed,
                                           .record = q->record };
    TSR_TRY(tsr_engine_chain_start(&s->chain, q->samplers, &r, err));
    TSR_TRY(take_stops(s, q, err));
    if (q->tokenizer)
        TSR_TRY(tsr_tokenizer_detok_create(&s->detok, q->tokenizer, true, err));
    return s->detok && q->echo ? take_echo(s, err) : TSR_OK;
}

void tsr_engine_slot_free(struct tsr_engine_serve_slot *s)
{
    tsr_tokenizer_ids_free(&s->ids);
    tsr_engine_chain_finish(&s->chain);
    tsr_tokenizer_text_free(&s->stop);
    tsr_tokenizer_text_free(&s->text);
    tsr_tokenizer_detok_destroy(s->detok);
    free(s->stop_bytes);
    free(s->logprobs);
    free(s->error);
    memset(s, 0, sizeof *s);
}

void tsr_engine_slot_fail(struct tsr_engine_serve_slot *s, tsr_status st, const char *why)
{
    s->finish = TSR_ENGINE_FINISH_FAILED;
    s->status = st;
    s->error = tsr_strdup(why); /* NULL: the result has a general message */
}

static uint64_t n_new(const struct tsr_engine_serve_slot *s)
{
    return s->ids.n - s->q.n_prompt;
}

void tsr_engine_slot_result(struct tsr_engine_serve_slot *s, struct tsr_engine_served *r)
{
    *r = (struct tsr_engine_served){ .id = s->q.id,
                                     .finish = s->finish,
                                     .prompt = s->ids.v,
                                     .tokens = s->ids.v + s->q.n_prompt,
                                     .n_prompt = s->q.n_prompt,
                                     .n_tokens = n_new(s),
                                     .top = s->q.top,
                                     .status = s->status,
                                     .error = s->error };
    if (s->q.tokenizer) {
        r->text = s->text.v ? s->text.v : "";
        r->text_bytes = s->text.n;
    }
    if (s->q.logprobs) { /* own values first, then the best */
        r->logprobs = s->logprobs;
        r->n_logprobs = s->n_logprobs;
        r->tops = s->logprobs ? s->logprobs + s->cap_logprobs : NULL;
    }
    if (s->finish == TSR_ENGINE_FINISH_FAILED && !s->error)
        r->error = "the request failed, and there was no memory to say why";
}

/* ---- text --------------------------------------------------------------- */

/* Cuts the text before the first stop string that ends after `seen` bytes. */
static bool cut_at_stop(struct tsr_engine_serve_slot *s, uint64_t seen)
{
    uint64_t from = seen > s->longest_stop ? seen - s->longest_stop : 0;
    from = from > s->echoed ? from : s->echoed;
    for (uint64_t at = from; at < s->text.n; at++) {
        const char *stop = s->stop.v;
        for (uint32_t i = 0; i < s->q.n_stop; stop += s->stop_bytes[i++])
            if (s->stop_bytes[i] <= s->text.n - at &&
                memcmp(s->text.v + at, stop, s->stop_bytes[i]) == 0) {
                s->text.n = at;
                return true;
            }
    }
    return false;
}

/* Bytes of the text that stay whatever follows: all but an end with which a stop string begins. */
static uint64_t certain_bytes(const struct tsr_engine_serve_slot *s)
{
    uint64_t from = s->text.n > s->longest_stop ? s->text.n - s->longest_stop : 0;
    from = from > s->echoed ? from : s->echoed;
    for (uint64_t at = from; at < s->text.n; at++) {
        const char *stop = s->stop.v;
        for (uint32_t i = 0; i < s->q.n_stop; stop += s->stop_bytes[i++])
            if (s->text.n - at < s->stop_bytes[i] &&
                memcmp(s->text.v + at, stop, s->text.n - at) == 0)
                return at;
    }
    return s->text.n;
}

tsr_status tsr_engine_slot_end_text(struct tsr_engine_serve_slot *s, struct tsr_err *err)
{
    uint64_t seen = s->text.n;
    if (!s->detok)
        return TSR_OK;
    TSR_TRY(tsr_tokenizer_detok_flush(s->detok, &s->text, err));
    if (s->q.n_stop && cut_at_stop(s, seen))
        s->finish = TSR_ENGINE_FINISH_STOP;
    return TSR_OK;
}

/* ---- tokens ------------------------------------------------------------- */

static bool is_eos(const struct tsr_model_hparams *hp, uint32_t id)
{
    for (uint32_t i = 0; i < hp->n_eos; i++)
        if (hp->eos[i] == id)
            return true;
    return false;
}

static tsr_status tell_grown(struct tsr_engine_serve_slot         *s,
                             const struct tsr_engine_serve_events *ev, struct tsr_err *err)
{
    struct tsr_engine_served r;
    tsr_engine_slot_result(s, &r);
    r.text_bytes = r.text ? certain_bytes(s) : 0;
    return ev->grown(ev->ctx, &r, err);
}

static tsr_status accept(struct tsr_engine_serve_slot *s, const struct tsr_engine_serve_events *ev,
                         uint32_t id, bool *over, struct tsr_err *err)
{
    uint64_t seen = s->text.n;
    TSR_TRY(tsr_tokenizer_ids_push(&s->ids, id, err));
    TSR_TRY(tsr_engine_chain_accept(&s->chain, id, err));
    if (s->detok)
        TSR_TRY(tsr_tokenizer_detok_push(s->detok, id, &s->text, err));
    if (ev->token && ev->token(ev->ctx, s->q.id, id) != TSR_OK) {
        s->finish = TSR_ENGINE_FINISH_ENDED;
        *over = true;
    } else if (s->q.n_stop && cut_at_stop(s, seen)) {
        s->finish = TSR_ENGINE_FINISH_STOP;
        *over = true;
        return TSR_OK; /* the text ends here, whatever follows */
    } else {
        *over = n_new(s) == s->q.max_tokens;
    }
    if (*over)
        return tsr_engine_slot_end_text(s, err);
    return s->q.grows && ev->grown ? tell_grown(s, ev, err) : TSR_OK;
}

uint32_t tsr_engine_slot_candidates(const struct tsr_engine_serve_slot *s, uint64_t vocab,
                                    float *inverse)
{
    *inverse = 0;
    return s->q.logprobs || s->chain.list ? 0
                                          : tsr_engine_candidates(&s->q.sampling, vocab, inverse);
}

bool tsr_engine_slot_draw(const struct tsr_engine_serve_slot *s, uint64_t vocab,
                          const struct tsr_candidate *best, uint32_t n, double sum, uint32_t *id)
{
    return tsr_engine_candidates_draw(&s->q.sampling, vocab,
                                      tsr_uniform(s->q.sampling.seed, s->q.record, n_new(s)), best,
                                      n, sum, id);
}

tsr_status tsr_engine_slot_advance(struct tsr_engine_serve_slot *s, const struct tsr_engine_pass *p,
                                   const struct tsr_engine_serve_events *ev, const float *logits,
                                   const uint32_t *drawn, void *scratch, bool *over,
                                   struct tsr_err *err)
{
    uint32_t   id = drawn ? *drawn : 0;
    tsr_status st =
        drawn ? TSR_OK
              : tsr_engine_chain_next(&s->chain, logits, p->vocab, &s->q.sampling, s->ids.v,
                                      s->q.n_prompt, s->ids.n, s->q.record, scratch, &id, err);
    *over = true;
    if (st == TSR_E_NUMERIC) { /* this request has no next token; the others have */
        tsr_engine_slot_fail(s, st, err->text);
        return TSR_OK;
    }
    TSR_TRY(st);
    if (id == TSR_SAMPLER_END) {
        s->finish = TSR_ENGINE_FINISH_EOS;
        return tsr_engine_slot_end_text(s, err);
    }
    bool     eos = !s->q.ignore_eos && is_eos(p->hp, id);
    uint64_t at = n_new(s) + (s->q.prompt_logprobs ? s->q.n_prompt - 1 : 0);
    if (s->q.logprobs && (!eos || s->q.prompt_logprobs))
        TSR_TRY(tsr_engine_slot_logprob(s, at, logits, p->vocab, id, err));
    if (eos) {
        s->finish = TSR_ENGINE_FINISH_EOS;
        return tsr_engine_slot_end_text(s, err);
    }
    return accept(s, ev, id, over, err);
}
