/* A rank's work on a micro-batch: embeds or takes rows, computes its layers, sends rows on or answers. */
#include "base/mem.h"
#include "runtime/emulate.h"
#include "runtime/rank_internal.h"

#include <stdlib.h>
#include <string.h>

#define BEAT_US UINT64_C(500000)

tsr_status tsr_runtime_rank_sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                                struct tsr_err *err)
{
    struct tsr_runtime_rank *r = ctx;
    if (r->paced_ms > 0 && ++r->sums < r->all_sums) /* identical layers, and their halves too */
        tsr_runtime_pacing_mark(r->began_ns + r->summed_ns,
                                r->paced_ms * (double)r->sums / (double)r->all_sums, r->page);
    uint64_t t0 = tsr_runtime_now_ns();
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_SUMS, site);
    TSR_TRY(tsr_comm_group_sum(r->group, r->phase, site, x, rows, cols, err));
    r->summed_ns += tsr_runtime_now_ns() - t0;
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_WORKS, site / 2);
    return TSR_OK;
}

/* On the device, where that can be; one whose time is played by another's goes through the host. */
tsr_status tsr_runtime_rank_sum_on(void *ctx, uint32_t site, const struct tsr_backend_v1 *backend,
                                   void *self, const struct tsr_tensor *x, bool *done,
                                   struct tsr_err *err)
{
    struct tsr_runtime_rank *r = ctx;
    uint64_t                 t0 = tsr_runtime_now_ns();
    *done = false;
    if (r->plan->pacing)
        return TSR_OK;
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_SUMS, site);
    TSR_TRY(tsr_comm_group_sum_on(r->group, r->phase, site, backend, self, x, done, err));
    r->summed_ns += tsr_runtime_now_ns() - t0;
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_WORKS, site / 2);
    return TSR_OK;
}

tsr_status tsr_runtime_rank_reserve_on(void *ctx, const struct tsr_backend_v1 *backend, void *self,
                                       uint64_t rows, uint64_t cols, uint32_t first, uint32_t end,
                                       struct tsr_err *err)
{
    const struct tsr_runtime_rank *r = ctx;
    return r->plan->pacing
               ? TSR_OK
               : tsr_comm_group_reserve(r->group, backend, self, rows, cols, first, end, err);
}

/* The embedding is the first rank's: the others of its stage get the rows. */
static tsr_status share_rows(struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b,
                             struct tsr_err *err)
{
    struct tsr_runtime_micro_batch *copy = tsr_new(1, sizeof *copy);
    if (!copy)
        return tsr_fail_nomem(err, sizeof *copy, "a micro-batch");
    tsr_status st = tsr_engine_embed(r->engine, b->token, b->head.tokens, b->rows, err);
    if (st == TSR_OK)
        st = tsr_runtime_micro_batch_copy(copy, b, &r->plan->limits, err);
    if (st == TSR_OK)
        st = tsr_runtime_micro_batch_reserve(copy, &r->plan->limits, true, false, err);
    if (st != TSR_OK) {
        tsr_runtime_micro_batch_free(copy);
        return st;
    }
    copy->cols = r->plan->limits.hidden;
    memcpy(copy->rows, b->rows, b->head.tokens * copy->cols * sizeof *copy->rows);
    tsr_runtime_queue_put(&r->fan.queue, copy);
    return TSR_OK;
}

static bool last_stage(const struct tsr_runtime_rank *r)
{
    return r->place.stage + 1 == r->plan->layout->n_stages;
}

static tsr_status go_back(struct tsr_runtime_rank *r, const struct tsr_runtime_micro_batch *b,
                          struct tsr_err *err)
{
    for (uint32_t i = 0; i < b->head.resets; i++) {
        const struct tsr_runtime_reset *one = &b->reset[i];
        if (one->keep == 0)
            tsr_engine_reset(r->engine, one->slot);
        else if (tsr_engine_rewind(r->engine, one->slot, one->keep) != one->keep)
            return tsr_fail(err, TSR_E_DEVICE, "slot %u does not keep %u positions", one->slot,
                            one->keep);
    }
    return TSR_OK;
}

