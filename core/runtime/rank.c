/* A rank: receive, work, send. */
#include "runtime/rank_internal.h"

#include "base/mem.h"
#include "quant/quantize.h"
#include "runtime/emulate.h"
#include "runtime/peers.h"
#include "runtime/thread.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH 32u /* most micro-batches in a rank */

static void show(const struct tsr_runtime_rank *r, bool there)
{
    struct tsr_runtime_rank_handle *h = r->plan->handle;
    if (!r->plan->peers && !r->hooks) /* a separate process, or a thread like others */
        return;
    (void)pthread_mutex_lock(&h->lock);
    h->rank = there ? (struct tsr_runtime_rank *)(uintptr_t)r : NULL;
    (void)pthread_mutex_unlock(&h->lock);
}

/* ---- threads ------------------------------------------------------------- */

static void *receive(void *arg)
{
    struct tsr_runtime_rank *r = arg;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    bool                     between = r->place.stage > 0; /* stages */
    for (;;) {
        struct tsr_runtime_micro_batch *b = tsr_runtime_queue_take(&r->spare);
        uint64_t                        ready =
            tsr_runtime_now_ns(); /* earlier time was spent waiting for room, not for the link */
        if (!b)
            return NULL;
        tsr_status st = tsr_runtime_edge_recv(&r->in, b, &r->plan->limits, &e.err);
        if (st != TSR_OK) {
            tsr_runtime_micro_batch_free(b);
            tsr_runtime_rank_failed(r, st, &e.err);
            return NULL;
        }
        bool stop = b->head.kind == TSR_RUNTIME_FRAME_STOP;
        if (!stop && between && r->plan->pacing)
            tsr_runtime_edge_pause(
                tsr_runtime_pacing_code(r->plan->pacing, &r->place, r->in.edge, b, false));
        struct tsr_runtime_span span = { .number = b->head.number,
                                         .slot_set = b->head.slot_set,
                                         .decode = b->head.phase == TSR_PLAN_DECODE,
                                         .start = b->head.sent_ns > ready ? b->head.sent_ns : ready,
                                         .end = tsr_runtime_now_ns() };
        if (!stop && between)
            tsr_runtime_spans_add(&r->page->link, &span);
        tsr_runtime_queue_put(r->work, b);
        if (stop)
            return NULL;
    }
}

static void *send_all(void *arg)
{
    struct tsr_runtime_rank_sender *s = arg;
    struct tsr_runtime_rank        *r = s->rank;
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    for (bool stop = false; !stop;) {
        struct tsr_runtime_micro_batch *b = tsr_runtime_queue_take(&s->queue);
        tsr_status                      st = TSR_OK;
        if (!b)
            return NULL;
        stop = b->head.kind == TSR_RUNTIME_FRAME_STOP;
        for (uint32_t i = 0; i < s->n && st == TSR_OK; i++) {
            if (r->plan->pacing)
                s->end[i].encode_ms =
                    tsr_runtime_pacing_code(r->plan->pacing, &r->place, s->end[i].edge, b, true);
            st = tsr_runtime_edge_send(&s->end[i], b, &e.err);
        }
        if (s->back)
            tsr_runtime_queue_put(s->back, b);
        else
            tsr_runtime_micro_batch_free(b);
        if (st != TSR_OK) {
            tsr_runtime_rank_failed(r, st, &e.err);
            return NULL;
        }
    }
    return NULL;
}

static void note_memory(struct tsr_runtime_rank *r)
{
    struct tsr_runtime_rank_numbers *n = &r->page->numbers;
    struct tsr_engine_compensated    c;
    uint64_t                         weights, cache, now, peak, acts[3];
    tsr_engine_memory(r->engine, &weights, &cache);
    tsr_engine_compensation(r->engine, &c);
    tsr_engine_acts(r->engine, acts);
    tsr_plugin_registry_memory(r->registry, &now, &peak);
    atomic_store(&n->weights, weights);
    atomic_store(&n->cache, cache);
    atomic_store(&n->residuals, c.host_bytes);
    atomic_store(&n->linears, c.linears);
    atomic_store(&n->compensated, c.tokens);
    atomic_store(&n->selected, c.selected);
    for (int i = 0; i < 3; i++)
        atomic_store(&n->acts[i], acts[i]);
    atomic_store(&n->now, now);
    atomic_store(&n->peak, peak);
    if (r->plan->processes && r->place.rank > 0)
        atomic_store(&n->host_peak, tsr_quant_memory_peak());
}

