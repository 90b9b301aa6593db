/* blas_cuda.c - products by cuBLAS and factors by cuSOLVER, found at run time. */
#include <cublas_v2.h>
#include <cusolverDn.h>
#include <stdio.h>
#include <string.h>

#include "device_cuda.h"

#define FUNCTIONS_BLAS(X)                                                                          \
    X(cublasCreate)                                                                                \
    X(cublasDestroy)                                                                               \
    X(cublasSetStream)                                                                             \
    X(cublasGetStatusString)                                                                       \
    X(cublasSsyrk)                                                                                 \
    X(cublasSgemm)

#define FUNCTIONS_SOLVER(X)                                                                        \
    X(cusolverDnCreate)                                                                            \
    X(cusolverDnDestroy)                                                                           \
    X(cusolverDnSetStream)                                                                         \
    X(cusolverDnCreateParams)                                                                      \
    X(cusolverDnDestroyParams)                                                                     \
    X(cusolverDnXpotrf_bufferSize)                                                                 \
    X(cusolverDnXpotrf)                                                                            \
    X(cusolverDnXtrtri_bufferSize)                                                                 \
    X(cusolverDnXtrtri)

struct libblas {
    void *handle;
    FUNCTIONS_BLAS(POINTER)
};
struct libsolver {
    void *handle;
    FUNCTIONS_SOLVER(POINTER)
};

struct blas {
    struct libblas     l;
    struct libsolver   s;
    cublasHandle_t     products;
    cusolverDnHandle_t factors;
    cusolverDnParams_t params;
};

/* ---- the libraries --------------------------------------------------------------------- */

#define LOOK_UP_BLAS(f)   { NAME_OF(f), offsetof(struct libblas, p_##f) },
#define LOOK_UP_SOLVER(f) { NAME_OF(f), offsetof(struct libsolver, p_##f) },

/* The libraries of one toolkit: CUDA 13's, else CUDA 12's. They have threads and per-context state, so
 * they stay in the process. */
static tsr_status load(struct blas *b, struct tsr_err *err)
{
    static const struct library_function products[] = { FUNCTIONS_BLAS(LOOK_UP_BLAS) };
    static const struct library_function factors[] = { FUNCTIONS_SOLVER(LOOK_UP_SOLVER) };
    static const char *const             files[2][2] = { { "libcublas.so.13", "libcusolver.so.12" },
                                                         { "libcublas.so.12", "libcusolver.so.11" } };
    static const char                    absent[2][112] = {
                           "libcublas.so.13 or .12 is not found; install cuBLAS, or put its folder into "
                                              "LD_LIBRARY_PATH",
                           "libcusolver.so.12 or .11 is not found; install cuSOLVER, or put its folder into "
                                              "LD_LIBRARY_PATH"
    };
    static const char old[2][80] = {
        "libcublas has no %s: it is too old; install that of CUDA 12 or newer",
        "libcusolver has no %s: it is too old; install that of CUDA 12 or newer"
    };
    const size_t n = sizeof products / sizeof products[0], m = sizeof factors / sizeof factors[0];
    for (int i = 0; i < 2; i++) {
        /* report errors of the newer libraries, and those of the older ones if the newer are missing */
        struct tsr_err *e = i == 0 || !library_there(files[0][0]) ? err : NULL;
        if (library_open(&b->l.handle, files[i][0], 1, &b->l, products, n, absent[0], old[0], e) !=
            TSR_OK)
            continue;
        if (library_open(&b->s.handle, files[i][1], 1, &b->s, factors, m, absent[1], old[1], e) ==
            TSR_OK)
            return TSR_OK;
        (void)dlclose(b->l.handle);
        b->l.handle = NULL;
    }
    return TSR_E_UNSUPPORTED;
}

