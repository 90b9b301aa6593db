/* k_linalg.c - tiles of C += A B, small triangles, and the product of power iteration. */
#include <math.h>

#include "linalg.h"
#include "simd.h"

/* 12 by 2 vectors leave registers for a row of B and a broadcast of A. */
#if TSR_SIMD == 512 && !defined(TSR_SMALL_TILES)
#define MR           12
#define VR           2
#define ROWS_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#elif TSR_SIMD == 2 || TSR_SIMD == 128
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

_Static_assert(LA_SOLVE == 32, "small triangles take two vectors");

#define PACK_COLS 64u

/* Steps between two prefetches of lines of the next tile: all prefetches at once would delay the panels,
 * which come from L2. */
#define FETCH 8u

/* Accumulators are scalars by name: compilers keep arrays in memory. */
static void tile(const float *a, const float *b, uint64_t n, float *c, uint64_t ldc,
                 const float *next)
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
#define ALL_ROWS                                                                                   \
    {                                                                                              \
        v16 ba = v_load(b);                                                                        \
        SECOND(v16 bb = v_load(b + 16);)                                                           \
        ROWS_EACH(STEP)                                                                            \
        a += MR;                                                                                   \
        b += 16 * VR;                                                                              \
    }
#define GIVE(i)                                                                                    \
    v_store(c + i * ldc, c##i##a);                                                                 \
    SECOND(v_store(c + i * ldc + 16, c##i##b);)
    ROWS_EACH(TAKE)
    uint64_t k = 0;
    for (uint64_t line = 0; next && line < MR * VR && k + FETCH <= n; line++) {
        v_prefetch(next + line / VR * ldc + line % VR * 16);
        for (uint64_t end = k + FETCH; k < end; k++)
            ALL_ROWS
    }
    for (; k < n; k++)
        ALL_ROWS
    ROWS_EACH(GIVE)
#undef TAKE
#undef STEP
#undef ALL_ROWS
#undef GIVE
}

/* Element (i,k) is src[i + k * sk]: rows of the panel are adjacent. */
INLINE void pack_along(float *dst, const uint64_t width, const float *src, uint64_t sk, uint64_t m,
                       uint64_t n, v16 alpha)
{
    for (uint64_t k = 0; k < n; k++, src += sk, dst += width)
        for (uint64_t i = 0; i < width; i += 16) {
            uint64_t in = m > i ? m - i : 0, out = width - i;
            v16      v = in >= 16 ? v_load(src + i) : v_loadn(src + i, in);
            if (out >= 16)
                v_store(dst + i, v_mul(v, alpha));
            else
                v_storen(dst + i, v_mul(v_keep(v, out), alpha), out);
        }
}

/* Four rows of src to four columns of dst, n columns of src. */
INLINE void pack4(float *dst, const uint64_t width, const float *src, uint64_t si, uint64_t n,
                  float alpha)
{
    uint64_t k = 0;
#if TSR_SIMD == 2 || TSR_SIMD == 512
    const __m128 f = _mm_set1_ps(alpha);
    for (; k + 4 <= n; k += 4, dst += 4 * width) {
        if (k % 16 == 0) /* the next lines: rows are far from each other in memory */
            for (uint64_t i = 0; i < 4; i++)
                v_prefetch(src + i * si + k + 64);
        __m128 a = _mm_mul_ps(_mm_loadu_ps(src + k), f);
        __m128 b = _mm_mul_ps(_mm_loadu_ps(src + si + k), f);
        __m128 c = _mm_mul_ps(_mm_loadu_ps(src + 2 * si + k), f);
        __m128 d = _mm_mul_ps(_mm_loadu_ps(src + 3 * si + k), f);
        _MM_TRANSPOSE4_PS(a, b, c, d);
        _mm_storeu_ps(dst, a);
        _mm_storeu_ps(dst + width, b);
        _mm_storeu_ps(dst + 2 * width, c);
        _mm_storeu_ps(dst + 3 * width, d);
    }
#endif
    for (; k < n; k++, dst += width)
        for (uint64_t i = 0; i < 4; i++)
            dst[i] = src[i * si + k] * alpha;
}

/* Element (i,k) is src[i * si + k]. */
INLINE void pack_across(float *dst, const uint64_t width, const float *src, uint64_t si, uint64_t m,
                        uint64_t n, float alpha)
{
    uint64_t i = 0;
    for (; i + 4 <= width && i + 4 <= m; i += 4)
        pack4(dst + i, width, src + i * si, si, n, alpha);
    for (; i < width; i++)
        for (uint64_t k = 0; k < n; k++)
            dst[k * width + i] = i < m ? src[i * si + k] * alpha : 0.0f;
}

INLINE void pack_panels(float *dst, uint64_t step, const uint64_t width, const float *src,
                        uint64_t si, uint64_t sk, uint64_t count, uint64_t n, float alpha)
{
    if (si == 1) /* in the order of memory, a piece for each panel */
        for (uint64_t k = 0; k < n; k++, src += sk)
            for (uint64_t i = 0; i < count; i += width)
                pack_along(dst + i / width * step + k * width, width, src + i, sk,
                           count - i < width ? count - i : width, 1, v_set1(alpha));
    else
        for (uint64_t i = 0; i < count; i += width, dst += step)
            pack_across(dst, width, src + i * si, si, count - i < width ? count - i : width, n,
                        alpha);
}

static void pack(float *dst, uint64_t step, int which, const float *src, uint64_t si, uint64_t sk,
                 uint64_t count, uint64_t n, float alpha)
{
    /* few columns at a time, so that rows with a large stride touch few pages */
    for (uint64_t k = 0; k < n; k += PACK_COLS) {
        uint64_t w = n - k < PACK_COLS ? n - k : PACK_COLS;
        if (which == 0)
            pack_panels(dst + k * MR, step, MR, src + k * sk, si, sk, count, w, alpha);
        else
            pack_panels(dst + k * 16 * VR, step, 16 * VR, src + k * sk, si, sk, count, w, alpha);
    }
}

/* Four rows at a time: with more, whose lines may be a power of two apart, they would evict each other
 * from L1 before they are full. */
static void unpack(float *dst, uint64_t ldd, const float *b, uint64_t count, uint64_t n)
{
    const uint64_t nr = 16 * VR;
    for (uint64_t i = 0; i < count; i += 4, b += 4, dst += 4 * ldd) {
        uint64_t rows = count - i < 4 ? count - i : 4, k = 0;
        for (; rows == 4 && k + 4 <= n; k += 4)
            pack4(dst + k, ldd, b + k * nr, nr, 4, 1.0f);
        for (; k < n; k++)
            for (uint64_t j = 0; j < rows; j++)
                dst[j * ldd + k] = b[k * nr + j];
    }
}

/* A panel of A is inside one or two of B. */
static void regroup(float *a, const float *b, uint64_t room, uint64_t count, uint64_t n)
{
    const uint64_t nr = 16 * VR, all = (count + nr - 1) / nr * nr;
    const v16      minus = v_set1(-1.0f);
    for (uint64_t i = 0; i < count; i += MR, a += room * MR) {
        uint64_t     lane = i % nr, have = all - i < MR ? all - i : MR;
        uint64_t     one = nr - lane < have ? nr - lane : have, two = have - one;
        const float *x = b + i / nr * room * nr + lane, *y = b + (i / nr + 1) * room * nr;
        for (uint64_t k = 0; k < n; k++) {
            float *d = a + k * MR;
            v_prefetch(d + 256);
            v_storen(d, v_mul(v_loadn(x + k * nr, one), minus), one);
            if (two)
                v_storen(d + one, v_mul(v_loadn(y + k * nr, two), minus), two);
            for (uint64_t e = have; e < MR; e++)
                d[e] = 0.0f;
        }
    }
}

/* L X = X for one or two vectors of columns of X: four rows are solved, then taken from those below. */
INLINE void forward(const int vecs, const float *l, uint64_t ldl, uint64_t n, float *x,
                    uint64_t ldx)
{
    for (uint64_t k = 0; k < n; k += 4) {
        uint64_t w = n - k < 4 ? n - k : 4;
        v16      a[4], b[4];
        for (uint64_t i = 0; i < w; i++) {
            float       *xi = x + (k + i) * ldx;
            const float *li = l + (k + i) * ldl + k;
            v16          d = v_set1(li[i]), c0 = v_load(xi), c1 = c0;
            if (vecs == 2)
                c1 = v_load(xi + 16);
            for (uint64_t j = 0; j < i; j++) {
                v16 f = v_set1(li[j]);
                c0 = v_fma(a[j], f, c0);
                if (vecs == 2)
                    c1 = v_fma(b[j], f, c1);
            }
            c0 = v_div(c0, d);
            v_store(xi, c0);
            a[i] = v_neg(c0);
            if (vecs == 2) {
                c1 = v_div(c1, d);
                v_store(xi + 16, c1);
                b[i] = v_neg(c1);
            }
        }
        for (uint64_t i = k + 4; i < n; i++) {
            float       *xi = x + i * ldx;
            const float *li = l + i * ldl + k;
            v16          c0 = v_load(xi), c1 = c0;
            if (vecs == 2)
                c1 = v_load(xi + 16);
            for (uint64_t j = 0; j < 4; j++) {
                v16 f = v_set1(li[j]);
                c0 = v_fma(a[j], f, c0);
                if (vecs == 2)
                    c1 = v_fma(b[j], f, c1);
            }
            v_store(xi, c0);
            if (vecs == 2)
                v_store(xi + 16, c1);
        }
    }
}

static void solve_left(const float *l, uint64_t ldl, uint64_t n, float *x, uint64_t ldx,
                       uint64_t cols)
{
    uint64_t j = 0;
    for (; j + 32 <= cols; j += 32)
        forward(2, l, ldl, n, x + j, ldx);
    for (; j + 16 <= cols; j += 16)
        forward(1, l, ldl, n, x + j, ldx);
    if (j == cols)
        return;
    float    t[LA_SOLVE * 16] = { 0 };
    uint64_t w = cols - j;
    for (uint64_t i = 0; i < n; i++)
        memcpy(t + i * 16, x + i * ldx + j, w * sizeof *x);
    forward(1, l, ldl, n, t, 16);
    for (uint64_t i = 0; i < n; i++)
        memcpy(x + i * ldx + j, t + i * 16, w * sizeof *x);
}

/* On columns of L along the lanes; elements above the diagonal are computed and not used. */
static uint64_t factor(float *a, uint64_t lda, uint64_t n)
{
    float    t[LA_SOLVE][LA_SOLVE] = { { 0 } };
    uint64_t k = 0;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j <= i; j++)
            t[j][i] = a[i * lda + j];
    for (; k < n; k++) {
        float d = t[k][k];
        if (!(d > 0.0f && d <= FLT_MAX))
            break;
        d = sqrtf(d);
        v16 lo = v_div(v_load(t[k]), v_set1(d)), hi = v_div(v_load(t[k] + 16), v_set1(d));
        v_store(t[k], lo);
        v_store(t[k] + 16, hi);
        t[k][k] = d;
        for (uint64_t j = k + 1; j < n; j++) {
            v16 f = v_set1(-t[k][j]);
            v_store(t[j], v_fma(f, lo, v_load(t[j])));
            v_store(t[j] + 16, v_fma(f, hi, v_load(t[j] + 16)));
        }
    }
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j <= i; j++)
            a[i * lda + j] = t[j][i];
    return k;
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
    .pack = pack,
    .unpack = unpack,
    .regroup = regroup,
    .solve_left = solve_left,
    .factor = factor,
    .symv = symv,
};
