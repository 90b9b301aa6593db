/* engine/delta_math.h - functions of the gated delta rule on the host, by products and sums alone: the same bits
 * whatever the compiler makes of the loops around them (docs/decisions/numerics.md). */
#ifndef TSR_ENGINE_DELTA_MATH_H
#define TSR_ENGINE_DELTA_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e^x for x within -87 .. 88, the nearer end for others; NaN for NaN.  No branch, for loops over many. */
static inline float tsr_delta_exp(float x)
{
    const float whole = 0x1.8p23f; /* added and taken away: rounds to a whole number */
    float       c = -87.0f > x ? -87.0f : x;
    c = 88.0f < c ? 88.0f : c;
    float    sum = c * 0x1.715476p+0f + whole, n = sum - whole, two;
    float    r = (c - n * 0x1.62e400p-1f) - n * 0x1.7f7d1cp-20f;
    uint32_t bits;
    float    y = 0x1.a01a02p-13f;
    y = y * r + 0x1.6c16c2p-10f;
    y = y * r + 0x1.111112p-7f;
    y = y * r + 0x1.555556p-5f;
    y = y * r + 0x1.555556p-3f;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    memcpy(&bits, &sum, sizeof bits); /* ends with n */
    bits = (bits << 23) + (127u << 23);
    memcpy(&two, &bits, sizeof two);
    return y * two;
}

static inline float tsr_delta_sigmoid(float x)
{
    return 1.0f / (1.0f + tsr_delta_exp(-x));
}

static inline float tsr_delta_silu(float x)
{
    return x / (1.0f + tsr_delta_exp(-x));
}

/* e^x in double, within -700 .. 700. */
static inline double tsr_delta_exp_wide(double x)
{
    double c = x > -700.0 ? x : -700.0;
    c = c < 700.0 ? c : 700.0;
    double n = rint(c * 0x1.71547652b82fep+0);
    double r = (c - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double y = 1.0;
    for (int k = 14; k > 0; k--)
        y = 1.0 + y * r / k;
    return x == x ? ldexp(y, (int)n) : x;
}

/* log(1 + e^x) in double. */
static inline double tsr_delta_softplus(double x)
{
    double e = tsr_delta_exp_wide(x < 0 ? x : -x), s = e / (2.0 + e), t = s * s, sum = 0;
    for (int k = 41; k > 0; k -= 2) /* 2 atanh(s), s <= 1/3 */
        sum = sum * t + 1.0 / k;
    return (x > 0 ? x : 0) + 2.0 * s * sum + (x - x);
}

#endif
