/* k_window.h - a sum over ranks in memory that their devices see of each other: what window.cu and window.c share, and
 * flags between devices.
 *
 * A rank's window begins with its flags, which the other ranks raise, and with its epochs; two halves follow.  A sum
 * uses one half, the next sum the other one: a rank that has seen all flags of a sum knows that all ranks are through
 * with the sum before, so its half may be written again, without a second wait.
 */
#ifndef TSR_CUDA_K_WINDOW_H
#define TSR_CUDA_K_WINDOW_H

#include <stdint.h>

#define K_WINDOW_RANKS 8u
#define K_WINDOW_BLOCKS                                                                            \
    32u /* of a launch, at most: all of them are resident at once, on 8 multiprocessors */
#define K_WINDOW_FLAGS                                                                             \
    (K_WINDOW_BLOCKS * K_WINDOW_RANKS)    /* U32 [block][rank]; then the epochs, U32 [block] */
#define K_WINDOW_HEAD 4096u               /* bytes before the halves */
#define K_WINDOW_MOST (UINT64_C(1) << 30) /* bytes of a half: the kernel counts with 32 bits */

/* What window.state holds: that the group has ended, or 2 + the rank that did not come in time. */
#define K_WINDOW_ENDED 1u
#define K_WINDOW_LATE  2u

/* x [rows, cols], F32, becomes the sum over ranks of what their numbers are in `dtype`. */
struct k_window {
    uint64_t window[K_WINDOW_RANKS]; /* of each rank, as this device sees it */
    uint64_t half;                   /* bytes from a window's start to the half in use */
    uint64_t x, ldx, rows, cols;
    uint64_t state;                    /* U32 in memory of the host; 0: all is well */
    uint64_t wait_ns;                  /* for another rank, at most */
    uint32_t rank, ranks, dtype, wide; /* wide: rows of x lie on 16 bytes */
};

#ifdef __CUDACC__

/* PTX 8.x, "Memory Consistency Model".  Raise: the block's work before a barrier, then the fence, then the store.  Look:
 * the load that sees the store, then a fence, then the next barrier. */
static __device__ __forceinline__ void flag_raise(uint32_t *p, uint32_t v)
{
    __threadfence_system();
    *(volatile uint32_t *)p = v;
}
static __device__ __forceinline__ uint32_t flag_look(const uint32_t *p)
{
    return *(const volatile uint32_t *)p;
}
static __device__ __forceinline__ void flag_seen(void)
{
    __threadfence_system();
}
static __device__ __forceinline__ uint64_t clock_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
#define FLAG_LOOKS 256u /* between two looks at the clock and at the state */

#elif defined(TSR_SIMT_KERNEL_H)

#define flag_raise(p, v) (__threadfence_system(), simt_flag_raise((p), (v)))
#define flag_look(p)     simt_flag_look(p)
#define flag_seen()      __threadfence_system()
#define clock_ns()       simt_clock()
#define FLAG_LOOKS       4u

#endif
#endif
