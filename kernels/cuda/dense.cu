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
#include "k_mma_half.h"

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

/* Two weights.  What becomes BF16 has no more bits; past F16's range is its largest number. */
DEV uint32_t narrow2(float low, float high, int bf16)
{
    return bf16 ? pack_half(low, high, 1) : half2_clamp(pack_half(low, high, 0));
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

/* A block for a panel and 512 columns, 128 at a time.  A warp has half a step of these, and its lanes are rows: 16
 * columns of a lane become 32 bytes, which go through shared memory so that 16 lanes write 256 bytes of a row.  All
 * that a lane reads is on its way before the first is used.  Grid: columns, panels. */
#define DENSE_COLS 128u
#define DENSE_EACH (K_DENSE_COLS / DENSE_COLS)
#define DENSE_ROW  (DENSE_COLS / 2 + 4) /* words: 8 rows of 16 bytes are in other banks */
#define DENSE_TILE (K_PANEL * DENSE_ROW)

/* 16 columns from k on of the lane's row, which are `v`, to row `lane` of a tile; then the tile to memory. */
DEV void dense_put(const struct k_dense *a, uint32_t *tile, uint64_t k0, const uint32_t *v)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint4         *to = (uint4 *)(void *)(tile + lane * DENSE_ROW + 8 * warp);
    to[0] = four_words(v);
    to[1] = four_words(v + 4);
    __syncthreads(); /* of the other tile nobody reads any more */
    UNROLL_LOOP
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t r = i * 16 + threadIdx.x / 16, c = threadIdx.x % 16 * 8;
        uint16_t      *y = AT(uint16_t, a->y) + ((uint64_t)blockIdx.y * K_PANEL + r) * a->ldy + k0;
        if (k0 + c < a->ldy) /* which is whole 16 bytes */
            *(uint4 *)(void *)(y + c) =
                *(const uint4 *)(const void *)(tile + r * DENSE_ROW + c / 2);
    }
}

DEV void dense_panel(const struct k_dense *a, const int kind, const int bits, const int bf16,
                     uint32_t *tile)
{
    const uint32_t    lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t    panel = a->first_panel + blockIdx.y;
    const uint64_t    k0 = (uint64_t)blockIdx.x * K_DENSE_COLS;
    struct step_words s[DENSE_EACH];
    struct decoder    d[DENSE_EACH];
    UNROLL_LOOP
    for (uint32_t n = 0; n < DENSE_EACH; n++) {
        const uint64_t k = k0 + n * DENSE_COLS + K_HALF * warp;
        if (k >= a->w.cols)
            continue;
        half_load(&s[n], bits, &a->w, step_at(&a->w, panel, k / K_STEP), warp % 2, lane);
        half_decoder(&a->w, kind, panel, lane, k, &d[n]);
    }
    UNROLL_LOOP
    for (uint32_t n = 0; n < DENSE_EACH; n++) {
        const uint64_t k = k0 + n * DENSE_COLS + K_HALF * warp;
        uint32_t       to[8] = { 0 };
        if (k < a->w.cols) {
            if (bits == K_ANY)
                step_spread(&s[n], (int)a->w.bits);
            UNROLL_LOOP
            for (int j = 0; j < 4; j++) {
                float v[4];
                widen4(&s[n], kind, bits == K_ANY ? 8 : bits, bf16, j, &d[n], v);
                UNROLL_LOOP
                for (int i = 0; i < 4; i++) /* past the end there are codes, but no columns */
                    v[i] = k + (uint64_t)(4 * j + i) < a->w.cols ? v[i] : 0.0f;
                to[2 * j] = narrow2(v[0], v[1], (int)a->bf16);
                to[2 * j + 1] = narrow2(v[2], v[3], (int)a->bf16);
            }
        }
        dense_put(a, tile + n % 2 * DENSE_TILE, k0 + n * DENSE_COLS, to);
    }
}

TSR_KERNEL(k_dense, struct k_dense, 256)
{
    __shared__ uint32_t tile[2 * DENSE_TILE];
    if (half_serves(&a.w) && a.w.bits != 32) { /* F32 stays exact, and would take most registers */
#define HALF(kind, bits, bf16)                                                                     \
    do {                                                                                           \
        if ((bits) != 32)                                                                          \
            dense_panel(&a, kind, bits, bf16, tile);                                               \
    } while (0)
        OF_FORMAT(&a.w, HALF);
#undef HALF
        return;
    }
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t k0 = (uint64_t)blockIdx.x * K_DENSE_COLS;
    for (uint32_t n = 0; n < DENSE_EACH; n++) {
        const uint64_t k = k0 + n * DENSE_COLS + K_HALF * warp;
        uint32_t       v[8] = { 0 };
        UNROLL_LOOP
        for (uint32_t c = 0; c < K_HALF; c++)
            if (k + c < a.w.cols)
                v[c / 2] |=
                    narrow(weight_at(&a.w, a.first_panel + blockIdx.y, lane, k + c), (int)a.bf16)
                    << 16 * (c % 2);
        dense_put(&a, tile + n % 2 * DENSE_TILE, k0 + n * DENSE_COLS, v);
    }
}

/* A block for 1024 columns of a token.  Grid: columns, tokens. */
TSR_KERNEL(k_finish, struct k_finish, 256)
{
    const uint64_t token = blockIdx.y;
    const float    scale = AT(const float, a.scale)[token];
    float         *out = AT(float, a.out) + token * a.ldo;
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t c = (uint64_t)blockIdx.x * 1024 + i * 256 + threadIdx.x;
        if (c < a.cols) {
            const float y = out[c] * scale;
            out[c] = a.bias ? y + AT(const float, a.bias)[c] : y;
        }
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
