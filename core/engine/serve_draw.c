/* serve_draw.c - the next tokens of several requests, drawn by several threads: each is a function of its request alone. */
#include "base/mem.h"
#include "engine/sampler.h"
#include "engine/serve_internal.h"

#include <stdatomic.h>
#include <stdlib.h>

static uint64_t scratch_bytes(const struct tsr_engine_pass *p)
{
    return (p->vocab * TSR_ENGINE_DRAW_BYTES + 63) / 64 * 64;
}

tsr_status tsr_engine_serve_draw_make(struct tsr_server *s, struct tsr_err *err)
{
    const struct tsr_engine_pass *p = &s->pass;
    unsigned                      n = tsr_pool_threads(p->pool);
    n = n > p->slots ? p->slots : n;
    s->drawers = n > TSR_ENGINE_DRAWERS ? TSR_ENGINE_DRAWERS : n;
    s->scratch = tsr_new_aligned(s->drawers, scratch_bytes(p));
    return s->scratch ? TSR_OK
                      : tsr_fail_nomem(err, s->drawers * scratch_bytes(p), "the draws of a server");
}

struct draws {
    struct tsr_server          *s;
    struct tsr_engine_slot_set *l;
    _Atomic uint64_t            next; /* row */
};

/* Rows until none is left, in scratch of its own.  A draw that fails is left to who takes the row, and fails there again. */
static tsr_status draw_rows(void *arg, uint64_t begin, uint64_t end)
{
    struct draws                 *d = arg;
    const struct tsr_engine_pass *p = &d->s->pass;
    unsigned char *scratch = (unsigned char *)d->s->scratch + begin * scratch_bytes(p);
    (void)end;
    for (uint64_t row; (row = atomic_fetch_add(&d->next, 1)) < d->l->wanted;) {
        struct tsr_errbuf             e = TSR_ERRBUF(e);
        struct tsr_engine_serve_slot *q = &d->s->slots[d->l->batch[row].slot];
        uint32_t                      id;
        if (!tsr_engine_slot_scores(q, q->fed) &&
            tsr_engine_chain_next(&q->chain, d->l->logits + row * p->vocab, p->vocab,
                                  &q->q.sampling, q->ids.v, q->q.n_prompt, q->ids.n, q->q.record,
                                  scratch, &id, &e.err) == TSR_OK)
            d->l->drawn[row] = id;
    }
    return TSR_OK;
}

void tsr_engine_serve_draw(struct tsr_server *s, struct tsr_engine_slot_set *l)
{
    struct draws d = { .s = s, .l = l };
    for (uint64_t row = 0; row < l->wanted; row++)
        l->drawn[row] = TSR_SAMPLER_NONE;
    /* a row of each request: those behind a draft depend on what comes of the row before */
    if (s->drawers < 2 || l->is_best || l->drafts || l->wanted < 2 || l->wanted != l->n)
        return;
    (void)tsr_pool_for(s->pass.pool, s->drawers, 1, draw_rows, &d); /* no row fails there */
}
