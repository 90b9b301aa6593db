/* Reading ahead, quantizing, and what it took. */
#include "runtime/loader.h"

#include "base/clock.h"
#include "base/mem.h"
#include "quant/scheme_run.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct tsr_loader {
    const struct tsr_model   *model;
    struct tsr_registry      *registry;
    struct tsr_scheme_run    *run;
    struct tsr_overlay       *overlay;
    struct tsr_engine_source  source;
    struct tsr_loader_numbers numbers;
    uint64_t                  first, end;
    double                    fetched_s; /* when the layer that is placed was handed out */
    /* layers [first, dropped) are closed again, [first, packed) quantized, [first, read) were opened */
    pthread_t         reader, packer;
    bool              reading, packing, stop;
    bool              reuses; /* the memory of closed layers */
    pthread_mutex_t   lock;
    pthread_cond_t    changed;
    uint64_t          read, packed, dropped;
    uint64_t          now; /* bytes in host memory */
    tsr_status        status;
    struct tsr_errbuf err; /* of status */
};

/* The lock is held. */
static void count(struct tsr_loader *l, uint64_t more, uint64_t less)
{
    l->now += more;
    l->numbers.peak = l->now > l->numbers.peak ? l->now : l->numbers.peak;
    uint64_t now, peak;
    tsr_registry_memory(l->registry, &now, &peak);
    l->numbers.total = l->now + now > l->numbers.total ? l->now + now : l->numbers.total;
    l->now -= less < l->now ? less : l->now;
}

/* The lock is held.  The first failure stays. */
static void end_with(struct tsr_loader *l, tsr_status st, const char *text)
{
    if (l->status == TSR_OK && st != TSR_OK) {
        l->status = st;
        (void)snprintf(l->err.text, sizeof l->err.text, "%s", text);
    }
    (void)pthread_cond_broadcast(&l->changed);
}

/* The lock is held.  Neither stopped nor failed. */
static bool going(const struct tsr_loader *l)
{
    return !l->stop && l->status == TSR_OK;
}

static void *read_layers(void *arg)
{
    struct tsr_loader *l = arg;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    (void)pthread_mutex_lock(&l->lock);
    for (uint64_t i = l->first; i < l->end; i++) {
        while (i >= l->dropped + 2 && going(l))
            (void)pthread_cond_wait(&l->changed, &l->lock);
        if (!going(l))
            break;
        uint64_t bytes = tsr_model_layer_bytes(l->model, i);
        count(l, bytes, 0);
        (void)pthread_mutex_unlock(&l->lock);
        double     t0 = tsr_now_s();
        tsr_status st = tsr_model_open_layer(l->model, i, &e.err);
        double     s = tsr_now_s() - t0;
        (void)pthread_mutex_lock(&l->lock);
        l->numbers.read_s += s;
        l->numbers.layer = bytes > l->numbers.layer ? bytes : l->numbers.layer;
        l->read += st == TSR_OK;
        end_with(l, st, e.text);
    }
    (void)pthread_mutex_unlock(&l->lock);
    return NULL;
}

static uint64_t packed_bytes(const struct tsr_loader *l, uint64_t layer)
{
    uint64_t n = 0;
    for (int k = 0; k < TSR_LINEARS; k++)
        if (l->overlay->lin[layer][k])
            n += tsr_packed_bytes(l->overlay->lin[layer][k]);
    return n;
}

static tsr_status pack(struct tsr_loader *l, uint64_t layer, struct tsr_err *err)
{
    uint64_t need = 0;
    TSR_TRY(tsr_scheme_need(l->run, layer, &need, err));
    if (need)
        return tsr_fail(err, TSR_E_INPUT,
                        "layer %llu: its quantizer asks for statistics, which a model that is "
                        "packed while it is loaded has none of; put the steps calibrate and "
                        "quantize before",
                        (unsigned long long)layer);
    return tsr_scheme_layer(l->run, layer, NULL, NULL, l->overlay, err);
}

/* The lock is held.  The last layer waits for the one before to be on the device: with it the whole
 * share is packed, and two stored layers beside it are all that there may be. */
static bool may_pack(const struct tsr_loader *l, uint64_t i)
{
    return l->read > i && (i + 1 < l->end || l->dropped >= i);
}

static void *pack_layers(void *arg)
{
    struct tsr_loader *l = arg;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    (void)pthread_mutex_lock(&l->lock);
    for (uint64_t i = l->first; i < l->end; i++) {
        while (!may_pack(l, i) && going(l))
            (void)pthread_cond_wait(&l->changed, &l->lock);
        if (!going(l))
            break;
        (void)pthread_mutex_unlock(&l->lock);
        double     t0 = tsr_now_s();
        tsr_status st = pack(l, i, &e.err);
        double     s = tsr_now_s() - t0;
        (void)pthread_mutex_lock(&l->lock);
        l->numbers.quantize_s += s;
        count(l, packed_bytes(l, i), 0);
        l->packed += st == TSR_OK;
        end_with(l, st, e.text);
    }
    (void)pthread_mutex_unlock(&l->lock);
    return NULL;
}

