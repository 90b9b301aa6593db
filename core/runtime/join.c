#include "runtime/join.h"

#include "base/event.h"
#include "runtime/thread.h"

#include <errno.h>
#include <time.h>

struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t  news;
    bool            over;
    uint32_t        rank, ranks;
    uint64_t        within_us;
    struct timespec until; /* CLOCK_MONOTONIC */
};

static void *wait_for_peers(void *arg)
{
    struct waiting *w = arg;
    int             rc = 0;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->over && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&w->news, &w->lock, &w->until);
    if (!w->over)
        tsr_event_end(TSR_E_DEVICE,
                      "rank %u waited %g s for the other ranks to start; of the %u processes one "
                      "hangs or is stopped",
                      w->rank, (double)w->within_us / 1e6, w->ranks);
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

tsr_status tsr_runtime_join(struct tsr_comm_port *p, struct tsr_registry *r,
                            const struct tsr_comm_place *place, uint64_t within_us,
                            struct tsr_err *err)
{
    struct waiting     w = { .rank = place->rank, .ranks = place->ranks, .within_us = within_us };
    pthread_condattr_t a;
    pthread_t          id;
    (void)clock_gettime(CLOCK_MONOTONIC, &w.until);
    w.until.tv_sec += (time_t)(within_us / 1000000);
    w.until.tv_nsec += (long)(within_us % 1000000) * 1000;
    w.until.tv_sec += w.until.tv_nsec / 1000000000;
    w.until.tv_nsec %= 1000000000;
    *p = (struct tsr_comm_port){ 0 };
    (void)pthread_mutex_init(&w.lock, NULL);
    (void)pthread_condattr_init(&a);
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w.news, &a);
    (void)pthread_condattr_destroy(&a);
    tsr_status st = tsr_runtime_thread_start(&id, wait_for_peers, &w, err);
    if (st == TSR_OK) {
        st = tsr_comm_port_open(p, r, place, err);
        (void)pthread_mutex_lock(&w.lock);
        w.over = true;
        (void)pthread_cond_signal(&w.news);
        (void)pthread_mutex_unlock(&w.lock);
        (void)pthread_join(id, NULL);
    }
    (void)pthread_cond_destroy(&w.news);
    (void)pthread_mutex_destroy(&w.lock);
    return st;
}
