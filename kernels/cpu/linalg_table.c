/* linalg_table.c - "tessera.linalg/1": the table. */
#include "linalg.h"

#include <stdatomic.h>
#include <string.h>

#include "backend.h"

static tsr_status syrk(void *ctx, uint64_t n, uint64_t rows, float alpha, const float *x,
                       uint64_t ldx, float *c, uint64_t ldc, struct tsr_err *err)
{
    tsr_status st = la_check("syrk: X", x, rows, n, ldx, err);
    if (st == TSR_OK)
        st = la_check("syrk: C", c, n, n, ldc, err);
    if (st != TSR_OK || n == 0)
        return st;
    struct tsr_cpu *cpu = ctx;
    struct la_gemm  g = { n, n, rows, alpha, x, 1, ldx, x, ldx, 1, c, ldc, .lower = 1 };
    st = cpu->bf16 ? tsr_cpu_syrk_bf16(cpu, n, rows, alpha, x, ldx, c, ldc, err)
                   : la_gemm(cpu, &g, err);
    return st == TSR_OK ? la_mirror(ctx, n, c, ldc) : st;
}

static tsr_status gemm(void *ctx, uint64_t m, uint64_t n, uint64_t k, float alpha, const float *a,
                       uint64_t lda, const float *b, uint64_t ldb, int32_t b_transposed, float *c,
                       uint64_t ldc, struct tsr_err *err)
{
    tsr_status st = la_check("gemm: A", a, m, k, lda, err);
    if (st == TSR_OK)
        st = la_check("gemm: B", b, b_transposed ? n : k, b_transposed ? k : n, ldb, err);
    if (st == TSR_OK)
        st = la_check("gemm: C", c, m, n, ldc, err);
    if (st != TSR_OK)
        return st;
    struct la_gemm g = { m, n, k, alpha, a, lda, 1, b, ldb, 1, c, ldc, 0, 0, 0 };
    if (b_transposed) {
        g.bk = 1;
        g.bj = ldb;
    }
    return la_gemm(ctx, &g, err);
}

void tsr_cpu_linalg_init(struct tsr_cpu *c)
{
    c->linalg.table = (struct tsr_linalg_v1){ .struct_size = sizeof c->linalg.table,
                                              .ctx = c,
                                              .syrk = syrk,
                                              .gemm = gemm,
                                              .cholesky = tsr_cpu_cholesky,
                                              .cholesky_inverse = tsr_cpu_cholesky_inverse,
                                              .largest_eigenvalue = tsr_cpu_largest_eigenvalue };
}

void tsr_cpu_linalg_free(struct tsr_cpu *c)
{
    void *p = atomic_exchange(&c->linalg.cache, NULL);
    if (p) {
        uint64_t bytes;
        memcpy(&bytes, p, sizeof bytes);
        c->host->release(c->host->ctx, p, bytes);
    }
}

const void *tsr_cpu_linalg(const void *self)
{
    const struct tsr_cpu *c = self;
    return &c->linalg.table;
}
