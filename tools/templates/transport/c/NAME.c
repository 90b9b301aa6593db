/* @NAME@ - bytes between threads or processes of one machine through the memory that they share: a
 * slot for each ordered pair of ranks, which one fills and the other empties, in their calls. */
#include <stdatomic.h>
#include <string.h>
#include <tessera/transport.h>
#include <time.h>

#define MAX_RANKS  64u
#define SLOT_BYTES 16384u

struct slot {                  /* zeroed memory is a valid start */
    _Atomic uint64_t full;     /* set by the sender, cleared by the receiver */
    uint64_t         total, n; /* bytes of the whole message, and of this piece */
    unsigned char    data[SLOT_BYTES];
};
struct world {
    _Atomic uint64_t aborted; /* some rank has given up */
    struct slot      slots[]; /* [from][to] */
};
struct part { /* what goes to or comes from one peer */
    uint32_t       peer;
    int            out, done;
    unsigned char *buf;
    uint64_t       bytes, at;
};
struct request {
    struct request *next; /* in the order in which they were started */
    uint64_t        size;
    uint32_t        n;
    int             begun, wrong; /* a piece has moved; a peer sent another size */
    struct part     part[];
};

struct transport {
    const struct tsr_host *host;
    struct world          *world;
    struct request        *first;
    uint32_t               rank, ranks;
    int broken; /* an operation was cut off: what comes next is anybody's guess */
};

static uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static uint64_t world_bytes(const void *opts, uint32_t ranks)
{
    (void)opts;
    return sizeof(struct world) + (uint64_t)ranks * ranks * sizeof(struct slot);
}

static tsr_status create(const struct tsr_host *host, const void *opts,
                         const struct tsr_transport_world *w, void **self, struct tsr_err *err)
{
    if (w->rank >= w->ranks || w->ranks > MAX_RANKS)
        return tsr_fail(err, TSR_E_CONFIG, "@NAME@: rank %u of %u; 1 to %u ranks are possible",
                        w->rank, w->ranks, MAX_RANKS);
    if (!w->shared || (uintptr_t)w->shared % 8 || w->shared_bytes < world_bytes(opts, w->ranks))
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: too few shared bytes, or not aligned to 8");
    struct transport *t = host->alloc(host->ctx, sizeof *t, 16);
    if (!t)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof *t);
    *t = (struct transport){ .host = host, .world = w->shared, .rank = w->rank, .ranks = w->ranks };
    *self = t;
    return TSR_OK;
}

static void move(struct transport *t, struct request *r, struct part *p)
{
    uint64_t     from = p->out ? t->rank : p->peer, to = p->out ? p->peer : t->rank;
    struct slot *s = &t->world->slots[from * t->ranks + to];
    while (!p->done && !r->wrong) {
        if ((atomic_load_explicit(&s->full, memory_order_acquire) != 0) == p->out)
            return;
        r->begun = 1;
        if (p->out) {
            s->total = p->bytes;
            s->n = p->bytes - p->at < SLOT_BYTES ? p->bytes - p->at : SLOT_BYTES;
        }
        r->wrong = s->total != p->bytes || s->n > p->bytes - p->at || s->n > SLOT_BYTES;
        if (r->wrong)
            return;
        unsigned char *mine = p->buf + p->at;
        if (s->n)
            memcpy(p->out ? s->data : mine, p->out ? mine : s->data, s->n);
        p->at += s->n;
        p->done = p->at == p->bytes;
        atomic_store_explicit(&s->full, (uint64_t)p->out, memory_order_release);
    }
}

/* Between two ranks only the oldest unfinished part may move. */
static void pump(struct transport *t)
{
    char busy[2][MAX_RANKS] = { { 0 } };
    for (struct request *r = t->first; r; r = r->next)
        for (struct part *p = r->part; p < r->part + r->n; p++) {
            if (!busy[p->out][p->peer])
                move(t, r, p);
            busy[p->out][p->peer] |= !p->done;
        }
}

static void release(struct transport *t, struct request *r)
{
    struct request **link = &t->first;
    for (struct part *p = r->part; p < r->part + r->n; p++)
        t->broken |= r->begun && !p->done; /* half an operation cannot be taken back */
    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
    t->host->release(t->host->ctx, r, r->size);
}

static void destroy(void *self)
{
    struct transport *t = self;
    while (t && t->first)
        release(t, t->first);
    if (t)
        t->host->release(t->host->ctx, t, sizeof *t);
}

