/* quantize.cu - int8 activations for linear.cu.
 *
 * Reference: kernels/cpu/k_linear_a8.c and k_llm8.c, by docs/decisions/numerics.md; held to their bytes
 * by tests/gpu/linears.c.
 * Bytes moved: an activation is read once, with LLM.int8 twice (the second time from a cache), and
 * written as a byte.
 */
#include "k_quantize.h"

/* A warp for a token and block. */
TSR_KERNEL(k_quantize, struct k_quantize, 128)
{
    const uint64_t task = (uint64_t)blockIdx.x * 4 + threadIdx.x / WARP;
    if (task >= (uint64_t)a.tokens * a.blocks)
        return; /* the whole warp */
    uint32_t token, b;
    float    v[4];
    block_at(task, a.blocks, &token, &b);
    quantize_load(&a, AT(const float, a.x) + token * a.ldx, 0, b, v);
    quantize_block(&a, token, b, v);
}

/* LLM.int8: a block for a token; one scale, outliers are left out and counted. */
TSR_KERNEL(k_quantize_llm, struct k_quantize, 256)
{
    __shared__ float    tops[8];
    __shared__ uint32_t bads, counts;
    const uint64_t      token = blockIdx.x;
    const uint32_t      t = threadIdx.x;
    const float        *x = AT(const float, a.x) + token * a.ldx;
    const float         limit = a.threshold > 0.0f ? a.threshold : INFINITY;
    float               top = 0.0f;
    uint32_t            bad = 0, count = 0;
    if (t == 0)
        bads = counts = 0;
    __syncthreads();
    for (uint64_t k = t; k < a.cols; k += 256) {
        float m = fabsf(x[k]);
        bad |= (uint32_t)!k_finite(x[k]);
        count += (uint32_t)(a.threshold > 0.0f && m >= a.threshold);
        top = k_max(m < limit ? m : 0.0f, top);
    }
    for (uint32_t l = 16; l > 0; l /= 2)
        top = k_max(top, shfl_xor_f(ALL_LANES, top, l));
    if (t % WARP == 0)
        tops[t / WARP] = top;
    atomicOr(&bads, bad);
    atomicAdd(&counts, count);
    __syncthreads();
    for (uint32_t i = 0; i < 8; i++)
        top = k_max(top, tops[i]);
    bad = bads;
    float inv = 127.0f * (1.0f / top);
    int   none = bad || !(inv <= FLT_MAX);
    if (t == 0) {
        AT(float, a.sa)[token] = bad ? k_nan() : none ? 0.0f : top / 127.0f;
        AT(uint32_t, a.found)[token] = bad ? 0u : counts;
    }
    for (uint64_t k = t; k < a.ldq; k += 256) {
        float v = k < a.cols ? x[k] : 0.0f;
        float q = none || !(fabsf(v) < limit) ? 0.0f : rintf(v * inv);
        AT(int8_t, a.q)[token * a.ldq + k] = (int8_t)q;
    }
}
