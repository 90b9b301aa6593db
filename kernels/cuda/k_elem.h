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

DEV float act_of(const struct k_rows *a, float x, float u)
{
    if (a->kind == FUNC_CLAMPED)
        return clamped(x, u, a->scale, a->softcap);
    return a->b ? func_of(x, a->kind) * u : func_of(x, a->kind);
}

/* Element (r, c) of ACT, written and returned. */
DEV float act_at(const struct k_rows *a, uint64_t r, uint64_t c)
{
    const float x = AT(const float, a->a)[r * a->a_stride + c];
    const float u = a->b ? AT(const float, a->b)[r * a->b_stride + c] : 1.0f;
    return AT(float, a->out)[r * a->out_stride + c] = act_of(a, x, u);
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

/* ---- four columns at once ---------------------------------------------------------------------- */

DEV float4 load4(const float *p)
{
    return *(const float4 *)(const void *)p;
}

DEV void store4(float *p, float a, float b, float c, float d)
{
    const float4 v = { a, b, c, d };
    *(float4 *)(void *)p = v;
}

/* Whether all rows of a lie on 16 bytes, and what is not there does too. */
DEV int is_on_16(const struct k_rows *a)
{
    const uint64_t strides = a->out_stride | a->a_stride | a->b_stride | a->c_stride;
    return ((a->out | a->a | a->b | a->c) % 16 | (strides | a->n) % 4) == 0;
}

/* ACT of the lane's columns [k, k + 4) before k1. */
DEV void act_four(const struct k_rows *a, uint64_t token, uint64_t k, uint64_t k1, float *v)
{
    if (k + 4 <= k1 && is_on_16(a)) {
        const float *x = AT(const float, a->a) + token * a->a_stride + k;
        const float *y = a->b ? AT(const float, a->b) + token * a->b_stride + k : x;
        const float4 p = load4(x), q = load4(y);
        v[0] = act_of(a, p.x, q.x);
        v[1] = act_of(a, p.y, q.y);
        v[2] = act_of(a, p.z, q.z);
        v[3] = act_of(a, p.w, q.w);
        store4(AT(float, a->out) + token * a->out_stride + k, v[0], v[1], v[2], v[3]);
        return;
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++)
        v[i] = k + i < k1 ? act_at(a, token, k + i) : 0.0f;
}

/* ---- NORM ----------------------------------------------------------------------------------------- */

/* NORM by a block for a row, of a whole number of warps.  The sums are chains of sixteen lanes, so that the first half of the
 * first warp adds; all threads bring the row into shared memory for it.  Its loads there are a round of
 * NORM_DEEP ahead: a chain then takes the time of its additions alone. */
#define NORM_TILE 8192u
#define NORM_DEEP 16u

/* Of columns c0..c0+n-1 in tile: FMA(x - mean, x - mean, acc), or the sum with `plain`.  mean 0: x - 0 is x. */
DEV float norm_chain(const float *tile, uint32_t n, float mean, const int plain, float acc)
{
    const uint32_t rounds = n / (16 * NORM_DEEP);
    const float   *x = tile + threadIdx.x % 16;
    float          d[NORM_DEEP], ahead[NORM_DEEP];
    UNROLL_LOOP
    for (uint32_t k = 0; k < NORM_DEEP; k++)
        ahead[k] = rounds ? x[16 * k] : 0.0f;
    UNROLL_4
    for (uint32_t i = 0; i < rounds; i++) {
        x += 16 * NORM_DEEP;
        UNROLL_LOOP
        for (uint32_t k = 0; k < NORM_DEEP; k++) {
            d[k] = plain ? ahead[k] : ahead[k] - mean;
            ahead[k] = i + 1 < rounds ? x[16 * k] : 0.0f;
        }
        UNROLL_LOOP
        for (uint32_t k = 0; k < NORM_DEEP; k++)
            acc = plain ? acc + d[k] : fmaf(d[k], d[k], acc);
    }
    for (uint32_t i = 16 * NORM_DEEP * rounds + threadIdx.x % 16; i < n; i += 16) {
        const float e = plain ? tile[i] : tile[i] - mean;
        acc = plain ? acc + e : fmaf(e, e, acc);
    }
    return acc;
}

/* The row becomes the tile's; with `add` it is its sum, which is written. */
DEV void norm_load(const struct k_rows *add, const struct k_rows *a, uint64_t row, int vector,
                   float *tile)
{
    const int    sums = add && add->out;
    const float *x =
        AT(const float, sums ? add->a : a->a) + row * (sums ? add->a_stride : a->a_stride);
    const float *y =
        AT(const float, sums ? add->b : a->a) + row * (sums ? add->b_stride : a->a_stride);
    float *sum =
        AT(float, sums ? add->out : a->out) + row * (sums ? add->out_stride : a->out_stride);
    const uint32_t n = (uint32_t)a->n;
    if (!vector) {
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
            tile[i] = sums ? x[i] + y[i] : x[i];
            if (sums)
                sum[i] = tile[i];
        }
        return;
    }
    for (uint32_t i = 4 * threadIdx.x; i < n; i += 4 * blockDim.x) {
        float4 v = load4(x + i);
        if (sums) {
            const float4 w = load4(y + i);
            v.x = v.x + w.x;
            v.y = v.y + w.y;
            v.z = v.z + w.z;
            v.w = v.w + w.w;
            store4(sum + i, v.x, v.y, v.z, v.w);
        }
        store4(tile + i, v.x, v.y, v.z, v.w);
    }
}