static tsr_status failed(const struct device *d, int s, const char *library, const char *what,
                         struct tsr_err *err)
{
    const int   out_of_memory = strcmp(library, "cuBLAS") == 0 ? (int)CUBLAS_STATUS_ALLOC_FAILED
                                                               : (int)CUSOLVER_STATUS_ALLOC_FAILED;
    const char *text = strcmp(library, "cuBLAS") == 0
                           ? d->products->l.p_cublasGetStatusString((cublasStatus_t)s)
                           : NULL;
    return tsr_fail(err, s == out_of_memory ? TSR_E_NOMEM : TSR_E_DEVICE,
                    "%s: %s: %s: status %d%s%s", d->name, library, what, s, text ? ", " : "",
                    text ? text : "");
}

static tsr_status start(struct device *d, struct blas *b, struct tsr_err *err)
{
    cusolverStatus_t f = CUSOLVER_STATUS_SUCCESS;
    cublasStatus_t   s = b->l.p_cublasCreate(&b->products);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = b->l.p_cublasSetStream(b->products, (cudaStream_t)d->stream);
    if (s != CUBLAS_STATUS_SUCCESS)
        return failed(d, (int)s, "cuBLAS", "it does not start", err);
    if ((f = b->s.p_cusolverDnCreate(&b->factors)) != CUSOLVER_STATUS_SUCCESS ||
        (f = b->s.p_cusolverDnSetStream(b->factors, (cudaStream_t)d->stream)) !=
            CUSOLVER_STATUS_SUCCESS ||
        (f = b->s.p_cusolverDnCreateParams(&b->params)) != CUSOLVER_STATUS_SUCCESS)
        return failed(d, (int)f, "cuSOLVER", "it does not start", err);
    return TSR_OK;
}

/* In the context. */
void blas_close(struct device *d)
{
    struct blas *b = d->products;
    if (!b)
        return;
    if (b->params)
        (void)b->s.p_cusolverDnDestroyParams(b->params);
    if (b->factors)
        (void)b->s.p_cusolverDnDestroy(b->factors);
    if (b->products)
        (void)b->l.p_cublasDestroy(b->products);
    if (b->s.handle)
        (void)dlclose(b->s.handle);
    if (b->l.handle)
        (void)dlclose(b->l.handle);
    d->host->release(d->host->ctx, b, sizeof *b);
    d->products = NULL;
}

tsr_status blas_find(void *device, struct tsr_err *err)
{
    struct device         *d = device;
    const struct tsr_host *host = d->host;
    if (d->products)
        return TSR_OK;
    struct blas *b = host->alloc(host->ctx, sizeof *b, 64);
    if (!b)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: cuBLAS and cuSOLVER");
    memset(b, 0, sizeof *b);
    if (load(b, err) != TSR_OK) {
        host->release(host->ctx, b, sizeof *b);
        return TSR_E_UNSUPPORTED;
    }
    d->products = b;
    tsr_status st = device_enter(d, err);
    if (st == TSR_OK) {
        st = start(d, b, err);
        if (st != TSR_OK)
            blas_close(d);
        tsr_status left = device_leave(d, CUDA_SUCCESS, "starting cuBLAS", err);
        st = st != TSR_OK ? st : left;
    }
    return st == TSR_OK || st == TSR_E_NOMEM ? st : TSR_E_UNSUPPORTED;
}

/* ---- calls -------------------------------------------------------------------------------- */

/* The workspace of the library, on the device and on the host. */
static cusolverStatus_t sizes_of(const struct device *d, const struct tsr_cuda_blas *b,
                                 size_t *on_device, size_t *on_host)
{
    const struct blas *l = d->products;
    void              *a = (void *)(uintptr_t)b->c;
    *on_device = *on_host = 0;
    return b->kind == TSR_CUDA_POTRF
               ? l->s.p_cusolverDnXpotrf_bufferSize(l->factors, l->params, CUBLAS_FILL_MODE_UPPER,
                                                    (int64_t)b->m, CUDA_R_32F, a, (int64_t)b->ldc,
                                                    CUDA_R_32F, on_device, on_host)
               : l->s.p_cusolverDnXtrtri_bufferSize(l->factors, CUBLAS_FILL_MODE_UPPER,
                                                    CUBLAS_DIAG_NON_UNIT, (int64_t)b->m, CUDA_R_32F,
                                                    a, (int64_t)b->ldc, on_device, on_host);
}

