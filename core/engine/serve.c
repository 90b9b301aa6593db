/* Slots and batches: which tokens run when.  What a token means for its request is in
 * serve_request.c. */
#include "engine/serve_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct lane {
    struct tsr_token *batch;
    uint64_t          n, cap;
    float            *logits; /* [slots of the lane, vocab] */
    bool              busy;   /* in flight */
    bool              prompts;
    uint64_t          order; /* of its start */
    double            since;
};

struct tsr_server {
    struct tsr_pass            pass;
    struct tsr_serve_events    events;
    struct tsr_serve_slot     *slots; /* [pass.slots] */
    struct lane               *lanes;
    uint32_t                   busy;
    uint64_t                   starts;
    void                      *scratch; /* of tsr_sample() */
    struct tsr_generate_timing time;
};

/* ---- the pass of one engine --------------------------------------------- */

static tsr_status engine_start(void *ctx, uint32_t lane, const struct tsr_token *tokens, uint64_t n,
                               float *logits, struct tsr_err *err)
{
    (void)lane;
    return tsr_engine_forward(ctx, tokens, n, logits, err);
}

static tsr_status engine_finish(void *ctx, uint32_t lane, struct tsr_err *err)
{
    (void)ctx;
    (void)lane;
    (void)err;
    return TSR_OK;
}

static void engine_reset(void *ctx, uint32_t slot)
{
    tsr_engine_reset(ctx, slot);
}

void tsr_pass_engine(struct tsr_pass *p, struct tsr_engine *e)
{
    *p = (struct tsr_pass){ .ctx = e,
                            .slots = tsr_engine_slots(e),
                            .lanes = 1,
                            .context = tsr_engine_context(e),
                            .vocab = tsr_engine_vocab(e),
                            .start = engine_start,
                            .finish = engine_finish,
                            .reset = engine_reset,
                            .hp = &tsr_engine_model(e)->hp };
}

/* ---- life --------------------------------------------------------------- */

static tsr_status make_lanes(struct tsr_server *s, struct tsr_err *err)
{
    const struct tsr_pass *p = &s->pass;
    for (uint32_t l = 0; l < p->lanes; l++) {
        uint64_t rows = (p->slots - l + p->lanes - 1) / p->lanes, floats;
        if (tsr_mul(rows, p->vocab, &floats))
            s->lanes[l].logits = tsr_new_aligned(floats, sizeof(float));
        if (!s->lanes[l].logits)
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: logits of %llu sequences",
                            (unsigned long long)rows);
    }
    return TSR_OK;
}

tsr_status tsr_server_create(struct tsr_server **out, const struct tsr_pass *p,
                             const struct tsr_serve_events *ev, struct tsr_err *err)
{
    *out = NULL;
    if (p->slots == 0 || p->lanes == 0 || p->lanes > p->slots)
        return tsr_fail(err, TSR_E_INVAL, "a forward pass of %u slots in %u lanes", p->slots,
                        p->lanes);
    struct tsr_server *s = tsr_new(1, sizeof *s);
    if (!s)
        return tsr_fail_nomem(err, sizeof *s, "a server");
    s->pass = *p;
    s->events = *ev;
    s->slots = tsr_new(p->slots, sizeof *s->slots);
    s->lanes = tsr_new(p->lanes, sizeof *s->lanes);
    s->scratch = tsr_new_aligned(p->vocab, 16);
    tsr_status st = s->slots && s->lanes && s->scratch
                        ? make_lanes(s, err)
                        : tsr_fail_nomem(err, p->vocab * 16, "a server");
    if (st != TSR_OK) {
        tsr_server_destroy(s);
        return st;
    }
    for (uint32_t i = 0; i < p->slots; i++)
        p->reset(p->ctx, i);
    *out = s;
    return TSR_OK;
}

