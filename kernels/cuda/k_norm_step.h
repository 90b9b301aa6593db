/* k_norm_step.h - ADD, NORM of the sum and the quantization of the norm by a block for a row, for step.cu and window.cu. */
#ifndef TSR_CUDA_K_NORM_STEP_H
#define TSR_CUDA_K_NORM_STEP_H

#include "k_elem.h"
#include "k_quantize.h"

/* A block of a whole number of warps; tile and result: as of norm_short(). */
DEV void norm_step(const struct k_norm_step *a, uint64_t row, float *tile, float *result)
{
    const int is_short = a->norm.n <= NORM_TILE;
    if (is_short) {
        norm_short(a->add.out ? &a->add : 0, &a->norm, row, tile, result);
    } else {
        for (uint64_t c = threadIdx.x; c < a->add.n && a->add.out; c += blockDim.x)
            add_at(&a->add, row, c);
        __syncthreads();
        norm_long(&a->norm, row, tile, result);
    }
    if (!a->q.q)
        return;
    __syncthreads();
    const float *x = is_short ? tile : AT(const float, a->q.x) + row * a->q.ldx;
    for (uint32_t b = threadIdx.x / WARP; b < a->q.blocks; b += blockDim.x / WARP) {
        float v[4];
        quantize_load(&a->q, x, 0, b, v);
        quantize_block(&a->q, row, b, v);
    }
}

#endif
