/* serve_gather.c - which tokens a batch has: prompts of new requests, else the newest token of each request and drafts. */
#include "engine/rope.h"
#include "engine/serve_internal.h"

#include "base/clock.h"
#include "base/mem.h"

static tsr_status reserve(struct tsr_engine_slot_set *l, uint64_t n, struct tsr_err *err)
{
    if (n <= l->cap)
        return TSR_OK;
    struct tsr_engine_token *b = tsr_renew(l->batch, n, sizeof *b);
    if (!b)
        return tsr_fail_nomem(err, n * sizeof *b, "a batch");
    l->batch = b;
    l->cap = n;
    return TSR_OK;
}

/* The ids of a request that are not in the cache, up to `end`: logits of the last one, and of those that give
 * logprobs of the prompt.  The batch has room for its drafts too. */
static tsr_status put(struct tsr_engine_slot_set *l, struct tsr_engine_serve_slot *q, uint32_t slot,
                      uint64_t end, struct tsr_err *err)
{
    uint64_t total;
    if (!tsr_add(l->n, end - q->fed, &total))
        return tsr_fail_nomem(err, UINT64_MAX, "a batch");
    TSR_TRY(reserve(l, total + q->drafts, err));
    q->known = q->ids.n;
    for (uint64_t k = q->fed; k < end; k++) {
        bool wanted = k + 1 == q->ids.n || tsr_engine_slot_scores(q, k);
        l->wanted += wanted;
        l->batch[l->n++] = (struct tsr_engine_token){
            .id = q->ids.v[k], .slot = slot, .logits = wanted, .decode = k >= q->q.n_prompt
        };
    }
    return TSR_OK;
}

/* Where the next piece of a prompt ends: at the end of the ids, or where the batch has all the logits that it
 * may.  0: not in this batch. */
static uint64_t piece_end(const struct tsr_server *s, const struct tsr_engine_slot_set *l,
                          const struct tsr_engine_serve_slot *q)
{
    uint64_t end = tsr_engine_slot_inputs(q), row = s->pass.vocab * sizeof(float);
    uint64_t most = TSR_ENGINE_SCORE_BYTES / row > 1 ? TSR_ENGINE_SCORE_BYTES / row : 1;
    if (!q->q.prompt_logprobs || end - q->fed <= (most > l->wanted ? most - l->wanted : 0))
        return end;
    if (tsr_engine_rope_varies(&s->pass.hp->rope) ||
        tsr_engine_rope_varies(&s->pass.hp->rope_sliding))
        return l->n ? 0 : end;
    return most > l->wanted ? q->fed + most - l->wanted : 0;
}

tsr_status tsr_engine_serve_gather(struct tsr_server *s, uint32_t slot_set, struct tsr_err *err)
{
    struct tsr_engine_slot_set *l = &s->slot_sets[slot_set];
    l->n = l->wanted = l->drafts = 0;
    l->prompts = false;
    for (uint32_t i = slot_set; i < s->pass.slots; i += s->pass.slot_sets) {
        struct tsr_engine_serve_slot *q = &s->slots[i];
        q->running = false;
        if (!q->used || !q->fresh || (q->alone && l->n > 0))
            continue;
        TSR_TRY(tsr_engine_serve_cache_share(s, i, err));
        if (tsr_engine_serve_cache_waits(s, i)) /* and shares then */
            continue;
        uint64_t end = piece_end(s, l, q);
        if (end == 0)
            continue;
        TSR_TRY(put(l, q, i, end, err));
        l->prompts = q->running = true;
        if (q->alone)
            return TSR_OK;
    }
    if (l->prompts)
        return TSR_OK;
    TSR_TRY(tsr_engine_serve_draft_plan(s, slot_set, err));
    l->begun = tsr_now_s();
    for (uint32_t i = slot_set; i < s->pass.slots; i += s->pass.slot_sets)
        if (s->slots[i].used) {
            TSR_TRY(put(l, &s->slots[i], i, s->slots[i].ids.n, err));
            tsr_engine_serve_draft_put(s, l, i);
        }
    return TSR_OK;
}
