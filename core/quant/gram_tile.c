/* What a thread sums in registers, in vectors of any length: a product of two F32 numbers is exact in
 * double, so that multiply-adds of one rounding and of two are the same, and with them all of these. */
#include "quant/gram_tile.h"

#include <stdlib.h>
#include <string.h>

/* Accumulators are scalars by name: compilers keep arrays in memory. */
#define ROWS4(X) X(0) X(1) X(2) X(3)
#define ROWS8(X) ROWS4(X) X(4) X(5) X(6) X(7)
#define TAKE(i)                                                                                    \
    vec lo##i, hi##i;                                                                              \
    memcpy(&lo##i, c + (i)*ldc, sizeof lo##i);                                                     \
    memcpy(&hi##i, c + (i)*ldc + lanes, sizeof hi##i);
#define STEP(i)                                                                                    \
    lo##i += lo * a[i];                                                                            \
    hi##i += hi * a[i];
#define GIVE(i)                                                                                    \
    memcpy(c + (i)*ldc, &lo##i, sizeof lo##i);                                                     \
    memcpy(c + (i)*ldc + lanes, &hi##i, sizeof hi##i);
#define TILE(target_, name, rows, bytes, each)                                                     \
    target_ static void name(double *c, uint64_t ldc, const double *a, const double *b,            \
                             uint64_t n)                                                           \
    {                                                                                              \
        typedef double vec __attribute__((vector_size(bytes)));                                    \
        const uint64_t lanes = (bytes) / 8;                                                        \
        each(TAKE) for (uint64_t k = 0; k < n; k++, a += (rows), b += 2 * lanes)                   \
        {                                                                                          \
            vec lo, hi;                                                                            \
            memcpy(&lo, b, sizeof lo);                                                             \
            memcpy(&hi, b + lanes, sizeof hi);                                                     \
            each(STEP)                                                                             \
        }                                                                                          \
        each(GIVE)                                                                                 \
    }

#define BASELINE
#define AVX2   __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))

TILE(BASELINE, tile_any, 4, 16, ROWS4)
#ifdef __x86_64__
TILE(AVX2, tile_avx2, 4, 32, ROWS4)
TILE(AVX512, tile_avx512, 8, 64, ROWS8)
#endif

static const struct tsr_quant_gram_tile tiles[] = {
    { 4, 4, tile_any },
#ifdef __x86_64__
    { 4, 8, tile_avx2 },
    { 8, 16, tile_avx512 },
#endif
};

const struct tsr_quant_gram_tile *tsr_quant_gram_tile(void)
{
#ifdef __x86_64__
    const char *isa = getenv("TSR_ISA"); /* backends refuse a name that is none */
    if (isa && strcmp(isa, "scalar") == 0)
        return &tiles[0];
    if (__builtin_cpu_supports("avx512f") && !(isa && strcmp(isa, "avx2") == 0))
        return &tiles[2];
    if (__builtin_cpu_supports("avx2"))
        return &tiles[1];
#endif
    return &tiles[0];
}
