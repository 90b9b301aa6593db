/* libcublas.c - libcublas.so.13 of the tests: the calls that kernels/cuda/blas_cuda.c makes, column-major by
 * the book, late, on the stream that the handle was given. */
#include <cublas_v2.h>
#include <stdlib.h>

#include "blas.h"

struct cublasContext {
    CUstream stream;
};

EXPORT cublasStatus_t cublasCreate(cublasHandle_t *h)
{
    ONE_AT_A_TIME;
    *h = standin_option("noblas", -1) == 0 ? NULL : calloc(1, sizeof **h);
    return *h && standin_in_context() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}
EXPORT cublasStatus_t cublasDestroy(cublasHandle_t h)
{
    ONE_AT_A_TIME;
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s)
{
    ONE_AT_A_TIME;
    h->stream = (CUstream)s;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT const char *cublasGetStatusString(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_INVALID_VALUE ? "invalid value" : "a status of the stand-in";
}

struct product {
    uint64_t           m, n, k;
    float              alpha, beta;
    struct book_matrix a, b, c;
    int                a_transposed, b_transposed;
    char               triangle;
};

static CUresult multiply(void *arg)
{
    const struct product *p = arg;
    book_gemm(p->m, p->n, p->k, p->alpha, p->a, p->a_transposed, p->b, p->b_transposed, p->beta,
              p->c, p->triangle);
    return CUDA_SUCCESS;
}

/* Takes p over. */
static cublasStatus_t queue(cublasHandle_t h, struct product *p)
{
    if (!h || !h->stream || !standin_in_context() || !p->a.p || !p->b.p || !p->c.p) {
        free(p);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    standin_count()->linalg++;
    return standin_queue(h->stream, multiply, p) == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS
                                                                 : CUBLAS_STATUS_EXECUTION_FAILED;
}

EXPORT cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                  int m, int n, int k, const float *alpha, const float *a, int lda,
                                  const float *b, int ldb, const float *beta, float *c, int ldc)
{
    ONE_AT_A_TIME;
    struct product *p = calloc(1, sizeof *p);
    if (!p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (struct product){
        .m = (uint64_t)m,
        .n = (uint64_t)n,
        .k = (uint64_t)k,
        .alpha = *alpha,
        .beta = *beta,
        .a = blas_matrix(a, ta == CUBLAS_OP_N ? m : k, ta == CUBLAS_OP_N ? k : m, lda),
        .b = blas_matrix(b, tb == CUBLAS_OP_N ? k : n, tb == CUBLAS_OP_N ? n : k, ldb),
        .c = blas_matrix(c, m, n, ldc),
        .a_transposed = ta == CUBLAS_OP_T,
        .b_transposed = tb == CUBLAS_OP_T
    };
    return queue(h, p);
}

EXPORT cublasStatus_t cublasSsyrk(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t t,
                                  int n, int k, const float *alpha, const float *a, int lda,
                                  const float *beta, float *c, int ldc)
{
    ONE_AT_A_TIME;
    struct product *p = calloc(1, sizeof *p);
    const int       plain = t == CUBLAS_OP_N;
    if (!p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (struct product){ .m = (uint64_t)n,
                           .n = (uint64_t)n,
                           .k = (uint64_t)k,
                           .alpha = *alpha,
                           .beta = *beta,
                           .a = blas_matrix(a, plain ? n : k, plain ? k : n, lda),
                           .b = blas_matrix(a, plain ? n : k, plain ? k : n, lda),
                           .c = blas_matrix(c, n, n, ldc),
                           .a_transposed = !plain,
                           .b_transposed = plain,
                           .triangle = uplo == CUBLAS_FILL_MODE_UPPER   ? 'U'
                                       : uplo == CUBLAS_FILL_MODE_LOWER ? 'L'
                                                                        : 0 };
    return queue(h, p);
}
