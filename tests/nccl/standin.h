/* standin.h - a libcuda and a libnccl for tests, without a device: what the transport nccl calls of
 * them, over memory of the host.  Their rules are kept where the libraries would be wrong to use
 * otherwise: communicators are non-blocking and take no call before the last one has ended, work
 * starts when that is so, streams are in order, device addresses are no pointers, messages larger
 * than a buffer move only while both sides are in them, pages that are not pinned are refused.
 *
 * Nothing runs by itself: every call moves all streams of the process on.  Ranks may be threads or
 * processes.  What goes wrong is planted by a test.
 */
#ifndef TSR_TEST_STANDIN_H
#define TSR_TEST_STANDIN_H

#include "../../plugins/comm/nccl/libs.h"

#include <stdbool.h>
#include <stdint.h>

#define DECLARE(name, args) int name args;
CUDA_FUNCTIONS(DECLARE)
NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
const char *ncclGetErrorString(nc_result);
const char *ncclGetLastError(nc_comm);

/* ---- libcuda ------------------------------------------------------------------- */

struct standin_live {
    uint64_t contexts, blocks, streams, events; /* not given back */
};
struct standin_live standin_live(void);
void                standin_devices(int n);       /* that there are; 8 */
int                 standin_retained(int device); /* its context, how often */
void standin_fail_alloc(int64_t after);           /* that many allocations still work; -1: all */
/* Frees of memory in which a driver would have waited, for work on a stream of the context. */
uint64_t standin_stalls(void);
/* Allocations and frees of memory so far. */
uint64_t standin_taken(void);

/* For libnccl: one lock for both libraries, entered again by its holder. */
void standin_lock(void);
void standin_unlock(void);
/* The place of device memory, NULL where it is not all in one block. */
void *standin_place(const void *address, uint64_t bytes);
bool  standin_has_context(void);
/* Memory of a device beside the stand-in's own: where it is, or NULL. */
void standin_memory(void *(*place)(uint64_t address, uint64_t bytes));
/* Puts work on a stream: run until it answers true, in turn with everything else. */
bool standin_push(cu_stream stream, bool (*work)(void *), void *arg);
void standin_move(void); /* one round over all streams */

/* ---- libnccl ------------------------------------------------------------------- */

enum standin_fault {
    STANDIN_NONE,
    STANDIN_LOST,        /* its state becomes ncclRemoteError */
    STANDIN_HANGS,       /* what is on the device never ends */
    STANDIN_NEVER_JOINS, /* its making never ends */
    STANDIN_REFUSES, /* ncclCommInitRankConfig() says ncclInvalidUsage; TSR_STANDIN_REFUSES=1, everywhere */
    STANDIN_CALL_REFUSED, /* so do operations */
    STANDIN_ABORT_HANGS,  /* ncclCommAbort() comes back when the fault has gone */
    STANDIN_END_HANGS,    /* so does ncclCommDestroy() */
};
/* Of communicators of `ranks` ranks, at the one that is `rank` in it, from now on. */
void standin_fault(enum standin_fault what, int ranks, int rank);
void standin_version(int version);
/* Called with each message of a rank to another one as it goes out, under the lock; NULL: no more. */
void standin_tap(void (*see)(const void *message, uint64_t bytes));
/* How often a communicator says ncclInProgress behind a call. */
void standin_slow(int polls);

struct standin_counts {
    uint64_t communicators;                /* not ended */
    uint64_t aborting, aborted, finalized; /* aborting: calls that were begun */
    uint64_t ending;                       /* ncclCommDestroy() likewise */
    uint64_t misused;                      /* calls that the library would not have allowed */
};
struct standin_counts standin_counts(void);

#endif
