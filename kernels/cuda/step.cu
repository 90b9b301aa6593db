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
#include "k_combine.h"
#include "k_norm_step.h"
#include "k_store.h"

/* A block for a row; any whole number of warps. */
TSR_KERNEL(k_norm_step, struct k_norm_step, K_STEP_THREADS)
{
    __shared__ float4 tiles[NORM_TILE / 4];
    __shared__ float  result;
    norm_step(&a, blockIdx.x, (float *)(void *)tiles, &result);
}

/* A warp for a token and block of columns. */
TSR_KERNEL(k_act_step, struct k_act_step, 128)
{
    const uint64_t task = (uint64_t)blockIdx.x * 4 + threadIdx.x / WARP;
    if (task >= (uint64_t)a.q.tokens * a.q.blocks)
        return; /* the whole warp */
    uint32_t token, b;
    uint64_t k0, k1;
    float    v[4];
    block_at(task, a.q.blocks, &token, &b);
    quantize_columns(&a.q, b, &k0, &k1);
    act_four(&a.act, token, k0 + 4 * (threadIdx.x % WARP), k1, v);
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
    uint32_t row, head;
    block_at(task, heads, &row, &head);
    if (rope->out) {
        const uint32_t each = rope->head_dim - rope->rotary_dim / 2;
        for (uint32_t c = threadIdx.x % WARP; c < each; c += WARP)
            rope_at(rope, row, head, c);
        __syncwarp();
    }
    if (part->store.cache)
        store_head(&part->store, row, head);
}

/* Grid: parts of `unit` columns, tokens. */
TSR_KERNEL(k_combine_step, struct k_combine_step, 128)
{
    __shared__ float          tile[K_COMBINE];
    const struct k_attention *t = &a.attention;
    const uint32_t            first = blockIdx.x * a.unit, b0 = blockIdx.x * a.blocks;
    const uint32_t            end = first + a.unit < a.q.cols ? first + a.unit : a.q.cols;
    float *out = AT(float, t->out + (uint64_t)(t->first + blockIdx.y) * t->out_stride);
    for (uint32_t c = first + threadIdx.x; c < end; c += 128) {
        const uint32_t head = c / t->head_dim;
        out[c] = tile[c - first] = combined(t, blockIdx.y, head, c - head * t->head_dim);
    }
    __syncthreads();
    for (uint32_t b = b0 + threadIdx.x / WARP; b < b0 + a.blocks && b < a.q.blocks; b += 4) {
        float v[4];
        quantize_load(&a.q, tile, first, b, v);
        quantize_block(&a.q, blockIdx.y, b, v);
    }
}
