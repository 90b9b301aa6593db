/* elem.cu - operations on rows: ADD, ACT, SCALE, GATHER, MIX, COLUMNS, ROPE, rounding to BF16, NORM.
 *
 * Reference: kernels/cpu/k_elem.c; held to its bytes by tests/gpu/ops.c.
 * Bytes moved: what is read and written once, 4 bytes an element: ADD and gated ACT 12 n, SCALE,
 * ACT, GATHER and COLUMNS 8 n, ROPE 8 n and its angles; NORM 8 n and gain and bias, where a row of more than
 * NORM_TILE columns is read two or three times.
 */
#include "k_math.h"

#define FUNC_SILU      0u
#define FUNC_GELU_TANH 1u
#define FUNC_GELU_ERF  2u
#define FUNC_CLAMPED   4u

/* Elements of all rows, a thread each; more than the grid has go round. */
#define EACH(i, total)                                                                             \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (total);                \
         i += (uint64_t)gridDim.x * blockDim.x)

/* out = a, n words of 16 bytes, four a thread under way together: how fast the memory is. */
TSR_KERNEL(k_copy, struct k_rows, 256)
{
    const uint64_t first = (uint64_t)blockIdx.x * 1024 + threadIdx.x;
    const uint4   *from = AT(const uint4, a.a);
    uint4         *to = AT(uint4, a.out), v[4];
    UNROLL_LOOP
    for (int i = 0; i < 4; i++)
        v[i] = from[first + 256 * (uint64_t)i];
    UNROLL_LOOP
    for (int i = 0; i < 4; i++)
        to[first + 256 * (uint64_t)i] = v[i];
}

TSR_KERNEL(k_add, struct k_rows, 256)
{
    EACH(i, a.rows * a.n)
    {
        uint64_t r = i / a.n, c = i % a.n;
        AT(float, a.out)
        [r * a.out_stride + c] =
            AT(const float, a.a)[r * a.a_stride + c] + AT(const float, a.b)[r * a.b_stride + c];
    }
}

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

TSR_KERNEL(k_act, struct k_rows, 256)
{
    EACH(i, a.rows * a.n)
    {
        uint64_t r = i / a.n, c = i % a.n;
        float    x = AT(const float, a.a)[r * a.a_stride + c];
        float    u = a.b ? AT(const float, a.b)[r * a.b_stride + c] : 1.0f, y;
        if (a.kind == FUNC_CLAMPED)
            y = clamped(x, u, a.scale, a.softcap);
        else if (a.b)
            y = func_of(x, a.kind) * u;
        else
            y = func_of(x, a.kind);
        AT(float, a.out)[r * a.out_stride + c] = y;
    }
}

TSR_KERNEL(k_scale, struct k_rows, 256)
{
    EACH(i, a.rows * a.n)
    {
        uint64_t r = i / a.n, c = i % a.n;
        float    y = AT(const float, a.a)[r * a.a_stride + c] * a.scale;
        if (a.softcap > 0.0f)
            y = a.softcap * k_tanh(y / a.softcap);
        AT(float, a.out)[r * a.out_stride + c] = y;
    }
}

TSR_KERNEL(k_gather, struct k_rows, 256)
{
    EACH(i, a.rows * a.n)
    {
        uint64_t r = i / a.n, c = i % a.n, from = AT(const uint32_t, a.b)[r];
        AT(float, a.out)[r * a.out_stride + c] = AT(const float, a.a)[from * a.a_stride + c];
    }
}

/* kind: terms of a row. */
TSR_KERNEL(k_mix, struct k_rows, 256)
{
    EACH(i, a.rows * a.n)
    {
        uint64_t        r = i / a.n, c = i % a.n;
        const float    *weight = AT(const float, a.b) + r * a.b_stride;
        const uint32_t *row = AT(const uint32_t, a.c) + r * a.c_stride;
        float           y = 0.0f;
        for (uint32_t j = 0; j < a.kind; j++)
            y = fmaf(weight[j], AT(const float, a.a)[row[j] * a.a_stride + c], y);
        AT(float, a.out)[r * a.out_stride + c] = y;
    }
}

