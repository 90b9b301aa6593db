/* nccl - transport between NVIDIA GPUs, over NCCL, which is found at run time.
 *
 * Without a stream, buffers are host memory, which passes through pinned memory and the device. With a
 * stream, they are addresses of the device and the operation runs on that stream. NCCL protects its bytes:
 * there are no frames. NCCL does not detect a message whose size differs from the receiver's request;
 * where ranks share memory they compare sizes before each operation. */
#include "nccl.h"
#include "tessera/draft/window.h"

struct nccl_options {
    int64_t     device;
    const char *ids;
};

/* ---- the instances of this process ----------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl    *instances;

void nc_lock(void)
{
    (void)pthread_mutex_lock(&lock);
}

void nc_unlock(void)
{
    (void)pthread_mutex_unlock(&lock);
}

struct nccl *nc_instances(void)
{
    return instances;
}

bool nc_quiet(cu_context context)
{
    for (const struct nccl *s = instances; s; s = s->after)
        if (s->n_requests && s->context == context)
            return false;
    return !nc_lost();
}

void nc_move_all(void)
{
    for (struct nccl *s = instances; s; s = s->after)
        if ((s->n_requests || s->posts) && nc_enter(s)) {
            nc_links_move(s);
            nc_leave(s);
        }
}

/* ---- life ------------------------------------------------------------------------- */

static uint64_t world_bytes(const void *opts, uint32_t ranks)
{
    const struct nccl_options *o = opts;
    return *o->ids || ranks > NC_MAX_RANKS ? 0 : nc_board_bytes(ranks);
}

static const char *via(const void *opts)
{
    const struct nccl_options *o = opts;
    return o->ids;
}

static void name_links(struct nccl *s)
{
    s->all.group = true;
    for (uint32_t r = 0; r < s->ranks; r++) {
        s->peer[r].out.from = s->peer[r].in.to = s->rank;
        s->peer[r].out.to = s->peer[r].in.from = r;
    }
}

static void release(struct nccl *s)
{
    nc_window_close(s);
    nc_rooms_close(s);
    if (s->context && !nc_lost())
        (void)s->l.cuDevicePrimaryCtxRelease_v2(s->device);
    nc_libs_close(&s->l);
    s->host->release(s->host->ctx, s, s->size);
}

static tsr_status check_world(const struct nccl_options *o, const struct tsr_transport_world *w,
                              struct tsr_err *err)
{
    if (w->ranks == 0 || w->ranks > NC_MAX_RANKS || w->rank >= w->ranks)
        return tsr_fail(err, TSR_E_CONFIG, "nccl: rank %u of %u ranks; 1 to %u ranks are possible",
                        w->rank, w->ranks, NC_MAX_RANKS);
    if (*o->ids && !TSR_HAS(struct tsr_transport_world, w, via))
        return tsr_fail(err, TSR_E_CONFIG,
                        "nccl: ids=%.80s needs a host that joins that transport first; leave ids "
                        "out on one machine",
                        o->ids);
    return TSR_OK;
}

static tsr_status create(const struct tsr_host *host, const void *opts,
                         const struct tsr_transport_world *world, void **self, struct tsr_err *err)
{
    const struct nccl_options *o = opts;
    tsr_status                 st = check_world(o, world, err);
    int                        devices = 0;
    *self = NULL;
    if (st != TSR_OK)
        return st;
    uint64_t     size = sizeof(struct nccl) + (uint64_t)world->ranks * sizeof(struct nc_peer);
    struct nccl *s = host->alloc(host->ctx, size, _Alignof(struct nccl));
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for transport nccl", U(size));
    memset(s, 0, size);
    s->host = host;
    s->size = size;
    s->rank = world->rank;
    s->ranks = world->ranks;
    if (TSR_HAS(struct tsr_transport_world, world, epoch))
        s->epoch = world->epoch;
    name_links(s);
    st = nc_libs_open(&s->l, err);
    if (st == TSR_OK)
        st = nc_device_open(s, o->device, &devices, err);
    if (st == TSR_OK)
        st = nc_rooms_open(s, err);
    if (st == TSR_OK)
        st = nc_meet_open(s, world, err);
    if (st == TSR_OK)
        st = nc_window_open(s, devices, err);
    if (st != TSR_OK) {
        release(s);
        return st;
    }
    nc_lock();
    s->after = instances;
    if (s->after)
        s->after->before = s;
    instances = s;
    nc_unlock();
    *self = s;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct nccl *s = self;
    if (!s)
        return;
    nc_lock();
    if (s->before)
        s->before->after = s->after;
    else
        instances = s->after;
    if (s->after)
        s->after->before = s->before;
    bool inside = nc_enter(s);
    for (struct nc_request *r = s->requests; r; r = r->after)
        nc_withdraw(s, r, TSR_E_CANCELLED, "");
    nc_unlock();     /* no other instance holds it */
    nc_meet_poll(s); /* last words */
    nc_links_close(s);
    nc_meet_close(s);
    nc_lock(); /* memory is freed only while no other instance has messages under way */
    while (s->requests)
        nc_request_drop(s, s->requests);
    nc_unlock();
    nc_requests_free(s);
    if (inside)
        nc_leave(s);
    release(s);
}

/* ---- starting --------------------------------------------------------------------- */

tsr_status nc_cancelled(struct nccl *s, struct tsr_err *err)
{
    uint32_t by = nc_meet_aborted(s);
    if (by == 0)
        return TSR_OK;
    return by == UINT32_MAX
               ? tsr_fail(err, TSR_E_CANCELLED, "nccl: a rank aborted the group")
               : tsr_fail(err, TSR_E_CANCELLED, "nccl: rank %u aborted the group", by - 1);
}

