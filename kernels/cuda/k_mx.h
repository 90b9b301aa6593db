/* k_mx.h - one block of the wire `mx`: the scale of its largest magnitude, its codes and their values.  Shared by messages
 * (codec.cu) and sums in windows (window.cu), so that both have the bytes of kernels/encode (mx_row, mx_decode).
 */
#ifndef TSR_CUDA_K_MX_H
#define TSR_CUDA_K_MX_H

#include "k_math.h"

#define MX_EVEN  1u /* rounding: TSR_WIRE_* */
#define MX_FLOOR 2u

#define MX_SCALE_FLOOR 0u /* rule: TSR_WIRE_SCALE_* */
#define MX_SCALE_EVEN  1u

/* 2^n, n from -127 (a subnormal) to 127. */
DEV float mx_pow2(int32_t n)
{
    return __uint_as_float(n > -127 ? (uint32_t)(n + 127) << 23 : 0x400000u);
}

/* The stored scale of a block whose largest magnitude has these bits; 2 * lim + 1: NaN. */
DEV uint32_t mx_scale(const struct k_mx *w, uint32_t top)
{
    /* a subnormal's is less, but the clamp is at -127 or above */
    int32_t s = (int32_t)(top >> 23) - 127 - w->emax, lim = w->lim;
    if (w->rule != MX_SCALE_FLOOR && top >= 0x400000u) { /* from 2^-127 on */
        uint32_t fraction = (top > 0x7fffffu ? top : 2 * top) & 0x7fffffu;
        uint32_t mask = (1u << w->mant) - 1;
        s += w->rule == MX_SCALE_EVEN ? fraction + (1u << (22 - w->mant)) > 0x7fffffu
                                      : fraction > (w->max & mask) << (23 - w->mant);
    }
    s = s < -lim ? -lim : s;
    return (uint32_t)(top >= 0x7f800000u || s > lim ? 2 * lim + 1 : s + lim);
}

/* One code, from the bits of the exact x * 2^-S. */
DEV uint32_t mx_code(const struct k_mx *w, float x)
{
    uint32_t u = __float_as_uint(x), m = u & 0x7fffffffu, fraction = (m & 0x7fffffu) | 0x800000u;
    int32_t  e = (int32_t)(m >> 23) - 127 - w->emin; /* a subnormal's is far below 0 */
    int32_t  far = 23 - (int32_t)w->mant - (e < 0 ? e : 0);
    uint32_t shift = (uint32_t)(far > 31 ? 31 : far); /* from 25 on nothing is left */
    uint32_t half = 1u << (shift - 1), add = half;
    if (w->rounding == MX_EVEN)
        add = half - 1 + (fraction >> shift & 1);
    if (w->rounding == MX_FLOOR)
        add = 0;
    uint32_t k = ((fraction + add) >> shift) + ((uint32_t)(e < 0 ? 0 : e) << w->mant);
    k = k > w->max ? w->max : k;
    return k | (k ? u >> 31 << w->sign : 0u);
}

/* What the values of a block are multiplied with, from its stored scale. */
DEV float mx_factor(const struct k_mx *w, uint32_t scale)
{
    return scale > 2 * (uint32_t)w->lim ? k_nan() : mx_pow2((int32_t)scale - w->lim);
}

/* The value of a code before its block's scale; both zeros are +0. */
DEV float mx_value(const struct k_mx *w, uint32_t code)
{
    uint32_t one = 1u << w->mant, m = code & ((1u << w->sign) - 1), field = m >> w->mant;
    uint32_t steps = (m & (one - 1)) | (field ? one : 0u);
    int32_t  e = 127 + w->emin + (field ? (int32_t)field - 1 : 0) - (int32_t)w->mant;
    float    v = (float)steps * __uint_as_float((uint32_t)e << 23);
    if (m >= w->special)
        v = m == w->infinite ? __uint_as_float(0x7f800000u) : k_nan();
    return code >> w->sign ? 0.0f - v : v;
}

#endif
