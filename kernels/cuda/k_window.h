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

/* `int4_bf16`, by column: of the numbers, and of their sums in two steps.  A row is whole runs, zeros after its columns. */
struct k_window_scaled {
    int32_t  most;     /* codes are in -most..most; 0: another codec */
    uint32_t outliers; /* BF16s of a row in a half */
    uint64_t marks,
        sums; /* U32 [runs]: the first outlier of the run << 8, a bit for each column that is one */
    uint64_t inv, inv_sum; /* F32 [8 * runs] of this rank; inv_sum: of its slice */
    uint64_t scale;        /* F32 [ranks][8 * runs] */
    uint64_t scale_sum;    /* F32 [8 * runs], each slice of the rank that adds it */
};

/* x [rows, cols], F32, becomes the sum over ranks of what their numbers are in `dtype`, or coded as `int4_bf16` if
 * scaled.most is not 0, else as `mx` if `lanes` is not 0; then rows [0, biased) get bias [cols] too.
 *
 * A run is columns of a row that a thread takes: four or one, or eight of `mx` and `int4_bf16`.  With `mx` a row has whole
 * blocks, so that the last of its runs may have no column.  A half has the codes of all runs, then the blocks' factors, F32,
 * or the outliers, BF16. */
struct k_window {
    uint64_t window[K_WINDOW_RANKS]; /* of each rank, as this device sees it */
    uint64_t half;                   /* bytes from a window's start to the half in use */
    uint64_t x, ldx, rows, cols, bias;
    uint64_t state;                    /* U32 in memory of the host; 0: all is well */
    uint64_t wait_ns;                  /* for another rank, at most */
    uint32_t rank, ranks, dtype, wide; /* wide: rows of x lie on 16 bytes */
    uint32_t runs, parts, part;        /* of a row; cells of a row; runs of a cell */
    uint32_t resident; /* blocks of k_window_step that are resident at once, at most */
    uint32_t biased;
    /* Eight columns: runs of a block, 1 to 32, with `int4_bf16` 1; 32-bit words of a run's codes. */
    uint32_t lanes, log2_lanes, words;
    uint64_t codes; /* bytes of a half before factors or outliers */
    /* Two steps: rank r of `slices` adds runs [border[r], border[r + 1]) and codes the sum for all; 0: each adds all. */
    uint32_t               slices, border[K_WINDOW_RANKS + 1];
    struct k_mx            mx;
    struct k_window_scaled scaled;
};

/* The sum, then k_norm_step of its rows: a block for a row. */
struct k_summed_step {
    struct k_window    sum;
    struct k_norm_step step;
};

/* Columns of a run. */
#define K_WINDOW_COLUMNS(a) ((a)->lanes ? 8u : (a)->cols % 4 ? 1u : 4u)

/* Sets runs, codes, parts and part of rows, cols, words, lanes, slices and border; the grid of k_window_sum.  A cell has whole blocks of
 * `mx` and columns of one slice; one of a short slice may have none. */
static inline void k_window_cells(struct k_window *a, uint32_t grid[2])
{
    const uint32_t unit = a->lanes ? a->lanes : 1, slices = a->slices ? a->slices : 1;
    const uint32_t each = K_WINDOW_CELLS / slices; /* cells of a slice */
    const uint32_t rows = a->rows < each ? (uint32_t)a->rows : each, most = rows ? each / rows : 1;
    uint32_t       units, parts, part;
    a->runs = (uint32_t)((a->cols - 1) / ((uint64_t)K_WINDOW_COLUMNS(a) * unit) + 1) * unit;
    units =
        a->slices || a->runs < unit ? 1 : a->runs / unit; /* of the largest slice, one at least */
    for (uint32_t r = 0; r < a->slices; r++) {
        const uint32_t n = (a->border[r + 1] - a->border[r]) / unit;
        units = n > units ? n : units;
    }
    parts = 1 + (units * unit - 1) / K_WINDOW_RUNS;
    parts = most > 0 && most < parts ? most : parts; /* for clang-tidy, most may be 0 */
    part = (units - 1) / parts + 1;
    a->codes = a->rows * a->runs * 4 * a->words;
    a->part = part * unit;
    a->parts = ((units - 1) / part + 1) * slices; /* without slices none is empty */
    grid[0] = a->parts;
    grid[1] = rows;
}

/* Bytes of a half that rows of a sum with such codes take. */
static inline uint64_t k_window_coded_bytes(const struct k_window *a, uint64_t rows)
{
    const uint64_t codes = rows * a->runs * 4 * a->words;
    return codes + rows * (a->scaled.most ? (uint64_t)2 * a->scaled.outliers
                                          : (uint64_t)(a->runs >> a->log2_lanes) * 4);
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
/* v, of which the compiler does not know that it is what it was: it computes what follows from it again and keeps no register
 * for it in between. */
static __device__ __forceinline__ uint32_t anew(uint32_t v)
{
    asm volatile("" : "+r"(v));
    return v;
}
#define FLAG_LOOKS 256u            /* between two looks at the clock and at the state */
#define sum_seen() __syncthreads() /* by the block's threads: what each of them has added */

#elif defined(TSR_SIMT_KERNEL_H)

#define flag_raise(p, v) (__threadfence_system(), simt_flag_raise((p), (v)))
#define flag_look(p)     simt_flag_look(p)
#define flag_seen()      __threadfence_system()
#define clock_ns()       simt_clock()
#define anew(v)          (v)
#define FLAG_LOOKS       4u
#define sum_seen()       __syncthreads()

#endif
#endif
