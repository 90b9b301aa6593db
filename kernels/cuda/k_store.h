/* k_store.h - the types of a KV cache, and a head of a row stored by a warp: for KV_STORE alone (kv.cu) and after
 * ROPE (step.cu). */
#ifndef TSR_CUDA_K_STORE_H
#define TSR_CUDA_K_STORE_H

#include "k_math.h"

#define DT_F32 1u
#define DT_F16 2u
#define DT_I8  6u

DEV uint64_t head_bytes(uint32_t dtype, uint32_t dim)
{
    return dtype == DT_F32 ? 4u * (uint64_t)dim : dtype == DT_F16 ? 2u * (uint64_t)dim : 4u + dim;
}

DEV void store_head(const struct k_kv_store *a, uint64_t token, uint64_t head)
{
    const uint32_t lane = threadIdx.x % WARP, dim = a->head_dim;
    const float   *x = AT(const float, a->x + token * a->x_stride) + head * dim;
    uint8_t *row = AT(uint8_t, a->cache) + AT(const uint32_t, a->rows)[token] * a->cache_stride +
                   head * head_bytes(a->dtype, dim);
    if (a->dtype == DT_F32) {
        for (uint32_t d = lane; d < dim; d += WARP)
            ((float *)(void *)row)[d] = x[d];
        return;
    }
    if (a->dtype == DT_F16) {
        for (uint32_t d = lane; d < dim; d += WARP)
            ((uint16_t *)(void *)row)[d] = (uint16_t)k_to_half(x[d]);
        return;
    }
    float top = 0.0f;
    int   bad = 0;
    for (uint32_t d = lane; d < dim; d += WARP) {
        bad |= !k_finite(x[d]);
        top = k_max(fabsf(x[d]), top);
    }
    for (uint32_t l = 16; l > 0; l /= 2)
        top = k_max(top, shfl_xor_f(ALL_LANES, top, l));
    bad = __any_sync(ALL_LANES, bad);
    float scale = top / 127.0f, inv = 1.0f / scale;
    if (bad)
        scale = k_nan();
    else if (!(inv <= FLT_MAX))
        scale = 0.0f;
    if (lane < 4)
        row[lane] = (uint8_t)(__float_as_uint(scale) >> 8 * lane);
    for (uint32_t d = lane; d < dim; d += WARP) {
        float q = bad || scale == 0.0f ? 0.0f : k_min(k_max(rintf(x[d] * inv), -127.0f), 127.0f);
        row[4 + d] = (uint8_t)(int8_t)q;
    }
}

#endif
