/* batch/restart.h - how a supervisor reacts to a worker that ended, as pure rules: no clock, no
 * processes. */
#ifndef TSR_BATCH_RESTART_H
#define TSR_BATCH_RESTART_H

#include "batch/journal.h"

#define TSR_RESTARTS_MOST 5u               /* in a row without one new line */
#define TSR_RESTART_US    UINT64_C(100000) /* wait before the second; doubles */
#define TSR_RESTART_CAP   UINT64_C(2000000)

struct tsr_batch_restarts {
    uint32_t row;  /* ends in a row without a new line */
    uint64_t done; /* lines at the last end */
};

/* How a worker ended. */
struct tsr_batch_ending {
    bool     exited; /* exited, with `code` */
    int      code, signal;
    bool     own_fault; /* its own fatal-signal handler reported it */
    bool     stalled;   /* the supervisor killed it: no beat */
    bool     late;      /* a record was beyond its deadline then, or when its ranks failed */
    bool     memory;    /* the system killed it, or one of its ranks, for memory; or it ran out of
                      * memory for a record and reported that (code 4) */
    uint64_t done;      /* lines committed */
};

enum tsr_after {
    TSR_BATCH_AFTER_STOP,    /* its exit code is the job's */
    TSR_BATCH_AFTER_RESTART, /* after *wait_us, with *verdict */
    TSR_BATCH_AFTER_GIVE_UP, /* too often: 75, run again to go on */
};
enum tsr_after tsr_batch_restart_decide(struct tsr_batch_restarts     *r,
                                        const struct tsr_batch_ending *e, uint64_t *wait_us,
                                        enum tsr_verdict *verdict);

/* A worker's beat as its supervisor sees it. */
struct tsr_batch_beat {
    uint64_t beats, since_us; /* the last count and when it came */
    bool     seen;
};
/* True: it has not beaten for stall_us.  working: it should. */
bool tsr_batch_beat_stalled(struct tsr_batch_beat *b, uint64_t beats, bool working, uint64_t now_us,
                            uint64_t stall_us);

#endif
