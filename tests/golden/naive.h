/* naive.h - a backend whose operations are those of kernels/reference: plain loops in double precision,
 * with no line of the kernels that backends run.  It can be told to decline operations and formats, and it
 * checks every shape that the engine hands it. */
#ifndef TSR_TEST_NAIVE_H
#define TSR_TEST_NAIVE_H

#include "tessera/backend.h"

struct naive {
    uint32_t decline_ops;      /* bit per TSR_OP_* */
    uint32_t decline_dtypes;   /* bit per dtype of tessera.float/1 */
    uint32_t runs[16];         /* operations run, by kind */
    uint32_t buffers, weights; /* alive now */
};

extern const struct tsr_backend_v1 naive_backend;

#endif
