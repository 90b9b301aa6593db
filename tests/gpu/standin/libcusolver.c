/* libcusolver.c - libcusolver.so.12 of the tests: the calls that kernels/cuda/blas_cuda.c makes, column-major
 * by the book, late, on the stream that the handle was given. */
#include <cusolverDn.h>
#include <stdlib.h>
#include <string.h>

#include "blas.h"

#define ON_DEVICE 4096u /* bytes of scratch */
#define ON_HOST   64u

struct cusolverDnContext {
    CUstream stream;
};
struct cusolverDnParams {
    int none;
};

EXPORT cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *h)
{
    ONE_AT_A_TIME;
    *h = calloc(1, sizeof **h);
    return *h && standin_in_context() ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_NOT_INITIALIZED;
}
EXPORT cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t h)
{
    ONE_AT_A_TIME;
    free(h);
    return CUSOLVER_STATUS_SUCCESS;
}
EXPORT cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t h, cudaStream_t s)
{
    ONE_AT_A_TIME;
    h->stream = (CUstream)s;
    return CUSOLVER_STATUS_SUCCESS;
}
EXPORT cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t *p)
{
    ONE_AT_A_TIME;
    *p = calloc(1, sizeof **p);
    return *p ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_ALLOC_FAILED;
}
EXPORT cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t p)
{
    ONE_AT_A_TIME;
    free(p);
    return CUSOLVER_STATUS_SUCCESS;
}

struct factor {
    struct book_matrix a;
    uint64_t           n;
    int               *info;
    char              *own;
    int                lower, inverse;
};

/* The scratch of the caller is written to, on both sides: it must live until now. */
static CUresult work(void *arg)
{
    const struct factor *f = arg;
    memset(f->own, 0x77, ON_HOST);
    *f->info = f->inverse ? book_trtri(f->n, f->a, f->lower) : book_potrf(f->n, f->a, f->lower);
    return CUDA_SUCCESS;
}

static cusolverStatus_t queue(cusolverDnHandle_t h, cublasFillMode_t uplo, int64_t n,
                              cudaDataType type, const void *a, int64_t lda, const void *on_device,
                              size_t device_bytes, void *on_host, size_t host_bytes,
                              const int *info, int inverse)
{
    struct factor *f = calloc(1, sizeof *f);
    if (!f)
        return CUSOLVER_STATUS_ALLOC_FAILED;
    *f = (struct factor){ .a = blas_matrix(a, n, n, lda),
                          .n = (uint64_t)n,
                          .info = standin_place((uint64_t)(uintptr_t)info, sizeof *info),
                          .own = on_host,
                          .lower = uplo == CUBLAS_FILL_MODE_LOWER,
                          .inverse = inverse };
    if (!h || !h->stream || !standin_in_context() || type != CUDA_R_32F || !f->a.p || !f->info ||
        device_bytes < ON_DEVICE || host_bytes < ON_HOST || !on_host ||
        (uintptr_t)on_device % 256 ||
        !standin_place((uint64_t)(uintptr_t)on_device, device_bytes)) {
        free(f);
        return CUSOLVER_STATUS_INVALID_VALUE;
    }
    standin_count()->linalg++;
    return standin_queue(h->stream, work, f) == CUDA_SUCCESS ? CUSOLVER_STATUS_SUCCESS
                                                             : CUSOLVER_STATUS_EXECUTION_FAILED;
}

static cusolverStatus_t size(cusolverDnHandle_t h, int64_t n, const void *a, int64_t lda,
                             size_t *on_device, size_t *on_host)
{
    *on_device = ON_DEVICE;
    *on_host = ON_HOST;
    return h && a && n > 0 && lda >= n ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_INVALID_VALUE;
}

EXPORT cusolverStatus_t cusolverDnXpotrf_bufferSize(cusolverDnHandle_t h, cusolverDnParams_t p,
                                                    cublasFillMode_t uplo, int64_t n,
                                                    cudaDataType type, const void *a, int64_t lda,
                                                    cudaDataType compute, size_t *on_device,
                                                    size_t *on_host)
{
    ONE_AT_A_TIME;
    (void)uplo;
    return p && type == CUDA_R_32F && compute == CUDA_R_32F ? size(h, n, a, lda, on_device, on_host)
                                                            : CUSOLVER_STATUS_INVALID_VALUE;
}

EXPORT cusolverStatus_t cusolverDnXpotrf(cusolverDnHandle_t h, cusolverDnParams_t p,
                                         cublasFillMode_t uplo, int64_t n, cudaDataType type,
                                         void *a, int64_t lda, cudaDataType compute,
                                         void *on_device, size_t device_bytes, void *on_host,
                                         size_t host_bytes, int *info)
{
    ONE_AT_A_TIME;
    if (!p || compute != CUDA_R_32F)
        return CUSOLVER_STATUS_INVALID_VALUE;
    return queue(h, uplo, n, type, a, lda, on_device, device_bytes, on_host, host_bytes, info, 0);
}

EXPORT cusolverStatus_t cusolverDnXtrtri_bufferSize(cusolverDnHandle_t h, cublasFillMode_t uplo,
                                                    cublasDiagType_t diag, int64_t n,
                                                    cudaDataType type, void *a, int64_t lda,
                                                    size_t *on_device, size_t *on_host)
{
    ONE_AT_A_TIME;
    (void)uplo;
    return type == CUDA_R_32F && diag == CUBLAS_DIAG_NON_UNIT
               ? size(h, n, a, lda, on_device, on_host)
               : CUSOLVER_STATUS_INVALID_VALUE;
}

EXPORT cusolverStatus_t cusolverDnXtrtri(cusolverDnHandle_t h, cublasFillMode_t uplo,
                                         cublasDiagType_t diag, int64_t n, cudaDataType type,
                                         void *a, int64_t lda, void *on_device, size_t device_bytes,
                                         void *on_host, size_t host_bytes, int *info)
{
    ONE_AT_A_TIME;
    if (diag != CUBLAS_DIAG_NON_UNIT)
        return CUSOLVER_STATUS_INVALID_VALUE;
    return queue(h, uplo, n, type, a, lda, on_device, device_bytes, on_host, host_bytes, info, 1);
}
