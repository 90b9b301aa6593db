/* A rank: receive, work, send. */
#include "runtime/rank.h"

#include "base/mem.h"
#include "plan/device.h"
#include "quant/quantize.h"
#include "runtime/emulate.h"
#include "runtime/mates.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEPTH   32u /* most micro-batches in a rank */
#define FANS    8u  /* ranks of a stage */
#define BEAT_US UINT64_C(500000)
#define FORWARD 512u /* tokens of an engine's forward where the layout leaves it open */

/* Sends what is in a queue over some edges, on a thread of its own. */
struct sender {
    struct tsr_rank    *rank;
    struct tsr_queue    queue;
    struct tsr_edge_end end[FANS];
    uint32_t            n;
    struct tsr_queue   *back; /* where batches go afterwards; NULL: they are freed */
    pthread_t           thread;
    bool                started;
};

struct tsr_rank {
    const struct tsr_crew_plan  *plan;
    const struct tsr_rank_hooks *hooks;
    struct tsr_place             place;
    struct tsr_page_rank        *page;
    struct tsr_pool             *pool;
    struct tsr_registry         *registry;
    struct tsr_engine           *engine;
    struct tsr_loader           *loader; /* packs while it loads; or NULL */
    struct tsr_comm_group       *group;
    struct tsr_edge_end          in;
    bool                         has_in, receiving, sound; /* sound: queues are there */
    struct tsr_queue             queue, spare;             /* of its own work; empty batches */
    struct tsr_queue            *work;
    struct sender                next, fan;
    pthread_t                    receiver;
    uint32_t                     phase;     /* of the micro-batch at work, for the sums */
    uint64_t                     summed_ns; /* that its sums took */
    uint64_t                     began_ns, sums, all_sums; /* paced: of it, so far and in all */
    double                       paced_ms;                 /* that it takes beside its sums */
    struct tsr_errbuf            err;
};

/* ---- failing ------------------------------------------------------------- */

/* Nobody waits for this rank any more. */
static void give_up(struct tsr_rank *r)
{
    tsr_queue_close(r->work);
    tsr_queue_close(&r->spare);
    tsr_queue_close(&r->next.queue);
    tsr_queue_close(&r->fan.queue);
    tsr_edge_abort(&r->in);
    for (uint32_t i = 0; i < FANS; i++) {
        tsr_edge_abort(&r->next.end[i]);
        tsr_edge_abort(&r->fan.end[i]);
    }
    if (r->group)
        tsr_comm_group_abort(r->group);
}

/* A rank that was cancelled is not the one that failed. */
static void failed(struct tsr_rank *r, tsr_status st, const char *text)
{
    if (st != TSR_E_CANCELLED || (tsr_cancelled() && !r->plan->mates))
        tsr_page_fail(r->plan->page, r->place.rank, st, text);
    give_up(r);
}

void tsr_rank_abort(struct tsr_rank_handle *h)
{
    (void)pthread_mutex_lock(&h->lock);
    if (h->rank)
        give_up(h->rank);
    (void)pthread_mutex_unlock(&h->lock);
}

static void show(const struct tsr_rank *r, bool there)
{
    struct tsr_rank_handle *h = r->plan->handle;
    if (!r->plan->mates && !r->hooks) /* a process of its own, or a thread like others */
        return;
    (void)pthread_mutex_lock(&h->lock);
    h->rank = there ? (struct tsr_rank *)(uintptr_t)r : NULL;
    (void)pthread_mutex_unlock(&h->lock);
}

/* ---- threads ------------------------------------------------------------- */

static void *receive(void *arg)
{
    struct tsr_rank  *r = arg;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    bool              between = r->place.stage > 0; /* stages */
    for (;;) {
        struct tsr_portion *b = tsr_queue_take(&r->spare);
        uint64_t ready = tsr_now_ns(); /* what came before waited for a place, not for the link */
        if (!b)
            return NULL;
        tsr_status st = tsr_edge_recv(&r->in, b, &r->plan->limits, &e.err);
        if (st != TSR_OK) {
            tsr_portion_free(b);
            failed(r, st, e.text);
            return NULL;
        }
        bool            stop = b->head.kind == TSR_FRAME_STOP;
        struct tsr_span span = { .number = b->head.number,
                                 .lane = b->head.lane,
                                 .decode = b->head.phase == TSR_DECODE,
                                 .start = b->head.sent_ns > ready ? b->head.sent_ns : ready,
                                 .end = tsr_now_ns() };
        if (!stop && between)
            tsr_spans_add(&r->page->link, &span);
        tsr_queue_put(r->work, b);
        if (stop)
            return NULL;
    }
}