static tsr_status compute(struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b,
                          struct tsr_err *err)
{
    const struct tsr_runtime_place *p = &r->place;
    bool                            last = last_stage(r), shared = p->embed && r->fan.n > 0;
    bool                            heads = p->head && !p->back, picks = p->last && !p->head;
    const float                    *in = NULL;
    TSR_TRY(go_back(r, b, err));
    if (!p->embed)
        in = b->rows;
    else if (!last || shared)
        TSR_TRY(tsr_runtime_micro_batch_reserve(b, &r->plan->limits, true, heads, err));
    if (heads)
        TSR_TRY(tsr_runtime_micro_batch_reserve(b, &r->plan->limits, in || shared, true, err));
    if (shared) {
        TSR_TRY(share_rows(r, b, err));
        in = b->rows;
    }
    r->phase = b->head.phase;
    b->head.site = (uint32_t)(2 * p->end - 1);
    b->cols = r->plan->limits.hidden;
    return tsr_engine_stage(r->engine, b->token, b->head.tokens, in,
                            last && !(picks && b->head.wanted) ? NULL : b->rows,
                            heads && b->head.wanted ? b->logits : NULL, err);
}

/* Sends the logits of a micro-batch, or the reason for their absence, to the coordinator; sends their
 * hidden rows to a head on the first stage. */
static void give_result(struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b,
                        tsr_status st, const struct tsr_err *why)
{
    struct tsr_runtime_rank_sender *to = r->place.back ? &r->answer : &r->next;
    float                          *rows = b->rows;
    uint64_t                        cap = b->cap_rows;
    b->head.status = st;
    b->head.resets = 0;
    if (st != TSR_OK)
        tsr_err_send(&b->why, st, why);
    if (!r->place.head) {
        if (st == TSR_OK)
            tsr_runtime_rank_pick(r, b);
        b->head.kind = TSR_RUNTIME_FRAME_BACK;
        tsr_runtime_queue_put(&r->next.queue, b);
        return;
    }
    b->head.kind = TSR_RUNTIME_FRAME_RESULT;
    b->rows = b->logits;
    b->cap_rows = b->cap_logits;
    b->logits = rows;
    b->cap_logits = cap;
    b->cols = r->plan->limits.vocab;
    if (to->n)
        tsr_runtime_queue_put(&to->queue, b);
    else
        r->hooks->deliver(r->hooks->ctx, b);
}

static void recycle(struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b)
{
    if (r->has_in)
        tsr_runtime_queue_put(&r->spare, b);
    else
        tsr_runtime_micro_batch_free(b);
}

/* Sums that a micro-batch takes: those of each layer, for each forward. */
static uint64_t sums_of(const struct tsr_runtime_rank *r, uint64_t tokens)
{
    uint64_t chunk = r->plan->layout->forward ? r->plan->layout->forward : tokens;
    uint64_t each = tsr_engine_layer_sums(&r->plan->model->hp) * (r->place.end - r->place.first);
    return chunk ? each * ((tokens + chunk - 1) / chunk) : 0;
}

/* One micro-batch, and its way on. */
static tsr_status handle(struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b,
                         struct tsr_err *err)
{
    struct tsr_runtime_progress *progress = &r->page->progress;
    struct tsr_runtime_span      span = { .number = b->head.number,
                                          .slot_set = b->head.slot_set,
                                          .decode = b->head.phase == TSR_PLAN_DECODE,
                                          .start = tsr_runtime_now_ns() };
    double                       ms = 0;
    r->summed_ns = 0;
    atomic_fetch_add(&progress->step, 1);
    tsr_runtime_progress_beat(progress, TSR_RUNTIME_RANK_WORKS, (uint32_t)r->place.first);
    tsr_status st = TSR_OK;
    if (r->plan->pacing)
        st = tsr_runtime_pacing_time(r->plan->pacing, &r->place, r->engine, b, &ms, err);
    r->began_ns = span.start;
    r->paced_ms = ms;
    r->sums = 0;
    r->all_sums = sums_of(r, b->head.tokens) + 1; /* the end comes after the last one */
    if (st == TSR_OK)
        st = compute(r, b, err);
    if (st == TSR_OK && r->plan->pacing)
        tsr_runtime_pacing_wait(span.start + r->summed_ns, ms, r->page);
    span.end = tsr_runtime_now_ns();
    tsr_runtime_spans_add(&r->page->work, &span);
    atomic_fetch_add(&r->page->numbers.batches, 1);
    if (last_stage(r)) {
        bool answer = r->place.last && b->head.wanted;
        if (answer && (st == TSR_OK || st == TSR_E_NUMERIC)) {
            give_result(r, b, st, &r->err.err);
            return TSR_OK;
        }
        recycle(r, b);
        return st;
    }
    if (st == TSR_OK && r->next.n)
        tsr_runtime_queue_put(&r->next.queue, b);
    else /* a narrower stage after this one receives from other ranks */
        recycle(r, b);
    return st;
}

