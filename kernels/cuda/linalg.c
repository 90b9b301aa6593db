/* linalg.c - "tessera.linalg/1" by cuBLAS and cuSOLVER: only under numerics: fast, since these fix no
 * order of additions.
 *
 * The libraries count columns first: a row-major matrix [rows, cols] with rows of ld elements is their
 * column-major [cols, rows] with that leading dimension, and a lower triangle is their upper one.  One
 * call at a time is on the device, whatever thread it comes from. */
#include "linalg_internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"

#define TRIANGLE 32u /* rows and columns of a block of k_triangle */

static tsr_status triangle(struct tsr_cuda *c, const struct k_triangle *t, struct tsr_err *err)
{
    uint64_t   side = cuda_ceil(t->n, TRIANGLE);
    tsr_status st =
        tsr_cuda_launch(c, NULL, KERNEL_k_triangle, side, side, 1, 256, t, sizeof *t, err);
    return st == TSR_OK ? tsr_cuda_flush(c, err) : st;
}

/* ---- products --------------------------------------------------------------------------- */

static tsr_status syrk_on(struct tsr_cuda *c, const struct tsr_cuda_mat *x, float alpha, float beta,
                          const struct tsr_cuda_mat *to, struct tsr_err *err)
{
    struct tsr_cuda_blas b = { .kind = TSR_CUDA_SYRK,
                               .m = x->cols,
                               .k = x->rows,
                               .alpha = alpha,
                               .beta = beta,
                               .a = x->p,
                               .lda = x->dld,
                               .c = to->p,
                               .ldc = to->dld };
    struct k_triangle    t = {
           .from = to->p, .ldf = to->dld, .to = to->p, .ldt = to->dld, .n = x->cols, .mirror = 1
    };
    tsr_status st = c->api->blas(c->device, &b, err);
    return st == TSR_OK ? triangle(c, &t, err) : st;
}

static tsr_status syrk(void *ctx, uint64_t n, uint64_t rows, float alpha, const float *x,
                       uint64_t ldx, float *to, uint64_t ldc, struct tsr_err *err)
{
    struct tsr_cuda *c = ctx;
    if (n == 0 || rows == 0)
        return TSR_OK;
    tsr_status st = tsr_cuda_linalg_check("syrk: X", x, rows, n, ldx, err);
    if (st == TSR_OK)
        st = tsr_cuda_linalg_check("syrk: C", to, n, n, ldc, err);
    if (st != TSR_OK)
        return st;
    struct tsr_cuda_mat m[] = { tsr_cuda_linalg_mat(x, rows, n, ldx, 0),
                                tsr_cuda_linalg_mat(to, n, n, ldc, 1) };
    st = tsr_cuda_linalg_begin(c, err);
    if (st == TSR_OK)
        st = tsr_cuda_bring(c, m, 2, 0, NULL, err);
    if (st == TSR_OK)
        st = syrk_on(c, &m[0], alpha, 1.0f, &m[1], err);
    if (st == TSR_OK)
        st = tsr_cuda_take(c, m, 2, err);
    return tsr_cuda_linalg_end(c, st);
}

static tsr_status gemm(void *ctx, uint64_t m, uint64_t n, uint64_t k, float alpha, const float *a,
                       uint64_t lda, const float *b, uint64_t ldb, int32_t b_transposed, float *to,
                       uint64_t ldc, struct tsr_err *err)
{
    struct tsr_cuda *c = ctx;
    uint64_t         rows = b_transposed ? n : k, cols = b_transposed ? k : n;
    if (m == 0 || n == 0 || k == 0)
        return TSR_OK;
    tsr_status st = tsr_cuda_linalg_check("gemm: A", a, m, k, lda, err);
    if (st == TSR_OK)
        st = tsr_cuda_linalg_check("gemm: B", b, rows, cols, ldb, err);
    if (st == TSR_OK)
        st = tsr_cuda_linalg_check("gemm: C", to, m, n, ldc, err);
    if (st != TSR_OK)
        return st;
    struct tsr_cuda_mat x[] = { tsr_cuda_linalg_mat(a, m, k, lda, 0),
                                tsr_cuda_linalg_mat(b, rows, cols, ldb, 0),
                                tsr_cuda_linalg_mat(to, m, n, ldc, 1) };
    st = tsr_cuda_linalg_begin(c, err);
    if (st == TSR_OK)
        st = tsr_cuda_bring(c, x, 3, 0, NULL, err);
    struct tsr_cuda_blas p = { .kind = TSR_CUDA_GEMM,
                               .a_transposed = b_transposed != 0,
                               .m = n,
                               .n = m,
                               .k = k,
                               .alpha = alpha,
                               .beta = 1.0f,
                               .a = x[1].p,
                               .lda = x[1].dld,
                               .b = x[0].p,
                               .ldb = x[0].dld,
                               .c = x[2].p,
                               .ldc = x[2].dld };
    if (st == TSR_OK)
        st = c->api->blas(c->device, &p, err);
    if (st == TSR_OK)
        st = tsr_cuda_take(c, x, 3, err);
    return tsr_cuda_linalg_end(c, st);
}