static void *send_all(void *arg)
{
    struct sender    *s = arg;
    struct tsr_rank  *r = s->rank;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (bool stop = false; !stop;) {
        struct tsr_portion *b = tsr_queue_take(&s->queue);
        tsr_status          st = TSR_OK;
        if (!b)
            return NULL;
        stop = b->head.kind == TSR_FRAME_STOP;
        for (uint32_t i = 0; i < s->n && st == TSR_OK; i++)
            st = tsr_edge_send(&s->end[i], b, &e.err);
        if (s->back)
            tsr_queue_put(s->back, b);
        else
            tsr_portion_free(b);
        if (st != TSR_OK) {
            failed(r, st, e.text);
            return NULL;
        }
    }
    return NULL;
}

/* ---- work ---------------------------------------------------------------- */

static tsr_status sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                      struct tsr_err *err)
{
    struct tsr_rank *r = ctx;
    if (r->paced_ms > 0 && ++r->sums < r->all_sums) /* layers alike, halves of them too */
        tsr_pacing_mark(r->began_ns + r->summed_ns,
                        r->paced_ms * (double)r->sums / (double)r->all_sums, r->page);
    uint64_t t0 = tsr_now_ns();
    tsr_progress_beat(&r->page->progress, TSR_RANK_SUMS, site);
    TSR_TRY(tsr_comm_group_sum(r->group, r->phase, site, x, rows, cols, err));
    r->summed_ns += tsr_now_ns() - t0;
    tsr_progress_beat(&r->page->progress, TSR_RANK_WORKS, site / 2);
    return TSR_OK;
}

/* On the device, where that can be; one whose time is played by another's goes through the host. */
static tsr_status sum_on(void *ctx, uint32_t site, const struct tsr_backend_v1 *backend, void *self,
                         const struct tsr_tensor *x, bool *done, struct tsr_err *err)
{
    struct tsr_rank *r = ctx;
    uint64_t         t0 = tsr_now_ns();
    *done = false;
    if (r->plan->pacing)
        return TSR_OK;
    tsr_progress_beat(&r->page->progress, TSR_RANK_SUMS, site);
    TSR_TRY(tsr_comm_group_sum_on(r->group, r->phase, site, backend, self, x, done, err));
    r->summed_ns += tsr_now_ns() - t0;
    tsr_progress_beat(&r->page->progress, TSR_RANK_WORKS, site / 2);
    return TSR_OK;
}

/* The embedding is the first rank's: the others of its stage get the rows. */
static tsr_status share_rows(struct tsr_rank *r, struct tsr_portion *b, struct tsr_err *err)
{
    struct tsr_portion *copy = tsr_new(1, sizeof *copy);
    if (!copy)
        return tsr_fail_nomem(err, sizeof *copy, "a micro-batch");
    tsr_status st = tsr_engine_embed(r->engine, b->token, b->head.tokens, b->rows, err);
    if (st == TSR_OK)
        st = tsr_portion_copy(copy, b, &r->plan->limits, err);
    if (st == TSR_OK)
        st = tsr_portion_reserve(copy, &r->plan->limits, true, false, err);
    if (st != TSR_OK) {
        tsr_portion_free(copy);
        return st;
    }
    copy->cols = r->plan->limits.hidden;
    memcpy(copy->rows, b->rows, b->head.tokens * copy->cols * sizeof *copy->rows);
    tsr_queue_put(&r->fan.queue, copy);
    return TSR_OK;
}

static bool last_stage(const struct tsr_rank *r)
{
    return r->place.stage + 1 == r->plan->layout->n_stages;
}

