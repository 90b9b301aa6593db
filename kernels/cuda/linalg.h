/* linalg.h - "tessera.linalg/1" on a CUDA device, inside the backend. */
#ifndef TSR_CUDA_LINALG_H
#define TSR_CUDA_LINALG_H

#include <pthread.h>

#include "tessera/linalg.h"

#define TSR_CUDA_STAGING (UINT64_C(1) << 20) /* bytes of rows that are packed at once */

struct tsr_cuda;
struct tsr_cuda_held; /* floats of the host that the device keeps */

struct tsr_cuda_linalg {
    struct tsr_linalg_v1  table; /* the backend's lock guards the rest */
    int                   found; /* 1: the libraries were found, -1: not found, 0: not searched
                                  * yet */
    struct tsr_cuda_held *held;
    uint8_t              *staging; /* rows on their way to the device or back */
};

void tsr_cuda_linalg_init(struct tsr_cuda *c);
void tsr_cuda_linalg_free(struct tsr_cuda *c);
/* The table, or NULL: under numerics: exact, and, with a line in the log, where a library is missing.
 * [any] */
const void *tsr_cuda_linalg(struct tsr_cuda *c);

/* ---- linalg_move.c: matrices of the host on the device ----------------------------------- */

struct tsr_cuda_mat {
    float   *host; /* [rows, cols], not written but where `write` is set */
    uint64_t rows, cols, ld;
    int      write;
    /* filled by tsr_cuda_bring() */
    int      held;
    uint64_t p, dld; /* on the device */
};

/* Brings all n to the device, those that are not held into scratch; `extra` further bytes of scratch at *more,
 * aligned to 256 bytes. */
tsr_status tsr_cuda_bring(struct tsr_cuda *c, struct tsr_cuda_mat *m, int n, uint64_t extra,
                          uint64_t *more, struct tsr_err *err);
/* Copies matrices that were written and are not held back to the host. */
tsr_status tsr_cuda_take(struct tsr_cuda *c, const struct tsr_cuda_mat *m, int n,
                         struct tsr_err *err);

tsr_status tsr_cuda_hold(void *ctx, const float *a, uint64_t n, struct tsr_err *err);
tsr_status tsr_cuda_drop(void *ctx, const float *a, int32_t fetch, struct tsr_err *err);
tsr_status tsr_cuda_fetch(void *ctx, float *a, uint64_t n, struct tsr_err *err);
tsr_status tsr_cuda_push(void *ctx, const float *a, uint64_t n, struct tsr_err *err);
void       tsr_cuda_drop_all(struct tsr_cuda *c);

#endif