/* Mean and 1 / sqrt(variance + eps), or 1 / sqrt of the mean square. */
struct norm_of {
    float mean, r;
    int   layer;
};

DEV float norm_at(const struct norm_of *m, float x, float gain, float offset, int has_bias,
                  float bias)
{
    float d = m->layer ? x - m->mean : x;
    d = (d * m->r) * (gain + offset);
    return has_bias ? d + bias : d;
}

/* x of a row of more columns than the tile has; 0: the row is in the tile. */
DEV void norm_sums(const struct k_rows *a, const float *x, float *tile, float *result,
                   struct norm_of *m)
{
    const uint32_t t = threadIdx.x;
    const float    n = (float)a->n;
    m->layer = a->kind == 1u;
    m->mean = 0.0f;
    /* pass 0: the mean; pass 1: the variance */
    for (int pass = m->layer ? 0 : 1; pass < 2; pass++) {
        float acc = 0.0f;
        for (uint64_t c0 = 0; c0 < a->n; c0 += NORM_TILE) {
            uint32_t cols = a->n - c0 < NORM_TILE ? (uint32_t)(a->n - c0) : NORM_TILE;
            __syncthreads();
            for (uint32_t i = t; i < cols && x; i += blockDim.x)
                tile[i] = x[c0 + i];
            if (x)
                __syncthreads();
            if (t < 32) /* both halves of the warp do the same */
                acc = pass ? norm_chain(tile, cols, m->mean, 0, acc)
                           : norm_chain(tile, cols, m->mean, 1, acc);
        }
        if (t < 32) {
            acc = k_tree16(acc);
            if (t == 0)
                *result = acc;
        }
        __syncthreads();
        if (pass == 0)
            m->mean = *result / n;
    }
    m->r = 1.0f / sqrtf(*result / n + a->eps);
}

/* A row of at most NORM_TILE columns, which stays in the tile for the thread's next part of the step.
 * tile: NORM_TILE floats of shared memory on 16 bytes; result: one. */
DEV void norm_short(const struct k_rows *add, const struct k_rows *a, uint64_t row, float *tile,
                    float *result)
{
    const int      vector = is_on_16(a) && (!add || is_on_16(add));
    const float   *gain = AT(const float, a->b), *bias = AT(const float, a->c);
    float         *y = AT(float, a->out) + row * a->out_stride;
    const uint32_t n = (uint32_t)a->n, first = 4 * threadIdx.x;
    const float4   zero = { 0.0f, 0.0f, 0.0f, 0.0f };
    float4         g0 = zero;
    struct norm_of m;
    if (vector && first < n) /* under way while the chains are added */
        g0 = load4(gain + first);
    norm_load(add, a, row, vector, tile);
    norm_sums(a, 0, tile, result, &m);
    if (!vector) {
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
            y[i] = tile[i] =
                norm_at(&m, tile[i], gain[i], a->offset, a->c != 0, a->c ? bias[i] : 0.0f);
        return;
    }
    for (uint32_t i = first; i < n; i += 4 * blockDim.x) {
        const float4 x = load4(tile + i), g = i == first ? g0 : load4(gain + i);
        const float4 b = a->c ? load4(bias + i) : zero;
        const float  v[4] = { norm_at(&m, x.x, g.x, a->offset, a->c != 0, b.x),
                              norm_at(&m, x.y, g.y, a->offset, a->c != 0, b.y),
                              norm_at(&m, x.z, g.z, a->offset, a->c != 0, b.z),
                              norm_at(&m, x.w, g.w, a->offset, a->c != 0, b.w) };
        store4(y + i, v[0], v[1], v[2], v[3]);
        store4(tile + i, v[0], v[1], v[2], v[3]);
    }
}

/* A row of any length; add: written before. */
DEV void norm_long(const struct k_rows *a, uint64_t row, float *tile, float *result)
{
    const float   *x = AT(const float, a->a) + row * a->a_stride;
    float         *y = AT(float, a->out) + row * a->out_stride;
    struct norm_of m;
    norm_sums(a, x, tile, result, &m);
    for (uint64_t i = threadIdx.x; i < a->n; i += blockDim.x)
        y[i] = norm_at(&m, x[i], AT(const float, a->b)[i], a->offset, a->c != 0,
                       a->c ? AT(const float, a->c)[i] : 0.0f);
}

#endif
