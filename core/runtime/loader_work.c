/* The threads of a load: one reads pieces ahead, others quantize them. */
#include "runtime/loader_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

void tsr_runtime_loader_count(struct tsr_loader *l, uint64_t more, uint64_t less)
{
    l->now += more;
    l->numbers.peak = l->now > l->numbers.peak ? l->now : l->numbers.peak;
    uint64_t now, peak;
    tsr_plugin_registry_memory(l->registry, &now, &peak);
    l->numbers.total = l->now + now > l->numbers.total ? l->now + now : l->numbers.total;
    l->now -= less < l->now ? less : l->now;
}

/* The lock is held.  The first failure stays. */
static void end_with(struct tsr_loader *l, tsr_status st, const struct tsr_err *why)
{
    if (l->status == TSR_OK && st != TSR_OK) {
        l->status = st;
        (void)tsr_err_copy(&l->err.err, st, why);
    }
    (void)pthread_cond_broadcast(&l->changed);
}

/* The lock is held.  Neither stopped nor failed. */
static bool going(const struct tsr_loader *l)
{
    return !l->stop && l->status == TSR_OK;
}

/* The lock is held. */
static tsr_status take_room(struct tsr_loader *l, struct tsr_runtime_loader_part *p,
                            struct tsr_err *err)
{
    uint32_t i = 0;
    while (i < TSR_RUNTIME_LOADER_ROOMS && l->room[i].taken)
        i++;
    l->room[i].taken = true;
    p->room = i;
    if (l->room[i].data)
        return TSR_OK;
    void *data = tsr_new_large(l->numbers.piece);
    if (!data)
        return tsr_fail_nomem(err, l->numbers.piece, "stored weights");
    l->room[i].data = data;
    tsr_runtime_loader_count(l, l->numbers.piece, 0);
    return TSR_OK;
}

static bool has_room(const struct tsr_loader *l)
{
    bool any = false;
    for (uint32_t i = 0; i < TSR_RUNTIME_LOADER_ROOMS; i++)
        any = any || !l->room[i].taken;
    return any;
}

void tsr_runtime_loader_leave_room(struct tsr_loader *l, struct tsr_runtime_loader_part *p)
{
    if (p->room == TSR_RUNTIME_LOADER_NO_ROOM)
        return;
    struct room *r = &l->room[p->room];
    p->room = TSR_RUNTIME_LOADER_NO_ROOM;
    r->taken = false;
    if (l->read < l->n)
        return;
    free(r->data);
    r->data = NULL;
    tsr_runtime_loader_count(l, 0, l->numbers.piece);
}

/* The waits of a load have no deadline: the watcher of the rank sees its threads' clocks. */
static void show(struct tsr_loader *l, uint32_t thread, bool on)
{
    if (l->progress)
        tsr_runtime_progress_clock(l->progress, thread, on);
}

void *tsr_runtime_loader_read(void *arg)
{
    struct tsr_loader *l = arg;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    show(l, TSR_RUNTIME_RANK_READER, true);
    (void)pthread_mutex_lock(&l->lock);
    for (uint64_t i = 0; i < l->n; i++) {
        struct tsr_runtime_loader_part *p = &l->part[i];
        while (p->piece.bytes && !has_room(l) && going(l))
            (void)pthread_cond_wait(&l->changed, &l->lock);
        if (!going(l))
            break;
        tsr_status st = p->piece.bytes ? take_room(l, p, &e.err) : TSR_OK;
        void      *to = st == TSR_OK && p->piece.bytes ? l->room[p->room].data : NULL;
        (void)pthread_mutex_unlock(&l->lock);
        double t0 = tsr_now_s();
        if (st == TSR_OK)
            st = tsr_model_read_piece(l->model, p->layer, &p->piece, to, &e.err);
        double s = tsr_now_s() - t0;
        (void)pthread_mutex_lock(&l->lock);
        l->numbers.read_s += s;
        l->numbers.read += st == TSR_OK ? p->piece.bytes : 0;
        l->read += st == TSR_OK;
        end_with(l, st, &e.err);
    }
    (void)pthread_mutex_unlock(&l->lock);
    show(l, TSR_RUNTIME_RANK_READER, false);
    return NULL;
}

static tsr_status pack(struct tsr_loader *l, const struct tsr_runtime_loader_part *p,
                       struct tsr_err *err)
{
    return tsr_quant_scheme_linears(l->run, p->layer, p->piece.lin, p->piece.n, l->overlay, err);
}

/* The lock is held. The stored form of a completely packed part is no longer needed; of what other ranks have nothing is. */
static void note_packed(struct tsr_loader *l, struct tsr_runtime_loader_part *p)
{
    uint64_t bytes = 0;
    bool     kept = false;
    for (uint64_t i = 0; i < p->piece.n; i++) {
        const struct tsr_model_packed *w = l->overlay->lin[p->layer][p->piece.lin[i].id];
        bytes += w ? tsr_model_packed_bytes(w) : 0;
        kept = kept || (!w && p->piece.lin[i].part.rows > 0);
    }
    tsr_runtime_loader_count(l, bytes, 0);
    if (!kept)
        tsr_runtime_loader_leave_room(l, p);
    p->packed = true;
    while (l->packed < l->n && l->part[l->packed].packed)
        l->packed++;
}

/* The lock is held.  The next part; NULL: there is none, or the load ends. */
static struct tsr_runtime_loader_part *take_part(struct tsr_loader *l)
{
    while (l->taken < l->n &&
           !(l->read > l->taken && l->taken < l->placed + TSR_RUNTIME_LOADER_WAITING) && going(l))
        (void)pthread_cond_wait(&l->changed, &l->lock);
    if (l->taken == l->n || !going(l))
        return NULL;
    if (l->at_work++ == 0)
        l->work_s = tsr_now_s();
    return &l->part[l->taken++];
}

/* The lock is held.  Of several parts that cannot be packed, the first one's sentence stays. */
static void leave_part(struct tsr_loader *l, struct tsr_runtime_loader_part *p, tsr_status st,
                       const struct tsr_err *why)
{
    if (--l->at_work == 0)
        l->numbers.quantize_s += tsr_now_s() - l->work_s;
    if (st == TSR_OK)
        note_packed(l, p);
    while (st != TSR_OK && &l->part[l->packed] != p && going(l))
        (void)pthread_cond_wait(&l->changed, &l->lock);
    end_with(l, st, why);
}

void *tsr_runtime_loader_pack(void *arg)
{
    struct tsr_loader              *l = arg;
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_runtime_loader_part *p;
    (void)pthread_mutex_lock(&l->lock);
    uint32_t own = TSR_RUNTIME_RANK_PACKER + l->packing++;
    show(l, own, true);
    while ((p = take_part(l)) != NULL) {
        (void)pthread_mutex_unlock(&l->lock);
        tsr_status st = pack(l, p, &e.err);
        (void)pthread_mutex_lock(&l->lock);
        leave_part(l, p, st, &e.err);
    }
    (void)pthread_mutex_unlock(&l->lock);
    show(l, own, false);
    return NULL;
}
