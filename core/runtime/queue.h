/* runtime/queue.h - micro-batches between the threads of a rank, first in, first out. */
#ifndef TSR_RUNTIME_QUEUE_H
#define TSR_RUNTIME_QUEUE_H

#include "runtime/frame.h"

#include <pthread.h>

struct tsr_runtime_queue {
    pthread_mutex_t                 lock;
    pthread_cond_t                  more;
    struct tsr_runtime_micro_batch *first, *last;
    bool                            closed;
};

void tsr_runtime_queue_init(struct tsr_runtime_queue *q);
/* Frees the queue with its entries. */
void tsr_runtime_queue_free(struct tsr_runtime_queue *q);
void tsr_runtime_queue_put(struct tsr_runtime_queue *q, struct tsr_runtime_micro_batch *b);
/* Ahead of all but rows that came back before it (TSR_RUNTIME_FRAME_BACK): somebody waits for them already. */
void tsr_runtime_queue_put_ahead(struct tsr_runtime_queue *q, struct tsr_runtime_micro_batch *b);
/* Waits; NULL once the queue is closed, even if entries remain. */
struct tsr_runtime_micro_batch *tsr_runtime_queue_take(struct tsr_runtime_queue *q);
/* The same for at most `us` microseconds: *b NULL when they are over.  False: closed. */
bool tsr_runtime_queue_take_for(struct tsr_runtime_queue *q, uint64_t us,
                                struct tsr_runtime_micro_batch **b);
/* Wakes all waiting threads. */
void tsr_runtime_queue_close(struct tsr_runtime_queue *q);

#endif