/* Rows that came back for the head, and their logits' way on. */
static tsr_status finish(struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b,
                         struct tsr_err *err)
{
    struct tsr_runtime_progress *progress = &r->page->progress;
    struct tsr_runtime_span      span = { .number = b->head.number,
                                          .slot_set = b->head.slot_set,
                                          .decode = b->head.phase == TSR_PLAN_DECODE,
                                          .head = 1,
                                          .start = tsr_runtime_now_ns() };
    double                       ms = 0;
    tsr_status                   st = b->head.status;
    if (st != TSR_OK) { /* the last stage reports why there are none */
        struct tsr_errbuf why = TSR_ERRBUF(why);
        give_result(r, b, tsr_err_arrive(&why.err, &b->why, ""), &why.err);
        return TSR_OK;
    }
    atomic_fetch_add(&progress->step, 1);
    tsr_runtime_progress_beat(progress, TSR_RUNTIME_RANK_WORKS,
                              (uint32_t)r->plan->model->hp.layers);
    if (r->plan->pacing)
        st = tsr_runtime_pacing_head(r->plan->pacing, &r->place, b->head.wanted, &ms, err);
    if (st == TSR_OK)
        st = tsr_runtime_rank_head(r, b, err);
    if (st == TSR_OK && r->plan->pacing)
        tsr_runtime_pacing_wait(span.start, ms, r->page);
    span.end = tsr_runtime_now_ns();
    tsr_runtime_spans_add(&r->page->work, &span);
    if (st != TSR_OK && st != TSR_E_NUMERIC) {
        tsr_runtime_micro_batch_free(b);
        return st;
    }
    give_result(r, b, st, &r->err.err);
    return TSR_OK;
}

static void copy_stop(struct tsr_runtime_rank *r, struct tsr_runtime_rank_sender *to,
                      const struct tsr_runtime_micro_batch *b)
{
    struct tsr_runtime_micro_batch *copy = tsr_new(1, sizeof *copy);
    if (!copy) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_runtime_rank_failed(r, tsr_fail_nomem(&e.err, sizeof *copy, "the end"), &e.err);
        return;
    }
    copy->head = b->head;
    tsr_runtime_queue_put(&to->queue, copy);
}

/* Hands the end on. */
static void pass_stop(struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b)
{
    if (r->fan.n)
        copy_stop(r, &r->fan, b);
    if (r->answer.n)
        copy_stop(r, &r->answer, b);
    if (r->next.n) /* after the last stage, to the coordinator's receiver */
        tsr_runtime_queue_put(&r->next.queue, b);
    else
        recycle(r, b);
}

tsr_status tsr_runtime_rank_work(struct tsr_runtime_rank *r, struct tsr_err *err)
{
    for (;;) {
        tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_IDLE, 0);
        struct tsr_runtime_micro_batch *b = NULL;
        while (tsr_runtime_queue_take_for(r->work, BEAT_US, &b) && !b) {
            tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_IDLE,
                                      0); /* a waiting rank is not stalled */
            if (tsr_runtime_page_failed(r->plan->page))
                break;
        }
        if (!b)
            return tsr_fail(err, TSR_E_CANCELLED, "ended by another rank");
        if (b->head.kind == TSR_RUNTIME_FRAME_STOP) {
            pass_stop(r, b);
            return TSR_OK;
        }
        TSR_TRY(b->head.kind == TSR_RUNTIME_FRAME_BACK ? finish(r, b, err) : handle(r, b, err));
    }
}