/* ---- life ---------------------------------------------------------------- */

static tsr_status start_sender(struct tsr_runtime_rank_sender *s, struct tsr_err *err)
{
    if (s->n == 0)
        return TSR_OK;
    TSR_TRY(tsr_runtime_thread_start(&s->thread, send_all, s, err));
    s->started = true;
    return TSR_OK;
}

/* "cuda:device=1" and "cuda" are of one backend. */
static bool same_backend(const char *a, const char *b)
{
    size_t n = strcspn(a, ":");
    return n == strcspn(b, ":") && memcmp(a, b, n) == 0;
}

static const char *backend_of(const struct tsr_runtime_rank *r, uint32_t rank)
{
    const char *name = tsr_runtime_layout_backend(r->plan->layout, rank);
    name = name ? name : r->plan->on.backend;
    return name ? name : TSR_PLUGIN_DEFAULT_BACKEND;
}

/* A registry for this rank's backend, with its place among the ranks of this machine that have the same. */
static tsr_status settle(struct tsr_runtime_rank *r, struct tsr_err *err)
{
    const struct tsr_runtime_peers *m = r->plan->peers;
    const char                     *own = backend_of(r, r->place.rank);
    uint32_t                        before = 0, all = 0;
    for (uint32_t i = 0; i < tsr_runtime_layout_ranks(r->plan->layout); i++) {
        bool near = (!m || tsr_runtime_peers_is_here(m, i)) && same_backend(own, backend_of(r, i));
        all += near;
        before += near && i < r->place.rank;
    }
    r->on = r->plan->on;
    if (tsr_runtime_layout_backend(r->plan->layout,
                                   r->place.rank)) /* also for the quantizers' products */
        r->on = (struct tsr_plugin_run_on){ .backend = own,
                                            .cpu_experts = r->plan->on.cpu_experts,
                                            .numerics = r->plan->on.numerics };
    if (r->plan->layout->stages[r->place.stage].cpu_experts)
        r->on.cpu_experts_of = r->plan->layout->cpu_experts;
    TSR_TRY(tsr_plugin_registry_like(&r->registry, r->plan->registry, r->pool, &r->on, err));
    tsr_plugin_registry_set_here(r->registry, before, all);
    return TSR_OK;
}

static tsr_status start(struct tsr_runtime_rank *r, struct tsr_err *err)
{
    uint64_t t0 = tsr_runtime_now_ns();
    atomic_store(&r->page->progress.pid, (int32_t)getpid());
    tsr_runtime_progress_clock(&r->page->progress, TSR_RUNTIME_RANK_OWN, true);
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_STARTS, 0);
    TSR_TRY(tsr_pool_create(&r->pool, r->plan->threads, err));
    TSR_TRY(settle(r, err));
    TSR_TRY(tsr_runtime_rank_open_edges(r, err));
    if (r->plan->layout->stages[r->place.stage].ranks > 1)
        TSR_TRY(tsr_runtime_rank_join(r, err));
    /* all in circulation, one at work and one being sent: a link does not wait for a slow stage */
    uint32_t depth = tsr_runtime_layout_slot_sets(r->plan->layout) / r->plan->layout->replicas + 2;
    depth = depth < DEPTH ? depth : DEPTH;
    TSR_TRY(tsr_runtime_rank_open_engine(r, err));
    for (uint32_t i = 0; r->has_in && i < depth; i++) {
        struct tsr_runtime_micro_batch *b = tsr_new(1, sizeof *b);
        if (!b)
            return tsr_fail_nomem(err, sizeof *b, "micro-batches");
        tsr_runtime_queue_put(&r->spare, b);
    }
    r->next.back = r->has_in ? &r->spare : NULL;
    TSR_TRY(start_sender(&r->next, err));
    TSR_TRY(start_sender(&r->fan, err));
    TSR_TRY(start_sender(&r->answer, err));
    TSR_TRY(tsr_runtime_rank_hear(r, err));
    if (r->has_in) {
        TSR_TRY(tsr_runtime_thread_start(&r->receiver, receive, r, err));
        r->receiving = true;
    }
    atomic_store(&r->page->numbers.load_ns, tsr_runtime_now_ns() - t0);
    note_memory(r);
    atomic_fetch_add(&r->plan->page->ready, 1);
    return TSR_OK;
}

