/* local - transport between threads, or between processes that share the world's memory.
 *
 * Every operation becomes parts, one per peer and direction.  Parts of one direction run in the
 * order in which they were started; all progress is made inside the calls of this rank.  A
 * message is a frame: head {magic, kind, sequence, size, CRC}, payload, CRC-32C of the payload. */
#include "crc32c.h"
#include "local_ring.h"
#include "tessera/transport.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FRAME_MAGIC  0x46525354u /* "TSRF" */
#define MAX_REQUESTS 256u        /* outstanding; beyond that: "ask again" */
#define MAX_BYTES    (UINT64_C(1) << 62)
#define SPIN_ROUNDS  64
#define NAP_US       20000u /* longest sleep before looking for a cancellation */

enum { KIND_MESSAGE = 1, KIND_GATHER = 2, KIND_ALL_TO_ALL = 3 };

struct frame {
    uint32_t magic;
    uint16_t kind, from;
    uint64_t sequence, bytes;
    uint32_t to, crc; /* of the 28 bytes before */
};

struct local_opts {
    int64_t ring;
};

struct request;

struct part {
    struct part    *next; /* in its direction's queue */
    struct request *owner;
    uint32_t        peer;
    uint16_t        kind;
    bool            out, done;
    unsigned char  *buf;
    uint64_t        bytes, at; /* at: of head, payload and CRC together */
    uint32_t        crc;
    unsigned char   head[sizeof(struct frame)], tail[4];
};

struct request {
    struct request *prev, *next;
    uint64_t        bytes;   /* of this allocation */
    uint32_t        n, open; /* parts, and those not done */
    tsr_status      status;
    char            why[256];
    struct part     part[];
};

/* One direction to or from one peer. */
struct lane {
    struct local_ring *ring;
    struct part       *first, *last;
    uint64_t           at, sequence;
    bool               broken;
};

struct local {
    const struct tsr_host *host;
    struct local_world    *world;
    uint32_t               rank, ranks;
    uint64_t               capacity, bytes;
    struct request        *requests;
    uint32_t               n_requests;
    bool                   fast_crc;
    struct lane           *in, *out; /* [ranks] */
    struct lane            lanes[];
};

static uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void ring_bell(struct local *s, uint32_t rank)
{
    struct local_bell *b = local_bell_of(s->world, rank);
    atomic_fetch_add(&b->count, 1);
    if (atomic_load(&b->sleeping))
        (void)syscall(SYS_futex, (void *)&b->count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- parts ------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void fail_request(struct request *r, tsr_status st,
                                                               const char *fmt, ...)
{
    if (r->status != TSR_OK)
        return;
    r->status = st;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(r->why, sizeof r->why, fmt, ap);
    va_end(ap);
}

static struct lane *lane_of(struct local *s, const struct part *p)
{
    return p->out ? &s->out[p->peer] : &s->in[p->peer];
}

/* The head of an incoming frame against what was asked for. */
static bool check_head(const struct local *s, struct part *p)
{
    struct frame f;
    memcpy(&f, p->head, sizeof f);
    if (f.magic != FRAME_MAGIC ||
        f.crc != crc32c(s->fast_crc, 0, p->head, offsetof(struct frame, crc)) ||
        f.from != p->peer || f.to != s->rank || f.sequence != s->in[p->peer].sequence) {
        fail_request(p->owner, TSR_E_DEVICE,
                     "local: rank %u received a damaged frame from rank %u (message %llu)", s->rank,
                     p->peer, (unsigned long long)s->in[p->peer].sequence);
        return false;
    }
    if (f.kind != p->kind || f.bytes != p->bytes) {
        static const char *const names[] = { "nothing", "a message", "all_gather", "all_to_all" };
        fail_request(
            p->owner, TSR_E_INVAL,
            "local: rank %u started %s of %llu bytes where rank %u sent %s of %llu; all ranks "
            "must start the same operations in the same order",
            s->rank, names[p->kind], (unsigned long long)p->bytes, p->peer,
            names[f.kind <= KIND_ALL_TO_ALL ? f.kind : 0], (unsigned long long)f.bytes);
        return false;
    }
    return true;
}

/* The piece of a frame at position p->at: where it lies and how long it is from there. */
static unsigned char *piece(struct part *p, uint64_t *left)
{
    uint64_t at = p->at, head = sizeof p->head;
    if (at < head) {
        *left = head - at;
        return p->head + at;
    }
    at -= head;
    if (at < p->bytes) {
        *left = p->bytes - at;
        return p->buf + at;
    }
    at -= p->bytes;
    *left = sizeof p->tail - at;
    return p->tail + at;
}

static void start_out(const struct local *s, struct part *p, uint64_t sequence)
{
    struct frame f = { FRAME_MAGIC, p->kind, (uint16_t)s->rank, sequence, p->bytes, p->peer, 0 };
    memcpy(p->head, &f, sizeof f);
    f.crc = crc32c(s->fast_crc, 0, p->head, offsetof(struct frame, crc));
    memcpy(p->head, &f, sizeof f);
}

/* Bookkeeping behind `moved` bytes of payload or an ended head.  False: the part has failed. */
static bool moved_on(struct local *s, struct part *p, const unsigned char *from, uint64_t moved)
{
    uint64_t before = p->at, head = sizeof p->head;
    p->at += moved;
    if (before >= head && before < head + p->bytes)
        p->crc = crc32c(s->fast_crc, p->crc, from, moved);
    if (!p->out && before < head && p->at == head && !check_head(s, p))
        return false;
    if (p->out && p->at == head + p->bytes)
        memcpy(p->tail, &p->crc, sizeof p->crc);
    if (!p->out && p->at == head + p->bytes + sizeof p->tail &&
        memcmp(p->tail, &p->crc, sizeof p->crc) != 0) {
        fail_request(
            p->owner, TSR_E_DEVICE,
            "local: rank %u received damaged bytes from rank %u (message %llu, CRC differs)",
            s->rank, p->peer, (unsigned long long)s->in[p->peer].sequence);
        return false;
    }
    return true;
}

/* Moves what can be moved of the first part of a lane.  True: it is finished (or has failed). */
static bool pump_part(struct local *s, struct lane *l, struct part *p)
{
    bool     gone = atomic_load(&local_bell_of(s->world, p->peer)->left) != 0, any = false;
    uint64_t end = sizeof p->head + p->bytes + sizeof p->tail;
    if (p->at == 0 && p->out)
        start_out(s, p, l->sequence);
    while (p->at < end) {
        uint64_t       left, moved;
        unsigned char *at = piece(p, &left);
        bool           ok = p->out ? local_ring_put(l->ring, s->capacity, &l->at, at, left, &moved)
                                   : local_ring_take(l->ring, s->capacity, &l->at, at, left, &moved);
        if (!ok) {
            fail_request(p->owner, TSR_E_DEVICE,
                         "local: the ring between rank %u and rank %u is damaged", s->rank,
                         p->peer);
            l->broken = true;
            return true;
        }
        if (moved == 0)
            break;
        any = true;
        if (!moved_on(s, p, at, moved)) {
            l->broken = true;
            ring_bell(s, p->peer);
            return true;
        }
    }
    if (any)
        ring_bell(s, p->peer);
    if (p->at == end) {
        l->sequence++;
        return true;
    }
    if (gone) { /* seen before the last look at the ring, so nothing more will come */
        fail_request(p->owner, TSR_E_DEVICE,
                     "local: rank %u has left the group with %llu of %llu bytes %s", p->peer,
                     (unsigned long long)p->at, (unsigned long long)end, p->out ? "taken" : "sent");
        l->broken = true;
        return true;
    }
    return false;
}

static void pump_lane(struct local *s, struct lane *l)
{
    while (l->first) {
        struct part *p = l->first;
        if (l->broken)
            fail_request(p->owner, TSR_E_DEVICE,
                         "local: an earlier message between rank %u and rank %u has failed",
                         s->rank, p->peer);
        else if (!pump_part(s, l, p))
            return;
        l->first = p->next;
        if (!l->first)
            l->last = NULL;
        p->done = true;
        p->owner->open--;
    }
}

static void pump(struct local *s)
{
    for (uint32_t i = 0; i < s->ranks; i++) {
        pump_lane(s, &s->out[i]);
        pump_lane(s, &s->in[i]);
    }
}

/* Takes an unfinished part out of its lane; one that has begun leaves half a frame behind. */
static void withdraw(struct local *s, struct part *p)
{
    struct lane  *l = lane_of(s, p);
    struct part **link = &l->first, *before = NULL;
    while (*link != p) {
        before = *link;
        link = &before->next;
    }
    *link = p->next;
    if (l->last == p)
        l->last = before;
    if (p->at > 0)
        l->broken = true;
}

static void release_request(struct local *s, struct request *r)
{
    bool begun = false;
    for (uint32_t i = 0; i < r->n; i++)
        begun = begun || r->part[i].at > 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->part[i].done)
            continue;
        withdraw(s, &r->part[i]);
        /* half a collective cannot be repeated: the peers would disagree about what comes next */
        if (begun)
            lane_of(s, &r->part[i])->broken = true;
    }
    if (r->prev)
        r->prev->next = r->next;
    else
        s->requests = r->next;
    if (r->next)
        r->next->prev = r->prev;
    s->n_requests--;
    s->host->release(s->host->ctx, r, r->bytes);
}

