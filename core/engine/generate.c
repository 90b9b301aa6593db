/* Many requests through the slots of one engine: a slot whose request is done takes the next
 * one at once, so that the batch stays full to the end. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define IDLE UINT64_MAX

struct lane {
    uint64_t  request; /* index, or IDLE */
    uint32_t *history; /* prompt and new tokens; only with a repetition penalty */
    uint64_t  n_history;
};

struct run {
    struct tsr_engine         *e;
    struct tsr_request        *reqs;
    uint64_t                   n, next; /* requests, and the first that has no slot yet */
    uint64_t                   vocab;
    uint32_t                   n_lanes;
    struct lane               *lanes; /* one per slot */
    struct tsr_token          *batch;
    uint64_t                   batch_cap;
    float                     *logits;  /* [n_lanes, vocab] */
    void                      *scratch; /* of tsr_sample() */
    struct tsr_generate_timing time;
};

static tsr_status check_request(const struct tsr_engine *e, const struct tsr_request *q, uint64_t i,
                                struct tsr_err *err)
{
    uint64_t vocab = tsr_engine_vocab(e), total;
    if (q->n_prompt == 0)
        return tsr_fail(err, TSR_E_INPUT, "prompt %llu is empty; give it at least one token",
                        (unsigned long long)i + 1);
    for (uint64_t k = 0; k < q->n_prompt; k++)
        if (q->prompt[k] >= vocab)
            return tsr_fail(err, TSR_E_INPUT,
                            "token id %u is outside the vocabulary of %llu (ids 0 to %llu)",
                            q->prompt[k], (unsigned long long)vocab, (unsigned long long)vocab - 1);
    /* the last new token is never fed */
    if (!tsr_add(q->n_prompt, q->max_tokens ? q->max_tokens - 1 : 0, &total) ||
        total > tsr_engine_context(e))
        return tsr_fail(err, TSR_E_INPUT,
                        "a prompt of %llu tokens and %llu new ones do not fit the context of %llu",
                        (unsigned long long)q->n_prompt, (unsigned long long)q->max_tokens,
                        (unsigned long long)tsr_engine_context(e));
    return TSR_OK;
}

/* Takes the next request that wants tokens into lane l; leaves it idle if there is none. */
static tsr_status fill_lane(struct run *r, struct lane *l, struct tsr_err *err)
{
    while (r->next < r->n && r->reqs[r->next].max_tokens == 0)
        r->next++;
    if (r->next == r->n)
        return TSR_OK;
    const struct tsr_request *q = &r->reqs[r->next];
    if (q->sampling.repetition_penalty != 1) {
        uint32_t *h = tsr_renew(l->history, q->n_prompt + q->max_tokens, sizeof *h);
        if (!h)
            return tsr_fail_nomem(err, q->n_prompt + q->max_tokens, "token history");
        memcpy(h, q->prompt, q->n_prompt * sizeof *h);
        l->history = h;
        l->n_history = q->n_prompt;
    }
    l->request = r->next++;
    return TSR_OK;
}

static tsr_status reserve(struct run *r, uint64_t n, struct tsr_err *err)
{
    if (n <= r->batch_cap)
        return TSR_OK;
    struct tsr_token *b = tsr_renew(r->batch, n, sizeof *b);
    if (!b)
        return tsr_fail_nomem(err, n * sizeof *b, "a batch");
    r->batch = b;
    r->batch_cap = n;
    return TSR_OK;
}

static bool is_eos(const struct tsr_engine *e, uint32_t id)
{
    const struct tsr_hparams *hp = &tsr_engine_model(e)->hp;
    for (uint32_t i = 0; i < hp->n_eos; i++)
        if (hp->eos[i] == id)
            return true;
    return false;
}

/* Samples for the request of a slot; empties the slot when that was the last token. */
static tsr_status advance(struct run *r, uint32_t slot, const float *logits, struct tsr_err *err)
{
    struct lane        *l = &r->lanes[slot];
    struct tsr_request *q = &r->reqs[l->request];
    bool                penalty = q->sampling.repetition_penalty != 1;
    uint32_t            id;
    TSR_TRY(tsr_sample(logits, r->vocab, &q->sampling, penalty ? l->history : NULL,
                       penalty ? l->n_history : 0, q->record, q->n_tokens, r->scratch, &id, err));
    bool done = false;
    if (!q->ignore_eos && is_eos(r->e, id)) {
        q->stopped = true;
        done = true;
    } else {
        q->tokens[q->n_tokens++] = id;
        if (penalty)
            l->history[l->n_history++] = id;
        done = q->n_tokens == q->max_tokens;
        if (q->on_token && q->on_token(q->ctx, l->request, id) != TSR_OK)
            done = true;
    }
    if (done) {
        tsr_engine_reset(r->e, slot);
        l->request = IDLE;
    }
    return TSR_OK;
}