static tsr_status compute(struct tsr_rank *r, struct tsr_portion *b, struct tsr_err *err)
{
    const struct tsr_place *p = &r->place;
    bool                    last = last_stage(r), shared = p->embed && r->fan.n > 0;
    const float            *in = NULL;
    for (uint32_t i = 0; i < b->head.resets; i++)
        tsr_engine_reset(r->engine, b->reset[i]);
    if (!p->embed)
        in = b->rows;
    else if (!last || shared)
        TSR_TRY(tsr_portion_reserve(b, &r->plan->limits, true, p->head, err));
    if (p->head)
        TSR_TRY(tsr_portion_reserve(b, &r->plan->limits, in || shared, true, err));
    if (shared) {
        TSR_TRY(share_rows(r, b, err));
        in = b->rows;
    }
    r->phase = b->head.phase;
    b->head.site = (uint32_t)(2 * p->end - 1);
    b->cols = r->plan->limits.hidden;
    return tsr_engine_stage(r->engine, b->token, b->head.tokens, in, last ? NULL : b->rows,
                            p->head && b->head.wanted ? b->logits : NULL, err);
}

/* The logits of a micro-batch, or why there are none, to the coordinator. */
static void give_result(struct tsr_rank *r, struct tsr_portion *b, tsr_status st, const char *why)
{
    float   *rows = b->rows;
    uint64_t cap = b->cap_rows;
    b->head.kind = TSR_FRAME_RESULT;
    b->head.status = st;
    b->head.resets = 0;
    if (st != TSR_OK)
        (void)snprintf(b->text, sizeof b->text, "%.*s", (int)sizeof b->text - 1, why);
    b->rows = b->logits;
    b->cap_rows = b->cap_logits;
    b->logits = rows;
    b->cap_logits = cap;
    b->cols = r->plan->limits.vocab;
    if (r->next.n)
        tsr_queue_put(&r->next.queue, b);
    else
        r->hooks->deliver(r->hooks->ctx, b);
}

static void recycle(struct tsr_rank *r, struct tsr_portion *b)
{
    if (r->has_in)
        tsr_queue_put(&r->spare, b);
    else
        tsr_portion_free(b);
}

/* Sums that a micro-batch takes: two of each layer, for each forward. */
static uint64_t sums_of(const struct tsr_rank *r, uint64_t tokens)
{
    uint64_t chunk = r->plan->layout->forward ? r->plan->layout->forward : tokens;
    return chunk ? 2 * (r->place.end - r->place.first) * ((tokens + chunk - 1) / chunk) : 0;
}

/* One micro-batch, and its way on. */
static tsr_status handle(struct tsr_rank *r, struct tsr_portion *b, struct tsr_err *err)
{
    struct tsr_progress *progress = &r->page->progress;
    struct tsr_span      span = { .number = b->head.number,
                                  .lane = b->head.lane,
                                  .decode = b->head.phase == TSR_DECODE,
                                  .start = tsr_now_ns() };
    double               ms = 0;
    r->summed_ns = 0;
    atomic_fetch_add(&progress->step, 1);
    tsr_progress_beat(progress, TSR_RANK_WORKS, (uint32_t)r->place.first);
    tsr_status st = TSR_OK;
    if (r->plan->pacing)
        st = tsr_pacing_time(r->plan->pacing, &r->place, r->engine, b, &ms, err);
    r->began_ns = span.start;
    r->paced_ms = ms;
    r->sums = 0;
    r->all_sums = sums_of(r, b->head.tokens) + 1; /* behind the last one is the end */
    if (st == TSR_OK)
        st = compute(r, b, err);
    if (st == TSR_OK && r->plan->pacing)
        tsr_pacing_wait(span.start + r->summed_ns, ms, r->page);
    span.end = tsr_now_ns();
    tsr_spans_add(&r->page->work, &span);
    atomic_fetch_add(&r->page->numbers.batches, 1);
    if (last_stage(r)) {
        bool answer = r->place.head && b->head.wanted;
        if (answer && (st == TSR_OK || st == TSR_E_NUMERIC)) {
            give_result(r, b, st, st == TSR_OK ? "" : r->err.text);
            return TSR_OK;
        }
        recycle(r, b);
        return st;
    }
    if (st == TSR_OK && r->next.n)
        tsr_queue_put(&r->next.queue, b);
    else /* a narrower stage behind this one hears from other ranks */
        recycle(r, b);
    return st;
}

