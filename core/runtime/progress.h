/* runtime/progress.h - what a rank is doing, where others can see it: a page of memory that all
 * processes of a job share.
 *
 * A rank beats at every layer and sum, and while it waits.  A supervisor calls a rank stalled when it
 * has not beaten for as long as it allows (5 s).  Where a step between two beats may take long (while a rank
 * starts, loads or ends), processor time of the rank's own threads counts as a beat for a while.
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
    TSR_RANK_ENDS,   /* was told to, and gives back what it holds */
    TSR_RANK_ENDED,
};
const char *tsr_rank_op_name(enum tsr_rank_op op);

/* Threads of a rank that work while it loads: its own, which reads, which quantize. */
enum { TSR_RANK_OWN, TSR_RANK_READER, TSR_RANK_PACKER, TSR_RANK_CLOCKS = TSR_RANK_PACKER + 2 };

/* One rank's line.  Written by its worker alone. */
struct tsr_progress {
    _Atomic uint64_t epoch; /* of the group: grows with every restart */
    _Atomic uint64_t beats; /* grows with every change below */
    _Atomic uint64_t step;  /* micro-batches begun */
    _Atomic uint64_t ns;    /* CLOCK_MONOTONIC of the last beat */
    _Atomic uint32_t op, site;
    _Atomic int32_t  pid;                    /* of its process */
    _Atomic int32_t  clock[TSR_RANK_CLOCKS]; /* processor time of its threads; 0: none */
    uint32_t         pad;
};

void tsr_progress_beat(struct tsr_progress *p, enum tsr_rank_op op, uint32_t site);
/* The same again: something goes on that is no new step.  [any] */
void tsr_progress_touch(struct tsr_progress *p);
/* The calling thread is the rank's thread i, until it says that it is over. */
void tsr_progress_clock(struct tsr_progress *p, uint32_t i, bool on);
/* Processor time of these threads, ns, which are of the calling process; and of a process. */
uint64_t tsr_progress_spent(const struct tsr_progress *p);
uint64_t tsr_process_spent(int32_t pid);
/* The clock of the calling thread's processor time, for others of its process; 0: none.  And what it says. */
int32_t  tsr_thread_clock(void);
uint64_t tsr_clock_spent(int32_t clock);
/* Whether a long step may be one without beats: it starts, loads or ends. */
bool tsr_progress_long(const struct tsr_progress *p);
/* True for a rank that began, has not ended and did not beat for `stall_ns`. */
bool tsr_progress_stalled(const struct tsr_progress *p, uint64_t now_ns, uint64_t stall_ns);
/* "its process 4711 works on layer 17, step 8123, and has made no progress for 5.2 s" */
void tsr_progress_describe(const struct tsr_progress *p, uint64_t now_ns, char *text, size_t cap);
uint64_t tsr_now_ns(void);

#endif
