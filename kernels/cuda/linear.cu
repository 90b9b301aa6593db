/* linear.cu - LINEAR with F32 and with int8 activations, and EMBED.
 *
 * Reference: kernels/cpu/k_linear.c, k_linear_a8.c, k_table_a8.c, k_llm8.c and embed.c, by
 * docs/decisions/numerics.md and by kernels/formats for what codes mean; held to their bytes by
 * tests/gpu/linears.c.
 * Bytes moved by the GEMV: rows * cols * bits / 8 and the scales, each once for every 1 or 4 tokens;
 * activations come from the first-level cache.  By the GEMM: the same once for every 64 tokens.
 */
#include "k_chain.h"
#include "k_tile_gemm.h"

/* ---- GEMV: 1 or 4 tokens ------------------------------------------------------------ */

/* digits: 0 for F32 activations; K_DIGITS for int8 (k_runs.h). */
DEV void gemv(const struct k_linear *a, const int digits, const int tokens,
              float (*part)[4][K_PANEL])
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t t0 = blockIdx.y * (uint32_t)tokens;
    float          acc[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    if (warp < a->w.segments && digits)
        segment_runs(a, digits, blockIdx.x, lane, warp, t0, tokens, acc);
    else if (warp < a->w.segments)
        segment_sums(a, blockIdx.x, lane, warp, t0, tokens, acc);
    gemv_store(a, tokens, part, acc);
}

#define GEMV_KERNEL(name, digits, tokens)                                                          \
    TSR_KERNEL(name, struct k_linear, 256)                                                         \
    {                                                                                              \
        __shared__ float part[K_SEGMENTS][4][K_PANEL];                                             \
        gemv(&a, digits, tokens, part);                                                            \
    }
GEMV_KERNEL(k_gemv1, 0, 1)
GEMV_KERNEL(k_gemv4, 0, 4)
GEMV_KERNEL(k_gemv1_digits, K_DIGITS, 1)
GEMV_KERNEL(k_gemv4_digits, K_DIGITS, 4)

/* ---- GEMM: 64 tokens ---------------------------------------------------------------- */

TSR_KERNEL(k_gemm, struct k_linear, 256)
{
    __shared__ float ws[K_STEP][K_PANEL + 1];
    __shared__ float xs[K_STEP][K_GEMM];
    struct gemm_tree tree;
    for (uint32_t s = 0; s < K_SEGMENTS; s++) {
        float acc[GEMM_EACH] = { 0.0f };
        gemm_chain(&a, s, ws, xs, acc);
        gemm_add(&tree, s, acc);
    }
    gemm_store(&a, &tree);
}

TSR_KERNEL(k_gemm_digits, struct k_linear, 256)
{
    __shared__ uint32_t ws[K_DIGITS * 8][K_PANEL + 1];
    __shared__ uint32_t qs[8][K_GEMM];
    struct gemm_tree    tree;
    for (uint32_t s = 0; s < K_SEGMENTS; s++) {
        float acc[GEMM_EACH] = { 0.0f };
        gemm_runs(&a, K_DIGITS, s, ws, qs, acc);
        gemm_add(&tree, s, acc);
    }
    gemm_store(&a, &tree);
}

/* ---- int8 on matrix units: 8, 16 or 32 tokens ------------------------------------------ */

#define TILE8_KERNEL(name, set, blocks)                                                            \
    TSR_KERNEL_EARLY(name, struct k_linears, 256, blocks)                                          \
    {                                                                                              \
        __shared__ uint4 ring[K_SEGMENTS * TILE_ROOM(1) / 16];                                     \
        tile_linear(&a, set, 1, ring);                                                             \
    }
#define TILE_KERNEL(name, set, tiles, blocks)                                                      \
    TSR_KERNEL_EARLY(name, struct k_linears, 256, blocks)                                          \
    {                                                                                              \
        SHARED_LARGE(uint4, large, K_TILE_SHARED / 16);                                            \
        tile_linear(&a, set, tiles, large);                                                        \
    }
TILE8_KERNEL(k_tile8_int, TILE_INTS, 4)
TILE8_KERNEL(k_tile8_zero, TILE_ZEROS, 4)
TILE8_KERNEL(k_tile8_cut, TILE_CUTS, 4)
TILE8_KERNEL(k_tile8_fine, TILE_FINES, 4)
TILE8_KERNEL(k_tile8_table, TILE_TABLES, 3)
TILE8_KERNEL(k_tile8_other, TILE_OTHERS, 3)
TILE_KERNEL(k_tile16_int, TILE_INTS, 2, 3)
TILE_KERNEL(k_tile32_int, TILE_INTS, 4, 2)
TILE_KERNEL(k_tile16_table, TILE_TABLES, 2, 2)
TILE_KERNEL(k_tile32_table, TILE_TABLES, 4, 2)
TILE_KERNEL(k_tile16_other, TILE_OTHERS, 2, 2)
TILE_KERNEL(k_tile32_other, TILE_OTHERS, 4, 2)

