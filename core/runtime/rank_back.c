/* A head on the first stage: the last one sends the hidden rows of the wanted tokens back to it. */
#include "base/mem.h"
#include "runtime/rank_internal.h"
#include "runtime/thread.h"

#include <string.h>

static void *hear(void *arg)
{
    struct tsr_rank  *r = arg;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (;;) {
        struct tsr_portion *b = tsr_new(1, sizeof *b);
        uint64_t            ready = tsr_now_ns();
        tsr_status          st = b ? tsr_edge_recv(&r->back.end, b, &r->plan->limits, &e.err)
                                   : tsr_fail_nomem(&e.err, sizeof *b, "a micro-batch");
        if (st != TSR_OK)
            tsr_rank_failed(r, st, e.text);
        if (st != TSR_OK || b->head.kind == TSR_FRAME_STOP) {
            tsr_portion_free(b);
            return NULL;
        }
        struct tsr_span span = { .number = b->head.number,
                                 .lane = b->head.lane,
                                 .decode = b->head.phase == TSR_DECODE,
                                 .start = b->head.sent_ns > ready ? b->head.sent_ns : ready,
                                 .end = tsr_now_ns() };
        tsr_spans_add(&r->page->link, &span);
        tsr_queue_put_ahead(r->work, b);
    }
}

tsr_status tsr_rank_hear(struct tsr_rank *r, struct tsr_err *err)
{
    if (!r->back.there)
        return TSR_OK;
    TSR_TRY(tsr_thread_start(&r->back.thread, hear, r, err));
    r->back.started = true;
    return TSR_OK;
}

void tsr_rank_pick(const struct tsr_rank *r, struct tsr_portion *b)
{
    uint64_t hidden = r->plan->limits.hidden;
    float   *to = b->rows;
    for (uint32_t i = 0; i < b->head.tokens; i++)
        if (b->token[i].logits) {
            memmove(to, b->rows + i * hidden, hidden * sizeof *to);
            to += hidden;
        }
}

tsr_status tsr_rank_head(struct tsr_rank *r, struct tsr_portion *b, struct tsr_err *err)
{
    TSR_TRY(tsr_portion_reserve(b, &r->plan->limits, false, true, err));
    return tsr_engine_head(r->engine, b->rows, b->head.wanted, b->logits, err);
}
