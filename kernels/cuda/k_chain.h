/* k_chain.h - LINEAR with F32 activations: the chain of a segment, for a few tokens and for many. */
#ifndef TSR_CUDA_K_CHAIN_H
#define TSR_CUDA_K_CHAIN_H

#include "k_linear.h"

/* Columns [k0,k1) one by one: any format. */
DEV_CALL void chain_slow(const struct k_linear *a, uint64_t panel, uint32_t lane, uint64_t k0,
                         uint64_t k1, uint32_t t0, int tokens, float *acc)
{
    for (uint64_t k = k0; k < k1; k++) {
        float w = weight_at(&a->w, panel, lane, k);
        for (int t = 0; t < tokens; t++)
            acc[t] = fmaf(row_x(a, t0 + (uint32_t)t)[k], w, acc[t]);
    }
}

/* Whole steps of columns [k0,k1), groups on halves of steps, no outliers, activations on 16 bytes. */
DEV void chain_fast(const struct k_linear *a, const int kind, const int bits, const int bf16,
                    uint64_t panel, uint32_t lane, uint64_t k0, uint64_t k1, uint32_t t0,
                    const int tokens, float *acc)
{
    const struct k_weight *w = &a->w;
    const uint8_t         *p = step_at(w, panel, k0 / K_STEP);
    uint64_t               group_end = k0;
    struct decoder         d;
    struct step_words      s, ahead;
    d.scale = 1.0f;
    d.zero = 0.0f;
    d.minimum = 0.0f;
    d.stride = w->kind == K_LUT ? K_PANEL : 1;
    d.table =
        AT(const float, w->table) + (w->kind == K_LUT ? panel * w->entries * K_PANEL + lane : 0);
    if (k0 < k1)
        step_load(&s, bits, w, p, lane);
    for (uint64_t k = k0; k < k1; k += K_STEP) {
        p += 128u * w->bits;
        if (k + K_STEP < k1) /* its bytes are under way while these are used */
            step_load(&ahead, bits, w, p, lane);
        if (bits == K_ANY)
            step_spread(&s, (int)w->bits);
        UNROLL_LOOP
        for (int j = 0; j < 8; j++) {
            /* a group may begin at each half of a step */
            const uint64_t at = k + 4 * (uint64_t)j;
            if (j % 4 == 0 && kind != (int)K_FLOAT && w->kind != K_LUT && at >= group_end) {
                uint64_t group = at / w->group;
                group_end = (group + 1) * w->group;
                d.scale = scale_of(w, panel, group, lane);
                if (kind == (int)K_INT) {
                    d.zero = (float)zero_of(w, panel, group, lane);
                    d.minimum = minimum_of(w, panel, group, lane);
                }
            }
            float v[4];
            widen4(&s, kind, bits == K_ANY ? 8 : bits, bf16, j, &d, v);
            UNROLL_LOOP
            for (int t = 0; t < tokens; t++) {
                float4 x = *(const float4 *)(const void *)(row_x(a, t0 + (uint32_t)t) + k +
                                                           4 * (uint64_t)j);
                acc[t] = fmaf(x.x, v[0], acc[t]);
                acc[t] = fmaf(x.y, v[1], acc[t]);
                acc[t] = fmaf(x.z, v[2], acc[t]);
                acc[t] = fmaf(x.w, v[3], acc[t]);
            }
        }
        s = ahead;
    }
}

/* Sums of a segment for the tokens of a tile, 16 at most. */
DEV void segment_sums(const struct k_linear *a, uint64_t panel, uint32_t lane, uint32_t segment,
                      uint32_t t0, const int tokens, float *acc)
{
    const struct k_weight *w = &a->w;
    uint64_t               k0, k1;
    segment_of(w, segment, &k0, &k1);
    uint64_t whole = w->regular && !w->outliers && a->vector ? k1 / K_STEP * K_STEP : k0;
#define FAST(kind, bits, bf16)                                                                     \
    chain_fast(a, kind, bits, bf16, panel, lane, k0, whole, t0, tokens, acc)
    if (w->kind == K_FLOAT && w->bits == 32)
        FAST(K_FLOAT, 32, 0);
    else if (w->kind == K_FLOAT && w->bf16)
        FAST(K_FLOAT, 16, 1);
    else if (w->kind == K_FLOAT)
        FAST(K_FLOAT, 16, 0);
    else if (w->kind == K_INT && w->bits == 4)
        FAST(K_INT, 4, 0);
    else if (w->kind == K_INT && w->bits == 8)
        FAST(K_INT, 8, 0);
    else if (w->kind == K_INT)
        FAST(K_INT, K_ANY, 0);
    else if (w->bits == 8) /* MX, LUT */
        FAST(K_MX, 8, 0);
    else
        FAST(K_MX, K_ANY, 0);
#undef FAST
    if (whole >= k1)
        return;
    float rest[16]; /* what a call is given the address of is not kept in registers */
    UNROLL_LOOP
    for (int t = 0; t < tokens; t++)
        rest[t] = acc[t];
    chain_slow(a, panel, lane, whole, k1, t0, tokens, rest);
    UNROLL_LOOP
    for (int t = 0; t < tokens; t++)
        acc[t] = rest[t];
}

/* A GEMM's chains over segment s, step by step: all threads widen the panel's 32 columns into shared
 * memory.  Any format goes through weight_at(), once for 64 tokens. */
DEV void gemm_chain(const struct k_linear *a, uint32_t s, float (*ws)[K_PANEL + 1],
                    float (*xs)[K_GEMM], float        *acc)
{
    const struct k_weight *w = &a->w;
    const uint32_t         lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t         t0 = blockIdx.y * K_GEMM;
    uint64_t               k0, k1;
    segment_of(w, s, &k0, &k1);
    for (uint64_t k = k0; k < k1; k += K_STEP) {
        uint32_t n = k1 - k < K_STEP ? (uint32_t)(k1 - k) : K_STEP;
        __syncthreads();
        for (uint32_t c = warp; c < n; c += 8)
            ws[c][lane] = weight_at(w, blockIdx.x, lane, k + c);
        for (uint32_t t = warp; t < K_GEMM; t += 8) /* lanes: columns of one token */
            if (lane < n)
                xs[lane][t] = row_x(a, t0 + t)[k + lane];
        __syncthreads();
        for (uint32_t c = 0; c < n; c++) {
            float v = ws[c][lane];
            UNROLL_LOOP
            for (int t = 0; t < GEMM_EACH; t++)
                acc[t] = fmaf(xs[c][warp * GEMM_EACH + (uint32_t)t], v, acc[t]);
        }
    }
}

#endif
