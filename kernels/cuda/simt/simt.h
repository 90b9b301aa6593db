/* simt.h - runs kernels of CUDA's dialect on the CPU, to test them: grids, blocks, warps, shared memory,
 * barriers, shuffles, votes and atomics.
 *
 * Every thread of a block is a fiber on one thread of the host, switched where the kernel synchronizes;
 * blocks run one after the other. A seed determines which fiber and which block runs next, so that a kernel
 * that depends on an order gives other numbers under another seed. Errors in every order are reported
 * directly: a barrier or shuffle that some threads never reach, a shuffle from an inactive lane. Kernels
 * compiled with memory hooks (simt_hooks.c) are also checked for accesses outside of every buffer, and for
 * unordered accesses to the same byte if one of them is a write. Blocks order their accesses by fences and an atomic
 * on one word alone (simt_order.c); they run one after the other, so none can wait for a later one. Only at a flag
 * of simt_flag_look() a block is left, with its threads and shared memory, and other blocks and launches go on.
 *
 * Device memory is host memory, but its addresses differ: a device address is the host address XOR
 * SIMT_KEY, which the host cannot access.
 */
#ifndef TSR_SIMT_H
#define TSR_SIMT_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/plugin.h"

/* Is this file compiled with a sanitizer of the compiler's? */
#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#elif __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif

/* Bits that no pointer of a program has. */
#define SIMT_KEY UINT64_C(0x5a00000000000000)

#define SIMT_THREADS_MAX 1024u

struct simt_kernel {
    const char *name;
    void (*entry)(const void *args);
    uint32_t args_bytes;
};

struct simt_launch {
    const struct simt_kernel *kernel;
    uint32_t                  grid[3];
    uint32_t                  threads; /* of a block */
    const void               *args;
    uint64_t                  seed;   /* 0: in order, never interrupted */
    uint32_t                  device; /* whose views its threads see; simt_view() */
    int32_t (*cancelled)(void *ctx);  /* polled between blocks; NULL: never */
    void *ctx;
};

/* One launch at a time in the process; others wait, but for one whose blocks look at flags. TSR_E_DEVICE: the error, with the kernel, block and
 * thread; TSR_E_CANCELLED. Memory of the launch is undefined then. [any] */
tsr_status simt_run(const struct simt_launch *l, struct tsr_err *err);

/* The same in steps: *ended false: a block has looked at a flag that another launch may raise, and waits to be called
 * again.  args are copied.  go_on() frees the launch when it has ended or failed. [any] */
struct simt_resident;
tsr_status simt_begin(const struct simt_launch *l, struct simt_resident **resident,
                      struct tsr_err *err);
tsr_status simt_go_on(struct simt_resident *resident, bool *ended, struct tsr_err *err);
/* Frees a launch that has not ended; NULL: nothing. [any] */
void simt_drop(struct simt_resident *resident);

/* Zeroed device memory, or 0. */
uint64_t simt_alloc(uint64_t bytes);
/* Memory of the caller's as device memory until simt_free(), which leaves it to the caller; or 0. */
uint64_t simt_adopt(void *p, uint64_t bytes);
/* Accepts 0. */
void simt_free(uint64_t address);
/* The host address of a range of device memory; NULL if it is not inside one allocation. */
void *simt_place(uint64_t address, uint64_t bytes);
/* Another device's view of the whole allocation at `address`, at an address of its own: behind by what no fence orders
 * (simt_weak.c).  Kernels with memory hooks alone.  0: no memory.  The views of an allocation end before it. */
uint64_t simt_view(uint64_t address, uint32_t device);
void     simt_view_close(uint64_t address);
/* Whether memory hooks have been called: the kernels that ran were compiled with them. */
bool simt_hooked(void);

/* ---- functions for kernels (simt_kernel.h) -------------------------------------- */

struct simt_dim {
    uint32_t x, y, z;
};
struct simt_dim simt_thread_idx(void);
struct simt_dim simt_block_idx(void);
struct simt_dim simt_block_dim(void);
struct simt_dim simt_grid_dim(void);
void            simt_barrier(int line);
/* A thread may then access what launches before this one have written.  Before, with memory hooks, that is an error,
 * and so is a write. */
