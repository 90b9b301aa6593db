/* Communicators that are to end: ncclCommAbort() may take long or never come back, and whoever holds the
 * lock of all instances must not wait for it.  A thread for each ends one; its lane has settled when
 * that and what the stream still had are over, or when nobody waits any longer. */
#include "nccl.h"

#include <stdlib.h>

enum { GRAVE_OPEN, GRAVE_CLOSED, GRAVE_LEFT };

/* Outlives the instance, and its host, where the call does not come back: plain memory. */
struct nc_grave {
    nc_result (*end)(nc_comm);
    cu_result (*push)(cu_context);
    cu_result (*pop)(cu_context *);
    cu_context      context;
    nc_comm         comm;
    _Atomic uint8_t state;
};

static _Atomic bool lost;

bool nc_lost(void)
{
    return atomic_load(&lost);
}

static void close_grave(struct nc_grave *g)
{
    uint8_t open = GRAVE_OPEN;
    if (!atomic_compare_exchange_strong(&g->state, &open, GRAVE_CLOSED))
        free(g); /* its lane has gone */
}

static void *dig(void *arg)
{
    struct nc_grave *g = arg;
    cu_context       own;
    bool             inside = g->push(g->context) == CU_OK;
    (void)g->end(g->comm);
    if (inside)
        (void)g->pop(&own);
    close_grave(g);
    return NULL;
}

/* Where there is no thread to be had the caller waits: the communicator must not stay. */
static bool in_thread(struct nc_grave *g)
{
    pthread_attr_t a;
    pthread_t      id;
    if (pthread_attr_init(&a) != 0)
        return false;
    bool ok = pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED) == 0 &&
              pthread_create(&id, &a, dig, g) == 0;
    (void)pthread_attr_destroy(&a);
    return ok;
}

void nc_lane_bury(struct nccl *s, struct nc_lane *l)
{
    nc_comm          comm = l->comm;
    struct nc_grave *g = comm ? malloc(sizeof *g) : NULL;
    l->comm = NULL;
    l->buried_us = nc_now_us();
    l->settling = comm || l->stream;
    if (g)
        *g = (struct nc_grave){
            s->l.ncclCommAbort, s->l.cuCtxPushCurrent_v2, s->l.cuCtxPopCurrent_v2, s->context, comm,
            GRAVE_OPEN
        };
    if (g && in_thread(g)) {
        l->grave = g;
        return;
    }
    free(g);
    if (comm)
        (void)s->l.ncclCommAbort(comm);
}

/* Nobody waits any longer: what the device has of it stays there. */
static void leave(struct nccl *s, struct nc_lane *l)
{
    char    line[160];
    uint8_t open = GRAVE_OPEN;
    if (l->grave && !atomic_compare_exchange_strong(&l->grave->state, &open, GRAVE_LEFT))
        free(l->grave); /* closed just now, but the stream is not through */
    l->grave = NULL;
    l->stream = NULL;
    l->settling = false;
    atomic_store(&lost, true);
    for (struct nc_request *r = s->requests; r; r = r->after)
        if (r->broken == l)
            *r->room = (struct nc_room){ .next = NULL };
    (void)snprintf(line, sizeof line,
                   "nccl: rank %u: a communicator has not ended %u ms after it was aborted; its "
                   "memory stays with the device",
                   s->rank, NC_DRAIN_US / 1000);
    s->host->log(s->host->ctx, TSR_LOG_WARN, line);
}

bool nc_lane_settled(struct nccl *s, struct nc_lane *l)
{
    if (!l->settling)
        return true;
    if ((!l->grave || atomic_load(&l->grave->state) == GRAVE_CLOSED) &&
        (!l->stream || s->l.cuStreamQuery(l->stream) != CU_NOT_READY)) {
        free(l->grave);
        l->grave = NULL;
        l->settling = false;
    } else if (nc_now_us() - l->buried_us >= NC_DRAIN_US) {
        leave(s, l);
    }
    return !l->settling;
}