/* Hands the end on. */
static void pass_stop(struct tsr_rank *r, struct tsr_portion *b)
{
    if (r->fan.n) {
        struct tsr_portion *copy = tsr_new(1, sizeof *copy);
        if (copy) {
            copy->head = b->head;
            tsr_queue_put(&r->fan.queue, copy);
        } else {
            failed(r, TSR_E_NOMEM, "out of memory at the end");
        }
    }
    if (r->next.n) /* behind the last stage, to the coordinator's receiver */
        tsr_queue_put(&r->next.queue, b);
    else
        recycle(r, b);
}

static void note_memory(struct tsr_rank *r)
{
    struct tsr_rank_numbers      *n = &r->page->numbers;
    struct tsr_engine_compensated c;
    uint64_t                      weights, cache, now, peak;
    tsr_engine_memory(r->engine, &weights, &cache);
    tsr_engine_compensation(r->engine, &c);
    tsr_registry_memory(r->registry, &now, &peak);
    atomic_store(&n->weights, weights);
    atomic_store(&n->cache, cache);
    atomic_store(&n->residuals, c.host_bytes);
    atomic_store(&n->linears, c.linears);
    atomic_store(&n->compensated, c.tokens);
    atomic_store(&n->selected, c.selected);
    atomic_store(&n->now, now);
    atomic_store(&n->peak, peak);
    if (r->plan->processes && r->place.rank > 0)
        atomic_store(&n->host_peak, tsr_memory_peak());
}

static tsr_status work(struct tsr_rank *r, struct tsr_err *err)
{
    for (;;) {
        tsr_progress_beat(&r->page->progress, TSR_RANK_IDLE, 0);
        struct tsr_portion *b = NULL;
        while (tsr_queue_take_for(r->work, BEAT_US, &b) && !b) {
            tsr_progress_beat(&r->page->progress, TSR_RANK_IDLE, 0); /* who waits is not stalled */
            if (tsr_page_failed(r->plan->page))
                break;
        }
        if (!b)
            return tsr_fail(err, TSR_E_CANCELLED, "ended by another rank");
        if (b->head.kind == TSR_FRAME_STOP) {
            pass_stop(r, b);
            return TSR_OK;
        }
        TSR_TRY(handle(r, b, err));
    }
}

/* ---- life ---------------------------------------------------------------- */

static tsr_status open_edges(struct tsr_rank *r, struct tsr_err *err)
{
    const struct tsr_crew_plan *p = r->plan;
    for (uint32_t i = 0; i < p->n_edges; i++) {
        const struct tsr_edge *e = &p->edges[i];
        bool                   here = e->kind != TSR_EDGE_TOKENS;
        if (e->to == r->place.rank && e->kind != TSR_EDGE_RESULT) {
            TSR_TRY(tsr_edge_open(&r->in, e, false, p->deadline_us, r->registry, err));
            r->has_in = true;
        }
        if (e->from == r->place.rank && here) {
            bool fan = e->kind == TSR_EDGE_ROWS &&
                       tsr_layout_place(p->layout, e->to).stage == r->place.stage;
            struct sender *s = fan ? &r->fan : &r->next;
            TSR_TRY(tsr_edge_open(&s->end[s->n++], e, true, p->deadline_us, r->registry, err));
        }
    }
    return TSR_OK;
}

static enum tsr_comm_algorithm algorithm_of(const struct tsr_layout_stage *s, int phase,
                                            tsr_status *st, struct tsr_err *err)
{
    enum tsr_comm_algorithm a = TSR_COMM_ALL_GATHER;
    if (s->algorithm[phase] ? strcmp(s->algorithm[phase], "auto") == 0
                            : tsr_comm_is_auto(s->collective[phase]))
        return TSR_COMM_AUTO;
    if (s->algorithm[phase] && *st == TSR_OK)
        *st = tsr_comm_algorithm_find(&a, s->algorithm[phase], err);
    return a;
}

static struct tsr_page_choice *choice_of(const struct tsr_rank *r, int phase)
{
    return &r->plan->page->choice[TSR_PHASES * r->place.stage + (uint32_t)phase];
}

