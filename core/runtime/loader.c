/* A load from start to end: starts its threads, fetches packed linears and places them. */
#include "runtime/loader_internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/signals.h"

#include <signal.h>
#include <stdlib.h>

/* Also makes all quantizers: no work is in flight yet. */
static tsr_status check_need(struct tsr_loader *l, uint64_t first, uint64_t end,
                             struct tsr_err *err)
{
    for (uint64_t layer = first; layer < end; layer++) {
        uint64_t need = 0;
        TSR_TRY(tsr_quant_scheme_need(l->run, layer, &need, err));
        if (need)
            return tsr_fail(err, TSR_E_INPUT,
                            "layer %llu: its quantizer asks for statistics, which a model that is "
                            "packed while it is loaded has none of; put the steps calibrate and "
                            "quantize before",
                            (unsigned long long)layer);
    }
    return TSR_OK;
}

/* ---- placing ------------------------------------------------------------- */

/* The part of a linear, after those already placed, and its place there; l->n: not found.  Only the thread that places
 * moves l->placed. */
static uint64_t find(const struct tsr_loader *l, uint64_t layer, enum tsr_linear_id id,
                     uint64_t *place)
{
    for (uint64_t i = l->placed; i < l->n && l->part[i].layer <= layer; i++)
        for (uint64_t k = 0; l->part[i].layer == layer && k < l->part[i].piece.n; k++)
            if (l->part[i].piece.lin[k].id == id) {
                *place = k;
                return i;
            }
    return l->n;
}

static tsr_status fetch(void *ctx, uint64_t layer, enum tsr_linear_id id,
                        struct tsr_engine_fetched *f, struct tsr_err *err)
{
    struct tsr_loader *l = ctx;
    double             t0 = tsr_now_s();
    uint64_t           k = 0, i = find(l, layer, id, &k);
    if (i == l->n) /* the model has no such linear */
        return TSR_OK;
    (void)pthread_mutex_lock(&l->lock);
    while (l->packed <= i && l->status == TSR_OK)
        (void)pthread_cond_wait(&l->changed, &l->lock);
    tsr_status st = l->packed > i ? TSR_OK : l->status;
    l->fetched_s = tsr_now_s();
    l->numbers.waited_s += l->fetched_s - t0;
    (void)pthread_mutex_unlock(&l->lock);
    if (st != TSR_OK)
        return tsr_err_copy(err, st, &l->err.err);
    const struct tsr_runtime_loader_part *p = &l->part[i];
    f->w = p->piece.lin[k].w;
    f->packed = l->overlay->lin[layer][id];
    f->part = p->cut[k] ? &p->piece.lin[k].part : NULL;
    return TSR_OK;
}

static void placed(void *ctx, uint64_t layer, enum tsr_linear_id id)
{
    struct tsr_loader       *l = ctx;
    struct tsr_model_packed *w = l->overlay->lin[layer][id];
    uint64_t                 k = 0, i = find(l, layer, id, &k);
    uint64_t                 bytes = w ? tsr_model_packed_bytes(w) : 0;
    if (i == l->n)
        return;
    (void)pthread_mutex_lock(&l->lock);
    tsr_runtime_loader_count(l, 0, 0); /* host and device have it both */
    (void)pthread_mutex_unlock(&l->lock);
    if (w)
        tsr_model_packed_drop(w);
    (void)pthread_mutex_lock(&l->lock);
    tsr_runtime_loader_count(l, 0, bytes);
    l->numbers.place_s += tsr_now_s() - l->fetched_s;
    if (--l->part[i].left == 0) {
        tsr_runtime_loader_leave_room(l, &l->part[i]);
        /* a part may end after later ones: its last linear is the last of them */
        while (l->placed < l->n && l->part[l->placed].left == 0)
            l->placed++;
    }
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->lock);
}

/* ---- from start to end --------------------------------------------------- */

