/* Slots and batches: which tokens run when.  What a token means for its request is in
 * serve_request.c. */
#include "engine/serve_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- life --------------------------------------------------------------- */

/* Room for so many rows of a batch: their logits, or their best tokens, and the tokens drawn from them. */
static tsr_status make_rows(const struct tsr_server *s, struct tsr_engine_slot_set *l,
                            uint64_t rows, struct tsr_err *err)
{
    uint64_t floats;
    if (rows <= l->rows)
        return TSR_OK;
    free(l->logits);
    free(l->drawn);
    tsr_engine_serve_best_free(l);
    l->rows = 0;
    l->logits =
        tsr_mul(rows, s->pass.vocab, &floats) ? tsr_new_aligned(floats, sizeof *l->logits) : NULL;
    l->drawn = tsr_new(rows, sizeof *l->drawn);
    if (!l->logits || !l->drawn)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: logits of %llu tokens",
                        (unsigned long long)rows);
    l->rows = rows;
    tsr_status st = tsr_engine_serve_best_make(&s->pass, l, err);
    l->rows = st == TSR_OK ? rows : 0;
    return st;
}

static tsr_status make_slot_sets(struct tsr_server *s, struct tsr_err *err)
{
    const struct tsr_engine_pass *p = &s->pass;
    for (uint32_t l = 0; l < p->slot_sets; l++)
        TSR_TRY(
            make_rows(s, &s->slot_sets[l], (p->slots - l + p->slot_sets - 1) / p->slot_sets, err));
    return TSR_OK;
}

tsr_status tsr_engine_server_create(struct tsr_server **out, const struct tsr_engine_pass *p,
                                    const struct tsr_engine_serve_events *ev, struct tsr_err *err)
{
    *out = NULL;
    if (p->slots == 0 || p->slot_sets == 0 || p->slot_sets > p->slots || p->at_once > p->slots)
        return tsr_fail(err, TSR_E_INVAL, "a forward pass of %u slots in %u slot sets", p->slots,
                        p->slot_sets);
    struct tsr_server *s = tsr_new(1, sizeof *s);
    if (!s)
        return tsr_fail_nomem(err, sizeof *s, "a server");
    s->pass = *p;
    s->pass.at_once = p->at_once ? p->at_once : p->slots;
    s->events = *ev;
    s->slots = tsr_new(p->slots, sizeof *s->slots);
    s->slot_sets = tsr_new(p->slot_sets, sizeof *s->slot_sets);
    s->cache.held = p->keeps ? tsr_new(p->slots, sizeof *s->cache.held) : NULL;
    tsr_status st = s->slots && s->slot_sets && (s->cache.held || !p->keeps)
                        ? make_slot_sets(s, err)
                        : tsr_fail_nomem(err, p->slots * sizeof *s->slots, "a server");
    if (st == TSR_OK)
        st = tsr_engine_serve_draw_make(s, err);
    if (st != TSR_OK) {
        tsr_engine_server_destroy(s);
        return st;
    }
    tsr_engine_draft_pace_start(&s->drafts.pace);
    s->drafts.by =
        p->drafter ? p->drafter : tsr_engine_draft_lookup_start(&s->drafts.lookup, &s->drafts.pace);
    s->drafts.counts.bytes = s->drafts.by->bytes;
    for (uint32_t i = 0; i < p->slots; i++)
        p->reset(p->ctx, i);
    *out = s;
    return TSR_OK;
}

void tsr_engine_server_destroy(struct tsr_server *s)
{
    struct tsr_errbuf ignored = TSR_ERRBUF(ignored);
    if (!s)
        return;
    for (uint32_t l = 0; s->slot_sets && l < s->pass.slot_sets; l++) {
        if (s->slot_sets[l].busy)
            (void)s->pass.finish(s->pass.ctx, l, &ignored.err);
        free(s->slot_sets[l].batch);
        free(s->slot_sets[l].logits);
        free(s->slot_sets[l].drawn);
        tsr_engine_serve_best_free(&s->slot_sets[l]);
    }
    for (uint32_t i = 0; s->slots && i < s->pass.slots; i++) {
        s->pass.reset(s->pass.ctx, i);
        tsr_engine_slot_free(&s->slots[i]);
    }
    tsr_engine_serve_cache_free(&s->cache, s->pass.slots);
    free(s->slots);
    free(s->slot_sets);
    free(s->scratch);
    free(s);
}

uint32_t tsr_engine_server_room(const struct tsr_server *s)
{
    return s->pass.at_once - s->busy;
}

uint32_t tsr_engine_server_busy(const struct tsr_server *s)
{
    return s->busy;
}

uint64_t tsr_engine_server_reused(const struct tsr_server *s)
{
    return s->cache.reused;
}

const struct tsr_engine_generate_timing *tsr_engine_server_timing(const struct tsr_server *s)
{
    return &s->time;
}

