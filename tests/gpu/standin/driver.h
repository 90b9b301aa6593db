/* driver.h - between the files of the stand-in driver. */
#ifndef TSR_STANDIN_DRIVER_H
#define TSR_STANDIN_DRIVER_H

#include "k_args.h"
#include "simt/simt.h"
#include "standin.h"

#include <stdio.h>
#include <time.h>

#define EXPORT      __attribute__((visibility("default")))
#define DEVICES_MAX 8

/* Memory of the device, or pinned memory of the host with the device address beside it. */
struct pinned {
    struct pinned *next;
    void          *host;
    uint64_t       device, bytes;
    int            fd; /* of memory that other processes may open; -1: none */
};

/* A kernel with its arguments, or anything else. */
struct task {
    const struct simt_kernel *kernel; /* NULL: f(arg) */
    uint32_t                  grid[3], threads;
    uint8_t                   args[1024];
    CUresult (*f)(void *arg);
    void                 *arg;
    struct simt_resident *resident; /* of a kernel that waits for a flag */
};

struct CUgraph_st {
    uint64_t    n;
    struct task tasks[];
};

struct CUstream_st {
    int                 device;
    struct CUstream_st *next;
    struct task        *tasks;
    uint64_t            n, cap;
    uint64_t            at; /* tasks before it have run */
    int                 capturing, spoilt;
    uint64_t            from; /* tasks before it were queued before the capture */
};

CUresult standin_enter(void);
void     standin_settle(void); /* until the device has done all its work */
/* The block of memory that starts there, or NULL. */
const struct pinned *standin_block(uint64_t device);

/* shared.c: memory that other processes may open.  Its address, or 0. */
uint64_t standin_shared_alloc(uint64_t bytes, int *fd);
void     standin_shared_free(const struct pinned *b);
uint64_t standin_opened(void); /* blocks of other processes, which are open */

int standin_device(void);               /* of the thread's context */
int standin_device_of(CUcontext c);     /* -1: of none */
int standin_see(int device, int other); /* 0: it did before */
/* Everything that is queued; CUDA_ERROR_NOT_READY: the next waits for another rank. */
CUresult standin_run(CUstream s);

/* A record of an event, which others may wait for. */
struct record {
    CUstream        stream;
    struct timespec at;
    int             passed, users;
};
CUresult standin_run_until(CUstream s, const struct record *r);
void     standin_break(void);           /* the context, for good */
void     standin_begin(void);           /* a launch: what is freed before it was late */
uint64_t standin_kernels(void);         /* counts one that runs */
void     standin_tell_kernels(FILE *f); /* how often each of them ran */

#endif
