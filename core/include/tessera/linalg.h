/* tessera/linalg.h - host service and backend extension "tessera.linalg/1": the dense linear
 * algebra that calibration and second-order quantizers need, in F32, at the machine's speed.
 *
 * A plugin gets the table from host->service(host->ctx, TSR_LINALG); the host takes it from
 * its CPU backend, and under `numerics: fast` from the backend that runs models, if that has one.
 * Matrices are row-major with a stride in elements.  Every element is one chain of fused
 * multiply-adds in ascending order of the summed index (docs/decisions/numerics.md), so results are
 * the same bytes for any number of threads and any instruction set; under `numerics: fast` a device
 * adds in an order of its own.  Work is spread over host->parallel_for(); from inside a loop of it, a
 * call runs on its thread alone, or waits for the device.
 * All functions poll host->cancelled(): TSR_E_CANCELLED, outputs are garbage then.  A matrix that
 * is NULL or whose rows overlap is TSR_E_INVAL; a size of 0 does nothing.  Outputs share no
 * element with inputs.  [any]
 */
#ifndef TSR_LINALG_H
#define TSR_LINALG_H

#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_LINALG "tessera.linalg/1"

struct tsr_linalg_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    void    *ctx; /* passed back as the first argument */

    /* C [n,n] += alpha * X^T X, X [rows,n]: the lower triangle is computed, the upper mirrored. */
    tsr_status (*syrk)(void *ctx, uint64_t n, uint64_t rows, float alpha, const float *x,
                       uint64_t ldx, float *c, uint64_t ldc, struct tsr_err *err);
    /* C [m,n] += alpha * A [m,k] * B [k,n], or B^T with B [n,k] when b_transposed. */
    tsr_status (*gemm)(void *ctx, uint64_t m, uint64_t n, uint64_t k, float alpha, const float *a,
                       uint64_t lda, const float *b, uint64_t ldb, int32_t b_transposed, float *c,
                       uint64_t ldc, struct tsr_err *err);
    /* A = L L^T in place: L in the lower triangle, the upper one zeroed.  A pivot that is not
     * positive: TSR_E_NUMERIC, its index in *pivot, A is garbage. */
    tsr_status (*cholesky)(void *ctx, uint64_t n, float *a, uint64_t lda, uint64_t *pivot,
                           struct tsr_err *err);
    /* The inverse of A = L L^T from L (finite), in place, as a full symmetric matrix. */
    tsr_status (*cholesky_inverse)(void *ctx, uint64_t n, float *l, uint64_t ldl,
                                   struct tsr_err *err);
    /* The largest eigenvalue of a symmetric A by power iteration: at most `steps` steps, stops
     * when it changes by at most tolerance (relative).  What it finds is the largest magnitude,
     * which for a matrix without negative eigenvalues is the same.  NaN or Inf: TSR_E_NUMERIC. */
    tsr_status (*largest_eigenvalue)(void *ctx, uint64_t n, const float *a, uint64_t lda,
                                     uint64_t steps, double tolerance, double *value,
                                     struct tsr_err *err);

    /* ABI minor 0 ends here. */

    /* Each of these may be NULL: where there is nothing to gain by it. */

    /* The inverse of a lower triangle, in place; the upper triangle becomes zero.  A diagonal with a
     * zero: TSR_E_NUMERIC. */
    tsr_status (*triangle_inverse)(void *ctx, uint64_t n, float *l, uint64_t ldl,
                                   struct tsr_err *err);
    /* From hold() to drop() the n floats at a are kept on the device as they are now.  Functions that
     * are given a matrix of them read the device's, and what they write stays there; the caller may
     * read its own, which are then older, and writes none but for push().  The same floats may be
     * held again: as many drops.  TSR_E_NOMEM; TSR_E_INVAL for a range that shares floats with another held one. */
    tsr_status (*hold)(void *ctx, const float *a, uint64_t n, struct tsr_err *err);
    /* Ends the hold on the range that begins at a; fetch: the device's floats come back first, except
     * where it fails. */
    tsr_status (*drop)(void *ctx, const float *a, int32_t fetch, struct tsr_err *err);
    /* Parts of a held range, so that not all of it travels.  fetch: the caller's n floats at a become
     * the device's; push: the device's become the caller's.  The hold goes on.  TSR_E_INVAL for floats
     * that do not all lie in one held range; n 0 does nothing.  TSR_E_DEVICE: of those n floats the
     * side that was written is garbage. */
    tsr_status (*fetch)(void *ctx, float *a, uint64_t n, struct tsr_err *err);
    tsr_status (*push)(void *ctx, const float *a, uint64_t n, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
