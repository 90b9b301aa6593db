/* libcublaslt.c - libcublasLt.so.13 of the tests: the calls that kernels/cuda/cublas.c makes, column-major
 * by the book, so that a wrong leading dimension, shape, transpose or type gives wrong numbers or an
 * error.  An algorithm knows what it was chosen for, and serves nothing else. */
#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"
#include "tessera/f16.h"

#define EXPORT __attribute__((visibility("default")))
#define MAGIC  UINT64_C(0x5441444e414c4741)
#define NEEDS  (UINT64_C(1) << 20) /* bytes of workspace */

/* The library's own structs are opaque: these lie behind the same pointers. */
struct desc {
    cublasComputeType_t compute;
    cudaDataType_t      scale;
    int32_t             transposed[2];
};
struct layout {
    cudaDataType type;
    uint64_t     rows, cols;
    int64_t      ld;
};
struct preference {
    uint64_t workspace;
    uint32_t align[4];
};
struct chosen {
    uint64_t magic, a, b, c; /* rows or columns, and leading dimensions */
    uint32_t align[4];
    uint32_t types, none;
};

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    ONE_AT_A_TIME;
    *h = malloc(1);
    return standin_in_context() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}
EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    ONE_AT_A_TIME;
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT const char *cublasLtGetStatusString(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_NOT_SUPPORTED   ? "not supported"
           : s == CUBLAS_STATUS_INVALID_VALUE ? "invalid value"
                                              : "a status of the stand-in";
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    ONE_AT_A_TIME;
    struct desc *p = calloc(1, sizeof *p);
    if (!p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (struct desc){ .compute = compute, .scale = scale };
    *d = (cublasLtMatmulDesc_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    ONE_AT_A_TIME;
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t           d,
                                                     cublasLtMatmulDescAttributes_t a,
                                                     const void *v, size_t bytes)
{
    ONE_AT_A_TIME;
    struct desc *p = (struct desc *)(void *)d;
    int32_t      op;
    if (bytes != sizeof op ||
        (a != CUBLASLT_MATMUL_DESC_TRANSA && a != CUBLASLT_MATMUL_DESC_TRANSB))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&op, v, sizeof op);
    p->transposed[a == CUBLASLT_MATMUL_DESC_TRANSB] = op == CUBLAS_OP_T;
    return op == CUBLAS_OP_T || op == CUBLAS_OP_N ? CUBLAS_STATUS_SUCCESS
                                                  : CUBLAS_STATUS_INVALID_VALUE;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld)
{
    ONE_AT_A_TIME;
    struct layout *p = calloc(1, sizeof *p);
    if (!p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (struct layout){ type, rows, cols, ld };
    *l = (cublasLtMatrixLayout_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    ONE_AT_A_TIME;
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    ONE_AT_A_TIME;
    struct preference *q = calloc(1, sizeof *q);
    if (!q)
        return CUBLAS_STATUS_ALLOC_FAILED;
    for (int i = 0; i < 4; i++)
        q->align[i] = 256; /* as the library has it */
    *p = (cublasLtMatmulPreference_t)(void *)q;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    ONE_AT_A_TIME;
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t           p,
                                                           cublasLtMatmulPreferenceAttributes_t a,
                                                           const void *v, size_t bytes)
{
    ONE_AT_A_TIME;
    struct preference *q = (struct preference *)(void *)p;
    int                i = (int)a - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == 8)
        memcpy(&q->workspace, v, 8);
    else if (i >= 0 && i < 4 && bytes == 4)
        memcpy(&q->align[i], v, 4);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---------------------------------------------------------------------------- */

static uint32_t size_of(cudaDataType t)
{
    return t == CUDA_R_32F ? 4 : 2;
}

static const struct layout *see(cublasLtMatrixLayout_t l)
{
    return (const struct layout *)(const void *)l;
}

/* The shapes fit, and the types are some that the library has. */
static int fits(const struct desc *d, const struct layout *a, const struct layout *b,
                const struct layout *c)
{
    uint64_t m = d->transposed[0] ? a->cols : a->rows, k = d->transposed[0] ? a->rows : a->cols;
    uint64_t k2 = d->transposed[1] ? b->cols : b->rows, n = d->transposed[1] ? b->rows : b->cols;
    return m == c->rows && n == c->cols && k == k2 && m && n && k && a->ld >= (int64_t)a->rows &&
           b->ld >= (int64_t)b->rows && c->ld >= (int64_t)c->rows && a->type == b->type &&
           (a->type == CUDA_R_16F || a->type == CUDA_R_16BF) &&
           (c->type == CUDA_R_32F || c->type == a->type) && d->compute == CUBLAS_COMPUTE_32F &&
           d->scale == CUDA_R_32F;
}

static void choice_of(struct chosen *x, const struct layout *a, const struct layout *b,
                      const struct layout *c)
{
    memset(x, 0, sizeof *x); /* compared byte by byte */
    x->magic = MAGIC;
    x->a = a->rows * UINT64_C(1000003) + (uint64_t)a->ld;
    x->b = b->cols * UINT64_C(1000003) + (uint64_t)b->ld;
    x->c = c->rows * UINT64_C(1000003) + (uint64_t)c->ld;
    x->types = (uint32_t)a->type << 8 | (uint32_t)c->type;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t h, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
    cublasLtMatmulPreference_t p, int wanted, cublasLtMatmulHeuristicResult_t results[], int *found)
{
    ONE_AT_A_TIME;
    const struct preference *q = (const struct preference *)(const void *)p;
    struct chosen            x;
    choice_of(&x, see(a), see(b), see(out));
    (void)c;
    *found = 0;
    standin_count()->heuristics++;
    if (!h || !standin_in_context() || wanted < 1 ||
        !fits((const struct desc *)(const void *)desc, see(a), see(b), see(out)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (q->workspace < NEEDS || standin_option("none", -1) == 0 ||
        (see(a)->type == CUDA_R_16BF && standin_option("arch", 90) < 80))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(x.align, q->align, sizeof x.align);
    memset(&results[0], 0, sizeof results[0]);
    memcpy(&results[0].algo, &x, sizeof x);
    results[0].workspaceSize = NEEDS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

struct product {
    struct desc    d;
    struct layout  a, b, c;
    const uint8_t *pa, *pb;
    uint8_t       *pc;
    float          alpha;
};

static double number(const uint8_t *p, const struct layout *l, uint64_t row, uint64_t col)
{
    uint16_t h;
    memcpy(&h, p + 2 * (row + col * (uint64_t)l->ld), 2);
    return (double)(l->type == CUDA_R_16BF ? tsr_bf16_f32(h) : tsr_f16_f32(h));
}

static CUresult multiply(void *arg)
{
    const struct product *p = arg;
    uint64_t              inner = p->d.transposed[0] ? p->a.rows : p->a.cols;
    for (uint64_t j = 0; j < p->c.cols; j++)
        for (uint64_t i = 0; i < p->c.rows; i++) {
            double sum = 0.0;
            for (uint64_t k = 0; k < inner; k++)
                sum +=
                    (p->d.transposed[0] ? number(p->pa, &p->a, k, i) : number(p->pa, &p->a, i, k)) *
                    (p->d.transposed[1] ? number(p->pb, &p->b, j, k) : number(p->pb, &p->b, k, j));
            float    y = (float)(sum * (double)p->alpha);
            uint16_t none = 0; /* sums in 16 bits are for timing alone */
            uint64_t at = i + j * (uint64_t)p->c.ld;
            if (p->c.type == CUDA_R_32F)
                memcpy(p->pc + 4 * at, &y, 4);
            else
                memcpy(p->pc + 2 * at, &none, 2);
        }
    return CUDA_SUCCESS;
}

/* All of a matrix's bytes in one allocation, on the border that the algorithm was promised. */
static void *matrix(const void *p, const struct layout *l, uint32_t align)
{
    uint64_t at = (uint64_t)(uintptr_t)p,
             bytes = ((l->cols - 1) * (uint64_t)l->ld + l->rows) * size_of(l->type);
    return at % align || (uint64_t)l->ld * size_of(l->type) % (align > 16 ? 16 : align)
               ? NULL
               : standin_place(at, bytes);
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                     const void *alpha, const void *a, cublasLtMatrixLayout_t la,
                                     const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t lc, void *d,
                                     cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo,
                                     void *work, size_t work_bytes, cudaStream_t stream)
{
    ONE_AT_A_TIME;
    struct chosen   x, now;
    struct product *p = calloc(1, sizeof *p);
    float           zero;
    if (!p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(&x, algo, sizeof x);
    choice_of(&now, see(la), see(lb), see(ld));
    memcpy(now.align, x.align, sizeof now.align);
    memcpy(&p->alpha, alpha, sizeof p->alpha);
    memcpy(&zero, beta, sizeof zero);
    p->d = *(const struct desc *)(const void *)desc;
    p->a = *see(la);
    p->b = *see(lb);
    p->c = *see(ld);
    p->pa = matrix(a, &p->a, x.align[0]);
    p->pb = matrix(b, &p->b, x.align[1]);
    p->pc = matrix(d, &p->c, x.align[3]);
    if (!h || !standin_in_context() || !fits(&p->d, &p->a, &p->b, &p->c) ||
        memcmp(&x, &now, sizeof x) != 0 || !p->pa || !p->pb || !p->pc || zero != 0.0f || c != d ||
        lc != ld || work_bytes < NEEDS || (uintptr_t)work % 256 ||
        !standin_place((uint64_t)(uintptr_t)work, work_bytes)) {
        free(p);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    standin_count()->products++;
    return standin_queue((CUstream)stream, multiply, p) == CUDA_SUCCESS
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