static tsr_status begin(struct nccl *s, struct nc_link *l, enum nc_kind kind, void *stream,
                        const void *src, void *dst, uint64_t bytes, void **request,
                        struct tsr_err *err)
{
    struct nc_request *r = NULL;
    *request = NULL;
    if (bytes > (UINT64_C(1) << 46) / s->ranks)
        return tsr_fail(err, TSR_E_INVAL, "nccl: %llu bytes are too many", U(bytes));
    nc_lock();
    bool       inside = nc_enter(s);
    tsr_status st =
        inside ? nc_cancelled(s, err)
               : tsr_fail(err, TSR_E_DEVICE, "nccl: rank %u cannot enter its device", s->rank);
    if (st == TSR_OK && l->stage == NC_BROKEN)
        st = tsr_fail(err, TSR_E_DEVICE, "%s", l->why);
    if (st == TSR_OK)
        st = nc_request_new(s, &r, err);
    if (r) {
        r->link = l;
        r->kind = kind;
        r->src = src;
        r->dst = dst;
        r->bytes = bytes;
        r->stream = stream;
        if (l->last)
            l->last->next = r;
        else
            l->first = r;
        l->last = r;
        if (l->group)
            nc_meet_count(s);
        nc_links_move(s);
        *request = r;
    }
    if (inside)
        nc_leave(s);
    nc_unlock();
    return st;
}

static tsr_status check_rank(const struct nccl *s, uint32_t rank, struct tsr_err *err)
{
    return rank < s->ranks ? TSR_OK
                           : tsr_fail(err, TSR_E_INVAL, "nccl: rank %u is not one of the %u ranks",
                                      rank, s->ranks);
}

static tsr_status send(void *self, void *stream, uint32_t to, const void *buf, uint64_t bytes,
                       void **request, struct tsr_err *err)
{
    struct nccl *s = self;
    tsr_status   st = check_rank(s, to, err);
    *request = NULL;
    return st == TSR_OK
               ? begin(s, &s->peer[to].out, NC_SEND, stream, buf, NULL, bytes, request, err)
               : st;
}

static tsr_status recv(void *self, void *stream, uint32_t from, void *buf, uint64_t bytes,
                       void **request, struct tsr_err *err)
{
    struct nccl *s = self;
    tsr_status   st = check_rank(s, from, err);
    *request = NULL;
    return st == TSR_OK
               ? begin(s, &s->peer[from].in, NC_RECV, stream, NULL, buf, bytes, request, err)
               : st;
}

static tsr_status all_gather(void *self, void *stream, const void *src, void *dst, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    struct nccl *s = self;
    return begin(s, &s->all, NC_GATHER, stream, src, dst, bytes, request, err);
}

static tsr_status all_to_all(void *self, void *stream, const void *src, void *dst, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    struct nccl *s = self;
    return begin(s, &s->all, NC_ALL_TO_ALL, stream, src, dst, bytes, request, err);
}

static void abort_group(void *self)
{
    struct nccl *s = self;
    nc_meet_abort(s);
    nc_window_abort(s);
}

/* ---- extensions ------------------------------------------------------------------- */

static void read_counts(const void *self, struct tsr_transport_counts *c)
{
    const struct nccl *s = self;
    c->sent = s->sent;
    c->received = s->received;
    c->refused = s->refused;
}

static const struct tsr_transport_counts_v1 counts = { .struct_size = sizeof counts,
                                                       .read = read_counts };

static tsr_status queued(void *self, void *request, int32_t *is, struct tsr_err *err)
{
    struct nc_request *r = request;
    (void)self;
    nc_lock();
    nc_move_all();
    *is = r->stage == NC_RUNS || r->stage == NC_ENDED;
    tsr_status st = r->stage == NC_ENDED && r->status != TSR_OK
                        ? tsr_fail(err, r->status, "%s", r->why)
                        : TSR_OK;
    nc_unlock();
    return st;
}

static const void *place(const void *self)
{
    return ((const struct nccl *)self)->context;
}

static const struct tsr_transport_device_v1 device = { .struct_size = sizeof device,
                                                       .queued = queued,
                                                       .place = place };

static const struct tsr_transport_window_v1 window = { .struct_size = sizeof window,
                                                       .meet = nc_window_meet };

static const void *extension(const void *self, const char *id)
{
    (void)self;
    if (strcmp(id, TSR_TRANSPORT_WINDOW) == 0)
        return &window;
    if (strcmp(id, TSR_TRANSPORT_DEVICE) == 0)
        return &device;
    return strcmp(id, TSR_TRANSPORT_COUNTS) == 0 ? &counts : NULL;
}

/* ---- descriptor ------------------------------------------------------------------- */

static const struct tsr_transport_v1 table = {
    .struct_size = sizeof table,
    .world_bytes = world_bytes,
    .create = create,
    .destroy = destroy,
    .send = send,
    .recv = recv,
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .test = nc_test,
    .wait = nc_wait,
    .abort = abort_group,
    .extension = extension,
    .via = via,
    .needs = TSR_TRANSPORT_THREADS | TSR_TRANSPORT_STATICS,
};

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct nccl_options, device, -1, -1, 255, NULL,
                   "Which device this rank works on, as CUDA_VISIBLE_DEVICES leaves them; -1: each "
                   "rank its own, in their order on a machine, as backend cuda does."),
    TSR_OPTION_STRING(struct nccl_options, ids, "",
                      "Transport over which ranks find each other, such as mpi for several hosts; "
                      "empty: the memory that ranks of one machine share."),
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_TRANSPORT,
    .name = "nccl",
    .summary = "Carries bytes between NVIDIA GPUs over NCCL, which is found at run time.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct nccl_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(nccl) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.nccl", .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,
};