/* ---- life --------------------------------------------------------------- */

static uint64_t local_world_size(const void *opts, uint32_t ranks)
{
    const struct local_opts *o = opts;
    return ranks > LOCAL_MAX_RANKS ? 0 : local_world_bytes(ranks, (uint64_t)o->ring * 1024);
}

static tsr_status local_create(const struct tsr_host *host, const void *opts,
                               const struct tsr_transport_world *world, void **self,
                               struct tsr_err *err)
{
    const struct local_opts *o = opts;
    uint64_t                 capacity = (uint64_t)o->ring * 1024, seen = 0;
    if (world->ranks == 0 || world->ranks > LOCAL_MAX_RANKS || world->rank >= world->ranks)
        return tsr_fail(err, TSR_E_CONFIG, "local: rank %u of %u ranks; 1 to %u ranks are possible",
                        world->rank, world->ranks, LOCAL_MAX_RANKS);
    if (!world->shared || (uintptr_t)world->shared % 8 != 0 ||
        world->shared_bytes < local_world_bytes(world->ranks, capacity))
        return tsr_fail(err, TSR_E_INVAL,
                        "local: %llu shared bytes at %p, %llu aligned to 8 are needed",
                        (unsigned long long)world->shared_bytes, world->shared,
                        (unsigned long long)local_world_bytes(world->ranks, capacity));
    struct local_world *w = world->shared;
    if (!atomic_compare_exchange_strong(&w->capacity, &seen, capacity) && seen != capacity)
        return tsr_fail(
            err, TSR_E_CONFIG,
            "local: rank %u has ring: %lld KiB, another rank has %llu; all ranks need the "
            "same options",
            world->rank, (long long)o->ring, (unsigned long long)(seen / 1024));
    uint64_t      bytes = sizeof(struct local) + UINT64_C(2) * world->ranks * sizeof(struct lane);
    struct local *s = host->alloc(host->ctx, bytes, _Alignof(struct local));
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for transport local",
                        (unsigned long long)bytes);
    memset(s, 0, bytes);
    s->host = host;
    s->world = w;
    s->rank = world->rank;
    s->ranks = world->ranks;
    s->capacity = capacity;
    s->fast_crc = crc32c_fast_here();
    s->bytes = bytes;
    s->out = s->lanes;
    s->in = s->lanes + s->ranks;
    for (uint32_t i = 0; i < s->ranks; i++) {
        s->out[i].ring = local_ring_of(w, s->ranks, capacity, s->rank, i);
        s->in[i].ring = local_ring_of(w, s->ranks, capacity, i, s->rank);
    }
    *self = s;
    return TSR_OK;
}

static void local_destroy(void *self)
{
    struct local *s = self;
    if (!s)
        return;
    while (s->requests)
        release_request(s, s->requests);
    atomic_store(&local_bell_of(s->world, s->rank)->left, 1);
    for (uint32_t i = 0; i < s->ranks; i++)
        ring_bell(s, i);
    s->host->release(s->host->ctx, s, s->bytes);
}

/* ---- starting ----------------------------------------------------------- */

