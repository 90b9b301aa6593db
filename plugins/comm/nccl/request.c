/* One operation: its room on the device, the calls that it makes, and when it has ended. */
#include "nccl.h"

#include <stdarg.h>

#define ALIGNED(n) (((n) + 255) & ~UINT64_C(255))

static bool sends(const struct nc_request *r)
{
    return r->kind != NC_RECV;
}

static bool receives(const struct nc_request *r)
{
    return r->kind != NC_SEND;
}

/* Bytes of a block on the way: an empty message is a byte, so that it arrives. */
static uint64_t block(const struct nc_request *r)
{
    return r->bytes ? r->bytes : 1;
}

static uint64_t out_bytes(const struct nccl *s, const struct nc_request *r)
{
    return !sends(r) ? 0 : block(r) * (r->kind == NC_ALL_TO_ALL ? s->ranks : 1);
}

static uint64_t in_bytes(const struct nccl *s, const struct nc_request *r)
{
    return !receives(r) ? 0 : block(r) * (r->kind == NC_RECV ? 1 : s->ranks);
}

/* Does it pass through the request's room? */
static bool staged(const struct nc_request *r)
{
    return !r->stream || r->bytes == 0;
}

/* ---- memory -------------------------------------------------------------------- */

tsr_status nc_cuda_fail(const struct nccl *s, cu_result r, const char *what, struct tsr_err *err)
{
    const char *text = NULL;
    (void)s->l.cuGetErrorString(r, &text);
    return tsr_fail(err, r == CU_OUT_OF_MEMORY ? TSR_E_NOMEM : TSR_E_DEVICE,
                    "nccl: rank %u: %s: %s (CUDA error %d)", s->rank, what,
                    text ? text : "unknown error", r);
}

static tsr_status no_memory(uint64_t bytes, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for a request of transport nccl",
                    U(bytes));
}

static tsr_status make_request(struct nccl *s, struct nc_request **out, struct tsr_err *err)
{
    struct nc_request *r = s->host->alloc(s->host->ctx, sizeof *r, _Alignof(struct nc_request));
    if (!r)
        return no_memory(sizeof *r, err);
    memset(r, 0, sizeof *r);
    cu_result e = s->l.cuEventCreate(&r->event, CU_EVENT_UNTIMED);
    if (e != CU_OK) {
        s->host->release(s->host->ctx, r, sizeof *r);
        return nc_cuda_fail(s, e, "making an event", err);
    }
    *out = r;
    return TSR_OK;
}

/* What may fail on this side alone fails here, before others are in it: but for a room's memory. */
tsr_status nc_request_new(struct nccl *s, struct nc_request **out, struct tsr_err *err)
{
    struct nc_request *r = s->spare;
    tsr_status         st = TSR_OK;
    *out = NULL;
    if (s->n_requests >= NC_MAX_REQUESTS)
        return TSR_OK;
    struct nc_room *room = nc_room_take_spare(s, 0);
    if (!room) {
        room = s->host->alloc(s->host->ctx, sizeof *room, _Alignof(struct nc_room));
        if (!room)
            return no_memory(sizeof *room, err);
        *room = (struct nc_room){ .next = NULL };
    }
    if (r)
        s->spare = r->next;
    else if ((st = make_request(s, &r, err)) != TSR_OK) {
        room->next = s->rooms;
        s->rooms = room;
        return st;
    }
    *r = (struct nc_request){ .event = r->event, .room = room, .sequence = s->sequence++ };
    r->after = s->requests;
    if (r->after)
        r->after->before = r;
    s->requests = r;
    s->n_requests++;
    *out = r;
    return TSR_OK;
}

void nc_request_drop(struct nccl *s, struct nc_request *r)
{
    if (r->before)
        r->before->after = r->after;
    else
        s->requests = r->after;
    if (r->after)
        r->after->before = r->before;
    s->n_requests--;
    nc_room_put_back(s, r);
    nc_rooms_trim(s);
    r->next = s->spare;
    s->spare = r;
}