/* ---- factors ------------------------------------------------------------------------------ */

/* Scratch of a factorization: its error code, the diagonal, the library's workspace, and a copy of the
 * matrix if `copies` is set. */
struct places {
    uint64_t diagonal, work, copy, total, work_bytes;
};

static tsr_status find_places(struct tsr_cuda *c, uint64_t n, uint64_t ld, int copies,
                              struct places *p, struct tsr_err *err)
{
    struct tsr_cuda_blas b = { .m = n, .ldc = ld };
    uint64_t             other = 0;
    tsr_status           st = tsr_cuda_work(c, 256, &b.c, err); /* any place for a matrix */
    *p = (struct places){ 0 };
    b.kind = TSR_CUDA_POTRF;
    if (st == TSR_OK)
        st = c->api->blas_work(c->device, &b, &p->work_bytes, err);
    b.kind = TSR_CUDA_TRTRI;
    if (st == TSR_OK)
        st = c->api->blas_work(c->device, &b, &other, err);
    p->work_bytes = p->work_bytes > other ? p->work_bytes : other;
    p->diagonal = 256;
    p->work = p->diagonal + cuda_ceil(n * 4, 256) * 256;
    p->copy = p->work + cuda_ceil(p->work_bytes, 256) * 256;
    p->total = p->copy + (copies ? n * n * 4 : 0);
    return st;
}

/* POTRF or TRTRI of m, then m's triangle with zeros above it; the place of a bad diagonal in *bad, or
 * n. */
static tsr_status factor(struct tsr_cuda *c, enum tsr_cuda_blas_kind kind,
                         const struct tsr_cuda_mat *m, uint64_t more, const struct places *p,
                         uint64_t *bad, struct tsr_err *err)
{
    const uint64_t       n = m->rows;
    int32_t              info = 0;
    struct tsr_cuda_blas b = { .kind = kind,
                               .m = n,
                               .c = m->p,
                               .ldc = m->dld,
                               .work = more + p->work,
                               .work_bytes = p->work_bytes,
                               .info = more };
    struct k_triangle    t = { .from = m->p,
                               .ldf = m->dld,
                               .to = m->p,
                               .ldt = m->dld,
                               .n = n,
                               .diagonal = more + p->diagonal };
    float               *diagonal = c->host->alloc(c->host->ctx, n * sizeof *diagonal, 64);
    if (!diagonal)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a diagonal of %llu", U(n));
    tsr_status st = c->api->put(c->device, more, &info, sizeof info, err);
    if (st == TSR_OK)
        st = c->api->blas(c->device, &b, err);
    if (st == TSR_OK)
        st = triangle(c, &t, err);
    if (st == TSR_OK)
        st = c->api->get(c->device, &info, more, sizeof info, err);
    if (st == TSR_OK)
        st = c->api->get(c->device, diagonal, t.diagonal, n * sizeof *diagonal, err);
    if (st == TSR_OK && (info < 0 || (uint64_t)info > n))
        st = tsr_fail(err, TSR_E_DEVICE, "%s: cuSOLVER says that argument %d is wrong", c->text,
                      -info);
    *bad = n;
    for (uint64_t i = 0; i < n && st == TSR_OK && *bad == n; i++)
        if (i + 1 == (uint64_t)info || !(fabsf(diagonal[i]) <= FLT_MAX) || diagonal[i] == 0.0f ||
            (kind == TSR_CUDA_POTRF && diagonal[i] < 0.0f))
            *bad = i;
    c->host->release(c->host->ctx, diagonal, n * sizeof *diagonal);
    return st;
}

static tsr_status bad_pivot(uint64_t at, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_NUMERIC,
                    "cholesky: pivot %llu is not positive: the matrix is not positive definite",
                    U(at));
}

static tsr_status bad_triangle(const char *what, uint64_t at, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_NUMERIC, "%s: L has no inverse: look at its diagonal, place %llu",
                    what, U(at));
}

/* Runs an operation on the lower triangle of a in place: *bad < n if the library stopped there. */
static tsr_status in_place(struct tsr_cuda *c, enum tsr_cuda_blas_kind kind, uint64_t n, float *a,
                           uint64_t lda, uint64_t *bad, struct tsr_err *err)
{
    struct tsr_cuda_mat m = tsr_cuda_linalg_mat(a, n, n, lda, 1);
    struct places       p = { 0 };
    uint64_t            more = 0;
    *bad = n;
    tsr_status st = tsr_cuda_linalg_begin(c, err);
    if (st == TSR_OK)
        st = find_places(c, n, m.ld, 0, &p, err);
    if (st == TSR_OK)
        st = tsr_cuda_bring(c, &m, 1, p.total, &more, err);
    if (st == TSR_OK)
        st = factor(c, kind, &m, more, &p, bad, err);
    if (st == TSR_OK && *bad == n)
        st = tsr_cuda_take(c, &m, 1, err);
    return tsr_cuda_linalg_end(c, st);
}

