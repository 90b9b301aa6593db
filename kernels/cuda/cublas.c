/* cublas.c - products by cuBLASLt, found at run time.
 *
 * The library counts columns first: a row-major matrix [rows, cols] with rows of ld elements is its
 * column-major [cols, rows] with that leading dimension.  So out^T [rows, tokens] = op(w) x^T, where w is
 * [cols, rows], transposed, and x is [cols, tokens], as it lies. */
#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "device_cuda.h"

#define FUNCTIONS_LT(X)                                                                            \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetStatusString)                                                                     \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmul)

struct library {
    void *handle;
    FUNCTIONS_LT(POINTER)
};

/* What an algorithm was chosen for. */
struct key {
    uint64_t rows, cols, tokens, ldw, ldx, ldo, work_bytes;
    uint32_t align_w, align_x, align_out, types;
};
struct choice {
    struct key           key;
    cublasLtMatmulAlgo_t algo;
    int                  known; /* -1: there is none */
};
#define CHOICES 64u

struct cublas {
    struct library   l;
    cublasLtHandle_t handle;
    struct choice    choices[CHOICES];
    uint32_t         next;
};

/* ---- the library ---------------------------------------------------------------------- */

#define LOOK_UP_LT(f) { NAME_OF(f), offsetof(struct library, p_##f) },

static tsr_status load(struct library *l, struct tsr_err *err)
{
    static const struct library_function all[] = { FUNCTIONS_LT(LOOK_UP_LT) };
    static const char                    absent[] =
        "libcublasLt.so.13 or .12 is not found; install cuBLAS, or put its "
        "folder into LD_LIBRARY_PATH";
    static const char old[] =
        "libcublasLt has no %s: it is too old; install that of CUDA 12 or newer";
    const size_t n = sizeof all / sizeof all[0];
    /* it has threads and per-context state, so it stays */
    if (library_open(&l->handle, "libcublasLt.so.13", 1, l, all, n, absent, old, err) == TSR_OK)
        return TSR_OK;
    if (library_there("libcublasLt.so.13")) /* report why it does not load */
        err = NULL;
    return library_open(&l->handle, "libcublasLt.so.12", 1, l, all, n, absent, old, err);
}

static tsr_status failed_lt(const struct device *d, const struct cublas *b, cublasStatus_t s,
                            const char *what, struct tsr_err *err)
{
    const char *text = b->l.p_cublasLtGetStatusString(s);
    tsr_status  st = s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_ARCH_MISMATCH
                         ? TSR_E_UNSUPPORTED
                     : s == CUBLAS_STATUS_ALLOC_FAILED ? TSR_E_NOMEM
                                                       : TSR_E_DEVICE;
    return tsr_fail(err, st, "%s: cuBLASLt: %s: %s", d->name, what, text ? text : "unknown error");
}

tsr_status cublas_find(void *device, struct tsr_err *err)
{
    struct device         *d = device;
    const struct tsr_host *host = d->host;
    if (d->blas)
        return TSR_OK;
    struct cublas *b = host->alloc(host->ctx, sizeof *b, 64);
    if (!b)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: cuBLASLt");
    memset(b, 0, sizeof *b);
    tsr_status st = load(&b->l, err);
    if (st != TSR_OK) {
        host->release(host->ctx, b, sizeof *b);
        return TSR_E_UNSUPPORTED;
    }
    if ((st = device_enter(d, err)) == TSR_OK) {
        cublasStatus_t s = b->l.p_cublasLtCreate(&b->handle);
        st = device_leave(d, CUDA_SUCCESS, "starting cuBLASLt", err);
        if (s != CUBLAS_STATUS_SUCCESS)
            st = failed_lt(d, b, s, "it does not start", err);
    }
    if (st != TSR_OK) {
        (void)dlclose(b->l.handle);
        host->release(host->ctx, b, sizeof *b);
        return st == TSR_E_NOMEM ? st : TSR_E_UNSUPPORTED;
    }
    d->blas = b;
    return TSR_OK;
}

void cublas_close(struct device *d)
{
    struct cublas *b = d->blas;
    if (!b)
        return;
    (void)b->l.p_cublasLtDestroy(b->handle);
    (void)dlclose(b->l.handle);
    d->host->release(d->host->ctx, b, sizeof *b);
    d->blas = NULL;
}

/* ---- one product ---------------------------------------------------------------------- */

struct plan {
    cublasLtMatmulDesc_t       desc;
    cublasLtMatrixLayout_t     w, x, out;
    cublasLtMatmulPreference_t preference;
};

static void plan_free(const struct cublas *b, struct plan *p)
{
    if (p->preference)
        (void)b->l.p_cublasLtMatmulPreferenceDestroy(p->preference);
    if (p->out)
        (void)b->l.p_cublasLtMatrixLayoutDestroy(p->out);
    if (p->x)
        (void)b->l.p_cublasLtMatrixLayoutDestroy(p->x);
    if (p->w)
        (void)b->l.p_cublasLtMatrixLayoutDestroy(p->w);
    if (p->desc)
        (void)b->l.p_cublasLtMatmulDescDestroy(p->desc);
}

