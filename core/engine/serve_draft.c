/* serve_draft.c - drafts behind the newest tokens of a batch: how many, and what became of them. */
#include "engine/serve_internal.h"

#include <math.h>

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

/* The requests of a slot set, with what each can use; how many, at most DRAFTS + 1.  *chosen: some take as many as gain
 * time. */
static uint64_t asks(struct tsr_server *s, uint32_t slot_set, struct tsr_engine_draft_ask *a,
                     bool *chosen)
{
    uint64_t n = 0;
    *chosen = false;
    for (uint32_t i = slot_set; i < s->pass.slots; i += s->pass.slot_sets) {
        struct tsr_engine_serve_slot *q = &s->slots[i];
        q->drafts = 0;
        if (!q->used || n > DRAFTS || n++ == DRAFTS)
            continue;
        a[n - 1] =
            (struct tsr_engine_draft_ask){ .slot = i,
                                           .ids = q->ids.v,
                                           .n = q->ids.n,
                                           .n_prompt = q->q.n_prompt,
                                           .left = q->q.n_prompt + q->q.max_tokens - q->ids.n,
                                           .sampling = &q->q.sampling,
                                           .record = q->q.record,
                                           .ignore_eos = q->q.ignore_eos,
                                           .text = &q->draft,
                                           .most = drafts(s, q) ? room(q) : 0,
                                           .out = q->drafted };
        *chosen = *chosen || q->q.draft == TSR_ENGINE_DRAFT_CHOSEN;
    }
    return n;
}

tsr_status tsr_engine_serve_draft_plan(struct tsr_server *s, uint32_t slot_set, struct tsr_err *err)
{
    struct tsr_engine_draft_ask a[DRAFTS + 1];
    bool                        some = false, chosen;
    uint64_t                    n = asks(s, slot_set, a, &chosen);
    for (uint64_t i = 0; i < n && n <= DRAFTS; i++)
        some = some || a[i].most;
    if (!some)
        return TSR_OK;
    double   loss = INFINITY; /* lengths that are given have their time */
    double   spare = chosen ? tsr_engine_draft_spare(&s->drafts.account, &s->drafts.pace, n) : loss;
    uint32_t limit = 0;
    s->drafts.by->see(s->drafts.by, &s->drafts.pace, a, n, spare);
    if (chosen)
        limit = tsr_engine_draft_choose(&s->drafts.pace, s->drafts.by, a, n, TSR_ENGINE_DRAFT_MOST,
                                        &s->drafts.account, &loss);
    s->slot_sets[slot_set].loss = loss;
    some = false;
    for (uint64_t i = 0; i < n; i++) {
        bool own = s->slots[a[i].slot].q.draft != TSR_ENGINE_DRAFT_CHOSEN;
        a[i].want = own || a[i].most < limit ? a[i].most : limit;
        some = some || a[i].want;
    }
    if (!some)
        return TSR_OK;
    TSR_TRY(s->drafts.by->make(s->drafts.by, s->pass.hp, a, n, err));
    for (uint64_t i = 0; i < n; i++)
        s->slots[a[i].slot].drafts = a[i].want;
    return TSR_OK;
}

void tsr_engine_serve_draft_put(struct tsr_server *s, struct tsr_engine_slot_set *l, uint32_t slot)
{
    const struct tsr_engine_serve_slot *q = &s->slots[slot];
    for (uint32_t k = 0; k < q->drafts; k++)
        l->batch[l->n++] = (struct tsr_engine_token){
            .id = q->drafted[k], .slot = slot, .logits = true, .decode = true
        };
    l->wanted += q->drafts;
    l->drafts += q->drafts;
    s->drafts.counts.drafted += q->drafts;
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
        if (q->used && q->drafts && s->drafts.by->came)
            s->drafts.by->came(s->drafts.by, (uint32_t)(q->fed - q->known), q->missed);
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
