/* serve_draft.c - drafts behind the newest tokens of a batch: how many, and what became of them. */
#include "engine/serve_internal.h"

#define DRAFTS TSR_ENGINE_DRAFT_ROWS

/* Most ids of a draft that the request can still use: its last token is never an input. */
static uint32_t room(const struct tsr_engine_serve_slot *q)
{
    uint64_t left = q->q.n_prompt + q->q.max_tokens - 1 - q->ids.n;
    uint64_t most = q->q.draft < TSR_ENGINE_DRAFT_MOST ? q->q.draft : TSR_ENGINE_DRAFT_MOST;
    return (uint32_t)(left < most ? left : most);
}

/* A request that has drafts, and what it has had is in the cache. */
static bool drafts(const struct tsr_server *s, const struct tsr_engine_serve_slot *q)
{
    return q->used && q->q.draft && !q->plain && !q->fresh && s->pass.rewind;
}

void tsr_engine_serve_draft_plan(struct tsr_server *s, uint32_t slot_set)
{
    const struct tsr_engine_draft *of[DRAFTS];
    uint32_t                       most[DRAFTS] = { 0 }, n = 0;
    bool                           some = false, chosen = false;
    for (uint32_t i = slot_set; i < s->pass.slots; i += s->pass.slot_sets) {
        struct tsr_engine_serve_slot *q = &s->slots[i];
        q->drafts = 0;
        if (!q->used || n++ >= DRAFTS)
            continue;
        if (drafts(s, q))
            tsr_engine_draft_see(&q->draft, &s->drafts.pace, q->ids.v, q->ids.n);
        of[n - 1] = &q->draft;
        most[n - 1] = drafts(s, q) && q->draft.from ? room(q) : 0;
        some = some || most[n - 1];
        chosen = chosen || q->q.draft == TSR_ENGINE_DRAFT_CHOSEN;
    }
    if (!some || n > DRAFTS)
        return;
    uint32_t limit =
        chosen ? tsr_engine_draft_choose(&s->drafts.pace, of, most, n, TSR_ENGINE_DRAFT_MOST) : 0;
    n = 0;
    for (uint32_t i = slot_set; i < s->pass.slots; i += s->pass.slot_sets) {
        struct tsr_engine_serve_slot *q = &s->slots[i];
        if (!q->used)
            continue;
        q->drafts = most[n++];
        if (q->q.draft == TSR_ENGINE_DRAFT_CHOSEN && q->drafts > limit)
            q->drafts = limit;
    }
}

void tsr_engine_serve_draft_put(struct tsr_server *s, struct tsr_engine_slot_set *l, uint32_t slot)
{
    const struct tsr_engine_serve_slot *q = &s->slots[slot];
    uint32_t                            ids[TSR_ENGINE_DRAFT_MOST];
    uint32_t n = tsr_engine_draft_take(&q->draft, q->ids.v, q->ids.n, q->drafts, ids);
    for (uint32_t k = 0; k < n; k++)
        l->batch[l->n++] =
            (struct tsr_engine_token){ .id = ids[k], .slot = slot, .logits = true, .decode = true };
    l->wanted += n;
    s->drafts.counts.drafted += n;
}

bool tsr_engine_serve_draft_follows(struct tsr_server *s, const struct tsr_engine_slot_set *l,
                                    uint64_t i)
{
    struct tsr_engine_serve_slot *q = &s->slots[l->batch[i].slot];
    if (!q->used || q->missed)
        return false;
    if (q->fed < q->known)
        return true;
    q->missed = q->fed == q->ids.n || q->ids.v[q->fed] != l->batch[i].id;
    s->drafts.counts.accepted += !q->missed;
    return !q->missed;
}

void tsr_engine_serve_draft_end(struct tsr_server *s, uint32_t slot_set)
{
    for (uint32_t i = slot_set; i < s->pass.slots; i += s->pass.slot_sets) {
        struct tsr_engine_serve_slot *q = &s->slots[i];
        q->drafts = 0;
        if (!q->used || !q->missed)
            continue;
        q->missed = false;
        q->fed = s->pass.rewind(s->pass.ctx, i, q->fed);
        if (q->fed == 0) { /* all of it runs again */
            s->pass.reset(s->pass.ctx, i);
            q->fresh = true;
        }
    }
}

const struct tsr_engine_drafted *tsr_engine_server_drafted(const struct tsr_server *s)
{
    return &s->drafts.counts;
}
