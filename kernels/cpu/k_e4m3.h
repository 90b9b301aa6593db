/* k_e4m3.h - E4M3, the FP8 of 4 exponent bits without infinity. */
#ifndef TSR_CPU_K_E4M3_H
#define TSR_CPU_K_E4M3_H

#include "kernels.h"
#include "simd.h"
#include "simd_bytes.h"

/* E4M3 in the lowest byte of each lane.  Exponent and mantissa, where F32 has them, are the value divided by
 * 2^120, also for denormals; a zero has no sign. */
INLINE v16 v_e4m3(i16v b)
{
    i16v bits = vi_or(vi_and(vi_shl(b, 24), INT32_MIN), vi_shl(vi_and(b, 127), 20));
    v16  v = v_mul(vi_bits_f32(bits), v_set1(0x1p120f));
    v = v_sel(v_lt(v_set1(448.0f), v_abs(v)), v_set1(__builtin_nanf("")), v);
    return v_add(v, v_set1(0.0f));
}

#endif