void nc_requests_free(struct nccl *s)
{
    while (s->spare) {
        struct nc_request *r = s->spare;
        s->spare = r->next;
        (void)s->l.cuEventDestroy_v2(r->event);
        s->host->release(s->host->ctx, r, sizeof *r);
    }
}

void nc_request_fail(struct nc_request *r, tsr_status st, const char *fmt, ...)
{
    va_list ap;
    if (r->stage == NC_ENDED)
        return;
    r->stage = NC_ENDED;
    r->status = st;
    va_start(ap, fmt);
    (void)vsnprintf(r->why, sizeof r->why, fmt, ap);
    va_end(ap);
}

/* ---- calls --------------------------------------------------------------------- */

/* An address of the device as NCCL takes it. */
static void *at(cu_pointer p)
{
    return (void *)(uintptr_t)p;
}

/* The results of a non-blocking communicator's calls that are not errors. */
static bool goes_on(nc_result e)
{
    return e == NC_OK || e == NC_IN_PROGRESS;
}

static nc_result all_to_all(struct nccl *s, const struct nc_request *r, cu_pointer out,
                            cu_pointer in, cu_stream stream)
{
    uint64_t  n = block(r);
    nc_result e = s->l.ncclGroupStart();
    for (uint32_t i = 0; goes_on(e) && i < s->ranks; i++) {
        e = s->l.ncclSend(at(out + i * n), n, NC_UINT8, (int)i, r->link->comm, stream);
        if (goes_on(e))
            e = s->l.ncclRecv(at(in + i * n), n, NC_UINT8, (int)i, r->link->comm, stream);
    }
    nc_result end = s->l.ncclGroupEnd(); /* also after an error */
    return goes_on(e) ? end : e;
}

static nc_result call(struct nccl *s, const struct nc_request *r, cu_pointer out, cu_pointer in,
                      cu_stream stream)
{
    uint64_t n = block(r);
    switch (r->kind) {
    case NC_SEND:
        return s->l.ncclSend(at(out), n, NC_UINT8, 1, r->link->comm, stream);
    case NC_RECV:
        return s->l.ncclRecv(at(in), n, NC_UINT8, 0, r->link->comm, stream);
    case NC_GATHER:
        return s->l.ncclAllGather(at(out), at(in), n, NC_UINT8, r->link->comm, stream);
    default:
        return all_to_all(s, r, out, in, stream);
    }
}

void nc_request_call(struct nccl *s, struct nc_request *r)
{
    NC_TEXT(e);
    struct nc_link *l = r->link;
    cu_stream       stream = r->stream ? r->stream : l->stream;
    uint64_t        out_n = out_bytes(s, r), in_at = ALIGNED(out_n);
    cu_pointer      out = (cu_pointer)(uintptr_t)r->src, in = (cu_pointer)(uintptr_t)r->dst;
    r->number = l->called++;
    if (!nc_meet_agree(s, r, &e.err)) {
        nc_link_break(s, l, TSR_E_DEVICE, "%s", e.text);
        return;
    }
    if (staged(r)) {
        tsr_status st = nc_request_room(s, r, in_at + in_bytes(s, r), &e.err);
        if (st != TSR_OK) { /* the others are in it already: it cannot be left out */
            nc_link_break(s, l, st, "%s", e.text);
            return;
        }
        out = r->room->device;
        in = r->room->device + in_at;
        if (r->bytes && sends(r))
            memcpy(r->room->pinned, r->src, out_n);
        cu_result c =
            out_n ? s->l.cuMemcpyHtoDAsync_v2(out, r->room->pinned, out_n, stream) : CU_OK;
        if (c != CU_OK) {
            st = nc_cuda_fail(s, c, "copying to the device", &e.err);
            nc_link_break(s, l, st, "%s", e.text);
            return;
        }
    }
    nc_result n = call(s, r, out, in, stream);
    if (!goes_on(n)) {
        char name[64];
        nc_link_break(s, l, TSR_E_DEVICE, "nccl: rank %u and %s: %s (%s)", s->rank,
                      nc_link_name(s, l, name), s->l.ncclGetErrorString(n),
                      s->l.ncclGetLastError(l->comm));
        return;
    }
    r->stage = NC_CALLS;
    l->calling = true;
}

