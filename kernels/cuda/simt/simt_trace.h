/* simt_trace.h - what a warp's accesses to memory cost: wavefronts of shared memory and sectors of global memory.
 *
 * Accesses of the lanes of a warp by one instruction are one request. The emulation runs lanes one after the other, so
 * a request is put together afterwards: of each lane, the n-th access from one place of the code. A loop that lanes
 * leave at different times may therefore be put together in another way than a device does. Accesses that
 * a C compiler split, although the kernel has one of 8 or 16 bytes, are one again.
 *
 * Shared memory: 32 banks of 4 bytes. A request of 4 bytes a lane or fewer is one group of 32 lanes, of 8 bytes two groups
 * of 16, of 16 bytes four of 8 (CUDA C++ Programming Guide, "Shared Memory" of compute capabilities 5.x and later). A group
 * takes as many wavefronts as different words lie in one bank. Global memory: sectors of 32 bytes.
 *
 *     struct simt_trace t = { .blocks = 1 };
 *     simt_trace(&t);            then launches with kernels that have memory hooks
 *     simt_trace(NULL);
 */
#ifndef TSR_SIMT_TRACE_H
#define TSR_SIMT_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#define SIMT_TRACE_KERNELS 64

struct simt_traffic {
    const char *kernel; /* its name, of struct simt_kernel */
    uint64_t    requests, wavefronts,
        least_wavefronts;                    /* of shared memory; least: without a conflict */
    uint64_t global, sectors, least_sectors; /* requests; least: all bytes of a sector are used */
    bool     cut; /* a block had more accesses than there is room for: the rest is not counted */
};

struct simt_trace {
    uint32_t            blocks; /* of a launch that are looked at; the others only run */
    uint32_t            n;      /* kernels so far; those past SIMT_TRACE_KERNELS are left out */
    struct simt_traffic of[SIMT_TRACE_KERNELS];
};

/* Counts into t until another call; NULL: no more.  One thread launches meanwhile.  False: out of memory. [setup] */
bool simt_trace(struct simt_trace *t);

/* ---- for simt.c, simt_hooks.c, simt_mma.c ------------------------------------------------- */

/* place: of the instruction in the code. */
void simt_trace_access(const void *p, uint64_t bytes, bool write, const void *place);
void simt_trace_block_begin(void);
void simt_trace_block_end(void);

#endif