TSR_KERNEL(k_columns, struct k_rows, 256)
{
    EACH(i, a.rows * a.n)
    {
        uint64_t r = i / a.n, c = i % a.n, from = AT(const uint32_t, a.b)[c];
        AT(float, a.out)[r * a.out_stride + c] = AT(const float, a.a)[r * a.a_stride + from];
    }
}

TSR_KERNEL(k_round, struct k_rows, 256)
{
    EACH(i, a.rows * a.n)
    {
        uint64_t r = i / a.n, c = i % a.n;
        AT(float, a.out)
        [r * a.out_stride + c] = k_round_bf16(AT(const float, a.a)[r * a.a_stride + c]);
    }
}

/* A thread takes a pair, or one element after the rotary ones; out may be a. */
TSR_KERNEL(k_rope, struct k_rows, 256)
{
    const uint32_t half = a.rotary_dim / 2, each = a.head_dim - half;
    EACH(i, (uint64_t)a.rows * a.heads * each)
    {
        uint64_t     r = i / ((uint64_t)a.heads * each), in = i % ((uint64_t)a.heads * each);
        uint64_t     h = in / each, c = in % each;
        const float *x = AT(const float, a.a) + r * a.a_stride + h * a.head_dim;
        float       *y = AT(float, a.out) + r * a.out_stride + h * a.head_dim;
        if (c >= half) {
            y[half + c] = x[half + c];
            continue;
        }
        uint64_t p = a.kind == K_ROPE_ADJACENT ? 2 * c : c;
        uint64_t q = a.kind == K_ROPE_ADJACENT ? p + 1 : half + p;
        float    u = x[p], v = x[q];
        float    cosine = AT(const float, a.b)[r * a.b_stride + c];
        float    sine = AT(const float, a.c)[r * a.c_stride + c];
        y[p] = fmaf(u, cosine, -(v * sine));
        y[q] = fmaf(v, cosine, u * sine);
    }
}

/* A block for a row.  The sums are chains of sixteen lanes, so that the first half of the first warp
 * adds; all threads bring the row into shared memory for it. */
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

TSR_KERNEL(k_norm, struct k_rows, 256)
{
    __shared__ float tile[NORM_TILE];
    __shared__ float result;
    const int        layer = a.kind == 1u;
    const uint32_t   t = threadIdx.x;
    const float     *x = AT(const float, a.a) + (uint64_t)blockIdx.x * a.a_stride;
    float           *y = AT(float, a.out) + (uint64_t)blockIdx.x * a.out_stride;
    const float      n = (float)a.n;
    float            mean = 0.0f;
    /* pass 0: the mean; pass 1: the variance */
    for (int pass = layer ? 0 : 1; pass < 2; pass++) {
        float acc = 0.0f;
        for (uint64_t c0 = 0; c0 < a.n; c0 += NORM_TILE) {
            uint32_t m = a.n - c0 < NORM_TILE ? (uint32_t)(a.n - c0) : NORM_TILE;
            __syncthreads();
            for (uint32_t i = t; i < m; i += 256)
                tile[i] = x[c0 + i];
            __syncthreads();
            if (t < 32) /* both halves of the warp do the same */
                acc = norm_chain(tile, m, mean, layer, pass == 0, acc);
        }
        if (t < 32) {
            acc = k_tree16(acc);
            if (t == 0)
                result = acc;
        }
        __syncthreads();
        if (pass == 0)
            mean = result / n;
    }
    const float r = 1.0f / sqrtf(result / n + a.eps);
    for (uint64_t i = t; i < a.n; i += 256) {
        float d = x[i];
        if (layer)
            d = d - mean;
        d = (d * r) * (AT(const float, a.b)[i] + a.offset);
        if (a.c)
            d = d + AT(const float, a.c)[i];
        y[i] = d;
    }
}
