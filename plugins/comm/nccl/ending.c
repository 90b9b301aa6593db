/* Communicators that are to end: ncclCommAbort() and ncclCommDestroy() may take long or never come back, and
 * nobody waits inside of them, least of all whoever holds the lock of all instances.  A thread for each
 * ends one; its link has settled when that and what the stream still had are over, or when nobody waits
 * any longer. */
#include "nccl.h"

#include <stdlib.h>

/* Owner of the memory: the link alone until a thread has begun, then the last of both. */
enum { ENDING_NEW, ENDING_BEGUN, ENDING_DONE, ENDING_LEFT };

/* Plain memory, allocated before the communicator: it outlives the instance and its host if the call does
 * not return. */
struct nc_ending {
    struct nc_ending *next; /* of those without a thread */
    nc_result (*end)(nc_comm);
    cu_result (*push)(cu_context);
    cu_result (*pop)(cu_context *);
    cu_context      context;
    nc_comm         comm;
    _Atomic uint8_t state;
};

static _Atomic bool lost;
/* Endings whose links were freed before a thread was available. */
static pthread_mutex_t   orphans_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nc_ending *orphans;

bool nc_lost(void)
{
    return atomic_load(&lost);
}

bool nc_link_reserve_ending(struct nc_link *l)
{
    l->ending = malloc(sizeof *l->ending);
    if (l->ending)
        *l->ending = (struct nc_ending){ .state = ENDING_NEW };
    return l->ending;
}

static void finish_ending(struct nc_ending *g)
{
    uint8_t open = ENDING_BEGUN;
    if (!atomic_compare_exchange_strong(&g->state, &open, ENDING_DONE))
        free(g); /* its link is freed */
}

static void *end_in_thread(void *arg)
{
    struct nc_ending *g = arg;
    cu_context        own;
    bool              inside = g->push(g->context) == CU_OK;
    (void)g->end(g->comm);
    if (inside)
        (void)g->pop(&own);
    finish_ending(g);
    return NULL;
}

static bool in_thread(struct nc_ending *g, uint8_t state)
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
        atomic_store(&g->state, ENDING_NEW);
    return ok;
}

/* If no thread is available, the next poll tries again. */
static void begin(struct nc_link *l)
{
    if (l->ending && atomic_load(&l->ending->state) == ENDING_NEW &&
        in_thread(l->ending, ENDING_BEGUN))
        l->ending_us = nc_now_us();
}

/* Its link goes, and no thread has it: it is tried again when the next communicator ends. */
static void leave_orphan(struct nc_ending *g)
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
        struct nc_ending *g = orphans, *next = g->next;
        if (!in_thread(g, ENDING_LEFT))
            break;
        orphans = next;
    }
    (void)pthread_mutex_unlock(&orphans_lock);
}

void nc_link_end(struct nccl *s, struct nc_link *l, nc_result (*end)(nc_comm))
{
    l->settling = l->comm || l->stream;
    l->ending_us = nc_now_us();
    if (l->comm) {
        *l->ending = (struct nc_ending){ .end = end,
                                         .push = s->l.cuCtxPushCurrent_v2,
                                         .pop = s->l.cuCtxPopCurrent_v2,
                                         .context = s->context,
                                         .comm = l->comm,
                                         .state = ENDING_NEW };
        l->comm = NULL;
        begin(l);
        try_orphans();
    } else { /* it never came to be */
        free(l->ending);
        l->ending = NULL;
    }
}

/* Nothing waits any longer: its device resources are leaked. */
static void leave(struct nccl *s, struct nc_link *l)
{
    char    line[200];
    uint8_t open = ENDING_BEGUN;
    bool    begun = !l->ending || atomic_load(&l->ending->state) != ENDING_NEW;
    if (!begun)
        leave_orphan(l->ending);
    else if (l->ending && !atomic_compare_exchange_strong(&l->ending->state, &open, ENDING_LEFT))
        free(l->ending); /* closed just now, but the stream is not through */
    l->ending = NULL;
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

bool nc_link_is_settled(struct nccl *s, struct nc_link *l)
{
    if (!l->settling)
        return true;
    begin(l);
    bool waits = l->ending && atomic_load(&l->ending->state) != ENDING_DONE;
    if (!waits && (!l->stream || s->l.cuStreamQuery(l->stream) != CU_NOT_READY)) {
        free(l->ending);
        l->ending = NULL;
        l->settling = false;
    } else if (nc_now_us() - l->ending_us >= NC_DRAIN_US) {
        leave(s, l);
    }
    return !l->settling;
}
