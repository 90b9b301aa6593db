/* runtime/progress.h - the activity of a rank, visible to others: a page of memory that all processes of a
 * job share.
 *
 * A rank beats at every layer and sum, and while it waits. A supervisor calls a rank stalled when it has
 * not beaten for the time limit (5 s). Where a step between two beats may take long (start, load or end of
 * a rank), processor time of the rank's threads counts as a beat for a while.
 */
#ifndef TSR_RUNTIME_PROGRESS_H
#define TSR_RUNTIME_PROGRESS_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>

enum tsr_rank_op {
    TSR_RUNTIME_RANK_STARTS, /* begins */
    TSR_RUNTIME_RANK_LOADS,  /* weights; site: layer */
    TSR_RUNTIME_RANK_IDLE,   /* waits for work, and beats twice a second */
    TSR_RUNTIME_RANK_WORKS,  /* site: layer */
    TSR_RUNTIME_RANK_SUMS,   /* over the ranks of its stage; site: 2 * layer, + 1 for down */
    TSR_RUNTIME_RANK_ENDS,   /* was ordered to end, and releases its resources */
    TSR_RUNTIME_RANK_ENDED,
};

/* Threads of a rank that work while it loads: its own, which reads, which quantize. */
enum {
    TSR_RUNTIME_RANK_OWN,
    TSR_RUNTIME_RANK_READER,
    TSR_RUNTIME_RANK_PACKER,
    TSR_RUNTIME_RANK_CLOCKS = TSR_RUNTIME_RANK_PACKER + 2
};

/* One rank's line.  Written by its worker alone. */
struct tsr_runtime_progress {
    _Atomic uint64_t epoch; /* of the group: grows with every restart */
    _Atomic uint64_t beats; /* grows with every change below */
    _Atomic uint64_t step;  /* micro-batches begun */
    _Atomic uint64_t ns;    /* CLOCK_MONOTONIC of the last beat */
    _Atomic uint32_t op, site;
    _Atomic int32_t  pid;                            /* of its process */
    _Atomic int32_t  clock[TSR_RUNTIME_RANK_CLOCKS]; /* processor time of its threads; 0: none */
    uint32_t         pad;
};

void tsr_runtime_progress_beat(struct tsr_runtime_progress *p, enum tsr_rank_op op, uint32_t site);
/* Touches the clock again: activity that is not a new step. [any] */
void tsr_runtime_progress_touch(struct tsr_runtime_progress *p);
/* Registers (on) or unregisters the calling thread as the rank's thread i. */
void tsr_runtime_progress_clock(struct tsr_runtime_progress *p, uint32_t i, bool on);
/* Processor time of these threads, ns, which are of the calling process; and of a process. */
uint64_t tsr_runtime_progress_spent(const struct tsr_runtime_progress *p);
uint64_t tsr_runtime_process_spent(int32_t pid);
/* The processor-time clock of the calling thread, for other threads of its process; 0: none. Then the
 * value of a clock. */
int32_t  tsr_runtime_thread_clock(void);
uint64_t tsr_runtime_clock_spent(int32_t clock);
/* Whether a long step may be one without beats: it starts, loads or ends. */
bool tsr_runtime_progress_long(const struct tsr_runtime_progress *p);
/* True for a rank that began, has not ended and did not beat for `stall_ns`. */
bool tsr_runtime_progress_stalled(const struct tsr_runtime_progress *p, uint64_t now_ns,
                                  uint64_t stall_ns);
/* What it does, as a word: starts, loads, idle, works, sums, ends, ended. */
const char *tsr_runtime_progress_doing(const struct tsr_runtime_progress *p);
/* "its process 4711 works on layer 17, step 8123, and has made no progress for 5.2 s" */
void     tsr_runtime_progress_describe(const struct tsr_runtime_progress *p, uint64_t now_ns,
                                       char *text, size_t cap);
uint64_t tsr_runtime_now_ns(void);

#endif
