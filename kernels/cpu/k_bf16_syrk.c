/* k_bf16_syrk.c - SYRK on vdpbf16ps: panels of pairs of rows, and tiles of C. */
#include <string.h>

#include "bf16.h"
#include "simd.h"

#define FETCH 4u /* pairs between two prefetches of C */

_Static_assert(BF16_DOWN == 8 && BF16_ACROSS == 48, "24 sums, 3 vectors of B and one of A");

/* Two rows of up to 16 columns as pairs; b NULL: a row of zeros. */
static __m512i pair(const float *a, const float *b, uint64_t n)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    v16 first = n >= 16 ? v_load(a) : v_loadn(a, n), second = v_set1(0.0f);
    if (b)
        second = n >= 16 ? v_load(b) : v_loadn(b, n);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

void tsr_k_bf16_pair_rows(uint32_t *dst, const float *x, uint64_t ldx, uint64_t rows, uint64_t cols)
{
    for (uint64_t k = 0; k < rows; k += 2, x += 2 * ldx, dst += BF16_ACROSS) {
        uint64_t i = 0;
        for (; i < cols; i += 16)
            _mm512_storeu_si512(dst + i, pair(x + i, k + 1 < rows ? x + ldx + i : NULL, cols - i));
        for (; i < BF16_ACROSS; i += 16)
            _mm512_storeu_si512(dst + i, _mm512_setzero_si512());
    }
}

/* In assembly, as in k_bf16.c. */
static inline v16 dot2(v16 acc, __m512i a, __m512i b)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

/* Accumulators are scalars by name: compilers keep arrays in memory. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

void tsr_k_bf16_gram(const uint32_t *a, const uint32_t *b, uint64_t n, float alpha, float *c,
                     uint64_t ldc)
{
#define TAKE(i) v16 c##i##x = v_set1(0.0f), c##i##y = c##i##x, c##i##z = c##i##x;
#define STEP(i)                                                                                    \
    {                                                                                              \
        __m512i ai = _mm512_set1_epi32((int)a[i]);                                                 \
        c##i##x = dot2(c##i##x, ai, bx);                                                           \
        c##i##y = dot2(c##i##y, ai, by);                                                           \
        c##i##z = dot2(c##i##z, ai, bz);                                                           \
    }
#define GIVE(i)                                                                                    \
    {                                                                                              \
        float *to = c + (i)*ldc;                                                                   \
        v_store(to, v_fma(by_alpha, c##i##x, v_load(to)));                                         \
        v_store(to + 16, v_fma(by_alpha, c##i##y, v_load(to + 16)));                               \
        v_store(to + 32, v_fma(by_alpha, c##i##z, v_load(to + 32)));                               \
    }
    const v16 by_alpha = v_set1(alpha);
    EACH(TAKE)
    for (uint64_t k = 0; k < n; k++, a += BF16_ACROSS, b += BF16_ACROSS) {
        __m512i bx = _mm512_loadu_si512(b), by = _mm512_loadu_si512(b + 16);
        __m512i bz = _mm512_loadu_si512(b + 32);
        if (k % FETCH == 0 && k / FETCH < BF16_DOWN * 3)
            v_prefetch(c + k / FETCH / 3 * ldc + k / FETCH % 3 * 16);
        EACH(STEP)
    }
    EACH(GIVE)
#undef TAKE
#undef STEP
#undef GIVE
}
