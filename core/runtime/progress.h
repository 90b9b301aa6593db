/* runtime/progress.h - what a rank is doing, where others can see it: a page of memory that all
 * processes of a job share.
 *
 * A rank beats at every layer and sum, and while it waits.  A supervisor calls a rank stalled when it
 * has not beaten for as long as it allows (5 s).
 */
#ifndef TSR_RUNTIME_PROGRESS_H
#define TSR_RUNTIME_PROGRESS_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>

enum tsr_rank_op {
    TSR_RANK_STARTS, /* begins */
    TSR_RANK_LOADS,  /* weights; site: layer */
    TSR_RANK_IDLE,   /* waits for work, and beats twice a second */
    TSR_RANK_WORKS,  /* site: layer */
    TSR_RANK_SUMS,   /* over the ranks of its stage; site: 2 * layer, + 1 for down */
    TSR_RANK_ENDED,
};
const char *tsr_rank_op_name(enum tsr_rank_op op);

/* One rank's line.  Written by its worker alone. */
struct tsr_progress {
    _Atomic uint64_t epoch; /* of the group: grows with every restart */
    _Atomic uint64_t beats; /* grows with every change below */
    _Atomic uint64_t step;  /* micro-batches begun */
    _Atomic uint64_t ns;    /* CLOCK_MONOTONIC of the last beat */
    _Atomic uint32_t op, site;
    _Atomic int32_t  pid; /* of its process */
    uint32_t         pad[5];
};

void tsr_progress_beat(struct tsr_progress *p, enum tsr_rank_op op, uint32_t site);
/* True for a rank that began, has not ended and did not beat for `stall_ns`. */
bool tsr_progress_stalled(const struct tsr_progress *p, uint64_t now_ns, uint64_t stall_ns);
/* "rank 2 (process 4711) works on layer 17, step 8123, for 5.2 s" */
void tsr_progress_describe(const struct tsr_progress *p, uint32_t rank, uint64_t now_ns, char *text,
                           size_t cap);
uint64_t tsr_now_ns(void);

#endif
