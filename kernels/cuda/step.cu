/* step.cu - operations that follow each other in a layer, in one launch: ADD, NORM and the quantization of
 * activations; ACT and the quantization; ROPE of queries and keys and KV_STORE of keys and values.
 *
 * Every output is written, as by the kernels of the single operations (elem.cu, quantize.cu, kv.cu), whose
 * functions these call. Each thread of a later part takes what its own block or warp has written before.
 *
 * Reference: kernels/cpu/k_elem.c and k_linear_a8.c; held to their bytes by tests/gpu/layers.c and to those of the
 * single kernels by tests/gpu/test_fuse.c.
 * Bytes moved: those of the single operations, but rows in between come from a cache; of ACT from registers.
 */
#include "k_elem.h"
#include "k_quantize.h"
#include "k_store.h"

/* A block for a row; any whole number of warps. */
TSR_KERNEL(k_norm_step, struct k_norm_step, K_STEP_THREADS)
{
    __shared__ float tile[NORM_TILE];
    __shared__ float result;
    const uint64_t   row = blockIdx.x;
    if (a.add.out)
        for (uint64_t c = threadIdx.x; c < a.add.n; c += blockDim.x)
            add_at(&a.add, row, c);
    __syncthreads();
    norm_row(&a.norm, row, tile, &result);
    if (!a.q.q)
        return;
    __syncthreads();
    for (uint64_t b = threadIdx.x / WARP; b < a.q.blocks; b += blockDim.x / WARP) {
        float v[4];
        quantize_load(&a.q, row, b, v);
        quantize_block(&a.q, row, b, v);
    }
}

/* A warp for a token and block of columns. */
TSR_KERNEL(k_act_step, struct k_act_step, 128)
{
    const uint64_t task = (uint64_t)blockIdx.x * 4 + threadIdx.x / WARP;
    const uint32_t lane = threadIdx.x % WARP;
    if (task >= (uint64_t)a.q.tokens * a.q.blocks)
        return; /* the whole warp */
    const uint64_t token = task / a.q.blocks, b = task % a.q.blocks;
    uint64_t       k0, k1;
    float          v[4];
    quantize_columns(&a.q, b, &k0, &k1);
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t k = k0 + 4 * lane + i;
        v[i] = k < k1 ? act_at(&a.act, token, k) : 0.0f;
    }
    quantize_block(&a.q, token, b, v);
}

/* A warp for a row and head.  Grid: four heads, parts. */
TSR_KERNEL(k_heads_step, struct k_heads_step, 128)
{
    const struct k_head_part *part = &a.part[blockIdx.y];
    const struct k_rows      *rope = &part->rope;
    const uint32_t            heads = rope->out ? rope->heads : part->store.kv_heads;
    const uint32_t            rows = rope->out ? rope->rows : part->store.tokens;
    const uint64_t            task = (uint64_t)blockIdx.x * 4 + threadIdx.x / WARP;
    if (task >= (uint64_t)rows * heads)
        return; /* the whole warp */
    const uint64_t row = task / heads, head = task % heads;
    if (rope->out) {
        const uint32_t each = rope->head_dim - rope->rotary_dim / 2;
        for (uint32_t c = threadIdx.x % WARP; c < each; c += WARP)
            rope_at(rope, row, head, c);
        __syncwarp();
    }
    if (part->store.cache)
        store_head(&part->store, row, head);
}