static bool start(pthread_t *id, void *(*f)(void *), struct tsr_loader *l)
{
    sigset_t all, old;
    tsr_signals_of_others(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(id, NULL, f, l);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0;
}

/* One thread that quantizes is one. */
static tsr_status start_all(struct tsr_loader *l, struct tsr_err *err)
{
    uint32_t most = tsr_pool_threads(tsr_plugin_registry_pool(l->registry)) > 1
                        ? TSR_RUNTIME_LOADER_PACKERS
                        : 1;
    l->reading = start(&l->reader, tsr_runtime_loader_read, l);
    while (l->reading && l->packers < most &&
           start(&l->packer[l->packers], tsr_runtime_loader_pack, l))
        l->packers++;
    return l->packers == most ? TSR_OK
                              : tsr_fail(err, TSR_E_NOMEM, "cannot start the threads of a load");
}

/* Leaves of a linear what falls to this rank, where that can be packed alone.  What cannot be planned or
 * shared stays whole: packing it or placing it says why. */
static void cut(struct tsr_loader *l, struct tsr_runtime_loader_part *p, uint64_t i)
{
    enum tsr_linear_id          id = p->piece.lin[i].id;
    const struct tsr_matrix    *w = &l->model->layers[p->layer].lin[id].w;
    const struct tsr_quantizer *q = NULL;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_quant_plan       plan;
    struct tsr_model_slice      s;
    if (tsr_quant_scheme_plan(l->run, p->layer, id, &q, &plan, &e.err) != TSR_OK)
        return;
    struct tsr_model_packed like = { .rows = w->rows, .cols = w->cols };
    if (q)
        like.format = plan.format;
    if (tsr_engine_share_linear(&l->share, &l->model->hp, p->layer, id, w, q ? &like : NULL, &s,
                                &e.err) != TSR_OK)
        return;
    if (q && s.rows && !tsr_quantizer_alone(q, &plan, w, &s))
        return;
    tsr_model_piece_cut(l->model, p->layer, &p->piece, i, &s);
    p->cut[i] = 1;
}

/* The parts of a layer; `at`: linears of the parts before. */
static void list_layer(struct tsr_loader *l, uint64_t layer, struct tsr_model_layer_piece *piece,
                       uint64_t *at)
{
    struct tsr_runtime_loader_numbers *n = &l->numbers;
    uint64_t                           k = tsr_model_pieces(l->model, layer, piece, l->lin + *at);
    uint64_t                           bytes = 0;
    for (uint64_t i = 0; i < k; i++) {
        struct tsr_runtime_loader_part *p = &l->part[l->n++];
        *p = (struct tsr_runtime_loader_part){ .piece = piece[i],
                                               .layer = layer,
                                               .cut = l->cut + *at,
                                               .left = piece[i].n,
                                               .room = TSR_RUNTIME_LOADER_NO_ROOM };
        *at += p->piece.n;
        for (uint64_t j = 0; j < p->piece.n && l->share.ranks > 1; j++)
            cut(l, p, j);
        bytes += p->piece.room;
        n->piece = p->piece.room > n->piece ? p->piece.room : n->piece;
    }
    n->layer = bytes > n->layer ? bytes : n->layer;
}

static tsr_status list_parts(struct tsr_loader *l, uint64_t first, uint64_t end,
                             struct tsr_err *err)
{
    uint64_t linears = l->model->hp.linears, n = (end - first) * linears, at = 0;
    struct tsr_model_layer_piece *piece = tsr_new(linears, sizeof *piece);
    l->part = tsr_new(n, sizeof *l->part);
    l->lin = tsr_new(n, sizeof *l->lin);
    l->cut = tsr_new(n, sizeof *l->cut);
    if (!piece || !l->part || !l->lin || !l->cut) {
        free(piece);
        return tsr_fail_nomem(err, n * sizeof *l->part, "a loader");
    }
    for (uint64_t layer = first; layer < end; layer++)
        list_layer(l, layer, piece, &at);
    free(piece);
    return TSR_OK;
}

static tsr_status prepare(struct tsr_loader *l, const struct tsr_quant_scheme *s, uint64_t first,
                          uint64_t end, bool head, struct tsr_err *err)
{
    TSR_TRY(tsr_quant_scheme_open(&l->run, s, l->registry, l->model, err));
    TSR_TRY(check_need(l, first, end, err));
    TSR_TRY(list_parts(l, first, end, err));
    TSR_TRY(tsr_model_overlay_create(&l->overlay, l->model->hp.layers, l->model->hp.linears, err));
    if (head && tsr_quant_scheme_takes_ends(l->run)) /* before others have the pool */
        TSR_TRY(tsr_quant_scheme_ends(l->run, l->overlay, err));
    return start_all(l, err);
}

tsr_status tsr_runtime_loader_open(struct tsr_loader **out, const struct tsr_quant_scheme *s,
                                   struct tsr_registry *r, const struct tsr_model *m,
                                   uint64_t first, uint64_t end,
                                   const struct tsr_engine_share *share, bool head,
                                   struct tsr_runtime_progress *progress, struct tsr_err *err)
{
    if (first > end || end > m->hp.layers)
        return tsr_fail(err, TSR_E_INVAL, "layers %llu to %llu of %llu", (unsigned long long)first,
                        (unsigned long long)end, (unsigned long long)m->hp.layers);
    struct tsr_loader *l = tsr_new(1, sizeof *l);
    if (!l)
        return tsr_fail_nomem(err, sizeof *l, "a loader");
    l->model = m;
    l->registry = r;
    l->progress = progress;
    if (share)
        l->share = *share;
    l->source = (struct tsr_engine_source){ .fetch = fetch, .placed = placed, .ctx = l };
    l->err.err = (struct tsr_err){ .struct_size = sizeof l->err.err,
                                   .cap = sizeof l->err.text,
                                   .text = l->err.text };
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_cond_init(&l->changed, NULL);
    tsr_status st = prepare(l, s, first, end, head, err);
    if (st != TSR_OK) {
        tsr_runtime_loader_close(l);
        return st;
    }
    *out = l;
    return TSR_OK;
}

void tsr_runtime_loader_close(struct tsr_loader *l)
{
    if (!l)
        return;
    (void)pthread_mutex_lock(&l->lock);
    l->stop = true;
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->lock);
    if (l->reading)
        (void)pthread_join(l->reader, NULL);
    for (uint32_t i = 0; i < l->packers; i++)
        (void)pthread_join(l->packer[i], NULL);
    for (uint32_t i = 0; i < TSR_RUNTIME_LOADER_ROOMS; i++)
        free(l->room[i].data);
    tsr_model_overlay_destroy(l->overlay);
    tsr_quant_scheme_close(l->run);
    (void)pthread_cond_destroy(&l->changed);
    (void)pthread_mutex_destroy(&l->lock);
    free(l->part);
    free(l->lin);
    free(l->cut);
    free(l);
}

const struct tsr_engine_source *tsr_runtime_loader_source(struct tsr_loader *l)
{
    return &l->source;
}

struct tsr_model_overlay *tsr_runtime_loader_overlay(struct tsr_loader *l)
{
    return l->overlay;
}

void tsr_runtime_loader_numbers(const struct tsr_loader *l, struct tsr_runtime_loader_numbers *n)
{
    *n = l->numbers;
}
