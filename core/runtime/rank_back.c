/* A head on the first stage: the last stage sends the hidden rows of the requested tokens back to it. */
#include "base/mem.h"
#include "runtime/rank_internal.h"
#include "runtime/thread.h"

#include <string.h>

static void *hear(void *arg)
{
    struct tsr_runtime_rank *r = arg;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    for (;;) {
        struct tsr_runtime_micro_batch *b = tsr_new(1, sizeof *b);
        uint64_t                        ready = tsr_runtime_now_ns();
        tsr_status st = b ? tsr_runtime_edge_recv(&r->back.end, b, &r->plan->limits, &e.err)
                          : tsr_fail_nomem(&e.err, sizeof *b, "a micro-batch");
        if (st != TSR_OK)
            tsr_runtime_rank_failed(r, st, &e.err);
        if (st != TSR_OK || b->head.kind == TSR_RUNTIME_FRAME_STOP) {
            tsr_runtime_micro_batch_free(b);
            return NULL;
        }
        struct tsr_runtime_span span = { .number = b->head.number,
                                         .slot_set = b->head.slot_set,
                                         .decode = b->head.phase == TSR_PLAN_DECODE,
                                         .start = b->head.sent_ns > ready ? b->head.sent_ns : ready,
                                         .end = tsr_runtime_now_ns() };
        tsr_runtime_spans_add(&r->page->link, &span);
        tsr_runtime_queue_put_ahead(r->work, b);
    }
}

tsr_status tsr_runtime_rank_hear(struct tsr_runtime_rank *r, struct tsr_err *err)
{
    if (!r->back.there)
        return TSR_OK;
    TSR_TRY(tsr_runtime_thread_start(&r->back.thread, hear, r, err));
    r->back.started = true;
    return TSR_OK;
}

void tsr_runtime_rank_pick(const struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b)
{
    uint64_t hidden = r->plan->limits.hidden;
    float   *to = b->rows;
    for (uint32_t i = 0; i < b->head.tokens; i++)
        if (b->token[i].logits) {
            memmove(to, b->rows + i * hidden, hidden * sizeof *to);
            to += hidden;
        }
}

tsr_status tsr_runtime_rank_head(struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b,
                                 struct tsr_err *err)
{
    TSR_TRY(tsr_runtime_micro_batch_reserve(b, &r->plan->limits, false, true, err));
    return tsr_engine_head(r->engine, b->rows, b->head.wanted, b->logits, err);
}