/* *request becomes a request with room for n parts, at the end of the list. */
static tsr_status start(struct transport *t, void *stream, uint32_t n, void **request,
                        struct tsr_err *err)
{
    uint64_t         size = sizeof(struct request) + n * sizeof(struct part);
    struct request **link = &t->first;
    *request = NULL;
    if (stream)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: host memory only, stream must be NULL");
    if (atomic_load(&t->world->aborted))
        return tsr_fail(err, TSR_E_CANCELLED, "@NAME@: the group was aborted");
    if (t->broken)
        return tsr_fail(err, TSR_E_DEVICE, "@NAME@: an earlier operation was cut off");
    struct request *r = t->host->alloc(t->host->ctx, size, 16);
    if (!r)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", (size_t)size);
    memset(r, 0, size);
    r->size = size;
    while (*link)
        link = &(*link)->next;
    *link = *request = r;
    return TSR_OK;
}

static void add(struct request *r, int out, uint32_t peer, const void *buf, uint64_t bytes)
{
    unsigned char *b = (unsigned char *)(uintptr_t)buf; /* what goes out is only read */
    r->part[r->n++] = (struct part){ .peer = peer, .out = out, .buf = b, .bytes = bytes };
}

static tsr_status one(struct transport *t, void *stream, int out, uint32_t peer, const void *buf,
                      uint64_t bytes, void **request, struct tsr_err *err)
{
    if (peer >= t->ranks)
        return tsr_fail(err, TSR_E_INVAL, "@NAME@: there is no rank %u", peer);
    tsr_status st = start(t, stream, 1, request, err);
    if (st != TSR_OK)
        return st;
    add(*request, out, peer, buf, bytes);
    pump(t);
    return TSR_OK;
}

static tsr_status send(void *self, void *stream, uint32_t to, const void *buf, uint64_t bytes,
                       void **request, struct tsr_err *err)
{
    return one(self, stream, 1, to, buf, bytes, request, err);
}

static tsr_status recv(void *self, void *stream, uint32_t from, void *buf, uint64_t bytes,
                       void **request, struct tsr_err *err)
{
    return one(self, stream, 0, from, buf, bytes, request, err);
}

/* step: how far the blocks for successive ranks lie apart in `src`. */
static tsr_status collective(struct transport *t, void *stream, const unsigned char *src,
                             uint64_t step, unsigned char *dst, uint64_t bytes, void **request,
                             struct tsr_err *err)
{
    tsr_status st = start(t, stream, 2 * t->ranks, request, err);
    if (st != TSR_OK)
        return st;
    for (uint32_t i = 0; i < t->ranks; i++) { /* its own block goes the same way */
        add(*request, 1, i, src + i * step, bytes);
        add(*request, 0, i, dst + i * bytes, bytes);
    }
    pump(t);
    return TSR_OK;
}

static tsr_status all_gather(void *self, void *stream, const void *from, void *to, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    return collective(self, stream, from, 0, to, bytes, request, err);
}

static tsr_status all_to_all(void *self, void *stream, const void *from, void *to, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    return collective(self, stream, from, bytes, to, bytes, request, err);
}

static tsr_status test(void *self, void *request, int32_t *done, struct tsr_err *err)
{
    struct transport *t = self;
    struct request   *r = request;
    tsr_status        st = TSR_OK;
    int               open = 0;
    pump(t);
    for (struct part *p = r->part; p < r->part + r->n; p++)
        open |= !p->done;
    if (atomic_load(&t->world->aborted))
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

static tsr_status wait(void *self, void *request, uint64_t deadline_us, struct tsr_err *err)
{
    struct transport *t = self;
    struct request   *r = request;
    uint64_t          begin = now_us();
    uint32_t          late = 0;
    for (int32_t done;;) {
        tsr_status st = test(t, r, &done, err);
        if (done)
            return st;
        for (struct part *p = r->part; p < r->part + r->n; p++)
            late = p->done ? late : p->peer;
        if (now_us() - begin >= deadline_us)
            st = tsr_fail(err, TSR_E_DEVICE, "@NAME@: rank %u waited %llu us for rank %u", t->rank,
                          (unsigned long long)deadline_us, late);
        else if (t->host->cancelled(t->host->ctx))
            st = tsr_fail(err, TSR_E_CANCELLED, "@NAME@: stopped");
        if (st != TSR_OK) {
            release(t, r);
            return st;
        }
        (void)nanosleep(&(struct timespec){ 0, 20000 }, NULL);
    }
}

static void abort_group(void *self)
{
    struct transport *t = self;
    atomic_store(&t->world->aborted, 1);
}

static const struct tsr_transport_v1 table = {
    .struct_size = sizeof table, .world_bytes = world_bytes, .create = create, .destroy = destroy,
    .send = send, .recv = recv, .all_gather = all_gather, .all_to_all = all_to_all, .test = test,
    .wait = wait, .abort = abort_group,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_TRANSPORT, .name = "@NAME@", .iface = &table,
    .summary = "Carries bytes through shared memory, a slot for each pair of ranks.",
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