/* Runs the batch; its wanted rows belong to the slots whose flag is set, in slot order. */
static tsr_status step(struct run *r, uint64_t n, struct tsr_err *err)
{
    TSR_TRY(tsr_engine_forward(r->e, r->batch, n, r->logits, err));
    const float *row = r->logits;
    for (uint64_t i = 0; i < n; i++)
        if (r->batch[i].logits) {
            TSR_TRY(advance(r, r->batch[i].slot, row, err));
            row += r->vocab;
        }
    return TSR_OK;
}

/* New requests into idle slots: their prompts in one batch.  *fed: how many tokens. */
static tsr_status prefill(struct run *r, uint64_t *fed, struct tsr_err *err)
{
    uint64_t n = 0;
    for (uint32_t s = 0; s < r->n_lanes; s++) {
        struct lane *l = &r->lanes[s];
        if (l->request != IDLE)
            continue;
        TSR_TRY(fill_lane(r, l, err));
        if (l->request == IDLE)
            break;
        const struct tsr_request *q = &r->reqs[l->request];
        TSR_TRY(reserve(r, n + q->n_prompt, err));
        for (uint64_t k = 0; k < q->n_prompt; k++)
            r->batch[n++] =
                (struct tsr_token){ .id = q->prompt[k], .slot = s, .logits = k + 1 == q->n_prompt };
    }
    *fed = n;
    return n ? step(r, n, err) : TSR_OK;
}

/* One token for every busy slot. */
static tsr_status decode(struct run *r, uint64_t *fed, struct tsr_err *err)
{
    uint64_t n = 0;
    TSR_TRY(reserve(r, r->n_lanes, err));
    for (uint32_t s = 0; s < r->n_lanes; s++) {
        if (r->lanes[s].request == IDLE)
            continue;
        const struct tsr_request *q = &r->reqs[r->lanes[s].request];
        r->batch[n++] =
            (struct tsr_token){ .id = q->tokens[q->n_tokens - 1], .slot = s, .logits = true };
    }
    *fed = n;
    return n ? step(r, n, err) : TSR_OK;
}

static tsr_status run_all(struct run *r, struct tsr_err *err)
{
    for (;;) {
        uint64_t prompts = 0, steps = 0;
        double   t0 = tsr_now_s();
        TSR_TRY(prefill(r, &prompts, err));
        double t1 = tsr_now_s();
        TSR_TRY(decode(r, &steps, err));
        r->time.prefill_s += t1 - t0;
        r->time.prefill_tokens += prompts;
        r->time.decode_s += tsr_now_s() - t1;
        r->time.decode_tokens += steps;
        if (prompts == 0 && steps == 0)
            return TSR_OK;
    }
}

static tsr_status prepare(struct run *r, struct tsr_err *err)
{
    uint64_t floats;
    r->vocab = tsr_engine_vocab(r->e);
    r->n_lanes = tsr_engine_slots(r->e);
    if (r->n < r->n_lanes)
        r->n_lanes = (uint32_t)r->n;
    r->lanes = tsr_new(r->n_lanes, sizeof *r->lanes);
    r->scratch = tsr_new_aligned(r->vocab, 16);
    if (tsr_mul(r->n_lanes, r->vocab, &floats))
        r->logits = tsr_new_aligned(floats, sizeof *r->logits);
    if (!r->lanes || !r->scratch || !r->logits)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: logits of %u sequences", r->n_lanes);
    for (uint32_t s = 0; s < r->n_lanes; s++)
        r->lanes[s].request = IDLE;
    return TSR_OK;
}

tsr_status tsr_generate(struct tsr_engine *e, struct tsr_request *reqs, uint64_t n,
                        struct tsr_generate_timing *timing, struct tsr_err *err)
{
    struct run r = { .e = e, .reqs = reqs, .n = n };
    if (timing)
        *timing = r.time;
    for (uint64_t i = 0; i < n; i++) {
        TSR_TRY(check_request(e, &reqs[i], i, err));
        reqs[i].n_tokens = 0;
        reqs[i].stopped = false;
    }
    if (n == 0)
        return TSR_OK;
    for (uint32_t s = 0; s < tsr_engine_slots(e); s++)
        tsr_engine_reset(e, s);
    tsr_status st = prepare(&r, err);
    if (st == TSR_OK)
        st = run_all(&r, err);
    for (uint32_t s = 0; s < tsr_engine_slots(e); s++)
        tsr_engine_reset(e, s);
    if (timing)
        *timing = r.time;
    for (uint32_t s = 0; r.lanes && s < r.n_lanes; s++)
        free(r.lanes[s].history);
    free(r.lanes);
    free(r.batch);
    free(r.logits);
    free(r.scratch);
    return st;
}
