/* Communicators that are to end: ncclCommAbort() and ncclCommDestroy() may take long or never come back, and
 * nobody waits inside of them, least of all whoever holds the lock of all instances.  A thread for each
 * ends one; its lane has settled when that and what the stream still had are over, or when nobody waits
 * any longer. */
#include "nccl.h"

#include <stdlib.h>

/* Of whom the memory is: the lane's alone until a thread has begun, then whoever comes last. */
enum { GRAVE_NEW, GRAVE_OPEN, GRAVE_CLOSED, GRAVE_LEFT };

/* Outlives the instance, and its host, where the call does not come back: plain memory, which is there before
 * the communicator is. */
struct nc_grave {
    struct nc_grave *next; /* of those without a thread */
    nc_result (*end)(nc_comm);
    cu_result (*push)(cu_context);
    cu_result (*pop)(cu_context *);
    cu_context      context;
    nc_comm         comm;
    _Atomic uint8_t state;
};

static _Atomic bool lost;
/* Those whose lanes have gone before a thread was to be had. */
static pthread_mutex_t  orphans_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nc_grave *orphans;

bool nc_lost(void)
{
    return atomic_load(&lost);
}

bool nc_lane_dig(struct nc_lane *l)
{
    l->grave = malloc(sizeof *l->grave);
    if (l->grave)
        *l->grave = (struct nc_grave){ .state = GRAVE_NEW };
    return l->grave;
}

static void close_grave(struct nc_grave *g)
{
    uint8_t open = GRAVE_OPEN;
    if (!atomic_compare_exchange_strong(&g->state, &open, GRAVE_CLOSED))
        free(g); /* its lane has gone */
}

static void *end_in_thread(void *arg)
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

static bool in_thread(struct nc_grave *g, uint8_t state)
{
    pthread_attr_t a;
    pthread_t      id;
    if (pthread_attr_init(&a) != 0)
        return false;
    atomic_store(&g->state, state);
    bool ok = pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED) == 0 &&
              pthread_create(&id, &a, end_in_thread, g) == 0;
    (void)pthread_attr_destroy(&a);
    if (!ok)
        atomic_store(&g->state, GRAVE_NEW);
    return ok;
}

/* Where no thread is to be had the next look tries again. */
static void begin(struct nc_lane *l)
{
    if (l->grave && atomic_load(&l->grave->state) == GRAVE_NEW && in_thread(l->grave, GRAVE_OPEN))
        l->buried_us = nc_now_us();
}

/* Its lane goes, and no thread has it: it is tried again when the next communicator ends. */
static void leave_orphan(struct nc_grave *g)
{
    (void)pthread_mutex_lock(&orphans_lock);
    g->next = orphans;
    orphans = g;
    (void)pthread_mutex_unlock(&orphans_lock);
}

static void try_orphans(void)
{
    (void)pthread_mutex_lock(&orphans_lock);
    while (orphans) {
        struct nc_grave *g = orphans, *next = g->next;
        if (!in_thread(g, GRAVE_LEFT))
            break;
        orphans = next;
    }
    (void)pthread_mutex_unlock(&orphans_lock);
}

void nc_lane_bury(struct nccl *s, struct nc_lane *l, nc_result (*end)(nc_comm))
{
    l->settling = l->comm || l->stream;
    l->buried_us = nc_now_us();
    if (l->comm) {
        *l->grave = (struct nc_grave){ .end = end,
                                       .push = s->l.cuCtxPushCurrent_v2,
                                       .pop = s->l.cuCtxPopCurrent_v2,
                                       .context = s->context,
                                       .comm = l->comm,
                                       .state = GRAVE_NEW };
        l->comm = NULL;
        begin(l);
        try_orphans();
    } else { /* it never came to be */
        free(l->grave);
        l->grave = NULL;
    }
}

/* Nobody waits any longer: what the device has of it stays there. */
static void leave(struct nccl *s, struct nc_lane *l)
{
    char    line[200];
    uint8_t open = GRAVE_OPEN;
    bool    begun = !l->grave || atomic_load(&l->grave->state) != GRAVE_NEW;
    if (!begun)
        leave_orphan(l->grave);
    else if (l->grave && !atomic_compare_exchange_strong(&l->grave->state, &open, GRAVE_LEFT))
        free(l->grave); /* closed just now, but the stream is not through */
    l->grave = NULL;
    l->stream = NULL;
    l->settling = false;
    atomic_store(&lost, true);
    for (struct nc_request *r = s->requests; r; r = r->after)
        if (r->broken == l)
            *r->room = (struct nc_room){ .next = NULL };
    (void)snprintf(line, sizeof line,
                   "nccl: rank %u: a communicator has not ended %u ms after it was to%s; its "
                   "memory stays with the device",
                   s->rank, NC_DRAIN_US / 1000, begun ? "" : ", for want of a thread");
    s->host->log(s->host->ctx, TSR_LOG_WARN, line);
}

bool nc_lane_settled(struct nccl *s, struct nc_lane *l)
{
    if (!l->settling)
        return true;
    begin(l);
    bool waits = l->grave && atomic_load(&l->grave->state) != GRAVE_CLOSED;
    if (!waits && (!l->stream || s->l.cuStreamQuery(l->stream) != CU_NOT_READY)) {
        free(l->grave);
        l->grave = NULL;
        l->settling = false;
    } else if (nc_now_us() - l->buried_us >= NC_DRAIN_US) {
        leave(s, l);
    }
    return !l->settling;
}
