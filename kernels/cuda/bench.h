/* bench.h - what tools/gpu-check measures with: an extension of the backends over kernels/cuda. */
#ifndef TSR_CUDA_BENCH_H
#define TSR_CUDA_BENCH_H

#include "tessera/backend.h"

#define TSR_CUDA_BENCH "org.tessera.cuda.bench"

struct tsr_cuda_bench_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* Seconds of one of `times` equal operations, queued together and timed by the device's own events.
     * [worker] */
    tsr_status (*op)(void *self, const struct tsr_op *op, uint64_t times, double *seconds,
                     struct tsr_err *err);
    /* The same of a product of dense F16 matrices, [tokens, cols] by [rows, cols]^T, by the device's
     * library: what LINEAR is compared with.  TSR_E_UNSUPPORTED, with a sentence, where there is none.
     * [worker] */
    tsr_status (*dense)(void *self, uint64_t rows, uint64_t cols, uint64_t tokens, uint64_t times,
                        double *seconds, struct tsr_err *err);
};

#endif
