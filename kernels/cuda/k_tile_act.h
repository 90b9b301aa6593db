/* k_tile_act.h - ACT and the quantization of its rows at the end of the LINEARs that feed it (k_tiles.h).
 *
 * A block of activations has the columns of several blocks of threads, of one LINEAR or of two. Whichever of them ends last
 * has the outputs of all, by a counter in global memory. What it computes does not depend on which one that is.
 */
#ifndef TSR_CUDA_K_TILE_ACT_H
#define TSR_CUDA_K_TILE_ACT_H

#include "k_elem.h"
#include "k_quantize.h"

/* After the stores of all threads; last: a word of shared memory that no thread uses any more.  Blocks of activations
 * begin and end with panels, but for the last of all (fuse.c). A call, so that registers of the loops before stay theirs. */
DEV_CALL void act_at_end(const struct k_linears *a, uint64_t panel, uint32_t tokens, uint32_t *last)
{
    const struct k_quantize *q = &a->end.q;
    const uint32_t           row = (uint32_t)panel * K_PANEL, of = row / q->segment;
    const uint32_t           b = of * q->per_segment + (row - of * q->segment) / K_BLOCK;
    const uint32_t           t0 = blockIdx.y * tokens;
    uint64_t                 k0, k1;
    quantize_columns(q, b, &k0, &k1);
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *done = AT(uint32_t, a->done) + blockIdx.y * q->blocks + b;
        __threadfence();
        const uint32_t before = atomicAdd(done, 1u);
        __threadfence();
        *last = before + 1 == a->n * (((uint32_t)(k1 - k0) + K_PANEL - 1) / K_PANEL);
        if (*last)
            *done = 0; /* for the next launch */
    }
    __syncthreads();
    if (!*last)
        return;
    for (uint32_t t = threadIdx.x / WARP; t < tokens && t0 + t < q->tokens;
         t += blockDim.x / WARP) {
        float v[4];
        act_four(&a->end.act, t0 + t, k0 + 4 * (threadIdx.x % WARP), k1, v);
        quantize_block(q, t0 + t, b, v);
    }
}

#endif
