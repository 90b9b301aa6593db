/* bench.h - measurements for tools/gpu-check: an extension of the backends over kernels/cuda. */
#ifndef TSR_CUDA_BENCH_H
#define TSR_CUDA_BENCH_H

#include "tessera/backend.h"

#define TSR_CUDA_BENCH "org.tessera.cuda.bench"

/* Number of copies of `bytes` to read in turn, so that none of them is still in a cache when it is read
 * again: current devices have caches of 50 to 126 MB. */
static inline uint64_t tsr_cuda_bench_copies(uint64_t bytes)
{
    const uint64_t all = UINT64_C(256) << 20, most = 32;
    uint64_t       n = bytes ? (all + bytes - 1) / bytes : 1;
    return bytes < (UINT64_C(1) << 20) ? 2 : n > most ? most : n; /* small ones: of tests */
}

struct tsr_cuda_bench_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* Seconds of one of n operations, run in turn `times` over, queued together and timed by the device's
     * events. As many untimed operations precede them: the device is busy when the first event passes, so
     * the time excludes the host's queueing. [worker] */
    tsr_status (*ops)(void *self, const struct tsr_op *op, uint64_t n, uint64_t times,
                      double *seconds, struct tsr_err *err);
    /* The same for a product of dense F16 matrices, [tokens, cols] by [rows, cols]^T, by the device's
     * library, over several copies of the weight if one would stay in a cache: the baseline for LINEAR.
     * TSR_E_UNSUPPORTED, with a message, without a library. [worker] */
    tsr_status (*dense)(void *self, uint64_t rows, uint64_t cols, uint64_t tokens, uint64_t times,
                        double *seconds, struct tsr_err *err);
    /* Seconds of a copy of `bytes`, a multiple of 16384, inside the device's memory, the same way: by a
     * kernel that has 64 bytes of every thread under way. [worker] */
    tsr_status (*copy)(void *self, uint64_t bytes, uint64_t times, double *seconds,
                       struct tsr_err *err);
};

#endif
