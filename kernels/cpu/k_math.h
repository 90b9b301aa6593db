/* k_math.h - exp, tanh and erf over a vector; the definition that docs/decisions/numerics.md
 * points to.  Errors against double precision are held by tests/unit/test_cpu_math.c. */
#ifndef TSR_K_MATH_H
#define TSR_K_MATH_H

#include "simd.h"

/* exp(x) = 2^n * e^r, |r| <= ln2/2, e^r by a polynomial of degree 7.  The power is applied in
 * two halves: the first product is exact, the second rounds once, also into the denormals. */
INLINE v16 v_exp(v16 x)
{
    v16 c = v_min(v_max(x, v_set1(-105.0f)), v_set1(89.0f));
    v16 n = v_rint(v_mul(c, v_set1(0x1.715476p+0f)));
    v16 r = v_fma(n, v_set1(-0x1.62e400p-1f), c); /* ln2 to 13 bits: exact product */
    r = v_fma(n, v_set1(-0x1.7f7d1cp-20f), r);    /* the rest */
    v16 p = v_set1(0x1.a01a02p-13f);
    p = v_fma(p, r, v_set1(0x1.6c16c2p-10f));
    p = v_fma(p, r, v_set1(0x1.111112p-7f));
    p = v_fma(p, r, v_set1(0x1.555556p-5f));
    p = v_fma(p, r, v_set1(0x1.555556p-3f));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(p, r, v_set1(1.0f));
    p = v_fma(p, r, v_set1(1.0f));
    v16 h = v_rint(v_mul(n, v_set1(0.5f)));
    v16 y = v_mul(v_mul(p, v_pow2(h)), v_pow2(v_sub(n, h)));
    return v_sel(v_isnan(x), x, y);
}

/* Below 0.625 the odd polynomial of Cephes, above 1 - 2 / (exp(2|x|) + 1). */
INLINE v16 v_tanh(v16 x)
{
    v16 a = v_abs(x), s = v_mul(x, x);
    v16 p = v_set1(-5.70498872745e-3f);
    p = v_fma(p, s, v_set1(2.06390887954e-2f));
    p = v_fma(p, s, v_set1(-5.37397155531e-2f));
    p = v_fma(p, s, v_set1(1.33314422036e-1f));
    p = v_fma(p, s, v_set1(-3.33332819422e-1f));
    v16 lo = v_fma(v_mul(p, s), x, x);
    v16 one = v_set1(1.0f), two = v_set1(2.0f);
    v16 e = v_exp(v_add(a, a));
    v16 hi = v_copysign(v_sub(one, v_div(two, v_add(e, one))), x);
    v16 y = v_sel(v_lt(a, v_set1(0.625f)), lo, hi);
    return v_sel(v_isnan(x), x, y);
}

/* Below 0.9277 an odd polynomial, above 1 - exp(-polynomial). */
INLINE v16 v_erf(v16 x)
{
    v16 t = v_min(v_abs(x), v_set1(10.0f)), s = v_mul(t, t);
    v16 r = v_fma(v_set1(-1.72853470e-5f), t, v_set1(3.83197126e-4f));
    v16 u = v_fma(v_set1(-3.88396438e-3f), t, v_set1(2.42546219e-2f));
    r = v_fma(r, s, u);
    r = v_fma(r, t, v_set1(-1.06777877e-1f));
    r = v_fma(r, t, v_set1(-6.34846687e-1f));
    r = v_fma(r, t, v_set1(-1.28717512e-1f));
    r = v_fma(r, t, v_neg(t));
    v16 hi = v_copysign(v_sub(v_set1(1.0f), v_exp(r)), x);
    v16 p = v_set1(-5.96761703e-4f);
    p = v_fma(p, s, v_set1(4.99119423e-3f));
    p = v_fma(p, s, v_set1(-2.67681349e-2f));
    p = v_fma(p, s, v_set1(1.12819925e-1f));
    p = v_fma(p, s, v_set1(-3.76125336e-1f));
    p = v_fma(p, s, v_set1(1.28379166e-1f));
    v16 lo = v_fma(p, x, x);
    v16 y = v_sel(v_lt(t, v_set1(0.927734375f)), lo, hi);
    return v_sel(v_isnan(x), x, y);
}

#endif
