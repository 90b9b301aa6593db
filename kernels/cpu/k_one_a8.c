/* k_one_a8.c - LINEAR with int8 activations, one token on AVX2, and of some formats on AVX-512
 * (docs/decisions/numerics.md). */
#include "k_few_a8.h"

#if TSR_SIMD == 2 || TSR_SIMD == 512
#include "k_one_elements.h"
#if TSR_SIMD == 2
#include "k_one_a8.h"
#include "k_one_coded.h"
#else
#include "k_one_low.h"
#endif

typedef void (*one_loop)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart,
                         uint64_t n);

/* Each with its own frame. */
#define LOOP_OF(name, call)                                                                        \
    static __attribute__((noinline)) void name(const struct tsr_cpu_linear *a, uint64_t panel,     \
                                               uint64_t apart, uint64_t n)                         \
    {                                                                                              \
        for (uint64_t i = panel; i < panel + n; i++)                                               \
            call;                                                                                  \
    }

#if TSR_SIMD == 2
LOOP_OF(coded_i2, one_coded(a, W_I2, i, apart))
LOOP_OF(bytes_i5, one_coded(a, W_I5, i, apart))
LOOP_OF(bytes_i4, one_coded(a, W_I4, i, apart))
#define LOOP(name, l, kind, form, columns) LOOP_AS(name, l, kind, form, SCALES_ANY, columns)
#define LOOP_AS(name, l, kind, form, scales, columns)                                              \
    LOOP_OF(name, one(a, i, apart, l, kind, form, scales, columns))
LOOP(plain_i3, W_I3, RUN_PLAIN, ONE_CODES, 0)
LOOP(plain_i2, W_I2, RUN_PLAIN, ONE_CODES, 0)
LOOP(plain_i3_32, W_I3, RUN_PLAIN, ONE_CODES, 32)
LOOP(plain_i2_32, W_I2, RUN_PLAIN, ONE_CODES, 32)
LOOP_AS(f16_i3_32, W_I3, RUN_PLAIN, ONE_CODES, SCALES_F16, 32)
LOOP_AS(f16_i2_32, W_I2, RUN_PLAIN, ONE_CODES, SCALES_F16, 32)
LOOP(plain_i2_16, W_I2, RUN_PLAIN, ONE_CODES, 16)
LOOP(affine_i5, W_I5, RUN_AFFINE, ONE_CODES, 0)
LOOP(affine_i2, W_I2, RUN_AFFINE, ONE_CODES, 0)
LOOP(mapped_i6, W_I6, RUN_MAPPED, ONE_CODES, 0)
LOOP_AS(coded_i6_16, W_I6, RUN_MAPPED, ONE_CODES, SCALES_CODED, 16)
LOOP_AS(coded_i4_16, W_I4, RUN_LOW, ONE_CODES, SCALES_CODED, 16)
LOOP(straight_i4, W_I4, RUN_LOW, ONE_CODES, 0)
LOOP(straight_i4_16, W_I4, RUN_LOW, ONE_CODES, 16)
LOOP(straight_i3, W_I3, RUN_LOW, ONE_CODES, 0)
LOOP(straight_i2, W_I2, RUN_LOW, ONE_CODES, 0)
LOOP(low_i4, W_I4, RUN_LOW, ONE_LOOKUP, 0)
LOOP(low_i4_16, W_I4, RUN_LOW, ONE_LOOKUP, 16)
LOOP(low_i3, W_I3, RUN_LOW, ONE_LOOKUP, 0)
LOOP(low_i2, W_I2, RUN_LOW, ONE_LOOKUP, 0)
LOOP(signed_i4, W_I4, RUN_MAPPED, ONE_SIGNED, 0)
LOOP(signed_i4_32, W_I4, RUN_MAPPED, ONE_SIGNED, 32)
LOOP_AS(signed_f16_i4_32, W_I4, RUN_MAPPED, ONE_SIGNED, SCALES_F16, 32)
LOOP_AS(signed_coded_i4_32, W_I4, RUN_MAPPED, ONE_SIGNED, SCALES_CODED, 32)
LOOP(signed_i3, W_I3, RUN_MAPPED, ONE_SIGNED, 0)
LOOP(signed_i2, W_I2, RUN_MAPPED, ONE_SIGNED, 0)

