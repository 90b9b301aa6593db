/* tessera/linalg.h - linear algebra: dense F32 operations for calibration and second-order
 * quantizers.  The id of the host service and backend extension is "tessera.linalg/1".
 *
 * A backend implements the table, and a plugin gets it from host->service().  The host takes it
 * from the CPU backend.  Under `numerics: fast` it takes the table of the backend that runs models,
 * if that has one.
 *
 * Matrices are row-major, and their strides (ld...) count elements.  Every element is one chain of
 * fused multiply-adds in ascending order of the summed index (docs/decisions/numerics.md).  Results
 * are bit-identical for any number of threads and any instruction set.  Under `numerics: fast` a
 * device may use another order, and the CPU backend's syrk rounds X to BF16.
 *
 * Functions spread work with host->parallel_for().  A call from inside a loop of it runs on its own
 * thread, or waits for the device.  Every function polls host->cancelled(); after TSR_E_CANCELLED
 * the outputs are undefined.  A NULL matrix or one with overlapping rows is TSR_E_INVAL.  A size of
 * 0 does nothing.  Outputs share no element with inputs.  The caller owns every matrix.  [any]
 *
 * Example: the lower Cholesky factor of X^T X, X [rows, n], into the zeroed c [n, n].
 *
 *     static tsr_status factor(const struct tsr_host *host, const float *x, uint64_t rows,
 *                              uint64_t n, float *c, struct tsr_err *err)
 *     {
 *         const struct tsr_linalg_v1 *la =
 *             (const struct tsr_linalg_v1 *)host->service(host->ctx, TSR_LINALG);
 *         uint64_t pivot = 0;
 *         if (!la)
 *             return tsr_fail(err, TSR_E_UNSUPPORTED, "the host has no %s", TSR_LINALG);
 *         tsr_status st = la->syrk(la->ctx, n, rows, 1.0f, x, n, c, n, err);
 *         return st == TSR_OK ? la->cholesky(la->ctx, n, c, n, &pivot, err) : st;
 *     }
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

    /* C [n,n] += alpha * X^T X, X [rows,n].  Computes the lower triangle and mirrors it into the
     * upper. */
    tsr_status (*syrk)(void *ctx, uint64_t n, uint64_t rows, float alpha, const float *x,
                       uint64_t ldx, float *c, uint64_t ldc, struct tsr_err *err);
    /* C [m,n] += alpha * A [m,k] * B [k,n]; with b_transposed, B is [n,k] and B^T is the factor. */
    tsr_status (*gemm)(void *ctx, uint64_t m, uint64_t n, uint64_t k, float alpha, const float *a,
                       uint64_t lda, const float *b, uint64_t ldb, int32_t b_transposed, float *c,
                       uint64_t ldc, struct tsr_err *err);
    /* A = L L^T in place: writes L into the lower triangle and zeros above it.  TSR_E_NUMERIC: a
     * pivot is not positive, *pivot is its index, and A is undefined. */
    tsr_status (*cholesky)(void *ctx, uint64_t n, float *a, uint64_t lda, uint64_t *pivot,
                           struct tsr_err *err);
    /* The inverse of A = L L^T from a finite L, in place, as a full symmetric matrix. */
    tsr_status (*cholesky_inverse)(void *ctx, uint64_t n, float *l, uint64_t ldl,
                                   struct tsr_err *err);
    /* The eigenvalue of a symmetric A with the largest magnitude, by power iteration.  Without
     * negative eigenvalues it is the largest eigenvalue.  The iteration stops after `steps` steps,
     * or when the value changes by at most `tolerance` (relative).  NaN or Inf: TSR_E_NUMERIC. */
    tsr_status (*largest_eigenvalue)(void *ctx, uint64_t n, const float *a, uint64_t lda,
                                     uint64_t steps, double tolerance, double *value,
                                     struct tsr_err *err);

    /* ABI minor 0 ends here. */

    /* Each of the following members may be NULL, if the table would gain nothing from it. */

    /* The inverse of a lower triangle, in place; the upper triangle becomes zero.  TSR_E_NUMERIC:
     * the diagonal has a zero. */
    tsr_status (*triangle_inverse)(void *ctx, uint64_t n, float *l, uint64_t ldl,
                                   struct tsr_err *err);
    /* Copies the n floats at a to the device and keeps them there until drop().  Functions that get
     * a matrix of these floats read and write the copy of the device.  The caller may read its own
     * floats, which are then older, and writes them only before a push().  Equal ranges may be held
     * several times, with as many drops.  TSR_E_NOMEM: the device has no room.  TSR_E_INVAL: the
     * range shares floats with a different held range. */
    tsr_status (*hold)(void *ctx, const float *a, uint64_t n, struct tsr_err *err);
    /* Ends the hold on the range that begins at a.  With fetch, copies the device's floats back
     * first.  If that copy fails, the caller's floats stay undefined and the hold still ends. */
    tsr_status (*drop)(void *ctx, const float *a, int32_t fetch, struct tsr_err *err);
    /* Copy n floats of a held range: fetch() from the device to a, push() from a to the device.
     * The hold continues.  n 0 does nothing.  TSR_E_INVAL: the floats do not all lie in one held
     * range.  TSR_E_DEVICE: the n floats of the written side are undefined. */
    tsr_status (*fetch)(void *ctx, float *a, uint64_t n, struct tsr_err *err);
    tsr_status (*push)(void *ctx, const float *a, uint64_t n, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
