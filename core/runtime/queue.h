/* runtime/queue.h - micro-batches between the threads of a rank, first in, first out. */
#ifndef TSR_RUNTIME_QUEUE_H
#define TSR_RUNTIME_QUEUE_H

#include "runtime/frame.h"

#include <pthread.h>

struct tsr_queue {
    pthread_mutex_t     lock;
    pthread_cond_t      more;
    struct tsr_portion *first, *last;
    bool                closed;
};

void tsr_queue_init(struct tsr_queue *q);
/* Frees what is in it. */
void tsr_queue_free(struct tsr_queue *q);
void tsr_queue_put(struct tsr_queue *q, struct tsr_portion *b);
/* Ahead of all but rows that came back before it (TSR_FRAME_BACK): somebody waits for them already. */
void tsr_queue_put_ahead(struct tsr_queue *q, struct tsr_portion *b);
/* Waits; NULL once it is closed (what is in it is not given out any more). */
struct tsr_portion *tsr_queue_take(struct tsr_queue *q);
/* The same for at most `us` microseconds: *b NULL when they are over.  False: closed. */
bool tsr_queue_take_for(struct tsr_queue *q, uint64_t us, struct tsr_portion **b);
/* Wakes all who wait. */
void tsr_queue_close(struct tsr_queue *q);

#endif
