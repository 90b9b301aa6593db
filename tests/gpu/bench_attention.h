/* bench_attention.h - the part of bench.c that measures ATTENTION. */
#ifndef TSR_TEST_BENCH_ATTENTION_H
#define TSR_TEST_BENCH_ATTENTION_H

#include "bench.h"
#include "pair.h"

struct attention_bench {
    const struct pair_device       *d, *fast; /* fast: the same device under numerics: fast */
    const struct tsr_cuda_bench_v1 *by;
    double                          copy; /* bytes per second, read and written */
    bool                            small;
    struct tsr_err                 *err;
};

/* JSON lines with "attention" on stdout; small: of a few tokens, to see that it runs.  False: err says why. */
bool pair_bench_attention(const struct attention_bench *b);

#endif
