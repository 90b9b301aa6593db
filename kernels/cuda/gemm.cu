/* gemm.cu - LINEAR with F32 activations for more than four tokens.
 *
 * Reference: kernels/cpu/k_linear.c, by docs/decisions/numerics.md: each output and segment of columns is
 * one chain of FMAs, ascending, whoever computes it; held to its bytes by tests/gpu/linears.c.
 *
 * Up to 16 tokens, and where tiles would be too few for the device: a block takes a panel, a warp a
 * segment, as with one token.  Else a tile: 64 rows and 32 or 64 tokens, steps of 32 columns in shared
 * memory, two of them, so that the next is read and widened while this one is used.  A thread has 4 rows
 * and 4 or 8 tokens in registers.
 *
 * Bytes moved: rows * cols * bits / 8 and the scales, once for every 8 or 16 tokens, by a tile once for
 * every 32 or 64; activations once for every 32 rows, by a tile once for every 64.
 */
#include "k_chain.h"
#include "k_half_step.h"

/* ---- 8 and 16 tokens --------------------------------------------------------------------- */

#define GEMV_MANY(name, many)                                                                      \
    TSR_KERNEL(name, struct k_linear, 256)                                                         \
    {                                                                                              \
        __shared__ float part[K_SEGMENTS][many][K_PANEL];                                          \
        const uint32_t   lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;                     \
        const uint32_t   t0 = blockIdx.y * (uint32_t)(many);                                       \
        const uint64_t   row = (uint64_t)blockIdx.x * K_PANEL + lane;                              \
        float            acc[many] = { 0.0f };                                                     \
        if (warp < a.w.segments)                                                                   \
            segment_sums(&a, blockIdx.x, lane, warp, t0, many, acc);                               \
        UNROLL_LOOP                                                                                \
        for (int t = 0; t < (many); t++)                                                           \
            part[warp][t][lane] = acc[t];                                                          \
        __syncthreads();                                                                           \
        for (uint32_t t = warp; t < (many) && t0 + t < a.tokens && row < a.w.rows; t += 8) {       \
            float s[K_SEGMENTS];                                                                   \
            UNROLL_LOOP                                                                            \
            for (int i = 0; i < (int)K_SEGMENTS; i++)                                              \
                s[i] = part[i][t][lane];                                                           \
            put_out(&a, t0 + t, row, k_tree8(s));                                                  \
        }                                                                                          \
    }
GEMV_MANY(k_gemv8, 8)
GEMV_MANY(k_gemv16, 16)

/* ---- tiles ------------------------------------------------------------------------------- */

#define TILE_PAD                                                                                   \
    (K_STEP + 4) /* rows of 16 bytes that four tokens read at once are in other banks */

/* The next step of a thread, on its way to shared memory: half a step of one row, and 16 bytes of some
 * tokens. */
struct tile_next {
    struct step_words w;
    float4            x[4];
};

/* The place of a thread.  Where it stores: a warp has a half step of a panel.  Where it sums: a warp has a
 * panel and half of the tokens, a lane 4 rows and every fourth token. */
struct tile_place {
    uint32_t lane, warp, t0;
    uint64_t panel; /* of the warp */
};

DEV void tile_load(const struct k_linear *a, const int bits, const int tokens,
                   const struct tile_place *p, uint64_t k, struct tile_next *n)
{
    const struct k_weight *w = &a->w;
    if (p->panel * K_PANEL < w->rows)
        half_load(&n->w, bits, w, step_at(w, p->panel, k / K_STEP), p->warp % 2, p->lane);
    /* 8 lanes for the columns of a token */
    UNROLL_LOOP
    for (int i = 0; i < tokens / 16; i++) {
        const uint64_t c = k + 4 * (p->lane % 8);
        const uint32_t t = (uint32_t)i * 16 + p->warp * 4 + p->lane / 8;
        const float   *x = row_x(a, p->t0 + t);
        float4         v = { 0.0f, 0.0f, 0.0f, 0.0f };
        if (c + 4 <= w->cols) {
            v = *(const float4 *)(const void *)(x + c);
        } else { /* the end of a row: zeros on both sides, which add nothing */
            v.x = c < w->cols ? x[c] : 0.0f;
            v.y = c + 1 < w->cols ? x[c + 1] : 0.0f;
            v.z = c + 2 < w->cols ? x[c + 2] : 0.0f;
        }
        n->x[i] = v;
    }
}

DEV void tile_store(const struct k_linear *a, const int kind, const int bits, const int bf16,
                    const int tokens, const struct tile_place *p, uint64_t k, struct tile_next *n,
                    float *ws, float *xs)
{
    const struct k_weight *w = &a->w;
    const uint32_t         c0 = p->warp % 2 * K_HALF, row = p->warp / 2 * K_PANEL + p->lane;
    struct decoder         d;
    if (p->panel * K_PANEL < w->rows && k + c0 < w->cols) {
        half_decoder(w, kind, p->panel, p->lane, k + c0, &d);
        if (bits == K_ANY)
            step_spread(&n->w, (int)w->bits);
        UNROLL_LOOP
        for (int j = 0; j < 4; j++) {
            float v[4];
            widen4(&n->w, kind, bits == K_ANY ? 8 : bits, bf16, j, &d, v);
            UNROLL_LOOP
            for (int i = 0; i < 4; i++) {
                const uint32_t c = c0 + 4u * (uint32_t)j + (uint32_t)i;
                ws[c * 64 + row] = k + c < w->cols ? v[i] : 0.0f;
            }
        }
    } else {
        UNROLL_LOOP
        for (uint32_t c = 0; c < K_HALF; c++)
            ws[(c0 + c) * 64 + row] = 0.0f;
    }
    UNROLL_LOOP
    for (int i = 0; i < tokens / 16; i++) {
        const uint32_t t = (uint32_t)i * 16 + p->warp * 4 + p->lane / 8;
        *(float4 *)(void *)(xs + t * TILE_PAD + 4 * (p->lane % 8)) = n->x[i];
    }
}

