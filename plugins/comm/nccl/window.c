/* Windows: memory of each rank's device that the devices of all ranks see (tessera/draft/window.h), where the ranks
 * share memory of the host and each has a device of its own.
 *
 * Taken when an instance is made, and written to the board. When ranks meet, each opens the memory of the others:
 * within a process the address itself serves, between processes a handle of the driver. Then all say whether they
 * could, and one that could not keeps all from it; the log of each rank says why.
 *
 * Memory is not freed while another process has it open.  A rank says on the board what it is about to open, and only
 * then looks whether the owner still offers it; an owner that leaves withdraws the offer, and only then looks who has
 * it open. */
#include "nccl.h"

#include "tessera/draft/window.h"

#include <unistd.h>

#define POLL_US  50
#define LEAVE_US UINT64_C(500000) /* for the processes that have opened this rank's memory */

#define CU_ALREADY_ENABLED 704

/* ---- taken at create ------------------------------------------------------------------ */

static void say(struct nccl *s, uint32_t stage)
{
    atomic_store(&nc_board_window(s, s->rank)->stage, stage);
}

/* This rank has no window, for that reason; empty: it has no use for one. */
static void give_up(struct nccl *s, const char *why)
{
    struct nc_board_window *b = nc_board_window(s, s->rank);
    (void)snprintf(b->why, sizeof b->why, "%s", why);
    say(s, NC_WINDOW_NONE);
}

/* Zeroed when it returns. */
static cu_result clear(struct nccl *s, cu_pointer p)
{
    cu_stream stream = NULL;
    cu_result e = s->l.cuStreamCreate(&stream, CU_STREAM_ALONE);
    if (e != CU_OK)
        return e;
    e = s->l.cuMemsetD8Async(p, 0, NC_WINDOW_BYTES, stream);
    for (cu_result q = CU_NOT_READY; e == CU_OK && q == CU_NOT_READY;) {
        q = s->l.cuStreamQuery(stream);
        if (q != CU_OK && q != CU_NOT_READY)
            e = q;
    }
    (void)s->l.cuStreamDestroy_v2(stream);
    return e;
}

static cu_result take(struct nccl *s, struct nc_board_window *b)
{
    struct nc_window *w = &s->window;
    void             *state = NULL;
    cu_result         e = s->l.cuMemAlloc_v2(&w->own, NC_WINDOW_BYTES);
    if (e != CU_OK) {
        w->own = 0;
        return e;
    }
    if ((e = s->l.cuMemHostAlloc(&state, sizeof *w->state, CU_HOST_ANY | CU_HOST_MAPPED)) != CU_OK)
        return e;
    w->state = state;
    atomic_store(w->state, 0);
    if ((e = s->l.cuMemHostGetDevicePointer_v2(&w->state_address, state, 0)) == CU_OK &&
        (e = clear(s, w->own)) == CU_OK &&
        (e = s->l.cuIpcGetMemHandle(&b->handle, w->own)) == CU_OK)
        e = s->l.cuDeviceGetPCIBusId(b->bus, sizeof b->bus, s->device);
    b->address = w->own;
    return e;
}

tsr_status nc_window_open(struct nccl *s, int devices, struct tsr_err *err)
{
    if (!s->board || s->ranks < 2 || s->ranks > TSR_WINDOW_RANKS)
        return TSR_OK;
    if (devices < 2) { /* no two ranks have devices of their own */
        say(s, NC_WINDOW_NONE);
        return TSR_OK;
    }
    if (!nc_enter(s))
        return tsr_fail(err, TSR_E_DEVICE, "nccl: rank %u cannot enter its device", s->rank);
    cu_result e = take(s, nc_board_window(s, s->rank));
    nc_leave(s);
    if (e == CU_OUT_OF_MEMORY)
        return nc_cuda_fail(s, e, "memory for sums over ranks", err);
    s->window.there = e == CU_OK;
    if (e == CU_OK)
        say(s, NC_WINDOW_THERE);
    else
        give_up(s, "memory that other devices see: the driver refuses it");
    return TSR_OK;
}

/* ---- meeting -------------------------------------------------------------------------- */

/* The instance of a rank in this process, or NULL.  [under lock] */
static struct nccl *here(const struct nccl *s, uint32_t rank)
{
    struct nccl *o = nc_instances();
    while (o && (o->board != s->board || o->rank != rank))
        o = o->after;
    return o;
}

