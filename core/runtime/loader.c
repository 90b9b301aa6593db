/* Reading ahead, quantizing, and what it took. */
#include "runtime/loader.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/signals.h"
#include "model/pieces.h"
#include "quant/scheme_run.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define ROOMS   2u /* pieces that are in memory as they are stored */
#define PACKERS 2u /* pieces that are quantized at the same time */
#define WAITING 8u /* packed pieces that are not placed yet */
#define NO_ROOM ROOMS

struct part {
    struct tsr_layer_piece piece;
    struct tsr_matrix      w[TSR_LINEARS]; /* of the piece, once it is read */
    uint64_t               layer;
    uint32_t               cut;  /* linears of which this rank's part alone is read */
    uint32_t               left; /* linears that are not placed yet */
    uint32_t               room; /* where it is as it is stored, or NO_ROOM */
    bool                   packed;
};

struct tsr_loader {
    const struct tsr_model   *model;
    struct tsr_registry      *registry;
    struct tsr_progress      *progress; /* of the rank that loads; or NULL */
    struct tsr_scheme_run    *run;
    struct tsr_overlay       *overlay;
    struct tsr_share          share; /* ranks 0: all */
    struct tsr_engine_source  source;
    struct tsr_loader_numbers numbers;
    struct part              *part; /* of all layers, in order */
    uint64_t                  n;
    double                    fetched_s; /* when the linear that is placed was handed out */
    pthread_t                 reader, packer[PACKERS];
    uint32_t                  packers; /* that were started */
    uint32_t                  packing; /* that have begun */
    bool                      reading, stop;
    pthread_mutex_t           lock;
    pthread_cond_t            changed;
    /* parts [0, placed) are on the device, [0, packed) quantized, [0, taken) were begun to be, [0, read)
     * were read */
    uint64_t read, taken, packed, placed;
    uint32_t at_work; /* packers with a part */
    double   work_s;  /* since when there is one */
    struct room {
        void *data; /* of the largest piece's bytes, or NULL */
        bool  taken;
    } room[ROOMS];
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

/* ---- reading ------------------------------------------------------------- */

/* The lock is held. */
static tsr_status take_room(struct tsr_loader *l, struct part *p, struct tsr_err *err)
{
    uint32_t i = 0;
    while (i < ROOMS && l->room[i].taken)
        i++;
    l->room[i].taken = true;
    p->room = i;
    if (l->room[i].data)
        return TSR_OK;
    void *data = tsr_new_large(l->numbers.piece);
    if (!data)
        return tsr_fail_nomem(err, l->numbers.piece, "stored weights");
    l->room[i].data = data;
    count(l, l->numbers.piece, 0);
    return TSR_OK;
}

static bool has_room(const struct tsr_loader *l)
{
    bool any = false;
    for (uint32_t i = 0; i < ROOMS; i++)
        any = any || !l->room[i].taken;
    return any;
}

/* The lock is held.  The stored piece is not needed any more; behind the last one the room is not
 * either. */
static void leave_room(struct tsr_loader *l, struct part *p)
{
    if (p->room == NO_ROOM)
        return;
    struct room *r = &l->room[p->room];
    p->room = NO_ROOM;
    r->taken = false;
    if (l->read < l->n)
        return;
    free(r->data);
    r->data = NULL;
    count(l, 0, l->numbers.piece);
}

/* The waits of a load have no deadline of their own: who watches the rank sees its threads' clocks. */
static void show(struct tsr_loader *l, uint32_t thread, bool on)
{
    if (l->progress)
        tsr_progress_clock(l->progress, thread, on);
}

static void *read_parts(void *arg)
{
    struct tsr_loader *l = arg;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    show(l, TSR_RANK_READER, true);
    (void)pthread_mutex_lock(&l->lock);
    for (uint64_t i = 0; i < l->n; i++) {
        struct part *p = &l->part[i];
        while (p->piece.bytes && !has_room(l) && going(l))
            (void)pthread_cond_wait(&l->changed, &l->lock);
        if (!going(l))
            break;
        tsr_status st = p->piece.bytes ? take_room(l, p, &e.err) : TSR_OK;
        void      *to = st == TSR_OK && p->piece.bytes ? l->room[p->room].data : NULL;
        (void)pthread_mutex_unlock(&l->lock);
        double t0 = tsr_now_s();
        if (st == TSR_OK)
            st = tsr_model_read_piece(l->model, p->layer, &p->piece, to, p->w, &e.err);
        double s = tsr_now_s() - t0;
        (void)pthread_mutex_lock(&l->lock);
        l->numbers.read_s += s;
        l->numbers.read += st == TSR_OK ? p->piece.bytes : 0;
        l->read += st == TSR_OK;
        end_with(l, st, e.text);
    }
    (void)pthread_mutex_unlock(&l->lock);
    show(l, TSR_RANK_READER, false);
    return NULL;
}

/* ---- quantizing ---------------------------------------------------------- */

/* Also makes all quantizers: no work is in flight yet. */
static tsr_status check_need(struct tsr_loader *l, uint64_t first, uint64_t end,
                             struct tsr_err *err)
{
    for (uint64_t layer = first; layer < end; layer++) {
        uint64_t need = 0;
        TSR_TRY(tsr_scheme_need(l->run, layer, &need, err));
        if (need)
            return tsr_fail(err, TSR_E_INPUT,
                            "layer %llu: its quantizer asks for statistics, which a model that is "
                            "packed while it is loaded has none of; put the steps calibrate and "
                            "quantize before",
                            (unsigned long long)layer);
    }
    return TSR_OK;
}

static tsr_status pack(struct tsr_loader *l, const struct part *p, struct tsr_err *err)
{
    return tsr_scheme_linears(l->run, p->layer, p->piece.linears, p->w, p->piece.part, l->overlay,
                              err);
}

/* The lock is held.  A part that is wholly packed is not needed as it is stored. */
static void note_packed(struct tsr_loader *l, struct part *p)
{
    uint64_t bytes = 0;
    bool     kept = false;
    for (unsigned id = 0; id < TSR_LINEARS; id++) {
        if (!(p->piece.linears >> id & 1u))
            continue; /* maybe being packed */
        const struct tsr_packed *w = l->overlay->lin[p->layer][id];
        bytes += w ? tsr_packed_bytes(w) : 0;
        kept = kept || !w;
    }
    count(l, bytes, 0);
    if (!kept)
        leave_room(l, p);
    p->packed = true;
    while (l->packed < l->n && l->part[l->packed].packed)
        l->packed++;
}

/* The lock is held.  The next part; NULL: there is none, or the load ends. */
static struct part *take_part(struct tsr_loader *l)
{
    while (l->taken < l->n && !(l->read > l->taken && l->taken < l->placed + WAITING) && going(l))
        (void)pthread_cond_wait(&l->changed, &l->lock);
    if (l->taken == l->n || !going(l))
        return NULL;
    if (l->at_work++ == 0)
        l->work_s = tsr_now_s();
    return &l->part[l->taken++];
}

/* The lock is held.  Of several parts that cannot be packed, the first one's sentence stays. */
static void leave_part(struct tsr_loader *l, struct part *p, tsr_status st, const char *text)
{
    if (--l->at_work == 0)
        l->numbers.quantize_s += tsr_now_s() - l->work_s;
    if (st == TSR_OK)
        note_packed(l, p);
    while (st != TSR_OK && &l->part[l->packed] != p && going(l))
        (void)pthread_cond_wait(&l->changed, &l->lock);
    end_with(l, st, text);
}

/* Two parts at a time: while one waits for its last rows, or for a CPU that reading or placing took, the
 * other goes on.  The pool is the first one's; the other works on its own thread meanwhile. */
static void *pack_parts(void *arg)
{
    struct tsr_loader *l = arg;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    struct part       *p;
    (void)pthread_mutex_lock(&l->lock);
    uint32_t own = TSR_RANK_PACKER + l->packing++;
    show(l, own, true);
    while ((p = take_part(l)) != NULL) {
        (void)pthread_mutex_unlock(&l->lock);
        tsr_status st = pack(l, p, &e.err);
        (void)pthread_mutex_lock(&l->lock);
        leave_part(l, p, st, e.text);
    }
    (void)pthread_mutex_unlock(&l->lock);
    show(l, own, false);
    return NULL;
}

/* ---- placing ------------------------------------------------------------- */

/* The part of a linear, behind those that are placed; l->n: there is none.  Only the thread that
 * places moves l->placed. */
static uint64_t find(const struct tsr_loader *l, uint64_t layer, enum tsr_linear_id id)
{
    uint64_t i = l->placed;
    while (i < l->n &&
           !(l->part[i].layer == layer && l->part[i].piece.linears >> (unsigned)id & 1u))
        i++;
    return i;
}

static tsr_status fetch(void *ctx, uint64_t layer, enum tsr_linear_id id,
                        struct tsr_engine_fetched *f, struct tsr_err *err)
{
    struct tsr_loader *l = ctx;
    double             t0 = tsr_now_s();
    uint64_t           i = find(l, layer, id);
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
        return tsr_fail(err, st, "%s", l->err.text);
    const struct part *p = &l->part[i];
    f->w = p->w[id];
    f->packed = l->overlay->lin[layer][id];
    f->part = p->cut >> (unsigned)id & 1u ? &p->piece.part[id] : NULL;
    return TSR_OK;
}

static void placed(void *ctx, uint64_t layer, enum tsr_linear_id id)
{
    struct tsr_loader *l = ctx;
    struct tsr_packed *w = l->overlay->lin[layer][id];
    uint64_t           i = find(l, layer, id), bytes = w ? tsr_packed_bytes(w) : 0;
    if (i == l->n)
        return;
    (void)pthread_mutex_lock(&l->lock);
    count(l, 0, 0); /* host and device have it both */
    (void)pthread_mutex_unlock(&l->lock);
    if (w)
        tsr_packed_drop(w);
    (void)pthread_mutex_lock(&l->lock);
    count(l, 0, bytes);
    l->numbers.place_s += tsr_now_s() - l->fetched_s;
    l->part[i].left &= ~(1u << (unsigned)id);
    if (l->part[i].left == 0) {
        leave_room(l, &l->part[i]);
        l->placed = i + 1;
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
    uint32_t most = tsr_pool_threads(tsr_registry_pool(l->registry)) > 1 ? PACKERS : 1;
    l->reading = start(&l->reader, read_parts, l);
    while (l->reading && l->packers < most && start(&l->packer[l->packers], pack_parts, l))
        l->packers++;
    return l->packers == most ? TSR_OK
                              : tsr_fail(err, TSR_E_NOMEM, "cannot start the threads of a load");
}

/* Leaves of a linear what falls to this rank, where that can be packed alone.  What cannot be planned or
 * shared stays whole: packing it or placing it says why. */
static void cut(struct tsr_loader *l, struct part *p, enum tsr_linear_id id)
{
    const struct tsr_matrix    *w = &l->model->layers[p->layer].lin[id].w;
    const struct tsr_quantizer *q = NULL;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_quant_plan       plan;
    struct tsr_slice            s;
    if (tsr_scheme_plan(l->run, p->layer, id, &q, &plan, &e.err) != TSR_OK)
        return;
    struct tsr_packed like = { .rows = w->rows, .cols = w->cols };
    if (q)
        like.format = plan.format;
    if (tsr_share_linear(&l->share, &l->model->hp, id, w, q ? &like : NULL, &s, &e.err) != TSR_OK)
        return;
    if (q && !tsr_quantizer_alone(q, &plan, w, &s))
        return;
    tsr_piece_cut(l->model, p->layer, &p->piece, id, &s);
    p->cut |= 1u << (unsigned)id;
}

static tsr_status list_parts(struct tsr_loader *l, uint64_t first, uint64_t end,
                             struct tsr_err *err)
{
    struct tsr_layer_piece     piece[TSR_LINEARS];
    struct tsr_loader_numbers *n = &l->numbers;
    l->part = tsr_new(end - first, TSR_LINEARS * sizeof *l->part);
    if (!l->part)
        return tsr_fail_nomem(err, (end - first) * TSR_LINEARS * sizeof *l->part, "a loader");
    for (uint64_t layer = first; layer < end; layer++) {
        uint32_t k = tsr_model_pieces(l->model, layer, piece);
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < k; i++) {
            struct part *p = &l->part[l->n++];
            *p = (struct part){
                .piece = piece[i], .layer = layer, .left = piece[i].linears, .room = NO_ROOM
            };
            for (unsigned id = 0; id < TSR_LINEARS && l->share.ranks > 1; id++)
                if (p->left >> id & 1u)
                    cut(l, p, (enum tsr_linear_id)id);
            bytes += p->piece.room;
            n->piece = p->piece.room > n->piece ? p->piece.room : n->piece;
        }
        n->layer = bytes > n->layer ? bytes : n->layer;
    }
    return TSR_OK;
}

static tsr_status prepare(struct tsr_loader *l, const struct tsr_scheme *s, uint64_t first,
                          uint64_t end, bool head, struct tsr_err *err)
{
    TSR_TRY(tsr_scheme_open(&l->run, s, l->registry, l->model, err));
    TSR_TRY(check_need(l, first, end, err));
    TSR_TRY(list_parts(l, first, end, err));
    TSR_TRY(tsr_overlay_create(&l->overlay, l->model->hp.layers, err));
    if (head && tsr_scheme_takes_ends(l->run)) /* before others have the pool */
        TSR_TRY(tsr_scheme_ends(l->run, l->overlay, err));
    return start_all(l, err);
}

tsr_status tsr_loader_open(struct tsr_loader **out, const struct tsr_scheme *s,
                           struct tsr_registry *r, const struct tsr_model *m, uint64_t first,
                           uint64_t end, const struct tsr_share *share, bool head,
                           struct tsr_progress *progress, struct tsr_err *err)
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
    for (uint32_t i = 0; i < l->packers; i++)
        (void)pthread_join(l->packer[i], NULL);
    for (uint32_t i = 0; i < ROOMS; i++)
        free(l->room[i].data);
    tsr_overlay_destroy(l->overlay);
    tsr_scheme_close(l->run);
    (void)pthread_cond_destroy(&l->changed);
    (void)pthread_mutex_destroy(&l->lock);
    free(l->part);
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

void tsr_loader_numbers(const struct tsr_loader *l, struct tsr_loader_numbers *n)
{
    *n = l->numbers;
}