static cublasStatus_t plan_make(const struct cublas *b, const struct tsr_cuda_matmul *m,
                                struct plan *p)
{
    const struct library *l = &b->l;
    cublasOperation_t     transposed = CUBLAS_OP_T;
    cudaDataType          type = m->bf16 ? CUDA_R_16BF : CUDA_R_16F;
    cublasStatus_t        s;
    *p = (struct plan){ 0 };
    if ((s = l->p_cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
        (s = l->p_cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                 sizeof transposed)) ||
        (s = l->p_cublasLtMatrixLayoutCreate(&p->w, type, m->cols, m->rows, (int64_t)m->ldw)) ||
        (s = l->p_cublasLtMatrixLayoutCreate(&p->x, type, m->cols, m->tokens, (int64_t)m->ldx)) ||
        (s = l->p_cublasLtMatrixLayoutCreate(&p->out, m->narrow_out ? type : CUDA_R_32F, m->rows,
                                             m->tokens, (int64_t)m->ldo)))
        return s;
    return CUBLAS_STATUS_SUCCESS;
}

/* The alignment of an address and its rows; more than 256 brings no gain. */
static uint32_t alignment(uint64_t address, uint64_t row_bytes)
{
    uint64_t bits = address | row_bytes | 256;
    return (uint32_t)(bits & -bits);
}

static cublasStatus_t choose(const struct cublas *b, struct plan *p, const struct key *k,
                             struct choice *c)
{
    static const cublasLtMatmulPreferenceAttributes_t places[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    const uint32_t        align[] = { k->align_w, k->align_x, k->align_out, k->align_out };
    const struct library *l = &b->l;
    size_t                work = k->work_bytes;
    cublasStatus_t        s = l->p_cublasLtMatmulPreferenceCreate(&p->preference);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = l->p_cublasLtMatmulPreferenceSetAttribute(p->preference,
                                                      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &work, sizeof work);
    for (int i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++)
        s = l->p_cublasLtMatmulPreferenceSetAttribute(p->preference, places[i], &align[i],
                                                      sizeof align[i]);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    cublasLtMatmulHeuristicResult_t r;
    int                             found = 0;
    memset(&r, 0, sizeof r);
    s = l->p_cublasLtMatmulAlgoGetHeuristic(b->handle, p->desc, p->w, p->x, p->out, p->out,
                                            p->preference, 1, &r, &found);
    *c = (struct choice){ .key = *k, .algo = r.algo, .known = 1 };
    if (s == CUBLAS_STATUS_SUCCESS && (found < 1 || r.state != CUBLAS_STATUS_SUCCESS))
        s = CUBLAS_STATUS_NOT_SUPPORTED;
    if (s == CUBLAS_STATUS_NOT_SUPPORTED)
        c->known = -1; /* not tried again */
    else if (s != CUBLAS_STATUS_SUCCESS)
        c->known = 0;
    return s;
}

/* The algorithm for a shape; asking for one takes longer than a small product. */
static cublasStatus_t algorithm(struct cublas *b, struct plan *p, const struct tsr_cuda_matmul *m,
                                const cublasLtMatmulAlgo_t **algo)
{
    const uint64_t out_size = m->narrow_out ? 2 : 4;
    struct key     k;
    memset(&k, 0, sizeof k); /* compared byte by byte */
    k.rows = m->rows;
    k.cols = m->cols;
    k.tokens = m->tokens;
    k.ldw = m->ldw;
    k.ldx = m->ldx;
    k.ldo = m->ldo;
    k.work_bytes = m->work_bytes;
    k.align_w = alignment(m->w, m->ldw * 2);
    k.align_x = alignment(m->x, m->ldx * 2);
    k.align_out = alignment(m->out, m->ldo * out_size);
    k.types = (uint32_t)(m->bf16 != 0) | (uint32_t)(m->narrow_out != 0) << 1;
    for (uint32_t i = 0; i < CHOICES; i++)
        if (b->choices[i].known && memcmp(&b->choices[i].key, &k, sizeof k) == 0) {
            *algo = &b->choices[i].algo;
            return b->choices[i].known > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
        }
    struct choice *c = &b->choices[b->next++ % CHOICES];
    *algo = &c->algo;
    return choose(b, p, &k, c);
}

tsr_status cublas_matmul(void *device, const struct tsr_cuda_matmul *m, struct tsr_err *err)
{
    struct device              *d = device;
    struct cublas              *b = d->blas;
    const float                 one = 1.0f, zero = 0.0f;
    const cublasLtMatmulAlgo_t *algo = NULL;
    const char                 *what = "describing a product";
    struct plan                 p;
    if (!b)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "cuBLASLt was not found");
    tsr_status st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    cublasStatus_t s = plan_make(b, m, &p);
    if (s == CUBLAS_STATUS_SUCCESS) {
        what = "choosing an algorithm";
        s = algorithm(b, &p, m, &algo);
    }
    if (s == CUBLAS_STATUS_SUCCESS) {
        what = "multiplying";
        s = b->l.p_cublasLtMatmul(b->handle, p.desc, &one, (const void *)(uintptr_t)m->w, p.w,
                                  (const void *)(uintptr_t)m->x, p.x, &zero,
                                  (const void *)(uintptr_t)m->out, p.out, (void *)(uintptr_t)m->out,
                                  p.out, algo, (void *)(uintptr_t)m->work, m->work_bytes,
                                  (cudaStream_t)d->stream);
    }
    plan_free(b, &p);
    st = device_leave(d, CUDA_SUCCESS, "multiplying", err);
    if (s == CUBLAS_STATUS_SUCCESS)
        return st;
    char text[160];
    (void)snprintf(text, sizeof text, "%s of %llu rows, %llu columns and %llu tokens", what,
                   (unsigned long long)m->rows, (unsigned long long)m->cols,
                   (unsigned long long)m->tokens);
    return failed_lt(d, b, s, text, err);
}