static tsr_status fetch(void *ctx, uint64_t layer, struct tsr_err *err)
{
    struct tsr_loader *l = ctx;
    double             t0 = tsr_now_s();
    if (layer < l->first || layer >= l->end)
        return tsr_fail(err, TSR_E_INVAL, "layer %llu is not to be loaded",
                        (unsigned long long)layer);
    (void)pthread_mutex_lock(&l->lock);
    while (l->packed <= layer && l->status == TSR_OK)
        (void)pthread_cond_wait(&l->changed, &l->lock);
    tsr_status st = l->packed > layer ? TSR_OK : l->status;
    l->fetched_s = tsr_now_s();
    l->numbers.waited_s += l->fetched_s - t0;
    (void)pthread_mutex_unlock(&l->lock);
    return st == TSR_OK ? st : tsr_fail(err, st, "%s", l->err.text);
}

static void placed(void *ctx, uint64_t layer, enum tsr_linear_id id)
{
    struct tsr_loader *l = ctx;
    struct tsr_packed *p = l->overlay->lin[layer][id];
    if (!p)
        return;
    uint64_t bytes = tsr_packed_bytes(p);
    (void)pthread_mutex_lock(&l->lock);
    count(l, 0, 0); /* host and device have it both */
    (void)pthread_mutex_unlock(&l->lock);
    tsr_packed_drop(p);
    (void)pthread_mutex_lock(&l->lock);
    count(l, 0, bytes);
    (void)pthread_mutex_unlock(&l->lock);
}

static void reuse(struct tsr_loader *l, bool on)
{
    if (on != l->reuses)
        tsr_model_reuse_layers(l->model, on);
    l->reuses = on;
}

static void drop(void *ctx, uint64_t layer)
{
    struct tsr_loader *l = ctx;
    if (layer + 2 >= l->end) /* all that are left have been opened, or soon are in what is spare */
        reuse(l, false);
    tsr_model_close_layer(l->model, layer);
    (void)pthread_mutex_lock(&l->lock);
    l->dropped = layer + 1;
    l->numbers.place_s += tsr_now_s() - l->fetched_s;
    count(l, 0, tsr_model_layer_bytes(l->model, layer));
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->lock);
}

static bool start(pthread_t *id, void *(*f)(void *), struct tsr_loader *l)
{
    sigset_t all, old;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(id, NULL, f, l);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0;
}

static tsr_status start_both(struct tsr_loader *l, struct tsr_err *err)
{
    reuse(l, true);
    l->reading = start(&l->reader, read_layers, l);
    l->packing = l->reading && start(&l->packer, pack_layers, l);
    return l->packing ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "cannot start the threads of a load");
}

tsr_status tsr_loader_open(struct tsr_loader **out, const struct tsr_scheme *s,
                           struct tsr_registry *r, const struct tsr_model *m, uint64_t first,
                           uint64_t end, struct tsr_err *err)
{
    struct tsr_loader *l = tsr_new(1, sizeof *l);
    if (!l)
        return tsr_fail_nomem(err, sizeof *l, "a loader");
    l->model = m;
    l->registry = r;
    l->first = l->read = l->packed = l->dropped = first;
    l->end = end;
    l->source =
        (struct tsr_engine_source){ .fetch = fetch, .placed = placed, .drop = drop, .ctx = l };
    l->err.err = (struct tsr_err){ .struct_size = sizeof l->err.err,
                                   .cap = sizeof l->err.text,
                                   .text = l->err.text };
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_cond_init(&l->changed, NULL);
    tsr_status st = tsr_scheme_open(&l->run, s, r, m, err);
    if (st == TSR_OK)
        st = tsr_overlay_create(&l->overlay, m->hp.layers, err);
    if (st == TSR_OK)
        st = start_both(l, err);
    if (st != TSR_OK) {
        tsr_loader_close(l);
        return st;
    }
    *out = l;
    return TSR_OK;
}

void tsr_loader_close(struct tsr_loader *l)
{
    if (!l)
        return;
    (void)pthread_mutex_lock(&l->lock);
    l->stop = true;
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->lock);
    if (l->reading)
        (void)pthread_join(l->reader, NULL);
    if (l->packing)
        (void)pthread_join(l->packer, NULL);
    reuse(l, false);
    for (uint64_t i = l->dropped; i < l->read; i++) /* of a load that failed */
        tsr_model_close_layer(l->model, i);
    tsr_overlay_destroy(l->overlay);
    tsr_scheme_close(l->run);
    (void)pthread_cond_destroy(&l->changed);
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
}

const struct tsr_engine_source *tsr_loader_source(struct tsr_loader *l)
{
    return &l->source;
}

struct tsr_overlay *tsr_loader_overlay(struct tsr_loader *l)
{
    return l->overlay;
}

tsr_status tsr_loader_head(struct tsr_loader *l, struct tsr_err *err)
{
    return tsr_scheme_takes_ends(l->run) ? tsr_scheme_ends(l->run, l->overlay, err) : TSR_OK;
}

void tsr_loader_numbers(const struct tsr_loader *l, struct tsr_loader_numbers *n)
{
    *n = l->numbers;
}
