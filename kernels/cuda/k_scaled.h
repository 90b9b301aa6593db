/* k_scaled.h - one number of the wire `int4_bf16`: its code under a static scale, and its value.  Shared by messages
 * (codec.cu) and sums in windows (window.cu), so that both have the bytes of kernels/encode (scaled_encode, scaled_decode).
 */
#ifndef TSR_CUDA_K_SCALED_H
#define TSR_CUDA_K_SCALED_H

#include "k_math.h"

#define MAGIC 12582912.0f /* 1.5 * 2^23: adding it leaves rint() in the low bits */

/* rint(x * inv) within -most..most, biased to 1..2 * most + 1; 0: x is not a number. */
DEV uint32_t scaled_code(float x, float inv, int32_t most)
{
    float y = x * inv, low = (float)-most, high = (float)most;
    y = (y < low ? low : y > high ? high : y) + MAGIC;
    if (!k_finite(x))
        return 0;
    return (uint32_t)((int32_t)__float_as_uint(y) - 0x4b400000 + most + 1);
}

DEV float scaled_value(uint32_t code, int32_t most, float scale)
{
    return (code ? (float)((int32_t)code - most - 1) : k_nan()) * scale;
}

#endif