/* ---- requests ----------------------------------------------------------- */

/* The event of a request that is over; its slot is free. */
static tsr_status end_request(struct tsr_server *s, uint32_t slot, struct tsr_err *err)
{
    struct tsr_engine_serve_slot *q = &s->slots[slot];
    struct tsr_engine_served      r;
    tsr_engine_serve_cache_keep(&s->cache, &s->pass, slot, q);
    tsr_engine_slot_result(q, &r);
    tsr_status st = s->events.done ? s->events.done(s->events.ctx, &r, err) : TSR_OK;
    tsr_engine_slot_free(q);
    s->busy--;
    return st;
}

tsr_status tsr_engine_server_submit(struct tsr_server *s, const struct tsr_engine_serve_request *q,
                                    struct tsr_err *err)
{
    TSR_TRY(tsr_engine_server_check(&s->pass, q, err));
    if (s->busy == s->pass.at_once)
        return tsr_fail(err, TSR_E_INVAL, "a request for a server whose %u slots are taken",
                        s->pass.at_once);
    uint32_t   slot = tsr_engine_serve_cache_choose(&s->cache, &s->pass, s->slots, q);
    tsr_status st = tsr_engine_slot_fill(&s->slots[slot], q, s->pass.vocab, err);
    if (st == TSR_OK)
        s->slots[slot].fed = tsr_engine_serve_cache_take(&s->cache, &s->pass, slot, q);
    if (st != TSR_OK) {
        tsr_engine_slot_free(&s->slots[slot]);
        return st;
    }
    s->busy++;
    if (q->max_tokens || (q->prompt_logprobs && q->n_prompt > 1))
        return TSR_OK;
    if (q->tokenizer)
        st = tsr_engine_slot_end_text(&s->slots[slot], err);
    tsr_status ended = end_request(s, slot, err);
    return st == TSR_OK ? ended : st;
}

void tsr_engine_server_cancel(struct tsr_server *s, uint64_t id)
{
    for (uint32_t i = 0; i < s->pass.slots; i++)
        if (s->slots[i].used && s->slots[i].q.id == id)
            s->slots[i].cancelled = true;
}

/* ---- batches ------------------------------------------------------------ */

/* Logits that are not finite fail the request that they belong to.  A batch of several does not
 * identify it, so each request restarts alone and without drafts; it keeps its tokens so far. */
static tsr_status separate(struct tsr_server *s, struct tsr_engine_slot_set *l, struct tsr_err *err)
{
    uint32_t first = l->batch[0].slot;
    bool     several = false; /* sequences, or drafts that may not be its own ids */
    for (uint64_t i = 0; i < l->n; i++)
        several = several || l->batch[i].slot != first || s->slots[l->batch[i].slot].drafts;
    if (!several) {
        tsr_engine_slot_fail(&s->slots[first], TSR_E_NUMERIC, err->text);
        return end_request(s, first, err);
    }
    for (uint64_t i = 0; i < l->n; i++)
        if (l->batch[i].logits) {
            struct tsr_engine_serve_slot *q = &s->slots[l->batch[i].slot];
            s->pass.reset(s->pass.ctx, l->batch[i].slot); /* with what it had of others */
            q->fresh = q->alone = q->plain = true;
            q->fed = q->drafts = 0;
        }
    return TSR_OK;
}

/* The next token of a request from row number `row` of the batch: its best tokens, or its logits. */
static tsr_status next_token(struct tsr_server *s, struct tsr_engine_slot_set *l,
                             struct tsr_engine_serve_slot *q, uint64_t row, bool *over,
                             struct tsr_err *err)
{
    float   *logits = l->logits + row * s->pass.vocab;
    uint32_t id;
    if (l->is_best) {
        const struct tsr_candidate *best = l->best.best + row * l->best.most;
        if (tsr_engine_slot_draw(q, s->pass.vocab, best, l->best.most, l->best.row[row].sum, &id))
            return tsr_engine_slot_advance(q, &s->pass, &s->events, NULL, &id, NULL, over, err);
        TSR_TRY(s->pass.best_logits(s->pass.ctx, row, logits, err));
    }
    const uint32_t *drawn = l->drawn[row] == TSR_SAMPLER_NONE ? NULL : &l->drawn[row];
    return tsr_engine_slot_advance(q, &s->pass, &s->events, logits, drawn, s->scratch, over, err);
}

