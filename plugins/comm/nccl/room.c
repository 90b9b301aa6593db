/* Rooms: memory of messages on the device and pinned on the host, kept for later requests. */
#include "nccl.h"

static void free_memory(struct nccl *s, cu_pointer device, void *pinned)
{
    if (nc_lost()) /* a free could wait forever */
        return;
    if (device)
        (void)s->l.cuMemFree_v2(device);
    if (pinned)
        (void)s->l.cuMemFreeHost(pinned);
}

static void free_room(struct nccl *s, struct nc_room *room)
{
    if (!room->part)
        free_memory(s, room->device, room->pinned);
    s->host->release(s->host->ctx, room, sizeof *room);
}

void nc_rooms_close(struct nccl *s)
{
    bool inside = s->context && nc_enter(s);
    while (s->rooms) {
        struct nc_room *room = s->rooms;
        s->rooms = room->next;
        free_room(s, room);
    }
    free_memory(s, s->device_block, s->pinned_block);
    if (inside)
        nc_leave(s);
}

static bool add_rooms(struct nccl *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct nc_room *room = s->host->alloc(s->host->ctx, sizeof *room, _Alignof(struct nc_room));
        if (!room)
            return false;
        *room = (struct nc_room){ .next = s->rooms,
                                  .device = s->device_block + i * NC_PIECE,
                                  .pinned = (uint8_t *)s->pinned_block + i * NC_PIECE,
                                  .bytes = NC_PIECE,
                                  .part = true };
        s->rooms = room;
    }
    return true;
}

tsr_status nc_rooms_open(struct nccl *s, struct tsr_err *err)
{
    const uint64_t all = (s->ranks - UINT64_C(1)) * NC_PIECES;
    const uint64_t n = all < NC_MAX_REQUESTS ? all : NC_MAX_REQUESTS, bytes = n * NC_PIECE;
    if (n == 0)
        return TSR_OK;
    if (!nc_enter(s))
        return tsr_fail(err, TSR_E_DEVICE, "nccl: rank %u cannot enter its device", s->rank);
    cu_result e = s->l.cuMemAlloc_v2(&s->device_block, bytes);
    if (e != CU_OK)
        s->device_block = 0;
    else if ((e = s->l.cuMemHostAlloc(&s->pinned_block, bytes, CU_HOST_ANY)) != CU_OK)
        s->pinned_block = NULL;
    nc_leave(s);
    if (e != CU_OK)
        return nc_cuda_fail(s, e, "memory for messages", err);
    return add_rooms(s, n)
               ? TSR_OK
               : tsr_fail(err, TSR_E_NOMEM, "out of memory: the messages of transport nccl");
}

void nc_room_put_back(struct nccl *s, struct nc_request *r)
{
    r->room->next = s->rooms;
    s->rooms = r->room;
    r->room = NULL;
}

static struct nc_room *unlink_room(struct nc_room **at)
{
    struct nc_room *room = *at;
    *at = room->next;
    room->next = NULL;
    return room;
}

void nc_rooms_trim(struct nccl *s)
{
    if (s->n_requests || !nc_quiet(s->context))
        return;
    for (struct nc_room **at = &s->rooms; *at;)
        if ((*at)->bytes > NC_KEEP_BYTES || ((*at)->device && !(*at)->bytes))
            free_room(s, unlink_room(at));
        else
            at = &(*at)->next;
}

/* The smallest spare one that has the bytes; for 0 bytes one without memory. */
struct nc_room *nc_room_take_spare(struct nccl *s, uint64_t bytes)
{
    struct nc_room **best = NULL;
    for (struct nc_room **at = &s->rooms; *at; at = &(*at)->next)
        if (bytes ? (*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes)
                  : !(*at)->device)
            best = at;
    return best ? unlink_room(best) : NULL;
}

/* Those that are kept have few sizes. */
static uint64_t room_size(uint64_t bytes)
{
    uint64_t n = 4096;
    while (n < bytes && n < NC_KEEP_BYTES)
        n *= 2;
    return n < bytes ? bytes : n;
}

tsr_status nc_request_room(struct nccl *s, struct nc_request *r, uint64_t bytes,
                           struct tsr_err *err)
{
    void           *pinned = NULL;
    uint64_t        n = room_size(bytes);
    struct nc_room *spare = nc_room_take_spare(s, bytes);
    cu_result       e;
    if (spare) {
        nc_room_put_back(s, r);
        r->room = spare;
        return TSR_OK;
    }
    if ((e = s->l.cuMemAlloc_v2(&r->room->device, n)) != CU_OK)
        r->room->device = 0;
    else if ((e = s->l.cuMemHostAlloc(&pinned, n, CU_HOST_ANY)) == CU_OK)
        r->room->pinned = pinned;
    if (e != CU_OK) /* its parts are freed when nothing is under way */
        return nc_cuda_fail(s, e, "memory for a message", err);
    r->room->bytes = n;
    return TSR_OK;
}