static tsr_status cholesky(void *ctx, uint64_t n, float *a, uint64_t lda, uint64_t *pivot,
                           struct tsr_err *err)
{
    uint64_t bad = n;
    if (n == 0)
        return TSR_OK;
    tsr_status st = tsr_cuda_linalg_check("cholesky: A", a, n, n, lda, err);
    if (st == TSR_OK)
        st = in_place(ctx, TSR_CUDA_POTRF, n, a, lda, &bad, err);
    if (st != TSR_OK || bad == n)
        return st;
    if (pivot)
        *pivot = bad;
    return bad_pivot(bad, err);
}

static tsr_status triangle_inverse(void *ctx, uint64_t n, float *l, uint64_t ldl,
                                   struct tsr_err *err)
{
    uint64_t bad = n;
    if (n == 0)
        return TSR_OK;
    tsr_status st = tsr_cuda_linalg_check("triangle_inverse: L", l, n, n, ldl, err);
    if (st == TSR_OK)
        st = in_place(ctx, TSR_CUDA_TRTRI, n, l, ldl, &bad, err);
    return st != TSR_OK || bad == n ? st : bad_triangle("triangle_inverse", bad, err);
}

/* A^-1 = M^T M with M = L^-1, which is made in a copy. */
static tsr_status cholesky_inverse(void *ctx, uint64_t n, float *l, uint64_t ldl,
                                   struct tsr_err *err)
{
    struct tsr_cuda *c = ctx;
    if (n == 0)
        return TSR_OK;
    tsr_status st = tsr_cuda_linalg_check("cholesky_inverse: L", l, n, n, ldl, err);
    if (st != TSR_OK)
        return st;
    struct tsr_cuda_mat m = tsr_cuda_linalg_mat(l, n, n, ldl, 1), copy;
    struct places       p = { 0 };
    uint64_t            more = 0, bad = n;
    st = tsr_cuda_linalg_begin(c, err);
    if (st == TSR_OK)
        st = find_places(c, n, m.ld, 1, &p, err);
    if (st == TSR_OK)
        st = tsr_cuda_bring(c, &m, 1, p.total, &more, err);
    copy = m;
    copy.p = more + p.copy;
    copy.dld = n;
    struct k_triangle t = { .from = m.p, .ldf = m.dld, .to = copy.p, .ldt = n, .n = n };
    if (st == TSR_OK)
        st = triangle(c, &t, err);
    if (st == TSR_OK)
        st = factor(c, TSR_CUDA_TRTRI, &copy, more, &p, &bad, err);
    if (st == TSR_OK && bad < n)
        st = bad_triangle("cholesky_inverse", bad, err);
    if (st == TSR_OK)
        st = syrk_on(c, &copy, 1.0f, 0.0f, &m, err);
    if (st == TSR_OK)
        st = tsr_cuda_take(c, &m, 1, err);
    return tsr_cuda_linalg_end(c, st);
}

/* ---- the table ------------------------------------------------------------------------------ */

void tsr_cuda_linalg_init(struct tsr_cuda *c)
{
    c->linalg.table = (struct tsr_linalg_v1){ .struct_size = sizeof c->linalg.table,
                                              .ctx = c,
                                              .syrk = syrk,
                                              .gemm = gemm,
                                              .cholesky = cholesky,
                                              .cholesky_inverse = cholesky_inverse,
                                              .largest_eigenvalue = tsr_cuda_linalg_eigenvalue,
                                              .triangle_inverse = triangle_inverse,
                                              .hold = tsr_cuda_hold,
                                              .drop = tsr_cuda_drop,
                                              .fetch = tsr_cuda_fetch,
                                              .push = tsr_cuda_push };
}

void tsr_cuda_linalg_free(struct tsr_cuda *c)
{
    tsr_cuda_drop_all(c);
    c->host->release(c->host->ctx, c->linalg.staging, TSR_CUDA_STAGING);
}

static int find_libraries(struct tsr_cuda *c)
{
    char           text[320], line[480];
    struct tsr_err why = { .struct_size = sizeof why, .cap = sizeof text, .text = text };
    text[0] = '\0';
    int found = c->api->blas_find && c->api->blas_find(c->device, &why) == TSR_OK;
    (void)snprintf(line, sizeof line, "%s: linear algebra %s%s", c->text,
                   found ? "by cuBLAS and cuSOLVER" : "stays on the CPU: ",
                   found   ? ""
                   : *text ? text
                           : "this device has no libraries for it");
    c->host->log(c->host->ctx, TSR_LOG_INFO, line);
    return found ? 1 : -1;
}

const void *tsr_cuda_linalg(struct tsr_cuda *c)
{
    if (!c->fast)
        return NULL;
    (void)pthread_mutex_lock(&c->lock);
    if (!c->linalg.found)
        c->linalg.found = find_libraries(c);
    int found = c->linalg.found;
    (void)pthread_mutex_unlock(&c->lock);
    return found > 0 ? &c->linalg.table : NULL;
}
