/* What slots keep in the cache of keys and values when their requests are over. */
#include "engine/serve_internal.h"

#include <stdlib.h>
#include <string.h>

/* Ids of the prompt that need not run.  The last one does, for its logits; with logprobs of a prompt all of them do. */
static uint64_t shared(const struct tsr_tokenizer_ids        *held,
                       const struct tsr_engine_serve_request *q)
{
    uint64_t most = q->prompt_logprobs ? 0 : q->n_prompt - 1, same = 0;
    while (same < most && same < held->n && held->v[same] == q->prompt[same])
        same++;
    return same;
}

/* Whether slot a is a better one than b for a prompt of which they have these ids. */
static bool better(const struct tsr_engine_serve_cache *c, uint32_t a, uint64_t of_a, uint32_t b,
                   uint64_t of_b)
{
    const struct tsr_engine_serve_held *x = &c->held[a], *y = &c->held[b];
    if (of_a == of_b)
        return (x->ids.n == 0) != (y->ids.n == 0) ? x->ids.n == 0 : x->last < y->last;
    if (x->ids.n == 0) /* then of_b > 0 */
        return of_b < y->ids.n / 2;
    if (y->ids.n == 0)
        return of_a >= x->ids.n / 2;
    return of_a > of_b;
}

uint32_t tsr_engine_serve_cache_choose(const struct tsr_engine_serve_cache   *c,
                                       const struct tsr_engine_pass          *p,
                                       const struct tsr_engine_serve_slot    *slots,
                                       const struct tsr_engine_serve_request *q)
{
    uint32_t best = p->slots;
    uint64_t of_best = 0;
    for (uint32_t i = 0; i < p->slots; i++) {
        if (slots[i].used)
            continue;
        if (!c->held)
            return i;
        uint64_t same = shared(&c->held[i].ids, q);
        if (best == p->slots || better(c, i, same, best, of_best)) {
            best = i;
            of_best = same;
        }
    }
    return best;
}

uint64_t tsr_engine_serve_cache_take(struct tsr_engine_serve_cache *c,
                                     const struct tsr_engine_pass *p, uint32_t slot,
                                     const struct tsr_engine_serve_request *q)
{
    if (!c->held)
        return 0;
    struct tsr_tokenizer_ids *held = &c->held[slot].ids;
    uint64_t                  same = shared(held, q);
    held->n = 0;
    if (same)
        same = p->rewind(p->ctx, slot, same);
    if (same == 0) {
        p->reset(p->ctx, slot);
        return 0;
    }
    c->reused += same;
    return same;
}

void tsr_engine_serve_cache_keep(struct tsr_engine_serve_cache *c, const struct tsr_engine_pass *p,
                                 uint32_t slot, struct tsr_engine_serve_slot *s)
{
    uint64_t                  n = p->prompts && s->fed > s->q.n_prompt ? s->q.n_prompt : s->fed;
    struct tsr_errbuf         ignored = TSR_ERRBUF(ignored);
    struct tsr_tokenizer_ids *held = c->held ? &c->held[slot].ids : NULL;
    n = held && n && s->finish != TSR_ENGINE_FINISH_FAILED ? p->rewind(p->ctx, slot, n) : 0;
    bool keep = n > 0;
    if (held) {
        held->n = 0;
        c->held[slot].last = ++c->now;
    }
    for (uint64_t i = 0; keep && i < n; i++)
        keep = tsr_tokenizer_ids_push(held, s->ids.v[i], &ignored.err) == TSR_OK;
    if (keep)
        return;
    if (held)
        held->n = 0;
    p->reset(p->ctx, slot);
}

/* ---- from one slot to another -------------------------------------------------- */

#define WORTH 32u /* ids; the copy of fewer is not */

/* Ids that a slot has, or will have after the batch, and other prompts may begin with. */
static struct tsr_tokenizer_ids ids_of(const struct tsr_server *s, uint32_t slot, bool soon)
{
    const struct tsr_engine_serve_slot *q = &s->slots[slot];
    struct tsr_tokenizer_ids            ids = q->used ? q->ids : s->cache.held[slot].ids;
    if (!q->used)
        return ids;
    ids.n = soon ? tsr_engine_slot_inputs(q) : q->fed;
    if (s->pass.prompts && ids.n > q->q.n_prompt)
        ids.n = q->q.n_prompt;
    return ids;
}

/* Ids of the slot's prompt that another has, or will have, beyond those that it has itself. */
static uint64_t more(const struct tsr_server *s, uint32_t of, uint32_t slot, bool soon)
{
    const struct tsr_engine_serve_slot *q = &s->slots[slot];
    struct tsr_tokenizer_ids            ids = ids_of(s, of, soon);
    struct tsr_engine_serve_request     ask = q->q;
    ask.prompt = q->ids.v; /* its prompt is first */
    uint64_t same = of == slot || q->alone || q->apart ? 0 : shared(&ids, &ask);
    return same >= q->fed + WORTH ? same : 0;
}

tsr_status tsr_engine_serve_cache_share(struct tsr_server *s, uint32_t slot, struct tsr_err *err)
{
    uint64_t best = 0, kept = 0;
    uint32_t from = slot;
    for (uint32_t i = 0; s->pass.copy && s->cache.held && i < s->pass.slots; i++) {
        uint64_t same = more(s, i, slot, false);
        from = same > best ? i : from;
        best = same > best ? same : best;
    }
    if (best == 0)
        return TSR_OK;
    struct tsr_engine_serve_slot *q = &s->slots[slot];
    TSR_TRY(s->pass.copy(s->pass.ctx, from, slot, best, &kept, err));
    q->apart = kept == 0;
    if (kept) {
        s->cache.reused += kept - q->fed;
        q->fed = kept;
    }
    return TSR_OK;
}

bool tsr_engine_serve_cache_waits(const struct tsr_server *s, uint32_t slot)
{
    for (uint32_t i = 0; s->pass.copy && s->cache.held && i < slot; i++)
        if (s->slots[i].used && s->slots[i].running && more(s, i, slot, true))
            return true;
    return false;
}

void tsr_engine_serve_cache_free(struct tsr_engine_serve_cache *c, uint32_t slots)
{
    for (uint32_t i = 0; c->held && i < slots; i++)
        tsr_tokenizer_ids_free(&c->held[i].ids);
    free(c->held);
    c->held = NULL;
}