#define low_elements low_i4_16
#else
LOOP_OF(coded_i2, one_coded(a, i, apart))
LOOP_OF(bytes_i5, one_bytes(a, W_I5, i, apart))
LOOP_OF(bytes_i4, one_bytes(a, W_I4, i, apart))
LOOP_OF(plain_i3, one_low(a, W_I3, RUN_PLAIN, i, apart))
LOOP_OF(plain_i2, one_low(a, W_I2, RUN_PLAIN, i, apart))
LOOP_OF(straight_i3, one_low(a, W_I3, RUN_MAPPED, i, apart))
LOOP_OF(straight_i2, one_low(a, W_I2, RUN_MAPPED, i, apart))
#define low_elements K(mapped_pairs_a8)
#endif

static __attribute__((noinline)) void elements_i4(const struct tsr_cpu_linear *a, uint64_t panel,
                                                  uint64_t apart, uint64_t n)
{
    for (uint64_t i = panel; i < panel + n; i++)
        if (!are_near_one(divisors_of(a->w, i)) || !are_near_one(divisors_of(a->w, i + apart)) ||
            !one_elements(a, i, apart))
            low_elements(a, i, apart, 1);
}

/* Whether all runs have so many columns. */
static int each(const struct tsr_cpu_weight *w, uint64_t columns)
{
    return w->group == columns && w->cols % columns == 0;
}

#if TSR_SIMD == 2
/* Groups of 32 columns, which are the runs. */
static one_loop loop_of_32(const struct tsr_cpu_weight *w)
{
    const int f16 = w->scale_f16 && !w->zeros;
    if (!w->mapped)
        return w->layout == W_I3   ? f16 ? f16_i3_32 : plain_i3_32
               : w->layout == W_I2 ? f16 ? f16_i2_32 : plain_i2_32
                                   : NULL;
    return w->mapped == MAPPED_BYTES           ? signed_coded_i4_32
           : w->mapped == MAPPED_STORED && f16 ? signed_f16_i4_32
                                               : signed_i4_32;
}
#endif

/* NULL: pairs of k_few_a8.h are as fast. */
static one_loop loop_of(const struct tsr_cpu_weight *w)
{
    if (w->affine && w->layout == W_I2 && w->affine == AFFINE_NIBBLES && each(w, 16))
        return coded_i2;
    if (w->mapped == MAPPED_ELEMENTS && w->layout == W_I4 && each(w, 16) && w->mid < CPU_LOW_BYTE &&
        w->low_byte < 32 && is_near_power(w->unit))
        return elements_i4;
    if (w->affine == AFFINE_BYTES && each(w, 32) && (w->layout == W_I4 || w->layout == W_I5))
        return w->layout == W_I4 ? bytes_i4 : bytes_i5;
#if TSR_SIMD == 512
    if (w->affine || (w->layout != W_I3 && w->layout != W_I2))
        return NULL;
    if (!w->mapped)
        return w->layout == W_I3 ? plain_i3 : plain_i2;
    if (w->mid >= CPU_LOW_BYTE || !w->straight)
        return NULL;
    return w->layout == W_I3 ? straight_i3 : straight_i2;
#else
    if (w->affine)
        return w->layout == W_I5 ? affine_i5 : w->layout == W_I2 ? affine_i2 : NULL;
    if (!w->mapped)
        return each(w, 32)         ? loop_of_32(w)
               : w->layout == W_I3 ? plain_i3
               : w->layout != W_I2 ? NULL
               : each(w, 16)       ? plain_i2_16
                                   : plain_i2;
    const int coded = w->mapped == MAPPED_BYTES && each(w, 16);
    if (!cpu_looked_up(w->layout))
        return w->layout != W_I6 ? NULL : coded ? coded_i6_16 : mapped_i6;
    if (w->mid < CPU_LOW_BYTE && w->straight)
        return w->layout == W_I4   ? coded         ? coded_i4_16
                                     : each(w, 16) ? straight_i4_16
                                                   : straight_i4
               : w->layout == W_I3 ? straight_i3
                                   : straight_i2;
    if (w->mid < CPU_LOW_BYTE && w->low_byte < 32)
        return w->layout == W_I4   ? each(w, 16) ? low_i4_16 : low_i4
               : w->layout == W_I3 ? low_i3
                                   : low_i2;
    return w->layout == W_I4   ? each(w, 32) ? loop_of_32(w) : signed_i4
           : w->layout == W_I3 ? signed_i3
                               : signed_i2;
#endif
}

bool K(one_pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n)
{
    const one_loop loop = loop_of(a->w);
    if (loop)
        loop(a, panel, apart, n);
    return loop != NULL;
}
#endif
