/* A queue of micro-batches. */
#include "runtime/queue.h"

#include <time.h>

void tsr_runtime_queue_init(struct tsr_runtime_queue *q)
{
    (void)pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_t a;
    (void)pthread_condattr_init(&a);
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&q->more, &a);
    (void)pthread_condattr_destroy(&a);
    q->first = q->last = NULL;
    q->closed = false;
}

void tsr_runtime_queue_free(struct tsr_runtime_queue *q)
{
    while (q->first) {
        struct tsr_runtime_micro_batch *b = q->first;
        q->first = b->next;
        tsr_runtime_micro_batch_free(b);
    }
    (void)pthread_cond_destroy(&q->more);
    (void)pthread_mutex_destroy(&q->lock);
}

void tsr_runtime_queue_put(struct tsr_runtime_queue *q, struct tsr_runtime_micro_batch *b)
{
    b->next = NULL;
    (void)pthread_mutex_lock(&q->lock);
    if (q->last)
        q->last->next = b;
    else
        q->first = b;
    q->last = b;
    (void)pthread_cond_signal(&q->more);
    (void)pthread_mutex_unlock(&q->lock);
}

void tsr_runtime_queue_put_ahead(struct tsr_runtime_queue *q, struct tsr_runtime_micro_batch *b)
{
    (void)pthread_mutex_lock(&q->lock);
    struct tsr_runtime_micro_batch **at = &q->first;
    while (*at && (*at)->head.kind == TSR_RUNTIME_FRAME_BACK)
        at = &(*at)->next;
    b->next = *at;
    *at = b;
    if (!b->next)
        q->last = b;
    (void)pthread_cond_signal(&q->more);
    (void)pthread_mutex_unlock(&q->lock);
}

struct tsr_runtime_micro_batch *tsr_runtime_queue_take(struct tsr_runtime_queue *q)
{
    struct tsr_runtime_micro_batch *b = NULL;
    (void)pthread_mutex_lock(&q->lock);
    while (!q->first && !q->closed)
        (void)pthread_cond_wait(&q->more, &q->lock);
    if (!q->closed) {
        b = q->first;
        q->first = b->next;
        if (!q->first)
            q->last = NULL;
    }
    (void)pthread_mutex_unlock(&q->lock);
    return b;
}

bool tsr_runtime_queue_take_for(struct tsr_runtime_queue *q, uint64_t us,
                                struct tsr_runtime_micro_batch **out)
{
    struct timespec t;
    int             rc = 0;
    *out = NULL;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t ns = (uint64_t)t.tv_nsec + us % 1000000u * 1000u;
    t.tv_sec += (time_t)(us / 1000000u + ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    (void)pthread_mutex_lock(&q->lock);
    while (!q->first && !q->closed && rc == 0)
        rc = pthread_cond_timedwait(&q->more, &q->lock, &t);
    bool open = !q->closed;
    if (open && q->first) {
        *out = q->first;
        q->first = q->first->next;
        if (!q->first)
            q->last = NULL;
    }
    (void)pthread_mutex_unlock(&q->lock);
    return open;
}

void tsr_runtime_queue_close(struct tsr_runtime_queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->closed = true;
    (void)pthread_cond_broadcast(&q->more);
    (void)pthread_mutex_unlock(&q->lock);
}