/* What is left open is measured by the first replica; the others go by what it found, or the answers
 * would depend on the replica. */
static tsr_status hear_choice(const struct tsr_rank *r, int phase, struct tsr_comm_way *way,
                              struct tsr_err *err)
{
    const struct tsr_page_choice *c = choice_of(r, phase);
    while (!atomic_load(&c->fixed)) {
        if (tsr_page_failed(r->plan->page))
            return tsr_fail(err, TSR_E_CANCELLED, "ended by another rank");
        if (tsr_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        tsr_progress_beat(&r->page->progress, TSR_RANK_STARTS, 0);
        (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    way->codec = c->codec;
    way->algorithm = (enum tsr_comm_algorithm)c->algorithm;
    return TSR_OK;
}

/* Measures, and tells the others. */
static tsr_status make_choice(struct tsr_rank *r, int phase, struct tsr_err *err)
{
    const struct tsr_layout *l = r->plan->layout;
    struct tsr_page_choice  *c = choice_of(r, phase);
    uint64_t rows = phase == TSR_PREFILL ? l->forward ? l->forward : FORWARD : l->decode_mb;
    TSR_TRY(tsr_comm_group_tune(r->group, (uint32_t)phase, rows, r->plan->limits.hidden, err));
    const char *codec = tsr_comm_group_codec(r->group, (uint32_t)phase);
    if (strlen(codec) >= sizeof c->codec)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "codec auto: '%.200s' has more than %zu letters",
                        codec, sizeof c->codec - 1);
    if (r->place.tp == 0) {
        (void)snprintf(c->codec, sizeof c->codec, "%s", codec);
        c->algorithm = tsr_comm_group_algorithm(r->group, (uint32_t)phase);
        atomic_store(&c->fixed, 1);
    }
    return TSR_OK;
}

static tsr_status join_group(struct tsr_rank *r, struct tsr_err *err)
{
    const struct tsr_crew_plan    *p = r->plan;
    const struct tsr_layout_stage *s = &p->layout->stages[r->place.stage];
    uint32_t                       at = r->place.replica * p->layout->n_stages + r->place.stage;
    const struct tsr_comm_world   *w = &p->groups[at];
    tsr_status                     st = TSR_OK;
    bool                           open[TSR_COMM_PHASES];
    struct tsr_comm_options        o = {
               .place = { .transport = p->mates             ? p->group_over[at]
                                       : s->collective_over ? s->collective_over
                                                            : p->transport,
                          .rank = r->place.tp,
                          .ranks = s->ranks,
                          .shared = w->shared,
                          .shared_bytes = w->bytes,
                          .epoch = p->epoch },
               .deadline_us = p->deadline_us,
    };
    for (int k = 0; k < TSR_COMM_PHASES; k++) {
        o.way[k] = (struct tsr_comm_way){ .codec = s->collective[k],
                                          .algorithm = algorithm_of(s, k, &st, err),
                                          .states = s->states[k],
                                          .n_states = s->n_states[k],
                                          .rows_alone = true };
        open[k] = tsr_layout_open(p->layout, r->place.stage, k);
        if (st == TSR_OK && open[k] && r->place.replica > 0)
            st = hear_choice(r, k, &o.way[k], err);
    }
    if (st == TSR_OK)
        st = tsr_comm_group_create(&r->group, r->registry, &o, err);
    for (int k = 0; k < TSR_COMM_PHASES; k++)
        if (st == TSR_OK && open[k] && r->place.replica == 0)
            st = make_choice(r, k, err);
    return st;
}

static void on_layer(void *ctx, uint64_t layer, bool load)
{
    struct tsr_rank *r = ctx;
    tsr_progress_beat(&r->page->progress, load ? TSR_RANK_LOADS : TSR_RANK_WORKS, (uint32_t)layer);
}

/* Whether any input of the rank's layers is compensated. */
static bool compensates(const struct tsr_rank *r)
{
    const struct tsr_engine_compensate *c = r->plan->compensate;
    bool                                any = c && !c->k && c->each > 0;
    for (uint64_t l = r->place.first; c && c->k && l < r->place.end; l++)
        for (int s = 0; s < TSR_SITES; s++)
            any = any || c->k[l][s] > 0;
    return any;
}

static tsr_status load(struct tsr_rank *r, struct tsr_engine_options *o, struct tsr_err *err)
{
    const struct tsr_crew_plan *p = r->plan;
    struct tsr_rank_numbers    *n = &r->page->numbers;
    struct tsr_loader_numbers   took;
    if (!p->scheme)
        return tsr_engine_create(&r->engine, r->registry, p->model, p->overlay, o, err);
    TSR_TRY(tsr_loader_open(&r->loader, p->scheme, r->registry, p->model, o->first, o->end,
                            r->place.head, err));
    o->source = tsr_loader_source(r->loader);
    TSR_TRY(tsr_engine_create(&r->engine, r->registry, p->model, tsr_loader_overlay(r->loader), o,
                              err));
    tsr_loader_numbers(r->loader, &took);
    atomic_store(&n->load_peak, took.total);
    atomic_store(&n->load_layer, took.layer);
    atomic_store(&n->read_ns, (uint64_t)(took.read_s * 1e9));
    atomic_store(&n->quantize_ns, (uint64_t)(took.quantize_s * 1e9));
    atomic_store(&n->place_ns, (uint64_t)(took.place_s * 1e9));
    return TSR_OK;
}

static tsr_status open_engine(struct tsr_rank *r, struct tsr_err *err)
{
    const struct tsr_crew_plan *p = r->plan;
    struct tsr_engine_tp        tp = { .rank = r->place.tp,
                                       .ranks = p->layout->stages[r->place.stage].ranks,
                                       .sum = sum,
                                       .sum_on = sum_on,
                                       .ctx = r };
    struct tsr_engine_options   o = { .backend = p->backend,
                                      .act = p->act,
                                      .kv_dtype = p->kv_dtype,
                                      .slots = tsr_layout_engine_slots(p->layout),
                                      .context = p->context,
                                      .chunk = p->layout->forward,
                                      .first = r->place.first,
                                      .end = r->place.end,
                                      .no_embed = !r->place.embed,
                                      .no_head = !r->place.head,
                                      .tp = &tp,
                                      .compensate = compensates(r) ? p->compensate : NULL,
                                      .release = true,
                                      .on_layer = on_layer,
                                      .layer_ctx = r };
    tsr_progress_beat(&r->page->progress, TSR_RANK_LOADS, (uint32_t)r->place.first);
    if (p->pacing)
        tsr_registry_set_limit(r->registry, tsr_pacing_limit(p->pacing, &r->place));
    if (p->loading)
        (void)pthread_mutex_lock(p->loading);
    tsr_status st = load(r, &o, err);
    if (p->loading)
        (void)pthread_mutex_unlock(p->loading);
    return st;
}

static tsr_status start_thread(pthread_t *id, void *(*f)(void *), void *arg, struct tsr_err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(id, NULL, f, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0 ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "cannot start a thread of a rank");
}

static tsr_status start_sender(struct sender *s, struct tsr_err *err)
{
    if (s->n == 0)
        return TSR_OK;
    TSR_TRY(start_thread(&s->thread, send_all, s, err));
    s->started = true;
    return TSR_OK;
}

static tsr_status start(struct tsr_rank *r, struct tsr_err *err)
{
    uint64_t t0 = tsr_now_ns();
    atomic_store(&r->page->progress.pid, (int32_t)getpid());
    tsr_progress_beat(&r->page->progress, TSR_RANK_STARTS, 0);
    TSR_TRY(tsr_pool_create(&r->pool, r->plan->threads, err));
    TSR_TRY(tsr_registry_like(&r->registry, r->plan->registry, r->pool, err));
    if (r->plan->mates)
        tsr_registry_set_here(r->registry, tsr_mates_before(r->plan->mates),
                              tsr_mates_here(r->plan->mates));
    else
        tsr_registry_set_here(r->registry, r->place.rank, tsr_layout_ranks(r->plan->layout));
    TSR_TRY(open_edges(r, err));
    if (r->plan->layout->stages[r->place.stage].ranks > 1)
        TSR_TRY(join_group(r, err));
    /* all that go round, one at work and one being sent: a link does not wait for a slow stage */
    uint32_t depth = tsr_layout_lanes(r->plan->layout) / r->plan->layout->replicas + 2;
    depth = depth < DEPTH ? depth : DEPTH;
    TSR_TRY(open_engine(r, err));
    for (uint32_t i = 0; r->has_in && i < depth; i++) {
        struct tsr_portion *b = tsr_new(1, sizeof *b);
        if (!b)
            return tsr_fail_nomem(err, sizeof *b, "micro-batches");
        tsr_queue_put(&r->spare, b);
    }
    r->next.back = r->has_in ? &r->spare : NULL;
    TSR_TRY(start_sender(&r->next, err));
    TSR_TRY(start_sender(&r->fan, err));
    if (r->has_in) {
        TSR_TRY(start_thread(&r->receiver, receive, r, err));
        r->receiving = true;
    }
    atomic_store(&r->page->numbers.load_ns, tsr_now_ns() - t0);
    note_memory(r);
    atomic_fetch_add(&r->plan->page->ready, 1);
    return TSR_OK;
}

static void note_sums(struct tsr_rank *r)
{
    struct tsr_rank_numbers *n = &r->page->numbers;
    struct tsr_comm_counters c = { .sums = 0 };
    if (r->group)
        tsr_comm_group_counters(r->group, &c);
    atomic_store(&n->sums, c.sums);
    atomic_store(&n->declared, c.declared);
    atomic_store(&n->sent, c.sent);
    atomic_store(&n->encode_ns, c.encode_ns);
    atomic_store(&n->decode_ns, c.decode_ns);
    atomic_store(&n->wait_ns, c.wait_ns);
}

static void end(struct tsr_rank *r)
{
    if (r->receiving)
        (void)pthread_join(r->receiver, NULL);
    if (r->next.started)
        (void)pthread_join(r->next.thread, NULL);
    if (r->fan.started)
        (void)pthread_join(r->fan.thread, NULL);
    if (r->engine)
        note_memory(r);
    note_sums(r);
    tsr_comm_group_destroy(r->group);
    tsr_edge_close(&r->in);
    for (uint32_t i = 0; i < FANS; i++) {
        tsr_edge_close(&r->next.end[i]);
        tsr_edge_close(&r->fan.end[i]);
    }
    tsr_engine_destroy(r->engine);
    tsr_loader_close(r->loader);
    tsr_registry_destroy(r->registry);
    tsr_pool_destroy(r->pool);
    tsr_queue_free(&r->queue);
    tsr_queue_free(&r->spare);
    tsr_queue_free(&r->next.queue);
    tsr_queue_free(&r->fan.queue);
    tsr_progress_beat(&r->page->progress, TSR_RANK_ENDED, 0);
}

tsr_status tsr_rank_run(const struct tsr_crew_plan *plan, uint32_t rank,
                        const struct tsr_rank_hooks *hooks, struct tsr_err *err)
{
    struct tsr_rank *r = tsr_new(1, sizeof *r);
    if (!r) {
        tsr_page_fail(plan->page, rank, TSR_E_NOMEM, "out of memory: a rank");
        atomic_store(&plan->handle->over, 1);
        return tsr_fail_nomem(err, sizeof *r, "a rank");
    }
    r->plan = plan;
    r->hooks = hooks;
    r->place = tsr_layout_place(plan->layout, rank);
    r->page = &plan->page->rank[rank];
    r->err.err = (struct tsr_err){ .struct_size = sizeof r->err.err,
                                   .cap = sizeof r->err.text,
                                   .text = r->err.text };
    r->next.rank = r->fan.rank = r;
    tsr_queue_init(&r->queue);
    tsr_queue_init(&r->spare);
    tsr_queue_init(&r->next.queue);
    tsr_queue_init(&r->fan.queue);
    r->work = hooks ? hooks->work : &r->queue;
    tsr_status st = start(r, &r->err.err);
    show(r, true);
    if (st == TSR_OK)
        st = work(r, &r->err.err);
    if (st != TSR_OK) {
        failed(r, st, r->err.text);
        (void)tsr_fail(err, st, "%s", r->err.text);
    }
    show(r, false);
    end(r);
    free(r);
    atomic_store(&plan->handle->over, 1);
    return st;
}