/* ---- int8 on matrix units: 128 tokens ----------------------------------------------------- */

TSR_KERNEL(k_block_int, struct k_linears, BLOCK_THREADS, 1)
{
    SHARED_LARGE(uint4, large, K_BLOCK_SHARED / 16);
    const uint32_t         of = linear_of(&a), first = (blockIdx.x - a.first[of]) * BLOCK_PANELS;
    const struct k_linear *one = &a.each[of];
    if (one->w.bits == 4)
        block_linear(one, first, K_INT, 4, K_SCALE_F16, large);
    else
        block_linear(one, first, K_INT, 8, K_SCALE_F16, large);
}

/* ---- LLM.int8 ---------------------------------------------------------------------------- */

/* A block takes a panel and 4 tokens, a warp a segment: the integers of the whole row, and in F32 the
 * columns where the token has outliers. */
TSR_KERNEL(k_llm_a8, struct k_linear, 256)
{
    __shared__ int32_t     ints[K_SEGMENTS][4][K_PANEL];
    __shared__ float       floats[K_SEGMENTS][4][K_PANEL];
    const struct k_weight *w = &a.w;
    const uint32_t         lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t         panel = blockIdx.x, row = panel * K_PANEL + lane;
    const uint32_t         t0 = blockIdx.y * 4;
    const float            scale = scale_of(w, panel, 0, lane);
    uint64_t               k0 = (uint64_t)warp * w->segment, k1 = k0 + w->segment;
    int32_t                sum[4] = { 0, 0, 0, 0 };
    k1 = k1 > w->cols ? w->cols : k1;
    for (uint64_t k = k0; k < k1; k += K_STEP) {
        struct step_words s;
        step_load(&s, 8, w, step_at(w, panel, k / K_STEP), lane);
        UNROLL_LOOP
        for (int j = 0; j < 8; j++) {
            uint32_t c = signed4(&s, K_INT, 8, j, 0, 0);
            UNROLL_LOOP
            for (int t = 0; t < 4; t++) {
                const uint32_t *q =
                    AT(const uint32_t, a.q) + (token_of(&a, t0 + (uint32_t)t) * a.ldq + k) / 4;
                sum[t] = __dp4a((int32_t)c, (int32_t)q[j], sum[t]);
            }
        }
    }
    UNROLL_LOOP
    for (int t = 0; t < 4; t++) {
        const uint32_t token = token_of(&a, t0 + (uint32_t)t);
        const float   *x = AT(const float, a.x) + (uint64_t)token * a.ldx;
        float          o = 0.0f;
        if (AT(const uint32_t, a.found)[token])
            for (uint64_t k = k0; k < k1; k++)
                if (fabsf(x[k]) >= w->threshold)
                    o = fmaf(x[k], (float)((int32_t)code_at(w, panel, lane, k) - 128) * scale, o);
        ints[warp][t][lane] = sum[t];
        floats[warp][t][lane] = o;
    }
    __syncthreads();
    if (warp >= 4 || t0 + warp >= a.tokens || row >= w->rows)
        return;
    int32_t total = 0;
    float   o[K_SEGMENTS];
    UNROLL_LOOP
    for (int i = 0; i < (int)K_SEGMENTS; i++) {
        total += ints[i][warp][lane];
        o[i] = floats[i][warp][lane];
    }
    float y = (float)total * (scale * AT(const float, a.sa)[t0 + warp]);
    if (AT(const uint32_t, a.found)[t0 + warp])
        y = y + k_tree8(o);
    y = y + 0.0f;
    if (a.bias)
        y = y + AT(const float, a.bias)[row];
    AT(float, a.out)[(t0 + warp) * a.ldo + row] = y;
}

/* ---- rows ---------------------------------------------------------------------------- */

/* Grid: tokens; parts of the columns. */
TSR_KERNEL(k_embed, struct k_embed, 256)
{
    const uint64_t token = blockIdx.x, row = AT(const uint32_t, a.ids)[token];
    float         *out = AT(float, a.out) + token * a.ldo;
    for (uint64_t k = (uint64_t)blockIdx.y * 256 + threadIdx.x; k < a.w.cols;
         k += 256 * (uint64_t)gridDim.y) {
        float v = weight_at(&a.w, row / K_PANEL, (uint32_t)(row % K_PANEL), k);
        out[k] = a.scale != 1.0f ? v * a.scale : v;
    }
}
