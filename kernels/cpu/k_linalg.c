/* k_linalg.c - tiles of C += A B, small triangles, and the product of power iteration. */
#include <math.h>

#include "linalg.h"
#include "simd.h"

/* 12 by 2 vectors leave registers for a row of B and a broadcast of A. */
#if TSR_SIMD == 512 && !defined(TSR_SMALL_TILES)
#define MR           12
#define VR           2
#define ROWS_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#elif TSR_SIMD == 2
#define MR           6
#define VR           1
#define ROWS_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5)
#else
#define MR           4
#define VR           1
#define ROWS_EACH(X) X(0) X(1) X(2) X(3)
#endif
#if VR == 2
#define SECOND(x) x
#else
#define SECOND(x)
#endif

/* Accumulators are scalars by name: compilers keep arrays in memory. */
static void tile(const float *a, const float *b, uint64_t n, float *c, uint64_t ldc)
{
#define TAKE(i)                                                                                    \
    v16 c##i##a = v_load(c + i * ldc);                                                             \
    SECOND(v16 c##i##b = v_load(c + i * ldc + 16);)
#define STEP(i)                                                                                    \
    {                                                                                              \
        v16 ai = v_set1(a[i]);                                                                     \
        c##i##a = v_fma(ai, ba, c##i##a);                                                          \
        SECOND(c##i##b = v_fma(ai, bb, c##i##b);)                                                  \
    }
#define GIVE(i)                                                                                    \
    v_store(c + i * ldc, c##i##a);                                                                 \
    SECOND(v_store(c + i * ldc + 16, c##i##b);)
    ROWS_EACH(TAKE)
    for (uint64_t k = 0; k < n; k++, a += MR, b += 16 * VR) {
        v16 ba = v_load(b);
        SECOND(v16 bb = v_load(b + 16);)
        ROWS_EACH(STEP)
    }
    ROWS_EACH(GIVE)
#undef TAKE
#undef STEP
#undef GIVE
}

static void forward(const float *l, uint64_t ldl, uint64_t n, float *x, uint64_t ldx)
{
    for (uint64_t k = 0; k < n; k++) {
        v16 xk = v_div(v_load(x + k * ldx), v_set1(l[k * ldl + k]));
        v_store(x + k * ldx, xk);
        xk = v_neg(xk);
        for (uint64_t i = k + 1; i < n; i++)
            v_store(x + i * ldx, v_fma(xk, v_set1(l[i * ldl + k]), v_load(x + i * ldx)));
    }
}

static uint64_t factor(float *a, uint64_t lda, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) {
        float d = a[k * lda + k];
        if (!(d > 0.0f && d <= FLT_MAX))
            return k;
        d = sqrtf(d);
        a[k * lda + k] = d;
        for (uint64_t i = k + 1; i < n; i++)
            a[i * lda + k] /= d;
        for (uint64_t i = k + 1; i < n; i++)
            for (uint64_t j = k + 1; j <= i; j++)
                a[i * lda + j] = fmaf(-a[i * lda + k], a[j * lda + k], a[i * lda + j]);
    }
    return n;
}

static void symv(const float *a, uint64_t lda, uint64_t rows, uint64_t n, const double *v,
                 double *y)
{
    for (uint64_t k = 0; k < rows; k++)
        for (uint64_t j = 0; j < n; j++)
            y[j] = fma((double)a[k * lda + j], v[k], y[j]);
}

#define TABLE_(isa) tsr_cpu_linalg_##isa
#define TABLE(isa)  TABLE_(isa)

const struct tsr_cpu_linalg_kernels TABLE(ISA_NAME) = {
    .mr = MR,
    .nr = 16 * VR,
    .tile = tile,
    .forward = forward,
    .factor = factor,
    .symv = symv,
};