static tsr_status no(struct nccl *s, uint32_t rank, const char *why, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_UNSUPPORTED,
                    "the devices of ranks %u and %u do not see each other's memory: %s", s->rank,
                    rank, why);
}

static tsr_status may_see(struct nccl *s, uint32_t rank, cu_device device, struct tsr_err *err)
{
    int       can = 0;
    cu_result e = s->l.cuDeviceCanAccessPeer(&can, s->device, device);
    return e == CU_OK && can ? TSR_OK : no(s, rank, "the driver says so", err);
}

/* [under lock, context entered] */
static tsr_status open_peer(struct nccl *s, uint32_t rank, struct tsr_err *err)
{
    const struct nc_board_window *b = nc_board_window(s, rank);
    struct nc_board_window       *own = nc_board_window(s, s->rank);
    const struct nccl            *o = here(s, rank);
    cu_device                     device = o ? o->device : 0;
    tsr_status                    st = TSR_OK;
    cu_result                     e;
    if (strcmp(b->bus, own->bus) == 0)
        return no(s, rank, "they are one device", err);
    if (!o && s->l.cuDeviceGetByPCIBusId(&device, b->bus) != CU_OK)
        return no(s, rank, "one is hidden from the other's process", err);
    if ((st = may_see(s, rank, device, err)) != TSR_OK)
        return st;
    if (o) {
        e = s->l.cuCtxEnablePeerAccess(o->context, 0);
        s->window.address[rank] = b->address;
        return e == CU_OK || e == CU_ALREADY_ENABLED ? TSR_OK
                                                     : no(s, rank, "the driver refuses it", err);
    }
    (void)atomic_fetch_or(&own->open, 1u << rank);
    if (atomic_load(&b->stage) == NC_WINDOW_NONE) /* it has other reasons, or none */
        e = CU_NOT_READY;
    else
        e = s->l.cuIpcOpenMemHandle_v2(&s->window.opened[rank], b->handle, CU_IPC_LAZY);
    if (e != CU_OK) {
        s->window.opened[rank] = 0;
        (void)atomic_fetch_and(&own->open, ~(1u << rank));
        return e == CU_NOT_READY ? TSR_E_UNSUPPORTED
                                 : no(s, rank, "the driver opens no handle", err);
    }
    s->window.address[rank] = s->window.opened[rank];
    return TSR_OK;
}

/* The driver may wait for work of the device. */
static void close_peers(struct nccl *s)
{
    struct nc_window *w = &s->window;
    for (uint32_t r = 0; s->board && r < s->ranks && r < NC_SEEN; r++) {
        if (!w->opened[r] || !nc_enter(s))
            continue;
        (void)s->l.cuIpcCloseMemHandle(w->opened[r]);
        nc_leave(s);
        w->opened[r] = 0;
        (void)atomic_fetch_and(&nc_board_window(s, s->rank)->open, ~(1u << r));
    }
}

static tsr_status open_peers(struct nccl *s, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    nc_lock();
    if (!nc_enter(s)) {
        nc_unlock();
        return tsr_fail(err, TSR_E_UNSUPPORTED, "rank %u cannot enter its device", s->rank);
    }
    for (uint32_t r = 0; st == TSR_OK && r < s->ranks; r++)
        if (r != s->rank)
            st = open_peer(s, r, err);
    nc_leave(s);
    nc_unlock();
    return st;
}

/* Until all ranks have said at least `stage`; *all: with a window. */
static tsr_status wait_for(struct nccl *s, uint32_t stage, uint64_t until, bool *all,
                           struct tsr_err *err)
{
    *all = true;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (;;) {
            uint32_t   is = atomic_load(&nc_board_window(s, r)->stage);
            tsr_status st = nc_cancelled(s, err);
            if (st != TSR_OK)
                return st;
            *all = *all && is != NC_WINDOW_NONE;
            if (is >= stage)
                break;
            if (nc_meet_left(s, r) || nc_now_us() > until)
                return tsr_fail(err, TSR_E_DEVICE,
                                "nccl: rank %u waits for rank %u to open memory for sums; %s",
                                s->rank, r,
                                nc_meet_left(s, r) ? "it has left" : "the time for it has passed");
            nc_lock();
            nc_move_all();
            nc_unlock();
            (void)usleep(POLL_US);
        }
    return TSR_OK;
}

