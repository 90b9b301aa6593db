/* k_window.h - a sum over ranks in memory that their devices see of each other: what window.cu, window.c and fuse.c
 * share, and flags between devices.
 *
 * Rows are cut into cells of a row's columns, each with its flags.  A block of k_window_sum has a cell of every so many
 * rows, one of k_window_step all cells of a row.  Cells follow from the shape alone, so ranks may run different ones of
 * the two in the same sum.
 *
 * A rank's window begins with its flags, which the other ranks raise, and with its epochs; two halves follow.  A sum
 * uses one half, the next sum the other one: a rank that has seen all flags of a sum knows that all ranks are through
 * with the sum before, so its half may be written again, without a second wait.
 */
#ifndef TSR_CUDA_K_WINDOW_H
#define TSR_CUDA_K_WINDOW_H

#include "k_args.h"

#define K_WINDOW_RANKS 8u
#define K_WINDOW_CELLS                                                                             \
    32u /* of a sum, at most: blocks of k_window_sum are resident at once, on 8 multiprocessors */
#define K_WINDOW_RUNS 256u /* of a cell, at least, if a row has more than one */
#define K_WINDOW_FLAGS                                                                             \
    (K_WINDOW_CELLS * K_WINDOW_RANKS)     /* U32 [cell][rank]; then the epochs, U32 [cell] */
#define K_WINDOW_HEAD 4096u               /* bytes before the halves */
#define K_WINDOW_MOST (UINT64_C(1) << 30) /* bytes of a half: the kernel counts with 32 bits */

/* What window.state holds: that the group has ended, or 2 + the rank that did not come in time. */
#define K_WINDOW_ENDED 1u
#define K_WINDOW_LATE  2u

/* x [rows, cols], F32, becomes the sum over ranks of what their numbers are in `dtype`; then rows [0, biased) get
 * bias [cols] too. */
struct k_window {
    uint64_t window[K_WINDOW_RANKS]; /* of each rank, as this device sees it */
    uint64_t half;                   /* bytes from a window's start to the half in use */
    uint64_t x, ldx, rows, cols, bias;
    uint64_t state;                    /* U32 in memory of the host; 0: all is well */
    uint64_t wait_ns;                  /* for another rank, at most */
    uint32_t rank, ranks, dtype, wide; /* wide: rows of x lie on 16 bytes */
    uint32_t parts, part;              /* cells of a row; runs of a cell */
    uint32_t resident; /* blocks of k_window_step that are resident at once, at most */
    uint32_t biased;
};

/* The sum, then k_norm_step of its rows: a block for a row. */
struct k_summed_step {
    struct k_window    sum;
    struct k_norm_step step;
};

/* Runs of a row: of four columns, or of one where rows are no whole number of fours. */
#define K_WINDOW_WIDE(cols) ((uint32_t)((cols) % 4 ? (cols) : (cols) / 4))

/* Sets a->parts and a->part; the grid of k_window_sum. */
static inline void k_window_cells(struct k_window *a, uint32_t grid[2])
{
    const uint32_t wide = K_WINDOW_WIDE(a->cols);
    const uint32_t rows = a->rows < K_WINDOW_CELLS ? (uint32_t)a->rows : K_WINDOW_CELLS;
    const uint32_t most = K_WINDOW_CELLS / rows, parts = 1 + (wide - 1) / K_WINDOW_RUNS;
    a->parts = most > 0 && most < parts ? most : parts; /* for clang-tidy, most may be 0 */
    a->part = wide / a->parts + (wide % a->parts != 0);
    grid[0] = a->parts;
    grid[1] = rows;
}

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
#define FLAG_LOOKS 256u            /* between two looks at the clock and at the state */
#define sum_seen() __syncthreads() /* by the block's threads: what each of them has added */

#elif defined(TSR_SIMT_KERNEL_H)

#define flag_raise(p, v) (__threadfence_system(), simt_flag_raise((p), (v)))
#define flag_look(p)     simt_flag_look(p)
#define flag_seen()      __threadfence_system()
#define clock_ns()       simt_clock()
#define FLAG_LOOKS       4u
#define sum_seen()       __syncthreads()

#endif
#endif