tsr_status blas_work(void *device, const struct tsr_cuda_blas *b, uint64_t *bytes,
                     struct tsr_err *err)
{
    struct device *d = device;
    size_t         on_device, on_host;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    cusolverStatus_t s = sizes_of(d, b, &on_device, &on_host);
    st = device_leave(d, CUDA_SUCCESS, "asking for a size", err);
    *bytes = on_device;
    return s == CUSOLVER_STATUS_SUCCESS ? st
                                        : failed(d, (int)s, "cuSOLVER", "the size of scratch", err);
}

/* The library may read its part of the host's memory until the work is over. */
static cusolverStatus_t factor(struct device *d, const struct tsr_cuda_blas *b)
{
    const struct tsr_host *host = d->host;
    const struct blas     *l = d->products;
    size_t                 on_device, on_host;
    cusolverStatus_t       s = sizes_of(d, b, &on_device, &on_host);
    if (s != CUSOLVER_STATUS_SUCCESS || on_device > b->work_bytes)
        return s != CUSOLVER_STATUS_SUCCESS ? s : CUSOLVER_STATUS_INVALID_WORKSPACE;
    void *own = on_host ? host->alloc(host->ctx, on_host, 64) : NULL;
    if (on_host && !own)
        return CUSOLVER_STATUS_ALLOC_FAILED;
    void *a = (void *)(uintptr_t)b->c, *work = (void *)(uintptr_t)b->work;
    int  *info = (int *)(uintptr_t)b->info;
    s = b->kind == TSR_CUDA_POTRF
            ? l->s.p_cusolverDnXpotrf(l->factors, l->params, CUBLAS_FILL_MODE_UPPER, (int64_t)b->m,
                                      CUDA_R_32F, a, (int64_t)b->ldc, CUDA_R_32F, work, on_device,
                                      own, on_host, info)
            : l->s.p_cusolverDnXtrtri(l->factors, CUBLAS_FILL_MODE_UPPER, CUBLAS_DIAG_NON_UNIT,
                                      (int64_t)b->m, CUDA_R_32F, a, (int64_t)b->ldc, work,
                                      on_device, own, on_host, info);
    if (own) {
        (void)d->l.p_cuStreamSynchronize(d->stream);
        host->release(host->ctx, own, on_host);
    }
    return s;
}

static cublasStatus_t product(const struct device *d, const struct tsr_cuda_blas *b)
{
    const struct blas *l = d->products;
    const float       *x = (const float *)(uintptr_t)b->a, *y = (const float *)(uintptr_t)b->b;
    float             *z = (float *)(uintptr_t)b->c;
    if (b->kind == TSR_CUDA_SYRK)
        return l->l.p_cublasSsyrk(l->products, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, (int)b->m,
                                  (int)b->k, &b->alpha, x, (int)b->lda, &b->beta, z, (int)b->ldc);
    return l->l.p_cublasSgemm(l->products, b->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N,
                              (int)b->m, (int)b->n, (int)b->k, &b->alpha, x, (int)b->lda, y,
                              (int)b->ldb, &b->beta, z, (int)b->ldc);
}

tsr_status blas_run(void *device, const struct tsr_cuda_blas *b, struct tsr_err *err)
{
    struct device *d = device;
    const int      factors = b->kind == TSR_CUDA_POTRF || b->kind == TSR_CUDA_TRTRI;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    int s = factors ? (int)factor(d, b) : (int)product(d, b);
    st = device_leave(d, CUDA_SUCCESS, "linear algebra", err);
    if (s == 0)
        return st;
    char text[160];
    (void)snprintf(text, sizeof text, "%s of %llu by %llu by %llu",
                   b->kind == TSR_CUDA_SYRK    ? "SYRK"
                   : b->kind == TSR_CUDA_GEMM  ? "GEMM"
                   : b->kind == TSR_CUDA_POTRF ? "POTRF"
                                               : "TRTRI",
                   (unsigned long long)b->m, (unsigned long long)b->n, (unsigned long long)b->k);
    return failed(d, s, factors ? "cuSOLVER" : "cuBLAS", text, err);
}