void tsr_server_destroy(struct tsr_server *s)
{
    struct tsr_errbuf ignored = TSR_ERRBUF(ignored);
    if (!s)
        return;
    for (uint32_t l = 0; s->lanes && l < s->pass.lanes; l++) {
        if (s->lanes[l].busy)
            (void)s->pass.finish(s->pass.ctx, l, &ignored.err);
        free(s->lanes[l].batch);
        free(s->lanes[l].logits);
    }
    for (uint32_t i = 0; s->slots && i < s->pass.slots; i++) {
        s->pass.reset(s->pass.ctx, i);
        tsr_slot_free(&s->slots[i]);
    }
    free(s->slots);
    free(s->lanes);
    free(s->scratch);
    free(s);
}

uint32_t tsr_server_room(const struct tsr_server *s)
{
    return s->pass.slots - s->busy;
}

uint32_t tsr_server_busy(const struct tsr_server *s)
{
    return s->busy;
}

const struct tsr_generate_timing *tsr_server_timing(const struct tsr_server *s)
{
    return &s->time;
}

/* ---- requests ----------------------------------------------------------- */

/* The event of a request that is over; its slot is free. */
static tsr_status end_request(struct tsr_server *s, uint32_t slot, struct tsr_err *err)
{
    struct tsr_serve_slot *q = &s->slots[slot];
    struct tsr_served      r;
    s->pass.reset(s->pass.ctx, slot);
    tsr_slot_result(q, &r);
    tsr_status st = s->events.done ? s->events.done(s->events.ctx, &r, err) : TSR_OK;
    tsr_slot_free(q);
    s->busy--;
    return st;
}

tsr_status tsr_server_submit(struct tsr_server *s, const struct tsr_serve_request *q,
                             struct tsr_err *err)
{
    uint32_t slot = 0;
    TSR_TRY(tsr_server_check(&s->pass, q, err));
    while (slot < s->pass.slots && s->slots[slot].used)
        slot++;
    if (slot == s->pass.slots)
        return tsr_fail(err, TSR_E_INVAL, "a request for a server whose %u slots are taken",
                        s->pass.slots);
    tsr_status st = tsr_slot_fill(&s->slots[slot], q, err);
    if (st != TSR_OK) {
        tsr_slot_free(&s->slots[slot]);
        return st;
    }
    s->busy++;
    return q->max_tokens ? TSR_OK : end_request(s, slot, err);
}

void tsr_server_cancel(struct tsr_server *s, uint64_t id)
{
    for (uint32_t i = 0; i < s->pass.slots; i++)
        if (s->slots[i].used && s->slots[i].q.id == id)
            s->slots[i].cancelled = true;
}

/* ---- batches ------------------------------------------------------------ */

static tsr_status reserve(struct lane *l, uint64_t n, struct tsr_err *err)
{
    if (n <= l->cap)
        return TSR_OK;
    struct tsr_token *b = tsr_renew(l->batch, n, sizeof *b);
    if (!b)
        return tsr_fail_nomem(err, n * sizeof *b, "a batch");
    l->batch = b;
    l->cap = n;
    return TSR_OK;
}

/* The ids of a request from `first` on; logits of the last one. */
static tsr_status put(struct lane *l, const struct tsr_serve_slot *q, uint32_t slot, uint64_t first,
                      struct tsr_err *err)
{
    uint64_t total;
    if (!tsr_add(l->n, q->ids.n - first, &total))
        return tsr_fail_nomem(err, UINT64_MAX, "a batch");
    TSR_TRY(reserve(l, total, err));
    for (uint64_t k = first; k < q->ids.n; k++)
        l->batch[l->n++] = (struct tsr_token){ .id = q->ids.v[k],
                                               .slot = slot,
                                               .logits = k + 1 == q->ids.n,
                                               .decode = k >= q->q.n_prompt };
    return TSR_OK;
}

