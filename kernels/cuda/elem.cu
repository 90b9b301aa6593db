/* elem.cu - operations on rows: ADD, ACT, SCALE, GATHER, MIX, COLUMNS, HADAMARD, ROPE, rounding to BF16, NORM.
 *
 * Reference: kernels/cpu/k_elem.c and k_hadamard.c; held to its bytes by tests/gpu/ops.c.
 * Bytes moved: what is read and written once, 4 bytes an element: ADD and gated ACT 12 n, SCALE,
 * ACT, GATHER and COLUMNS 8 n, k_segments 4 n for each segment and 4 n, ROPE 8 n and its angles; NORM 8 n and gain and bias, where a row of more than
 * NORM_TILE columns is read two or three times.
 */
#include "k_elem.h"

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
        add_at(&a, i / a.n, i % a.n);
    }
}

TSR_KERNEL(k_act, struct k_rows, 256)
{
    EACH(i, a.rows * a.n)
    {
        (void)act_at(&a, i / a.n, i % a.n);
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

/* The tree over segments of docs/decisions/numerics.md, for sums of another plugin's kernel.  + 0.0f makes 0 of -0, as
 * an absent segment does. */
TSR_KERNEL(k_segments, struct k_segments, 256)
{
    EACH(i, a.rows * a.n)
    {
        const uint64_t r = i / a.n, c = i % a.n;
        const float   *from = AT(const float, a.sums) + r * a.sums_stride + c;
        float          s[8];
        UNROLL_LOOP
        for (uint32_t k = 0; k < 8; k++)
            s[k] = k < a.segments ? from[k * a.sums_segment] : 0.0f;
        const float y = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])) + 0.0f;
        AT(float, a.out)[r * a.out_stride + c] = a.bias ? y + AT(const float, a.bias)[c] : y;
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

/* A block for a run of head_dim columns; kind: rows of the matrix b, 1: there is none.  Reads and writes 8 n bytes, and
 * the matrix once for each run. */
TSR_KERNEL(k_hadamard, struct k_rows, 256)
{
    __shared__ float tile[K_HADAMARD];
    const uint32_t   n = a.head_dim, base = a.kind, part = n / base;
    const uint64_t   each = a.n / n, r = blockIdx.x / each, first = blockIdx.x % each * n;
    const float     *x = AT(const float, a.a) + r * a.a_stride + first;
    const float     *sign = AT(const float, a.b);
    float           *out = AT(float, a.out) + r * a.out_stride + first;
    for (uint32_t i = threadIdx.x; i < n; i += 256)
        tile[i] = x[i];
    __syncthreads();
    for (uint32_t half = 1; half < part; half *= 2) {
        for (uint32_t i = threadIdx.x; i < n / 2; i += 256) {
            uint32_t at = i / half * (2 * half) + i % half;
            float    lo = tile[at], hi = tile[at + half];
            tile[at] = lo + hi;
            tile[at + half] = lo - hi;
        }
        __syncthreads();
    }
    for (uint32_t i = threadIdx.x; i < n; i += 256) {
        float sum = base > 1 ? 0.0f : tile[i];
        for (uint32_t b = 0; b < base && base > 1; b++)
            sum = fmaf(tile[b * part + i % part], sign[b * a.b_stride + i / part], sum);
        out[i] = sum * a.scale;
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
    const uint32_t each = a.head_dim - a.rotary_dim / 2;
    EACH(i, (uint64_t)a.rows * a.heads * each)
    {
        uint64_t r = i / ((uint64_t)a.heads * each), in = i % ((uint64_t)a.heads * each);
        rope_at(&a, r, in / each, in % each);
    }
}

/* A block for a row. */
TSR_KERNEL(k_norm, struct k_rows, 256)
{
    __shared__ float4 tiles[NORM_TILE / 4];
    __shared__ float  result;
    float *const      tile = (float *)(void *)tiles;
    if (a.n <= NORM_TILE)
        norm_short(0, &a, blockIdx.x, tile, &result);
    else
        norm_long(&a, blockIdx.x, tile, &result);
}
