/* k_linear.h - shared by the kernels of LINEAR for all activation types: tokens and segments of a block, and
 * how the sums of segments become an output.
 *
 * docs/decisions/numerics.md cuts the columns into 8 segments with one chain each. A block takes a panel
 * of 32 rows, one row per lane. In a GEMV a warp takes a segment: a split of K by eight without a sum
 * across lanes, bit-identical to the CPU. In a GEMM a warp takes 8 of 64 tokens, segment by segment.
 */
#ifndef TSR_CUDA_K_LINEAR_H
#define TSR_CUDA_K_LINEAR_H

#include "k_decode.h"

#define GEMM_EACH 8 /* tokens of a warp of a GEMM */

/* Tokens past the end of a tile repeat the last one and are dropped later. */
DEV uint32_t token_of(const struct k_linear *a, uint32_t t)
{
    return t < a->tokens ? t : a->tokens - 1;
}

/* Which one a block is of. */
DEV uint32_t linear_of(const struct k_linears *a)
{
    return (uint32_t)(blockIdx.x >= a->first[1]) + (uint32_t)(blockIdx.x >= a->first[2]);
}

DEV const float *row_x(const struct k_linear *a, uint32_t t)
{
    return AT(const float, a->x) + (uint64_t)token_of(a, t) * a->ldx;
}

/* The columns [k0,k1) of a segment; k1 <= k0 where the weight has fewer segments. */
DEV void segment_of(const struct k_weight *w, uint32_t s, uint64_t *k0, uint64_t *k1)
{
    *k0 = (uint64_t)s * w->segment;
    *k1 = *k0 + w->segment > w->cols ? w->cols : *k0 + w->segment;
}

DEV void put_out(const struct k_linear *a, uint32_t token, uint64_t row, float y)
{
    if (a->bias)
        y = y + AT(const float, a->bias)[row];
    AT(float, a->out)[token * a->ldo + row] = y;
}

/* The sums of all warps' segments: warp t adds those of token t0 + t up. */
DEV void gemv_store(const struct k_linear *a, const int tokens, float (*part)[4][K_PANEL],
                    const float *acc)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t row = (uint64_t)blockIdx.x * K_PANEL + lane;
    const uint32_t t0 = blockIdx.y * (uint32_t)tokens;
    UNROLL_LOOP
    for (int t = 0; t < tokens; t++)
        part[warp][t][lane] = acc[t];
    __syncthreads();
    if (warp >= (uint32_t)tokens || t0 + warp >= a->tokens || row >= a->w.rows)
        return;
    float s[K_SEGMENTS];
    UNROLL_LOOP
    for (int i = 0; i < (int)K_SEGMENTS; i++)
        s[i] = part[i][warp][lane];
    put_out(a, t0 + warp, row, k_tree8(s));
}

/* The partial tree ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)) of a GEMM's tokens: a pair, a four and an eight
 * wait for their other half. */
struct gemm_tree {
    float two[GEMM_EACH], four[GEMM_EACH], eight[GEMM_EACH];
};

DEV float tree_add(float *two, float *four, float *eight, uint32_t s, float v)
{
    if (!(s & 1u))
        return *two = v;
    v = *two + v;
    if (!(s & 2u))
        return *four = v;
    v = *four + v;
    return *eight = s & 4u ? *eight + v : v;
}

DEV void gemm_add(struct gemm_tree *tree, uint32_t s, const float *acc)
{
    UNROLL_LOOP
    for (int t = 0; t < GEMM_EACH; t++)
        (void)tree_add(&tree->two[t], &tree->four[t], &tree->eight[t], s, acc[t]);
}

DEV void gemm_store(const struct k_linear *a, const struct gemm_tree *tree)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t row = (uint64_t)blockIdx.x * K_PANEL + lane;
    const uint32_t t0 = blockIdx.y * K_GEMM + warp * GEMM_EACH;
    if (row >= a->w.rows)
        return;
    UNROLL_LOOP
    for (int t = 0; t < GEMM_EACH; t++)
        if (t0 + (uint32_t)t < a->tokens)
            put_out(a, t0 + (uint32_t)t, row, tree->eight[t] + 0.0f); /* as k_tree8() */
}

#endif
