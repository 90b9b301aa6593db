/* Rooms: memory of messages on the device and pinned on the host, kept for later requests. */
#include "nccl.h"

void nc_room_free(struct nccl *s, struct nc_room *room)
{
    if (room->device && !nc_lost()) /* else a free could wait forever */
        (void)s->l.cuMemFree_v2(room->device);
    if (room->pinned && !nc_lost())
        (void)s->l.cuMemFreeHost(room->pinned);
    s->host->release(s->host->ctx, room, sizeof *room);
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
            nc_room_free(s, unlink_room(at));
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
