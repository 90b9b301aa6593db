/* encode_ref.h - what the tests of kernels/encode share: the instruction sets, the elements by their
 * definition, numbers.
 */
#ifndef TESTS_ENCODE_REF_H
#define TESTS_ENCODE_REF_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "encode.h"

static const char *const isas[] = { "scalar", "avx2", "avx512" };

static const struct tsr_encode *enc[3];

static const uint32_t elements[] = {
    TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2, TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1,
    TSR_MX_FP5_E2M2, TSR_MX_FP5_E1M3, TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2, TSR_MX_FP3_E1M1,
    TSR_MX_INT(2),   TSR_MX_INT(3),   TSR_MX_INT(4),   TSR_MX_INT(5),   TSR_MX_INT(6),
    TSR_MX_INT(7),   TSR_MX_INT(8),
};
#define ELEMENTS (sizeof elements / sizeof elements[0])

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        setenv("TSR_ISA", isas[i], 1);
        if (tsr_encode_pick(&enc[i], NULL) != TSR_OK)
            enc[i] = NULL;
        else if (strcmp(enc[i]->name, isas[i]) != 0)
            return -1;
    }
    return enc[0] ? 0 : -1;
}

static uint64_t state_ = 88172645463325252u;
static uint64_t rnd(void)
{
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
}

/* The largest number; its smallest step, exponents of the smallest and the largest normal, mantissa. */
static double element_max(uint32_t el, double *step, int *emin, int *mant, int *emax)
{
    int e = (int)(el >> 8), m = (int)(el & 0xff);
    if (e == 0) {
        *emin = *emax = 0;
        *mant = m - 1;
        *step = ldexp(1, -(m - 1));
        return (ldexp(1, m) - 1) * *step;
    }
    *emin = 2 - (1 << (e - 1));
    *emax = el == TSR_MX_FP8_E5M2 ? 15 : 1 << (e - 1);
    *mant = m;
    *step = ldexp(1, *emin - m);
    if (el == TSR_MX_FP8_E4M3)
        return 448;
    return ldexp(2 - ldexp(1, -m), *emax);
}

static uint32_t code_at(const uint8_t *codes, uint64_t i, uint32_t bits)
{
    uint32_t v = 0;
    for (uint64_t b = 0; b < bits; b++)
        v |= (uint32_t)(codes[(i * bits + b) / 8] >> ((i * bits + b) % 8) & 1) << b;
    return v;
}

/* Numbers where rounding is hard: random, near every half step, tiny, huge, subnormal. */
static float hard(uint64_t kind)
{
    float    f;
    uint32_t u = (uint32_t)rnd();
    switch (kind % 6) {
    case 0: /* any finite bits */
        u = (u >> 23 & 255) == 255 ? u & ~0x40000000u : u;
        memcpy(&f, &u, 4);
        return f;
    case 1: /* few bits: ties */
        f = ldexpf((float)(int32_t)(u % 513) - 256.0f, (int)(rnd() % 12) - 10);
        return f;
    case 2: /* a tie's neighbour */
        f = ldexpf((float)(u % 513), (int)(rnd() % 12) - 10);
        return rnd() % 2 ? nextafterf(f, INFINITY) : nextafterf(f, 0);
    case 3:
        return ldexpf((float)(int32_t)u, -31);
    case 4:
        return rnd() % 2 ? 0.0f : -0.0f;
    default: /* subnormal */
        u &= 0x807fffffu;
        memcpy(&f, &u, 4);
        return f;
    }
}

#endif