/* What row number `row` of the batch, that of the id before position q->fed, means; *over: the request is done. */
static tsr_status take_row(struct tsr_server *s, struct tsr_engine_slot_set *l,
                           struct tsr_engine_serve_slot *q, uint64_t row, bool *over,
                           struct tsr_err *err)
{
    uint64_t at = q->fed - 1;
    *over = true;
    if (q->cancelled) {
        q->finish = TSR_ENGINE_FINISH_ENDED;
        return TSR_OK;
    }
    if (tsr_engine_slot_scores(q, at)) {
        *over = q->q.max_tokens == 0 && q->fed == tsr_engine_slot_inputs(q);
        TSR_TRY(tsr_engine_slot_logprob(q, at, l->logits + row * s->pass.vocab, s->pass.vocab,
                                        q->ids.v[q->fed], err));
        return *over && q->q.tokenizer ? tsr_engine_slot_end_text(q, err) : TSR_OK;
    }
    q->fresh = q->alone = false;
    return next_token(s, l, q, row, over, err);
}

static tsr_status advance(struct tsr_server *s, struct tsr_engine_slot_set *l, struct tsr_err *err)
{
    uint64_t row = 0;
    tsr_engine_serve_draw(s, l);
    for (uint64_t i = 0; i < l->n; i++) {
        struct tsr_engine_serve_slot *q = &s->slots[l->batch[i].slot];
        bool                          over = false;
        if (tsr_engine_serve_draft_follows(s, l, i)) { /* it may have ended at an id before */
            q->fed++;
            if (l->batch[i].logits)
                TSR_TRY(take_row(s, l, q, row, &over, err));
        }
        if (over)
            TSR_TRY(end_request(s, l->batch[i].slot, err));
        row += l->batch[i].logits;
    }
    return TSR_OK;
}

/* Nothing of the slot set is in flight. */
static tsr_status end_cancelled(struct tsr_server *s, uint32_t slot_set, struct tsr_err *err)
{
    for (uint32_t i = slot_set; i < s->pass.slots; i += s->pass.slot_sets)
        if (s->slots[i].used && s->slots[i].cancelled) {
            s->slots[i].finish = TSR_ENGINE_FINISH_ENDED;
            TSR_TRY(end_request(s, i, err));
        }
    return TSR_OK;
}

static tsr_status start_slot_set(struct tsr_server *s, uint32_t slot_set, struct tsr_err *err)
{
    struct tsr_engine_slot_set *l = &s->slot_sets[slot_set];
    TSR_TRY(end_cancelled(s, slot_set, err));
    l->since = l->begun = tsr_now_s();
    TSR_TRY(tsr_engine_serve_gather(s, slot_set, err));
    if (l->n == 0)
        return TSR_OK;
    TSR_TRY(make_rows(s, l, l->wanted, err));
    l->order = s->starts++;
    l->is_best = tsr_engine_serve_best_takes(&s->pass, s->slots, l);
    tsr_status st = l->is_best
                        ? s->pass.start_best(s->pass.ctx, slot_set, l->batch, l->n, &l->best, err)
                        : s->pass.start(s->pass.ctx, slot_set, l->batch, l->n, l->logits, err);
    if (st == TSR_E_NUMERIC)
        return separate(s, l, err);
    l->busy = st == TSR_OK;
    return st;
}

static tsr_status finish_slot_set(struct tsr_server *s, uint32_t slot_set, struct tsr_err *err)
{
    struct tsr_engine_slot_set *l = &s->slot_sets[slot_set];
    l->busy = false;
    tsr_status st = s->pass.finish(s->pass.ctx, slot_set, err);
    double    *seconds = l->prompts ? &s->time.prefill_s : &s->time.decode_s;
    uint64_t  *tokens = l->prompts ? &s->time.prefill_tokens : &s->time.decode_tokens;
    if (st == TSR_E_NUMERIC)
        return separate(s, l, err);
    TSR_TRY(st);
    double took = tsr_now_s() - l->begun;
    if (l->prompts)
        tsr_engine_draft_prompt_took(&s->drafts.pace, l->n, took);
    else
        tsr_engine_draft_took(&s->drafts.pace, l->n, took);
    uint64_t rows = l->n - l->drafts, right = s->drafts.counts.accepted;
    st = advance(s, l, err);
    right = s->drafts.counts.accepted - right;
    if (!l->prompts)
        tsr_engine_draft_settle(&s->drafts.account, &s->drafts.pace, rows, rows + right,
                                took + l->begun - l->since, l->drafts ? l->loss : 0);
    if (st == TSR_OK)
        tsr_engine_serve_draft_end(s, slot_set);
    *seconds += tsr_now_s() - l->since;
    *tokens += l->n;
    return st;
}

tsr_status tsr_engine_server_step(struct tsr_server *s, struct tsr_err *err)
{
    uint32_t oldest = s->pass.slot_sets;
    for (uint32_t l = 0; l < s->pass.slot_sets; l++) {
        if (!s->slot_sets[l].busy)
            TSR_TRY(start_slot_set(s, l, err));
        if (s->slot_sets[l].busy &&
            (oldest == s->pass.slot_sets || s->slot_sets[l].order < s->slot_sets[oldest].order))
            oldest = l;
    }
    return oldest < s->pass.slot_sets ? finish_slot_set(s, oldest, err) : TSR_OK;
}