/* *out NULL with TSR_OK: too many are outstanding. */
static tsr_status new_request(struct local *s, void *stream, uint32_t parts, uint64_t bytes,
                              struct request **out, struct tsr_err *err)
{
    *out = NULL;
    if (stream)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "local: carries host memory only, the stream must be NULL");
    if (bytes > MAX_BYTES / s->ranks)
        return tsr_fail(err, TSR_E_INVAL, "local: %llu bytes are too many",
                        (unsigned long long)bytes);
    uint32_t by = atomic_load(&s->world->aborted);
    if (by)
        return tsr_fail(err, TSR_E_CANCELLED, "local: rank %u aborted the group", by - 1);
    if (s->n_requests >= MAX_REQUESTS)
        return TSR_OK;
    uint64_t        size = sizeof(struct request) + parts * sizeof(struct part);
    struct request *r = s->host->alloc(s->host->ctx, size, _Alignof(struct request));
    if (!r)
        return tsr_fail(err, TSR_E_NOMEM,
                        "out of memory: %llu bytes for a request of transport local",
                        (unsigned long long)size);
    memset(r, 0, size);
    r->bytes = size;
    r->next = s->requests;
    if (r->next)
        r->next->prev = r;
    s->requests = r;
    s->n_requests++;
    *out = r;
    return TSR_OK;
}

static void add_part(struct local *s, struct request *r, bool out, uint32_t peer, uint16_t kind,
                     const void *buf, uint64_t bytes)
{
    struct part *p = &r->part[r->n++];
    p->owner = r;
    p->out = out;
    p->peer = peer;
    p->kind = kind;
    p->buf = (unsigned char *)(uintptr_t)buf; /* sending parts are only read */
    p->bytes = bytes;
    struct lane *l = lane_of(s, p);
    if (l->last)
        l->last->next = p;
    else
        l->first = p;
    l->last = p;
    r->open++;
}

static tsr_status one(struct local *s, void *stream, bool out, uint32_t peer, const void *buf,
                      uint64_t bytes, void **request, struct tsr_err *err)
{
    struct request *r;
    *request = NULL;
    if (peer >= s->ranks)
        return tsr_fail(err, TSR_E_INVAL, "local: rank %u is not one of the %u ranks", peer,
                        s->ranks);
    tsr_status st = new_request(s, stream, 1, bytes, &r, err);
    if (st != TSR_OK || !r)
        return st;
    add_part(s, r, out, peer, KIND_MESSAGE, buf, bytes);
    pump_lane(s, lane_of(s, &r->part[0]));
    *request = r;
    return TSR_OK;
}

static tsr_status local_send(void *self, void *stream, uint32_t to, const void *buf, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    return one(self, stream, true, to, buf, bytes, request, err);
}

static tsr_status local_recv(void *self, void *stream, uint32_t from, void *buf, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    return one(self, stream, false, from, buf, bytes, request, err);
}

/* step: how far the blocks for successive peers lie apart in `send` (0: the same for all). */
static tsr_status collective(struct local *s, void *stream, uint16_t kind, const void *send,
                             uint64_t step, void *recv, uint64_t bytes, void **request,
                             struct tsr_err *err)
{
    struct request      *r;
    const unsigned char *from = send;
    unsigned char       *to = recv;
    *request = NULL;
    tsr_status st = new_request(s, stream, 2 * s->ranks, bytes, &r, err);
    if (st != TSR_OK || !r)
        return st;
    if (bytes)
        memmove(to + s->rank * bytes, from + s->rank * step, bytes);
    /* each rank starts with its right neighbour, so that not all write to the same one */
    for (uint32_t i = 1; i < s->ranks; i++) {
        uint32_t peer = (s->rank + i) % s->ranks, source = (s->rank + s->ranks - i) % s->ranks;
        add_part(s, r, true, peer, kind, from + peer * step, bytes);
        add_part(s, r, false, source, kind, to + source * bytes, bytes);
    }
    pump(s);
    *request = r;
    return TSR_OK;
}

static tsr_status local_all_gather(void *self, void *stream, const void *send, void *recv,
                                   uint64_t bytes, void **request, struct tsr_err *err)
{
    return collective(self, stream, KIND_GATHER, send, 0, recv, bytes, request, err);
}

static tsr_status local_all_to_all(void *self, void *stream, const void *send, void *recv,
                                   uint64_t bytes, void **request, struct tsr_err *err)
{
    return collective(self, stream, KIND_ALL_TO_ALL, send, bytes, recv, bytes, request, err);
}

/* ---- finishing ---------------------------------------------------------- */

/* One round of progress.  *over: the request has ended, with the status returned, and is gone. */
static tsr_status look(struct local *s, struct request *r, bool *over, struct tsr_err *err)
{
    *over = true;
    uint32_t   by = atomic_load(&s->world->aborted);
    tsr_status st = TSR_OK;
    if (by) {
        st = tsr_fail(err, TSR_E_CANCELLED, "local: rank %u aborted the group", by - 1);
    } else {
        pump(s);
        if (r->status != TSR_OK)
            st = tsr_fail(err, r->status, "%s", r->why);
        else if (r->open > 0)
            *over = false;
    }
    if (*over)
        release_request(s, r);
    return st;
}

