/* k_elem.h - ADD, ACT, ROPE and NORM, for the kernels of one operation (elem.cu) and of several (step.cu). */
#ifndef TSR_CUDA_K_ELEM_H
#define TSR_CUDA_K_ELEM_H

#include "k_math.h"

#define FUNC_SILU      0u
#define FUNC_GELU_TANH 1u
#define FUNC_GELU_ERF  2u
#define FUNC_CLAMPED   4u

DEV float func_of(float x, uint32_t func)
{
    if (func == FUNC_SILU)
        return x / (1.0f + k_exp(-x));
    if (func == FUNC_GELU_TANH) {
        float u = fmaf((x * x) * x, 0.044715f, x) * 0.797884561f;
        return (0.5f * x) * (1.0f + k_tanh(u));
    }
    if (func == FUNC_GELU_ERF)
        return (0.5f * x) * (1.0f + k_erf(x * 0.707106781f));
    return x < 0.0f ? 0.0f : x; /* NaN stays */
}

/* The constant comes first in min and max, as on the CPU: NaN stays. */
DEV float clamped(float x, float u, float alpha, float limit)
{
    float g = k_min(limit, x);
    float y = g / (1.0f + k_exp(-(alpha * g)));
    return y * (k_max(-limit, k_min(limit, u)) + 1.0f);
}

DEV void add_at(const struct k_rows *a, uint64_t r, uint64_t c)
{
    const float *x = AT(const float, a->a) + r * a->a_stride;
    const float *y = AT(const float, a->b) + r * a->b_stride;
    float       *sum = AT(float, a->out) + r * a->out_stride;
    sum[c] = x[c] + y[c];
}

/* Element (r, c) of ACT, written and returned. */
DEV float act_at(const struct k_rows *a, uint64_t r, uint64_t c)
{
    float x = AT(const float, a->a)[r * a->a_stride + c];
    float u = a->b ? AT(const float, a->b)[r * a->b_stride + c] : 1.0f, y;
    if (a->kind == FUNC_CLAMPED)
        y = clamped(x, u, a->scale, a->softcap);
    else if (a->b)
        y = func_of(x, a->kind) * u;
    else
        y = func_of(x, a->kind);
    AT(float, a->out)[r * a->out_stride + c] = y;
    return y;
}

/* ROPE of row r and head h: pair c of the rotary_dim / 2 pairs, or one element after the rotary ones for c from
 * there up to head_dim - rotary_dim / 2. */
DEV void rope_at(const struct k_rows *a, uint64_t r, uint64_t h, uint64_t c)
{
    const uint32_t half = a->rotary_dim / 2;
    const float   *x = AT(const float, a->a) + r * a->a_stride + h * a->head_dim;
    float         *y = AT(float, a->out) + r * a->out_stride + h * a->head_dim;
    if (c >= half) {
        y[half + c] = x[half + c];
        return;
    }
    uint64_t p = a->kind == K_ROPE_ADJACENT ? 2 * c : c;
    uint64_t q = a->kind == K_ROPE_ADJACENT ? p + 1 : half + p;
    float    u = x[p], v = x[q];
    float    cosine = AT(const float, a->b)[r * a->b_stride + c];
    float    sine = AT(const float, a->c)[r * a->c_stride + c];
    y[p] = fmaf(u, cosine, -(v * sine));
    y[q] = fmaf(v, cosine, u * sine);
}

/* NORM by a block for a row, of a whole number of warps.  The sums are chains of sixteen lanes, so that the first half of the
 * first warp adds; all threads bring the row into shared memory for it. */
#define NORM_TILE 4096u

/* Of columns c0..c0+n-1 in tile: FMA(x - mean, x - mean, acc), or the sum with `plain`. */
DEV float norm_chain(const float *tile, uint32_t n, float mean, int centered, int plain, float acc)
{
    for (uint32_t i = threadIdx.x % 16; i < n; i += 16) {
        float d = tile[i];
        if (plain) {
            acc = acc + d;
            continue;
        }
        if (centered)
            d = d - mean;
        acc = fmaf(d, d, acc);
    }
    return acc;
}

/* tile: NORM_TILE floats of shared memory; result: one. */
DEV void norm_row(const struct k_rows *a, uint64_t row, float *tile, float *result)
{
    const int      layer = a->kind == 1u;
    const uint32_t t = threadIdx.x;
    const float   *x = AT(const float, a->a) + row * a->a_stride;
    float         *y = AT(float, a->out) + row * a->out_stride;
    const float    n = (float)a->n;
    float          mean = 0.0f;
    /* pass 0: the mean; pass 1: the variance */
    for (int pass = layer ? 0 : 1; pass < 2; pass++) {
        float acc = 0.0f;
        for (uint64_t c0 = 0; c0 < a->n; c0 += NORM_TILE) {
            uint32_t m = a->n - c0 < NORM_TILE ? (uint32_t)(a->n - c0) : NORM_TILE;
            __syncthreads();
            for (uint32_t i = t; i < m; i += blockDim.x)
                tile[i] = x[c0 + i];
            __syncthreads();
            if (t < 32) /* both halves of the warp do the same */
                acc = norm_chain(tile, m, mean, layer, pass == 0, acc);
        }
        if (t < 32) {
            acc = k_tree16(acc);
            if (t == 0)
                *result = acc;
        }
        __syncthreads();
        if (pass == 0)
            mean = *result / n;
    }
    const float r = 1.0f / sqrtf(*result / n + a->eps);
    for (uint64_t i = t; i < a->n; i += blockDim.x) {
        float d = x[i];
        if (layer)
            d = d - mean;
        d = (d * r) * (AT(const float, a->b)[i] + a->offset);
        if (a->c)
            d = d + AT(const float, a->c)[i];
        y[i] = d;
    }
}

#endif
