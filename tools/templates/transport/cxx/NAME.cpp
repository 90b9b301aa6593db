/* @NAME@ - bytes between threads or processes of one machine through the memory that they share: a
 * slot for each ordered pair of ranks, which one fills and the other empties, in their calls. */
#include "@NAME@.h"

#include <atomic>
#include <cstring>
#include <tessera/guard.hpp>
#include <time.h>

static constexpr uint64_t max_ranks = 64, slot_bytes = 16384;

struct slot { /* zeroed memory is a valid start */
    std::atomic<uint64_t> full;     /* set by the sender, cleared by the receiver */
    uint64_t              total, n; /* bytes of the whole message, and of this piece */
    unsigned char         data[slot_bytes];
};
struct world { /* the slots follow, [from][to] */
    std::atomic<uint64_t> aborted; /* some rank has given up */
    slot                 *slots() { return reinterpret_cast<slot *>(this + 1); }
};
struct part { /* what goes to or comes from one peer */
    uint32_t       peer;
    bool           out, done;
    unsigned char *buf;
    uint64_t       bytes, at;
};
struct request { /* its parts follow */
    request *next; /* in the order in which they were started */
    uint64_t size;
    uint32_t n;
    bool     begun, wrong; /* a piece has moved; a peer sent another size */
    part    *begin() { return reinterpret_cast<part *>(this + 1); }
    part    *end() { return begin() + n; }
};

struct transport {
    const tsr_host *host;
    world          *shared;
    uint32_t        rank, ranks;
    request        *first = nullptr;
    bool            broken = false; /* an operation was cut off: what comes next is unknown */
};

static uint64_t now_us()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000 + static_cast<uint64_t>(t.tv_nsec) / 1000;
}

static uint64_t world_bytes(const void *, uint32_t ranks)
{
    return sizeof(world) + uint64_t{ ranks } * ranks * sizeof(slot);
}

static tsr_status create(const tsr_host *host, const void *opts, const tsr_transport_world *w,
                         void **self, tsr_err *err)
{
    if (w->rank >= w->ranks || w->ranks > max_ranks)
        return tsr_fail(err, TSR_E_CONFIG, "@NAME@: rank %u of %u; 1 to 64 ranks are possible",
                        w->rank, w->ranks);
    if (!w->shared || uintptr_t(w->shared) % 8 || w->shared_bytes < world_bytes(opts, w->ranks))
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: too few shared bytes, or not aligned to 8");
    void *p = host->alloc(host->ctx, sizeof(transport), alignof(transport));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof(transport));
    *self = new (p) transport{ host, static_cast<world *>(w->shared), w->rank, w->ranks };
    return TSR_OK;
}

static void move(transport *t, request *r, part *p)
{
    uint64_t from = p->out ? t->rank : p->peer, to = p->out ? p->peer : t->rank;
    slot    *s = &t->shared->slots()[from * t->ranks + to];
    while (!p->done && !r->wrong) {
        if ((s->full.load(std::memory_order_acquire) != 0) == p->out)
            return;
        r->begun = true;
        if (p->out) {
            s->total = p->bytes;
            s->n = p->bytes - p->at < slot_bytes ? p->bytes - p->at : slot_bytes;
        }
        r->wrong = s->total != p->bytes || s->n > p->bytes - p->at || s->n > slot_bytes;
        if (r->wrong)
            return;
        unsigned char *mine = p->buf + p->at;
        if (s->n)
            std::memcpy(p->out ? s->data : mine, p->out ? mine : s->data, s->n);
        p->at += s->n;
        p->done = p->at == p->bytes;
        s->full.store(p->out, std::memory_order_release);
    }
}

/* Between two ranks only the oldest unfinished part may move. */
static void pump(transport *t)
{
    bool busy[2][max_ranks] = {};
    for (request *r = t->first; r; r = r->next)
        for (part &p : *r) {
            if (!busy[p.out][p.peer])
                move(t, r, &p);
            busy[p.out][p.peer] |= !p.done;
        }
}

static void release(transport *t, request *r)
{
    request **link = &t->first;
    for (part &p : *r)
        t->broken |= r->begun && !p.done; /* half an operation cannot be taken back */
    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
    t->host->release(t->host->ctx, r, r->size);
}

static void destroy(void *self)
{
    auto *t = static_cast<transport *>(self);
    while (t && t->first)
        release(t, t->first);
    if (t)
        t->host->release(t->host->ctx, t, sizeof *t);
}

/* A request with room for n parts, at the end of the list. */
static tsr_status start(transport *t, void *stream, uint32_t n, void **handle, tsr_err *err)
{
    uint64_t size = sizeof(request) + n * sizeof(part);
    *handle = nullptr;
    if (stream)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: host memory only, stream must be NULL");
    if (t->shared->aborted)
        return tsr_fail(err, TSR_E_CANCELLED, "@NAME@: the group was aborted");
    if (t->broken)
        return tsr_fail(err, TSR_E_DEVICE, "@NAME@: an earlier operation was cut off");
    void *p = t->host->alloc(t->host->ctx, size, alignof(request));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", size_t{ size });
    request **link = &t->first;
    while (*link)
        link = &(*link)->next;
    *handle = *link = new (p) request{ nullptr, size, 0, false, false };
    return TSR_OK;
}

