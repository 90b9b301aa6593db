/* standin.h - a driver, a cuBLASLt, a cuBLAS and a cuSOLVER of the tests, over the SIMT emulation:
 * libcuda.so.1, libcublasLt.so.13, libcublas.so.13 and libcusolver.so.12, found by LD_LIBRARY_PATH.
 *
 * A kernel that was not loaded before it is launched is an error.
 * Work on a stream is done only when somebody waits for it, pinned memory is read and written then, and
 * memory is not zeroed, so that a missing wait or a ring that is used again too early gives wrong
 * numbers.  Calls without a current context, calls that a capturing stream refuses, addresses outside
 * of allocations and algorithms of another shape are errors.
 *
 * Allocations and frees wait for all work of the device, a message from another rank included.
 *
 * A process that was forked after cuInit() has no driver.  Memory of all devices is one.  Where there are two devices or
 * more, other processes may open blocks of 1 MiB or more.
 *
 * TSR_STANDIN, words apart by commas: devices=4 (1; up to 8), arch=75 (of the device, 90), driver=12040 (its
 * CUDA: an older one loads no kernels), init=N (what cuInit answers), fail=N (the N-th kernel that runs
 * fails, and the context with it), capture=N (the N-th capture of
 * a stream fails), noearly (no launch may overlap with the one before it), none (no algorithm), nopeers (no device sees another's memory),
 * closed=N (device N opens no memory of other processes), noblas (cuBLAS does not
 * start), memory=MIB.
 * TSR_STANDIN_LOG: a file for the counts of calls and of runs of each kernel, written at exit; %p in it is the process.
 */
#ifndef TSR_STANDIN_H
#define TSR_STANDIN_H

#include <cuda.h>
#include <stdint.h>

struct standin_counts {
    uint64_t launches, captured, instantiated, graphs, products, heuristics, waits, linalg;
    uint64_t nodes;   /* launches of the graphs that were launched */
    uint64_t early;   /* launches in captures, which overlap with the one before them */
    uint64_t fetched; /* the largest copy to the host, in bytes */
    uint64_t taken;   /* allocations and frees of memory */
    uint64_t
        late; /* allocations after the first launch, and frees with launches before and after them */
    uint64_t torn; /* frees of memory that another process has open */
};

/* One call at a time: ranks may be threads. */
int  standin_lock(void);
void standin_unlock(const int *locked);
#define ONE_AT_A_TIME                                                                              \
    const int locked __attribute__((cleanup(standin_unlock), unused)) = standin_lock()

/* Queues f(arg) on a stream; the arg is freed after it.  Where it answers CUDA_ERROR_NOT_READY it waits for
 * another rank: it is called again, and whoever waits for the stream lets others go on meanwhile. */
CUresult standin_queue(CUstream stream, CUresult (*f)(void *arg), void *arg);
/* One round over all streams. */
void standin_run_all(void);
/* The place of device memory, or NULL. */
void *standin_place(uint64_t address, uint64_t bytes);
/* The number behind "name=" in TSR_STANDIN, 0 for the word alone, `otherwise` without it. */
int64_t                standin_option(const char *name, int64_t otherwise);
int                    standin_shared(void); /* the most bytes of shared memory of a block */
struct standin_counts *standin_count(void);
int                    standin_in_context(void);

struct standin_left {
    uint64_t contexts, blocks, streams, events; /* not given back */
    uint64_t opened;                            /* nor closed, of other processes */
};
struct standin_left standin_left(void);

#endif