#ifdef __CUDACC__
#define UNROLL_TWO _Pragma("unroll 2") /* all of them make eight times the code, for nothing */
#else
#define UNROLL_TWO
#endif

/* acc[4 * t + i] of row i and token t: a step of its chain. */
DEV void tile_sum(const int each, const struct tile_place *p, const float *ws, const float *xs,
                  float *acc)
{
    const float *wp = ws + p->warp / 2 * K_PANEL + 4 * (p->lane % 8);
    const float *xp = xs + (p->warp % 2 * 4 * (uint32_t)each + p->lane / 8) * TILE_PAD;
    UNROLL_TWO
    for (int c = 0; c < (int)K_STEP; c += 4) {
        const float4 w0 = *(const float4 *)(const void *)(wp + c * 64),
                     w1 = *(const float4 *)(const void *)(wp + c * 64 + 64),
                     w2 = *(const float4 *)(const void *)(wp + c * 64 + 128),
                     w3 = *(const float4 *)(const void *)(wp + c * 64 + 192);
        UNROLL_LOOP
        for (int t = 0; t < each; t++) {
            const float4 x = *(const float4 *)(const void *)(xp + t * 4 * (int)TILE_PAD + c);
            float       *s = acc + 4 * t;
#define COLUMN(xv, wv)                                                                             \
    s[0] = fmaf(xv, (wv).x, s[0]);                                                                 \
    s[1] = fmaf(xv, (wv).y, s[1]);                                                                 \
    s[2] = fmaf(xv, (wv).z, s[2]);                                                                 \
    s[3] = fmaf(xv, (wv).w, s[3]);
            COLUMN(x.x, w0)
            COLUMN(x.y, w1)
            COLUMN(x.z, w2)
            COLUMN(x.w, w3)
#undef COLUMN
        }
    }
}

/* ws: [2][32][64], columns and rows of the tile; xs: [2][tokens][TILE_PAD]. */
DEV void tile(const struct k_linear *a, const int kind, const int bits, const int bf16,
              const int each, float *ws, float *xs)
{
    const int              tokens = 8 * each;
    const struct k_weight *w = &a->w;
    struct tile_place      p;
    struct tile_next       next;
    float                  two[32], four[32], eight[32], acc[32];
    p.lane = threadIdx.x % WARP;
    p.warp = threadIdx.x / WARP;
    p.t0 = blockIdx.y * (uint32_t)tokens;
    p.panel = (uint64_t)blockIdx.x * 2 + p.warp / 2;
    tile_load(a, bits, tokens, &p, 0, &next);
    tile_store(a, kind, bits, bf16, tokens, &p, 0, &next, ws, xs);
    __syncthreads();
    uint32_t at = 0;
    for (uint32_t s = 0; s < K_SEGMENTS; s++) {
        uint64_t k0, k1;
        segment_of(w, s, &k0, &k1);
        UNROLL_LOOP
        for (int i = 0; i < 4 * each; i++)
            acc[i] = 0.0f;
        for (uint64_t k = k0; k < k1; k += K_STEP) {
            const uint64_t ahead =
                k + K_STEP; /* segments are whole steps: of this one or the next */
            if (ahead < w->cols)
                tile_load(a, bits, tokens, &p, ahead, &next);
            tile_sum(each, &p, ws + at * (K_STEP * 64), xs + at * (uint32_t)tokens * TILE_PAD, acc);
            at ^= 1u;
            if (ahead < w->cols)
                tile_store(a, kind, bits, bf16, tokens, &p, ahead, &next, ws + at * (K_STEP * 64),
                           xs + at * (uint32_t)tokens * TILE_PAD);
            __syncthreads();
        }
        UNROLL_LOOP
        for (int i = 0; i < 4 * each; i++)
            (void)tree_add(&two[i], &four[i], &eight[i], s, acc[i]);
    }
    UNROLL_LOOP
    for (int t = 0; t < each; t++) {
        const uint32_t token =
            p.t0 + p.warp % 2 * 4 * (uint32_t)each + 4u * (uint32_t)t + p.lane / 8;
        UNROLL_LOOP
        for (int i = 0; i < 4; i++) {
            const uint64_t row = p.panel * K_PANEL + 4 * (p.lane % 8) + (uint64_t)i;
            if (token < a->tokens && row < w->rows)
                put_out(a, token, row, eight[4 * t + i] + 0.0f);
        }
    }
}

TSR_KERNEL(k_gemm32, struct k_linear, 128)
{
    __shared__ float ws[2 * K_STEP * 64], xs[2 * 32 * TILE_PAD];
#define TILE(kind, bits, bf16) tile(&a, kind, bits, bf16, 4, ws, xs)
    OF_FORMAT(&a.w, TILE);
#undef TILE
}

TSR_KERNEL(k_gemm64, struct k_linear, 128)
{
    __shared__ float ws[2 * K_STEP * 64], xs[2 * 64 * TILE_PAD];
#define TILE(kind, bits, bf16) tile(&a, kind, bits, bf16, 8, ws, xs)
    OF_FORMAT(&a.w, TILE);
#undef TILE
}