/* The next batch of a lane; empty when it has nothing to run. */
static tsr_status gather(struct tsr_server *s, uint32_t lane, struct tsr_err *err)
{
    struct lane *l = &s->lanes[lane];
    l->n = 0;
    l->prompts = false;
    for (uint32_t i = lane; i < s->pass.slots; i += s->pass.lanes) {
        struct tsr_serve_slot *q = &s->slots[i];
        if (!q->used || !q->fresh || (q->alone && l->n > 0))
            continue;
        TSR_TRY(put(l, q, i, 0, err));
        l->prompts = true;
        if (q->alone)
            return TSR_OK;
    }
    if (l->prompts)
        return TSR_OK;
    for (uint32_t i = lane; i < s->pass.slots; i += s->pass.lanes)
        if (s->slots[i].used)
            TSR_TRY(put(l, &s->slots[i], i, s->slots[i].ids.n - 1, err));
    return TSR_OK;
}

/* Logits that are not finite: the request that they belong to fails.  A batch of several does not
 * tell which one that is, so each starts anew alone; what it has so far it keeps. */
static tsr_status separate(struct tsr_server *s, struct lane *l, struct tsr_err *err)
{
    uint32_t first = l->batch[0].slot;
    bool     several = false;
    for (uint64_t i = 0; i < l->n; i++)
        several = several || l->batch[i].slot != first;
    if (!several) {
        tsr_slot_fail(&s->slots[first], TSR_E_NUMERIC, err->text);
        return end_request(s, first, err);
    }
    for (uint64_t i = 0; i < l->n; i++)
        if (l->batch[i].logits) {
            struct tsr_serve_slot *q = &s->slots[l->batch[i].slot];
            s->pass.reset(s->pass.ctx, l->batch[i].slot);
            q->fresh = q->alone = true;
        }
    return TSR_OK;
}

static tsr_status advance(struct tsr_server *s, struct lane *l, struct tsr_err *err)
{
    const float *row = l->logits;
    for (uint64_t i = 0; i < l->n; i++) {
        if (!l->batch[i].logits)
            continue;
        struct tsr_serve_slot *q = &s->slots[l->batch[i].slot];
        bool                   over = true;
        q->fresh = q->alone = false;
        if (q->cancelled)
            q->finish = TSR_FINISH_ENDED;
        else
            TSR_TRY(tsr_slot_advance(q, &s->pass, &s->events, row, s->scratch, &over, err));
        if (over)
            TSR_TRY(end_request(s, l->batch[i].slot, err));
        row += s->pass.vocab;
    }
    return TSR_OK;
}

static tsr_status start_lane(struct tsr_server *s, uint32_t lane, struct tsr_err *err)
{
    struct lane *l = &s->lanes[lane];
    TSR_TRY(gather(s, lane, err));
    if (l->n == 0)
        return TSR_OK;
    l->since = tsr_now_s();
    l->order = s->starts++;
    tsr_status st = s->pass.start(s->pass.ctx, lane, l->batch, l->n, l->logits, err);
    if (st == TSR_E_NUMERIC)
        return separate(s, l, err);
    l->busy = st == TSR_OK;
    return st;
}

static tsr_status finish_lane(struct tsr_server *s, uint32_t lane, struct tsr_err *err)
{
    struct lane *l = &s->lanes[lane];
    l->busy = false;
    tsr_status st = s->pass.finish(s->pass.ctx, lane, err);
    double    *seconds = l->prompts ? &s->time.prefill_s : &s->time.decode_s;
    uint64_t  *tokens = l->prompts ? &s->time.prefill_tokens : &s->time.decode_tokens;
    if (st == TSR_E_NUMERIC)
        return separate(s, l, err);
    TSR_TRY(st);
    st = advance(s, l, err);
    *seconds += tsr_now_s() - l->since;
    *tokens += l->n;
    return st;
}

tsr_status tsr_server_step(struct tsr_server *s, struct tsr_err *err)
{
    uint32_t oldest = s->pass.lanes;
    for (uint32_t l = 0; l < s->pass.lanes; l++) {
        if (!s->lanes[l].busy)
            TSR_TRY(start_lane(s, l, err));
        if (s->lanes[l].busy &&
            (oldest == s->pass.lanes || s->lanes[l].order < s->lanes[oldest].order))
            oldest = l;
    }
    return oldest < s->pass.lanes ? finish_lane(s, oldest, err) : TSR_OK;
}