/* The same line in the logs of all ranks: the first reason that there is. */
static void tell(struct nccl *s)
{
    char line[320];
    for (uint32_t r = 0; r < s->ranks; r++) {
        const struct nc_board_window *b = nc_board_window(s, r);
        if (atomic_load(&b->stage) != NC_WINDOW_NONE || !b->why[0])
            continue;
        (void)snprintf(line, sizeof line, "sums over ranks are messages: rank %u: %s", r, b->why);
        s->host->log(s->host->ctx, TSR_LOG_INFO, line);
        return;
    }
}

tsr_status nc_window_meet(void *self, int32_t able, uint64_t wait_us, struct tsr_window *w,
                          struct tsr_err *err)
{
    struct nccl   *s = self;
    const uint64_t until = nc_now_us() + wait_us;
    bool           all = false;
    struct nc_text why = { .text = "" };
    *w = (struct tsr_window){ .struct_size = sizeof *w, .rank = s->rank };
    why.err =
        (struct tsr_err){ .struct_size = sizeof why.err, .cap = sizeof why.text, .text = why.text };
    if (!s->board || s->ranks < 2 || s->ranks > TSR_WINDOW_RANKS)
        return TSR_OK;
    if (!s->window.there && !nc_board_window(s, s->rank)->why[0])
        return TSR_OK;
    if (s->window.there && !able)
        give_up(s, "");
    tsr_status st = wait_for(s, NC_WINDOW_THERE, until, &all, err);
    if (st == TSR_OK && all && open_peers(s, &why.err) == TSR_OK)
        say(s, NC_WINDOW_OPEN);
    else if (s->window.there && able)
        give_up(s, why.text);
    if (st == TSR_OK)
        st = wait_for(s, NC_WINDOW_OPEN, until, &all, err);
    if (st == TSR_OK && !all)
        tell(s);
    if (st != TSR_OK || !all) {
        close_peers(s);
        return st;
    }
    w->ranks = s->ranks;
    w->bytes = NC_WINDOW_BYTES;
    s->window.address[s->rank] = s->window.own;
    memcpy(w->address, s->window.address, sizeof w->address);
    w->state = (uint32_t *)(void *)s->window.state;
    w->state_address = s->window.state_address;
    w->wait_us = wait_us;
    return TSR_OK;
}

/* ---- the end -------------------------------------------------------------------------- */

void nc_window_abort(struct nccl *s)
{
    uint32_t none = 0;
    if (s->window.state)
        (void)atomic_compare_exchange_strong(s->window.state, &none, 1);
}

/* Other processes have closed what they had opened of this rank's memory. */
static bool is_closed(struct nccl *s)
{
    for (uint64_t until = nc_now_us() + LEAVE_US;;) {
        uint32_t open = 0;
        for (uint32_t r = 0; r < s->ranks; r++)
            open |= atomic_load(&nc_board_window(s, r)->open) >> s->rank & 1;
        if (!open || nc_now_us() > until)
            return !open;
        (void)usleep(POLL_US);
    }
}

/* Ranks of this process may still read it: the last of them to leave frees it, and that of the others. */
static bool leave_to_another(struct nccl *s)
{
    struct nccl *heir = NULL;
    nc_lock();
    for (uint32_t r = 0; r < s->ranks && !heir; r++)
        heir = r == s->rank ? NULL : here(s, r);
    for (uint32_t i = 0; heir && i < s->window.n_kept; i++)
        heir->window.kept[heir->window.n_kept++] = s->window.kept[i];
    nc_unlock();
    return heir != NULL;
}

static void free_kept(struct nccl *s, const struct nc_kept *k)
{
    cu_context own;
    if (s->l.cuCtxPushCurrent_v2(k->context) != CU_OK)
        return;
    (void)s->l.cuMemFree_v2(k->own);
    if (k->state)
        (void)s->l.cuMemFreeHost(k->state);
    (void)s->l.cuCtxPopCurrent_v2(&own);
    (void)s->l.cuDevicePrimaryCtxRelease_v2(k->device);
}

void nc_window_close(struct nccl *s)
{
    struct nc_window *w = &s->window;
    cu_context        context;
    if (w->own && s->l.cuDevicePrimaryCtxRetain(&context, s->device) == CU_OK)
        w->kept[w->n_kept++] =
            (struct nc_kept){ s->device, context, w->own, (void *)(uintptr_t)w->state };
    close_peers(s);
    if (w->there)
        say(s, NC_WINDOW_NONE);
    /* memory that another process has open stays until this one ends */
    if (w->n_kept == 0 || nc_lost() || (w->there && !is_closed(s)) || leave_to_another(s))
        return;
    for (uint32_t i = 0; i < w->n_kept; i++)
        free_kept(s, &w->kept[i]);
}
