/* batch/watch.h - status that the worker of a batch reports to its supervisor: a shared page of
 * memory. */
#ifndef TSR_BATCH_WATCH_H
#define TSR_BATCH_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TSR_WATCH_LINES 256u /* more than lines that are not in the file yet */

struct tsr_batch_watch {
    uint64_t nonce; /* of this page, when another program than the supervisor's own maps it */
    _Atomic uint64_t beats;   /* grows while there is progress */
    _Atomic uint64_t done;    /* records with a committed line */
    _Atomic uint32_t working; /* a missing beat means a stall: not while it loads */
    _Atomic uint32_t ranks;   /* it waits for its ranks: only beats are progress, theirs */
    _Atomic uint32_t opened;  /* the journal's epoch of this job has begun */

    _Atomic uint32_t joined, ended; /* under mpirun: rank 0 has the page, has written `code` */
    _Atomic int32_t  code;
    _Atomic uint32_t own_fault;
    _Atomic uint32_t no_memory; /* a record did not get the resources that it needs */
    _Atomic uint64_t oldest_us; /* when the oldest record in progress was started; 0: none */
    uint32_t         verdict;   /* for the next worker: enum tsr_verdict */
    uint64_t         stall_us, deadline_us; /* set by the worker from its options */

    /* What the workers of this run did until now: their time, and tokens as of the journal's line n at
     * n % TSR_WATCH_LINES.  Whoever goes on looks up the last line that the journal has. */
    _Atomic uint64_t work_us, journal_us;
    struct tsr_batch_watch_line {
        _Atomic uint64_t line, prompt_tokens, new_tokens;
    } lines[TSR_WATCH_LINES];
};

/* The page of this process, or NULL: there is no supervisor.  [setup] */
void                    tsr_batch_watch_set(struct tsr_batch_watch *w);
struct tsr_batch_watch *tsr_batch_watch_get(void);
void                    tsr_batch_watch_beat(void);
/* From now on (or no longer) this process only waits for its ranks, with its own limits. */
void tsr_batch_watch_ranks(bool on);

#endif
