/* k_quantize.h - int8 activations of a block of at most 128 columns, by a warp: lane l has columns 4l..4l+3
 * of it. */
#ifndef TSR_CUDA_K_QUANTIZE_H
#define TSR_CUDA_K_QUANTIZE_H

#include "k_math.h"

/* Block b of the token that a task has; blocks of all tokens may be more than 2^32. */
DEV void block_at(uint64_t task, uint32_t blocks, uint32_t *token, uint32_t *b)
{
    if (task >> 32) {
        *token = (uint32_t)(task / blocks);
        *b = (uint32_t)(task % blocks);
        return;
    }
    *token = (uint32_t)task / blocks;
    *b = (uint32_t)task - *token * blocks;
}

/* The columns [k0,k1) of block b. */
DEV void quantize_columns(const struct k_quantize *a, uint64_t b, uint64_t *k0, uint64_t *k1)
{
    const uint32_t block = (uint32_t)b, of = block / a->per_segment;
    const uint64_t s0 = (uint64_t)of * a->segment;
    const uint64_t end = s0 + a->segment < a->cols ? s0 + a->segment : a->cols;
    *k0 = s0 + (block - of * a->per_segment) * K_BLOCK;
    *k1 = *k0 + K_BLOCK < end ? *k0 + K_BLOCK : end;
}

/* v: the lane's four columns of a row, of which x has those from `first` on; 0 past the end of the block. */
DEV void quantize_load(const struct k_quantize *a, const float *x, uint32_t first, uint64_t b,
                       float *v)
{
    const uint32_t lane = threadIdx.x % WARP;
    uint64_t       k0, k1;
    quantize_columns(a, b, &k0, &k1);
    const float *at = x + (k0 + 4 * lane - first);
    if (k0 + 4 * lane + 4 <= k1 && (uintptr_t)at % 16 == 0) { /* one access, not four with gaps */
        const float4 w = *(const float4 *)(const void *)at;
        v[0] = w.x;
        v[1] = w.y;
        v[2] = w.z;
        v[3] = w.w;
        return;
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t k = k0 + 4 * lane + i;
        v[i] = k < k1 ? x[k - first] : 0.0f;
    }
}

DEV void quantize_block(const struct k_quantize *a, uint64_t token, uint64_t b, const float *v)
{
    const uint32_t lane = threadIdx.x % WARP;
    uint64_t       k0, k1;
    float          top = 0.0f;
    int            bad = 0;
    quantize_columns(a, b, &k0, &k1);
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        bad |= !k_finite(v[i]);
        top = k_max(fabsf(v[i]), top);
    }
    for (uint32_t l = 16; l > 0; l /= 2)
        top = k_max(top, shfl_xor_f(ALL_LANES, top, l));
    bad = __any_sync(ALL_LANES, bad);
    float scale = top / 127.0f, inv = 1.0f / scale;
    if (bad)
        scale = k_nan();
    else if (!(inv <= FLT_MAX))
        scale = 0.0f;
    uint32_t word = 0;
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        float   q = bad || scale == 0.0f ? 0.0f : k_min(k_max(rintf(v[i] * inv), -127.0f), 127.0f);
        int32_t code = (int32_t)q;
        word |= ((uint32_t)code & 255u) << 8 * i;
    }
    if (lane == 0)
        AT(float, a->sa)[token * a->blocks + b] = scale;
    const uint64_t at = k0 + 4 * lane;
    if (at < (k1 + K_STEP - 1) / K_STEP * K_STEP)
        AT(uint32_t, a->q)[(token * a->ldq + at) / 4] = word;
}

#endif