static tsr_status local_test(void *self, void *request, int32_t *done, struct tsr_err *err)
{
    bool       over;
    tsr_status st = look(self, request, &over, err);
    *done = over;
    return st;
}

static tsr_status late(struct local *s, struct request *r, uint64_t deadline_us,
                       struct tsr_err *err)
{
    char     who[160] = "";
    size_t   n = 0;
    uint64_t got = 0, want = 0;
    for (uint32_t rank = 0; rank < s->ranks; rank++) {
        bool waits = false;
        for (uint32_t i = 0; i < r->n; i++) {
            const struct part *p = &r->part[i];
            if (p->done || p->peer != rank)
                continue;
            waits = true;
            got += p->at > sizeof p->head ? p->at - sizeof p->head : 0;
            want += p->bytes;
        }
        if (waits && n + 16 < sizeof who)
            n += (size_t)snprintf(who + n, sizeof who - n, "%s%u", n ? ", " : "", rank);
    }
    tsr_status st =
        tsr_fail(err, TSR_E_DEVICE,
                 "local: rank %u waited %llu us for rank %s (%llu of %llu bytes moved); it "
                 "is late or has died",
                 s->rank, (unsigned long long)deadline_us, who,
                 (unsigned long long)(got < want ? got : want), (unsigned long long)want);
    release_request(s, r);
    return st;
}

static void nap(struct local_bell *b, uint32_t count, uint64_t us)
{
    struct timespec t = { (time_t)(us / 1000000u), (long)(us % 1000000u) * 1000 };
    atomic_store(&b->sleeping, 1);
    if (atomic_load(&b->count) == count)
        (void)syscall(SYS_futex, (void *)&b->count, FUTEX_WAIT, count, &t, NULL, 0);
    atomic_store(&b->sleeping, 0);
}

static tsr_status local_wait(void *self, void *request, uint64_t deadline_us, struct tsr_err *err)
{
    struct local      *s = self;
    struct request    *r = request;
    struct local_bell *b = local_bell_of(s->world, s->rank);
    uint64_t           start = now_us();
    for (unsigned round = 0;; round++) {
        uint32_t   count = atomic_load(&b->count);
        bool       over;
        tsr_status st = look(s, r, &over, err);
        if (over)
            return st;
        uint64_t passed = now_us() - start;
        if (passed >= deadline_us)
            return late(s, r, deadline_us, err);
        if (s->host->cancelled(s->host->ctx)) {
            release_request(s, r);
            return tsr_fail(err, TSR_E_CANCELLED, "local: stopped by the user");
        }
        if (round >= SPIN_ROUNDS && atomic_load(&b->count) == count)
            nap(b, count, deadline_us - passed < NAP_US ? deadline_us - passed : NAP_US);
    }
}

static void local_abort(void *self)
{
    struct local *s = self;
    uint32_t      none = 0;
    (void)atomic_compare_exchange_strong(&s->world->aborted, &none, s->rank + 1);
    for (uint32_t i = 0; i < s->ranks; i++)
        ring_bell(s, i);
}

/* ---- descriptor --------------------------------------------------------- */

static const struct tsr_transport_v1 local_iface = {
    .struct_size = sizeof local_iface,
    .world_bytes = local_world_size,
    .create = local_create,
    .destroy = local_destroy,
    .send = local_send,
    .recv = local_recv,
    .all_gather = local_all_gather,
    .all_to_all = local_all_to_all,
    .test = local_test,
    .wait = local_wait,
    .abort = local_abort,
};

static const struct tsr_option local_options[] = {
    TSR_OPTION_INT(struct local_opts, ring, 64, 1, 65536, "KiB",
                   "Buffer of each ordered pair of ranks; messages may be larger."),
};

static const struct tsr_component local_component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_TRANSPORT,
    .name = "local",
    .summary = "Carries bytes between threads or processes of one machine, through shared memory.",
    .iface = &local_iface,
    .options = local_options,
    .n_options = sizeof local_options / sizeof local_options[0],
    .options_size = sizeof(struct local_opts),
};

static const struct tsr_component *const components[] = { &local_component };

TSR_PLUGIN_SYMBOL(local) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.local", .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,  .n_components = 1,
};
