/* blas_simt.c - products and factors on the emulated device. */
#include <string.h>

#include "book.h"
#include "device_simt.h"

#define SCRATCH 512u /* bytes that a factorization requests and requires */

tsr_status tsr_simt_blas_find(void *device, struct tsr_err *err)
{
    (void)device;
    (void)err;
    return TSR_OK;
}

tsr_status tsr_simt_blas_work(void *device, const struct tsr_cuda_blas *b, uint64_t *bytes,
                              struct tsr_err *err)
{
    (void)device;
    (void)b;
    (void)err;
    *bytes = SCRATCH;
    return TSR_OK;
}

/* A matrix of which every element must belong to the caller. */
static int see(uint64_t address, uint64_t rows, uint64_t cols, uint64_t ld, struct book_matrix *m)
{
    *m = (struct book_matrix){ NULL, ld };
    if (ld >= rows && rows && cols)
        m->p = simt_place(address, ((cols - 1) * ld + rows) * sizeof *m->p);
    return m->p != NULL;
}

static int product(const struct tsr_cuda_blas *b)
{
    struct book_matrix x, y, c;
    const int          syrk = b->kind == TSR_CUDA_SYRK;
    const uint64_t     n = syrk ? b->m : b->n;
    if (!see(b->a, b->a_transposed ? b->k : b->m, b->a_transposed ? b->m : b->k, b->lda, &x) ||
        !see(b->c, b->m, n, b->ldc, &c) || (!syrk && !see(b->b, b->k, b->n, b->ldb, &y)))
        return 0;
    if (syrk)
        book_gemm(n, n, b->k, b->alpha, x, 0, x, 1, b->beta, c, 'U');
    else
        book_gemm(b->m, n, b->k, b->alpha, x, b->a_transposed, y, 0, b->beta, c, 0);
    return 1;
}

static int factor(const struct tsr_cuda_blas *b)
{
    struct book_matrix c;
    int32_t           *info = simt_place(b->info, sizeof *info);
    if (!see(b->c, b->m, b->m, b->ldc, &c) || !info || b->work_bytes < SCRATCH ||
        !simt_place(b->work, b->work_bytes))
        return 0;
    *info = b->kind == TSR_CUDA_POTRF ? book_potrf(b->m, c, 0) : book_trtri(b->m, c, 0);
    return 1;
}

tsr_status tsr_simt_blas(void *device, const struct tsr_cuda_blas *b, struct tsr_err *err)
{
    (void)device;
    int ok = b->kind == TSR_CUDA_SYRK || b->kind == TSR_CUDA_GEMM ? product(b) : factor(b);
    return ok ? TSR_OK : tsr_fail(err, TSR_E_DEVICE, "linear algebra leaves its matrices");
}
