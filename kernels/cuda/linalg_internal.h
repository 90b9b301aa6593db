/* linalg_internal.h - declarations shared by the files of linear algebra. */
#ifndef TSR_CUDA_LINALG_INTERNAL_H
#define TSR_CUDA_LINALG_INTERNAL_H

#include "backend.h"
#include "linalg.h"

#define U(x) ((unsigned long long)(x))

tsr_status tsr_cuda_linalg_begin(struct tsr_cuda *c, struct tsr_err *err);
tsr_status tsr_cuda_linalg_end(struct tsr_cuda *c, tsr_status st);
tsr_status tsr_cuda_linalg_check(const char *what, const void *p, uint64_t rows, uint64_t cols,
                                 uint64_t ld, struct tsr_err *err);
struct tsr_cuda_mat tsr_cuda_linalg_mat(const float *p, uint64_t rows, uint64_t cols, uint64_t ld,
                                        int write);
tsr_status          tsr_cuda_linalg_eigenvalue(void *ctx, uint64_t n, const float *a, uint64_t lda,
                                               uint64_t steps, double tolerance, double *value,
                                               struct tsr_err *err);

#endif