void nc_request_record(struct nccl *s, struct nc_request *r)
{
    cu_stream stream = r->stream ? r->stream : r->link->stream;
    uint64_t  in_at = ALIGNED(out_bytes(s, r));
    cu_result e = CU_OK;
    if (staged(r) && receives(r))
        e = s->l.cuMemcpyDtoHAsync_v2(r->room->pinned + in_at, r->room->device + in_at,
                                      in_bytes(s, r), stream);
    if (e == CU_OK)
        e = s->l.cuEventRecord(r->event, stream);
    r->stage = NC_RUNS;
    if (e != CU_OK)
        nc_link_break(s, r->link, TSR_E_DEVICE, "nccl: rank %u: CUDA error %d after a message",
                      s->rank, e);
}

static void count(struct nccl *s, const struct nc_request *r)
{
    bool     pair = r->kind == NC_SEND || r->kind == NC_RECV;
    uint64_t peers = pair ? (r->link->from != r->link->to) : s->ranks - 1;
    s->sent += sends(r) ? r->bytes * peers : 0;
    s->received += receives(r) ? r->bytes * peers : 0;
}

void nc_request_look(struct nccl *s, struct nc_request *r)
{
    cu_result e = s->l.cuEventQuery(r->event);
    if (e == CU_NOT_READY)
        return;
    if (e != CU_OK) {
        nc_link_break(s, r->link, TSR_E_DEVICE,
                      "nccl: rank %u: the device failed under a message (CUDA error %d)", s->rank,
                      e);
        return;
    }
    if (staged(r) && receives(r) && r->bytes)
        memcpy(r->dst, r->room->pinned + ALIGNED(out_bytes(s, r)), in_bytes(s, r));
    count(s, r);
    r->stage = NC_ENDED;
}

/* ---- to itself ----------------------------------------------------------------- */

/* The next that waits. */
static struct nc_request *waiting(struct nc_request *r)
{
    while (r && r->stage != NC_WAITS)
        r = r->next;
    return r;
}

static void fail_both(struct nc_request *a, struct nc_request *b, tsr_status st, const char *why)
{
    nc_request_fail(a, st, "%s", why);
    nc_request_fail(b, st, "%s", why);
}

static cu_result copy_there(struct nccl *s, const struct nc_request *a, const struct nc_request *b)
{
    cu_result e = s->l.cuMemcpyDtoDAsync_v2((cu_pointer)(uintptr_t)b->dst,
                                            (cu_pointer)(uintptr_t)a->src, a->bytes, a->stream);
    if (e == CU_OK)
        e = s->l.cuEventRecord(a->event, a->stream);
    return e == CU_OK ? s->l.cuEventRecord(b->event, b->stream) : e;
}

void nc_requests_to_self(struct nccl *s, struct nc_link *out, struct nc_link *in)
{
    struct nc_request *a = waiting(out->first), *b = waiting(in->first);
    NC_TEXT(e);
    for (; a && b; a = waiting(a), b = waiting(b)) {
        if (a->bytes != b->bytes) {
            (void)tsr_fail(&e.err, TSR_E_INVAL,
                           "nccl: rank %u sent itself %llu bytes and asked for %llu", s->rank,
                           U(a->bytes), U(b->bytes));
            fail_both(a, b, TSR_E_INVAL, e.text);
        } else if (a->stream != b->stream) {
            (void)tsr_fail(&e.err, TSR_E_UNSUPPORTED,
                           "nccl: rank %u sends itself a message from one stream to another",
                           s->rank);
            fail_both(a, b, TSR_E_UNSUPPORTED, e.text);
        } else if (staged(a)) {
            if (a->bytes)
                memmove(b->dst, a->src, a->bytes);
            a->stage = b->stage = NC_ENDED;
        } else {
            cu_result c = copy_there(s, a, b);
            a->stage = b->stage = NC_RUNS;
            if (c != CU_OK)
                fail_both(a, b, nc_cuda_fail(s, c, "a copy", &e.err), e.text);
        }
    }
}