static void add(void *handle, bool out, uint32_t peer, const void *buf, uint64_t bytes)
{
    auto *r = static_cast<request *>(handle);
    new (r->begin() + r->n++) part{ peer, out, false, (unsigned char *)buf, bytes, 0 };
}

static tsr_status one(void *self, void *stream, bool out, uint32_t peer, const void *buf,
                      uint64_t bytes, void **handle, tsr_err *err)
{
    auto *t = static_cast<transport *>(self);
    if (peer >= t->ranks)
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: there is no rank %u", peer);
    tsr_status st = start(t, stream, 1, handle, err);
    if (st != TSR_OK)
        return st;
    add(*handle, out, peer, buf, bytes);
    pump(t);
    return TSR_OK;
}

static tsr_status send(void *self, void *stream, uint32_t to, const void *buf, uint64_t bytes,
                       void **handle, tsr_err *err)
{
    return one(self, stream, true, to, buf, bytes, handle, err);
}

static tsr_status recv(void *self, void *stream, uint32_t from, void *buf, uint64_t bytes,
                       void **handle, tsr_err *err)
{
    return one(self, stream, false, from, buf, bytes, handle, err);
}

/* step: how far the blocks for successive ranks lie apart in `from`. */
static tsr_status collective(void *self, void *stream, const void *from, uint64_t step, void *to,
                             uint64_t bytes, void **handle, tsr_err *err)
{
    auto      *t = static_cast<transport *>(self);
    tsr_status st = start(t, stream, 2 * t->ranks, handle, err);
    if (st != TSR_OK)
        return st;
    for (uint32_t i = 0; i < t->ranks; i++) { /* its own block goes the same way */
        add(*handle, true, i, static_cast<const char *>(from) + i * step, bytes);
        add(*handle, false, i, static_cast<char *>(to) + i * bytes, bytes);
    }
    pump(t);
    return TSR_OK;
}

static tsr_status all_gather(void *self, void *stream, const void *from, void *to, uint64_t bytes,
                             void **handle, tsr_err *err)
{
    return collective(self, stream, from, 0, to, bytes, handle, err);
}

static tsr_status all_to_all(void *self, void *stream, const void *from, void *to, uint64_t bytes,
                             void **handle, tsr_err *err)
{
    return collective(self, stream, from, bytes, to, bytes, handle, err);
}

static tsr_status test(void *self, void *handle, int32_t *done, tsr_err *err)
{
    auto      *t = static_cast<transport *>(self);
    auto      *r = static_cast<request *>(handle);
    tsr_status st = TSR_OK;
    bool       open = false;
    pump(t);
    for (part &p : *r)
        open |= !p.done;
    if (t->shared->aborted)
        st = tsr_fail(err, TSR_E_CANCELLED, "@NAME@: the group was aborted");
    else if (r->wrong)
        st = tsr_fail(err, TSR_E_INVAL, "@NAME@: a peer of rank %u sent another size", t->rank);
    else if (open && t->broken)
        st = tsr_fail(err, TSR_E_DEVICE, "@NAME@: an earlier operation was cut off");
    *done = st != TSR_OK || !open;
    if (*done)
        release(t, r);
    return st;
}

static tsr_status wait(void *self, void *handle, uint64_t deadline_us, tsr_err *err)
{
    auto    *t = static_cast<transport *>(self);
    auto    *r = static_cast<request *>(handle);
    uint64_t begin = now_us(), late = 0;
    for (int32_t done;;) {
        tsr_status st = test(t, r, &done, err);
        if (done)
            return st;
        for (part &p : *r)
            late = p.done ? late : p.peer;
        if (now_us() - begin >= deadline_us)
            st = tsr_fail(err, TSR_E_DEVICE, "@NAME@: rank %u waited %llu us for rank %u", t->rank,
                          static_cast<unsigned long long>(deadline_us), unsigned(late));
        else if (t->host->cancelled(t->host->ctx))
            st = tsr_fail(err, TSR_E_CANCELLED, "@NAME@: stopped");
        if (st != TSR_OK) {
            release(t, r);
            return st;
        }
        timespec nap = { 0, 20000 };
        nanosleep(&nap, nullptr);
    }
}

static void abort_group(void *self)
{
    static_cast<transport *>(self)->shared->aborted = 1;
}

const tsr_transport_v1 table = {
    .struct_size = sizeof table, .reserved = 0, .world_bytes = world_bytes,
    .create = tsr_guard<create>, .destroy = destroy, .send = tsr_guard<send>,
    .recv = tsr_guard<recv>, .all_gather = tsr_guard<all_gather>,
    .all_to_all = tsr_guard<all_to_all>, .test = tsr_guard<test>, .wait = tsr_guard<wait>,
    .abort = abort_group, .extension = nullptr, .via = nullptr, .needs = 0,
};
