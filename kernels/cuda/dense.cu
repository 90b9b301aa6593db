/* dense.cu - what products by libraries need: weights and activations in 16 bits, row by row, the sums
 * brought back, and triangles of F32 made whole.
 *
 * Reference: tests/gpu/fast.c, from the rows that EMBED gives; kernels/cpu/linalg_solve.c, by
 * tests/gpu/linalg.c.
 * Bytes moved: k_dense reads a weight once and writes 2 bytes an element; k_narrow reads an activation
 * twice (the second time from a cache) and writes 2 bytes; k_finish reads and writes 4.  k_triangle
 * reads half of a matrix and writes the other half, k_symv reads it once.
 */
#include "k_decode.h"

/* Nearest even; what is finite stays finite. */
DEV uint32_t narrow(float v, int bf16)
{
    if (bf16) {
        uint32_t u = __float_as_uint(k_round_bf16(v));
        if ((u & 0x7fffffffu) == 0x7f800000u && k_finite(v))
            u -= 0x10000u;
        return u >> 16;
    }
    return k_to_half(k_finite(v) ? k_min(k_max(v, -65504.0f), 65504.0f) : v);
}

/* A block for a token.  F16 rows are scaled by a power of two so that the largest element is in
 * [2^14, 2^15): none overflows, and small ones keep their bits. */
TSR_KERNEL(k_narrow, struct k_narrow, 256)
{
    __shared__ float tops[8];
    const uint64_t   token = blockIdx.x;
    const uint32_t   t = threadIdx.x;
    const float     *x = AT(const float, a.x) + token * a.ldx;
    uint16_t        *y = AT(uint16_t, a.y) + token * a.ldy;
    float            top = 0.0f, up = 1.0f, down = 1.0f;
    if (!a.bf16) {
        for (uint64_t k = t; k < a.cols; k += 256)
            top = k_max(k_finite(x[k]) ? fabsf(x[k]) : 0.0f, top);
        for (uint32_t l = 16; l > 0; l /= 2)
            top = k_max(top, shfl_xor_f(ALL_LANES, top, l));
        if (t % WARP == 0)
            tops[t / WARP] = top;
        __syncthreads();
        for (uint32_t i = 0; i < 8; i++)
            top = k_max(top, tops[i]);
        /* the exponent of top, less 14; both powers stay normal numbers */
        int32_t e = (int32_t)(__float_as_uint(top) >> 23) - 127 - 14;
        e = e < -100 ? -100 : e;
        up = k_pow2((float)e);
        down = k_pow2((float)-e);
    }
    for (uint64_t k = t; k < a.ldy; k += 256) {
        float v = k < a.cols ? x[k] : 0.0f;
        if (a.a16)
            v = k_round_bf16(v);
        y[k] = (uint16_t)narrow(v * down, (int)a.bf16);
    }
    if (t == 0)
        AT(float, a.scale)[token] = up;
}

/* A block for a panel and 128 columns: lanes are rows where codes are read, columns where they are
 * written.  Grid: columns, panels. */
#define DENSE_COLS 128u
TSR_KERNEL(k_dense, struct k_dense, 256)
{
    __shared__ uint16_t tile[K_PANEL][DENSE_COLS + 2];
    const uint32_t      lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t      panel = a.first_panel + blockIdx.y, k0 = (uint64_t)blockIdx.x * DENSE_COLS;
    for (uint32_t c = warp; c < DENSE_COLS; c += 8) {
        float v = k0 + c < a.w.cols ? weight_at(&a.w, panel, lane, k0 + c) : 0.0f;
        tile[lane][c] = (uint16_t)narrow(v, (int)a.bf16);
    }
    __syncthreads();
    for (uint32_t r = warp; r < K_PANEL; r += 8) {
        uint16_t *y = AT(uint16_t, a.y) + ((uint64_t)blockIdx.y * K_PANEL + r) * a.ldy + k0;
        for (uint32_t c = lane; c < DENSE_COLS && k0 + c < a.ldy; c += WARP)
            y[c] = tile[r][c];
    }
}

TSR_KERNEL(k_finish, struct k_finish, 256)
{
    for (uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x; i < a.tokens * a.cols;
         i += (uint64_t)gridDim.x * 256) {
        uint64_t token = i / a.cols, c = i % a.cols;
        float   *out = AT(float, a.out) + token * a.ldo + c;
        float    y = *out * AT(const float, a.scale)[token];
        *out = a.bias ? y + AT(const float, a.bias)[c] : y;
    }
}

/* ---- triangles --------------------------------------------------------------------------- */

/* A block for a square of 32 by 32.  In place nobody writes what another block reads: the lower
 * triangle stays as it is. */
TSR_KERNEL(k_triangle, struct k_triangle, 256)
{
    __shared__ float tile[WARP][WARP + 1]; /* of the lower triangle, as it is read */
    const uint32_t   lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t   row0 = (uint64_t)blockIdx.y * WARP, col0 = (uint64_t)blockIdx.x * WARP;
    const float     *from = AT(const float, a.from);
    float           *to = AT(float, a.to);
    /* above the diagonal: of the square on its other side */
    const uint64_t r0 = row0 < col0 ? col0 : row0, c0 = row0 < col0 ? row0 : col0;
    for (uint32_t i = warp; i < WARP; i += 8)
        tile[i][lane] =
            r0 + i < a.n && c0 + lane <= r0 + i ? from[(r0 + i) * a.ldf + c0 + lane] : 0.0f;
    __syncthreads();
    if (a.diagonal && row0 == col0 && warp == 0 && row0 + lane < a.n)
        AT(float, a.diagonal)[row0 + lane] = tile[lane][lane];
    for (uint32_t i = warp; i < WARP; i += 8) {
        const uint64_t row = row0 + i, col = col0 + lane;
        if (row >= a.n || col >= a.n)
            continue;
        if (col > row)
            to[row * a.ldt + col] = a.mirror ? tile[lane][i] : 0.0f;
        else if (a.to != a.from)
            to[row * a.ldt + col] = tile[i][lane];
    }
}

/* A thread for a column: the chain of kernels/cpu/k_linalg.c. */
TSR_KERNEL(k_symv, struct k_symv, 256)
{
    const uint64_t col = (uint64_t)blockIdx.x * 256 + threadIdx.x;
    if (col >= a.n)
        return;
    const float  *m = AT(const float, a.a) + col;
    const double *v = AT(const double, a.v);
    double        y = 0.0;
    for (uint64_t row = 0; row < a.n; row++)
        y = fma((double)m[row * a.lda], v[row], y);
    AT(double, a.y)[col] = y;
}
