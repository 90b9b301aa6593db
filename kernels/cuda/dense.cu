/* dense.cu - what products by libraries need: weights and activations in 16 bits, row by row, the sums
 * brought back, and triangles of F32 made whole.
 *
 * Reference: tests/gpu/fast.c, from the rows that EMBED gives; kernels/cpu/linalg_solve.c, by
 * tests/gpu/linalg.c.
 * Bytes moved: k_dense reads a weight once and writes 2 bytes an element; k_narrow reads an activation
 * twice (the second time from a cache) and writes 2 bytes; k_finish reads and writes 4.  k_triangle
 * reads half of a matrix and writes the other half, k_symv reads it once.
 */
#include "k_half_step.h"

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

DEV uint4 four_words(const uint32_t *w)
{
    uint4 v;
    v.x = w[0];
    v.y = w[1];
    v.z = w[2];
    v.w = w[3];
    return v;
}

/* A block for a panel and 128 columns.  A warp has half a step, and its lanes are rows: 16 columns of a
 * lane become 32 bytes, which go through shared memory so that 16 lanes write 256 bytes of a row.
 * Grid: columns, panels. */
#define DENSE_COLS 128u
#define DENSE_ROW  (DENSE_COLS / 2 + 4) /* words: 8 rows of 16 bytes are in other banks */

/* The lane's half step at column k. */
DEV void dense_half(const struct k_dense *a, const int kind, const int bits, const int bf16,
                    uint64_t panel, uint64_t k, uint32_t lane, uint32_t *to)
{
    struct step_words s;
    struct decoder    d;
    half_load(&s, bits, &a->w, step_at(&a->w, panel, k / K_STEP), (uint32_t)(k / K_HALF) % 2, lane);
    half_decoder(&a->w, kind, panel, lane, k, &d);
    if (bits == K_ANY)
        step_spread(&s, (int)a->w.bits);
    UNROLL_LOOP
    for (int j = 0; j < 4; j++) {
        float v[4];
        widen4(&s, kind, bits == K_ANY ? 8 : bits, bf16, j, &d, v);
        UNROLL_LOOP
        for (int i = 0; i < 4; i++) /* past the end there are codes, but no columns */
            v[i] = k + (uint64_t)(4 * j + i) < a->w.cols ? v[i] : 0.0f;
        to[2 * j] = narrow(v[0], (int)a->bf16) | narrow(v[1], (int)a->bf16) << 16;
        to[2 * j + 1] = narrow(v[2], (int)a->bf16) | narrow(v[3], (int)a->bf16) << 16;
    }
}

TSR_KERNEL(k_dense, struct k_dense, 256)
{
    __shared__ uint32_t tile[K_PANEL * DENSE_ROW];
    const uint32_t      lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t      panel = a.first_panel + blockIdx.y, k0 = (uint64_t)blockIdx.x * DENSE_COLS;
    const uint64_t      k = k0 + K_HALF * warp;
    uint32_t            v[8] = { 0 };
    if (k < a.w.cols && half_serves(&a.w)) {
#define HALF(kind, bits, bf16) dense_half(&a, kind, bits, bf16, panel, k, lane, v)
        OF_FORMAT(&a.w, HALF);
#undef HALF
    } else if (k < a.w.cols) {
        UNROLL_LOOP
        for (uint32_t c = 0; c < K_HALF; c++)
            if (k + c < a.w.cols)
                v[c / 2] |= narrow(weight_at(&a.w, panel, lane, k + c), (int)a.bf16)
                            << 16 * (c % 2);
    }
    uint4 *to = (uint4 *)(void *)(tile + lane * DENSE_ROW + 8 * warp);
    to[0] = four_words(v);
    to[1] = four_words(v + 4);
    __syncthreads();
    UNROLL_LOOP
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t r = i * 16 + threadIdx.x / 16, c = threadIdx.x % 16 * 8;
        uint16_t      *y = AT(uint16_t, a.y) + ((uint64_t)blockIdx.y * K_PANEL + r) * a.ldy + k0;
        if (k0 + c < a.ldy) /* which is whole 16 bytes */
            *(uint4 *)(void *)(y + c) =
                *(const uint4 *)(const void *)(tile + r * DENSE_ROW + c / 2);
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