void simt_wait_for_previous(void);
/* kind: which instruction; all threads of the mask come with the same kind and line. */
enum simt_warp_op {
    SIMT_SYNC,
    SIMT_SHFL,
    SIMT_SHFL_XOR,
    SIMT_SHFL_DOWN,
    SIMT_BALLOT,
    SIMT_MMA, /* and all that follow are products of matrices */
    SIMT_MMA_F16,
    SIMT_MMA_BF16,
};
uint32_t simt_warp(enum simt_warp_op op, uint32_t mask, uint32_t value, uint32_t lane, int line);
/* k_mma.h; simt_mma.c.  Copies put a pattern at once and their bytes at the wait. */
void simt_mma(int32_t *c, const uint32_t *a, const uint32_t *b, int line);
/* k_mma_half.h */
void simt_mma_half(float *c, const uint32_t *a, const uint32_t *b, int bf16, int line);
void simt_copy_async(void *to, const void *from, uint32_t bytes);
void simt_copy_commit(void);
void simt_copy_wait(uint32_t n);
void simt_fence(void);        /* __threadfence(); simt_order.c */
void simt_fence_system(void); /* __threadfence_system(); simt_weak.c */
/* Flags between launches that run at the same time, in any memory of the device or of the host. */
void     simt_flag_raise(uint32_t *p, uint32_t v);
uint32_t simt_flag_look(const uint32_t *p);
uint64_t simt_clock(void); /* ns */
uint32_t simt_atomic_add(uint32_t *p, uint32_t v);
uint32_t simt_atomic_max(uint32_t *p, uint32_t v);
uint32_t simt_atomic_or(uint32_t *p, uint32_t v);
float    simt_atomic_add_float(float *p, float v);

/* ---- between simt.c and simt_hooks.c -------------------------------------------- */

/* The thread that accesses memory now: its index over all launches, and its position. */
struct simt_who {
    uint64_t launch; /* the number of the launch's first thread */
    uint64_t end;    /* behind that of its last */
    uint64_t thread; /* launch + number in the launch */
    uint32_t block_threads;
    uint32_t barriers; /* of this block so far */
    uint32_t warps;    /* operations of the whole warp so far */
    bool     waited;   /* for the launches before */
};
bool simt_inside(struct simt_who *who); /* false: no kernel runs */
bool simt_own_memory(const void *p);    /* a fiber's stack, or the arguments */
void simt_maybe_switch(void);           /* a point where another thread may run */
void simt_report(const char *text);     /* the launch fails with the first text */
void simt_stop(const char *text) __attribute__((noreturn)); /* and the thread goes no further */

/* simt_hooks.c.  An access by an atomic instruction. */
void simt_access(const void *p, uint64_t bytes, bool write, bool atomic);
/* simt_order.c.  An atomic of the current thread on a word of global memory. */
void simt_order_atomic(const void *p);
/* Whether what another block did after so many of its barriers comes before what the current thread does now. */
bool simt_order_before(const struct simt_who *me, uint64_t block, uint32_t barriers);
/* simt_weak.c.  The memory that a view is of, or p itself; a plain write of the current thread; a point where what is
 * under way may arrive. */
void *simt_weak_origin(const void *p);
void  simt_weak_wrote(const struct simt_who *me, const void *p, uint64_t bytes);
void  simt_weak_drawn(void);
/* simt_memory.c.  The allocation, or the shared memory, that holds p; NULL: none. */
struct simt_region {
    uint8_t            *base;
    uint64_t            bytes;
    struct simt_cell   *cells; /* made when first needed; freed with the region */
    struct simt_region *next;
    bool                shared;  /* shared memory */
    bool                adopted; /* of the caller's */
};
struct simt_region *simt_region_of(const void *p);
/* Fills the shared memory of a new block with a pattern. */
void simt_shared_spoil(void);
/* Keeps the shared memory of a block in *kept, made when first needed; false: no memory.  And back. */
bool simt_shared_keep(uint8_t **kept);
void simt_shared_return(const uint8_t *kept);

#endif
