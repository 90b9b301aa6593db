/* local - transport between threads, or between processes that share the world's memory. */
#include "link.h"
#include "tessera/crc32c.h"

#define MAX_REQUESTS 256u /* outstanding; beyond that: "ask again" */
#define MAX_BYTES    (UINT64_C(1) << 62)
#define RING_LEAST   (UINT64_C(64) << 10)
#define RING_MOST    (UINT64_C(256) << 10)
#define ALL_RINGS    (UINT64_C(32) << 20)

struct local_opts {
    int64_t ring;
    double  bandwidth, latency; /* MB/s, us; 0: as fast as it goes */
    int64_t wire;
};

enum { WIRE_RANK = 0, WIRE_PAIR = 1 };

/* ---- life --------------------------------------------------------------- */

/* Bytes of a ring.  As it suits: a message that fits is sent in one go, and its sender does not wait for
 * a receiver that computes; but all rings lie in the caches with it. */
static uint64_t capacity_of(const struct local_opts *o, uint32_t ranks)
{
    uint64_t each = ALL_RINGS / ((uint64_t)ranks * ranks) / RING_LEAST * RING_LEAST;
    if (o->ring)
        return (uint64_t)o->ring * 1024;
    return each < RING_LEAST ? RING_LEAST : each > RING_MOST ? RING_MOST : each;
}

static uint64_t local_world_size(const void *opts, uint32_t ranks)
{
    return ranks == 0 || ranks > LOCAL_MAX_RANKS
               ? 0
               : local_world_bytes(ranks, capacity_of(opts, ranks));
}

static tsr_status local_create(const struct tsr_host *host, const void *opts,
                               const struct tsr_transport_world *world, void **self,
                               struct tsr_err *err)
{
    const struct local_opts *o = opts;
    uint64_t                 seen = 0;
    if (world->ranks == 0 || world->ranks > LOCAL_MAX_RANKS || world->rank >= world->ranks)
        return tsr_fail(err, TSR_E_CONFIG, "local: rank %u of %u ranks; 1 to %u ranks are possible",
                        world->rank, world->ranks, LOCAL_MAX_RANKS);
    uint64_t capacity = capacity_of(o, world->ranks);
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
            "local: rank %u has ring: %llu KiB, another rank has %llu; all ranks need the "
            "same options",
            world->rank, (unsigned long long)(capacity / 1024), (unsigned long long)(seen / 1024));
    uint64_t      bytes = sizeof(struct local) + UINT64_C(2) * world->ranks * sizeof(struct link);
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
    s->crc_level = tsr_crc32c_level();
    s->pace.ns_per_byte = o->bandwidth > 0 ? 1e3 / o->bandwidth : 0;
    s->pace.latency_ns = (uint64_t)(o->latency * 1e3);
    s->pace.on = o->bandwidth > 0 || o->latency > 0;
    s->pace.pair = o->wire == WIRE_PAIR;
#if TSR_ABI_MINOR >= 1
    if (TSR_HAS(struct tsr_transport_world, world, epoch))
        s->epoch = world->epoch;
#endif
    s->bytes = bytes;
    s->out = s->links;
    s->in = s->links + s->ranks;
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
        local_release_request(s, s->requests);
    atomic_store(&local_bell_of(s->world, s->rank)->left, 1);
    for (uint32_t i = 0; i < s->ranks; i++)
        local_ring_bell(s, i);
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
    local_add_part(s, r, out, peer, KIND_MESSAGE, buf, bytes);
    local_pump_link(s, local_link_of(s, &r->part[0]));
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

/* step: stride of the blocks for successive peers in `send` (0: the same for all). */
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
    bool     one_for_all = step == 0 && s->ranks > 2;
    uint32_t crc = one_for_all ? tsr_crc32c_by(s->crc_level, 0, send, bytes) : 0;
    if (bytes)
        memmove(to + s->rank * bytes, from + s->rank * step, bytes);
    /* each rank starts with its right neighbour, so that not all write to the same one */
    for (uint32_t i = 1; i < s->ranks; i++) {
        uint32_t peer = (s->rank + i) % s->ranks, source = (s->rank + s->ranks - i) % s->ranks;
        local_add_part(s, r, true, peer, kind, from + peer * step, bytes);
        r->part[r->n - 1].summed = one_for_all;
        r->part[r->n - 1].crc = crc;
        local_add_part(s, r, false, source, kind, to + source * bytes, bytes);
    }
    local_pump(s);
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

static void local_abort(void *self)
{
    struct local *s = self;
    uint32_t      none = 0;
    (void)atomic_compare_exchange_strong(&s->world->aborted, &none, s->rank + 1);
    for (uint32_t i = 0; i < s->ranks; i++)
        local_ring_bell(s, i);
}

/* ---- counts ------------------------------------------------------------- */

#if TSR_ABI_MINOR >= 1
static void local_counts(const void *self, struct tsr_transport_counts *c)
{
    const struct local *s = self;
    c->sent = s->sent;
    c->received = s->received;
    c->refused = s->refused;
}

static const struct tsr_transport_counts_v1 counts = { .struct_size = sizeof counts,
                                                       .read = local_counts };

static const void *local_extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_TRANSPORT_COUNTS) == 0 ? &counts : NULL;
}
#endif

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
#if TSR_ABI_MINOR >= 1
    .extension = local_extension,
#endif
};

static const struct tsr_choice wires[] = {
    { "rank", "one out of each rank, which all that it sends shares", WIRE_RANK },
    { "pair", "one for each pair of ranks", WIRE_PAIR },
};

static const struct tsr_option local_options[] = {
    TSR_OPTION_INT(
        struct local_opts, ring, 0, 0, 65536, "KiB",
        "Buffer of each ordered pair of ranks; messages may be larger.  0: 256, fewer for "
        "more than 11 ranks, down to 64."),
    TSR_OPTION_REAL(
        struct local_opts, bandwidth, 0, 0, 1e7, "MB/s",
        "Paced: bytes arrive no faster than over a wire of 10^6 bytes/s times this; 0: as "
        "fast as it goes."),
    TSR_OPTION_REAL(struct local_opts, latency, 0, 0, 1e6, "us",
                    "Paced: a message arrives this much later."),
    TSR_OPTION_ENUM(struct local_opts, wire, WIRE_RANK, wires, "Paced: what the bandwidth is of."),
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