static uint64_t passed(const struct tsr_runtime_rank_sender *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += s->end[i].rows ? tsr_comm_link_sent(s->end[i].rows) : 0;
    return n;
}

static void note_sums(struct tsr_runtime_rank *r)
{
    struct tsr_runtime_rank_numbers *n = &r->page->numbers;
    struct tsr_comm_counters         c = { .sums = 0 };
    if (r->group)
        tsr_comm_group_counters(r->group, &c);
    atomic_store(&n->sums, c.sums);
    atomic_store(&n->declared, c.declared);
    atomic_store(&n->sent, c.sent);
    atomic_store(&n->encode_ns, c.encode_ns);
    atomic_store(&n->decode_ns, c.decode_ns);
    atomic_store(&n->wait_ns, c.wait_ns);
    atomic_store(&n->passed, passed(&r->next) + passed(&r->answer));
}

static void end(struct tsr_runtime_rank *r)
{
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_ENDS, 0);
    if (r->receiving)
        (void)pthread_join(r->receiver, NULL);
    if (r->back.started)
        (void)pthread_join(r->back.thread, NULL);
    if (r->next.started)
        (void)pthread_join(r->next.thread, NULL);
    if (r->answer.started)
        (void)pthread_join(r->answer.thread, NULL);
    if (r->fan.started)
        (void)pthread_join(r->fan.thread, NULL);
    if (r->engine)
        note_memory(r);
    note_sums(r);
    tsr_comm_group_destroy(r->group);
    tsr_runtime_edge_close(&r->in);
    tsr_runtime_edge_close(&r->back.end);
    for (uint32_t i = 0; i < TSR_RANK_FANS; i++) {
        tsr_runtime_edge_close(&r->answer.end[i]);
        tsr_runtime_edge_close(&r->next.end[i]);
        tsr_runtime_edge_close(&r->fan.end[i]);
    }
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_ENDS, 0);
    tsr_engine_destroy(r->engine);
    tsr_runtime_loader_close(r->loader);
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_ENDS, 0);
    tsr_plugin_registry_destroy(r->registry);
    tsr_pool_destroy(r->pool);
    tsr_runtime_queue_free(&r->queue);
    tsr_runtime_queue_free(&r->spare);
    tsr_runtime_queue_free(&r->next.queue);
    tsr_runtime_queue_free(&r->fan.queue);
    tsr_runtime_queue_free(&r->answer.queue);
    tsr_runtime_progress_clock(&r->page->progress, TSR_RUNTIME_RANK_OWN, false);
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_ENDED, 0);
}

tsr_status tsr_runtime_rank_run(const struct tsr_runtime_group_plan *plan, uint32_t rank,
                                const struct tsr_runtime_rank_hooks *hooks, struct tsr_err *err)
{
    struct tsr_runtime_rank *r = tsr_new(1, sizeof *r);
    if (!r) {
        (void)tsr_fail_nomem(err, sizeof *r, "a rank");
        tsr_runtime_page_fail_by(plan->page, rank, TSR_E_NOMEM, err);
        atomic_store(&plan->handle->over, 1);
        return TSR_E_NOMEM;
    }
    r->plan = plan;
    r->hooks = hooks;
    r->place = tsr_runtime_layout_place(plan->layout, rank);
    r->page = &plan->page->rank[rank];
    r->err.err = (struct tsr_err){ .struct_size = sizeof r->err.err,
                                   .cap = sizeof r->err.text,
                                   .text = r->err.text };
    r->next.rank = r->fan.rank = r->answer.rank = r;
    tsr_runtime_queue_init(&r->queue);
    tsr_runtime_queue_init(&r->spare);
    tsr_runtime_queue_init(&r->next.queue);
    tsr_runtime_queue_init(&r->fan.queue);
    tsr_runtime_queue_init(&r->answer.queue);
    r->work = hooks ? hooks->work : &r->queue;
    tsr_status st = start(r, &r->err.err);
    show(r, true);
    if (st == TSR_OK)
        st = tsr_runtime_rank_work(r, &r->err.err);
    if (st != TSR_OK) {
        tsr_runtime_rank_failed(r, st, &r->err.err);
        (void)tsr_err_copy(err, st, &r->err.err);
    }
    show(r, false);
    end(r);
    free(r);
    atomic_store(&plan->handle->over, 1);
    return st;
}
