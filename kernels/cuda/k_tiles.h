/* k_tiles.h - LINEAR with int8 activations on matrix units: a block takes a panel and 8, 16 or 32 tokens, a
 * warp a segment.
 *
 * At the end of a run its integers enter the lane's chains of F32, in the order of docs/decisions/numerics.md;
 * the chains of the segments meet in shared memory.
 */
#ifndef TSR_CUDA_K_TILES_H
#define TSR_CUDA_K_TILES_H

#include "k_tile_step.h"

/* ---- a run ------------------------------------------------------------------------------- */

/* Loads of what ends the run, long before it is used. */
DEV void tile_fetch(const struct k_linear *a, struct tile *x, const int kind, const int nt)
{
    const struct k_weight *w = &a->w;
    if (w->kind != K_LUT)
        x->scale = scale_bits(w, x->panel, x->group, x->lane);
    if (kind == (int)K_INT) {
        x->zero = run_zero(w, x->panel, x->group, x->lane);
        x->minimum = minimum_bits(w, x->panel, x->group, x->lane);
    }
    x->sa = AT(
        const float,
        a->sa)[(uint64_t)token_of(a, x->t0 + x->lane % (8 * (uint32_t)nt)) * a->blocks + x->block];
}

/* The sums of the run's activations, of the tokens of the lane's products. */
DEV void tile_ones(struct tile *x, const int nt, int32_t (*ones)[2])
{
    UNROLL_LOOP
    for (int n = 0; n < nt; n++) {
        uint32_t v = (uint32_t)x->ones[n];
        v += shfl_xor_u(ALL_LANES, v, 1);
        v += shfl_xor_u(ALL_LANES, v, 2);
        ones[n][0] = (int32_t)shfl_u(ALL_LANES, v, 8 * x->t);
        ones[n][1] = (int32_t)shfl_u(ALL_LANES, v, 8 * x->t + 4);
        x->ones[n] = 0;
    }
}

/* The run's integers enter the chains. */
DEV void tile_end(const struct k_linear *a, struct tile *x, const int kind, const int nt)
{
    const struct k_weight *w = &a->w;
    float                  scale = x->unit, minimum = 0.0f;
    int32_t                ones[4][2];
    float                  sa[4][2];
    UNROLL_LOOP
    for (uint32_t i = 0; i < 2 * (uint32_t)nt; i++)
        sa[i / 2][i % 2] = shfl_f(ALL_LANES, x->sa, i / 2 * 8 + 2 * x->t + i % 2);
    if (kind == (int)K_INT) {
        tile_ones(x, nt, ones);
        scale = scale_from(w, x->scale, x->panel, x->group, x->lane);
        minimum = minimum_from(w, x->minimum, x->panel, x->group, x->lane);
    } else if (w->kind == K_MX) {
        scale = scale_from(w, x->scale, x->panel, x->group, x->lane) * x->unit;
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = x->g + 8 * i, m = i / 2, h = i % 2 * 2;
        const float    s = shfl_f(ALL_LANES, scale, row);
        float          least = 0.0f;
        int32_t        zero = 0;
        if (kind == (int)K_INT)
            zero = (int32_t)shfl_u(ALL_LANES, x->zero, row);
        if (kind == (int)K_INT && w->affine)
            least = shfl_f(ALL_LANES, minimum, row);
        UNROLL_LOOP
        for (uint32_t n = 0; n < (uint32_t)nt; n++) {
            UNROLL_LOOP
            for (uint32_t e = 0; e < 2; e++) {
                float   *acc = &x->acc[m][n][h + e];
                int32_t *sum = &x->sum[m][n][h + e];
                if (kind == (int)K_INT)
                    *sum -= zero * ones[n][e];
                *acc = fmaf((float)*sum, s * sa[n][e], *acc);
                if (kind == (int)K_INT && w->affine)
                    *acc = fmaf((float)ones[n][e], least * sa[n][e], *acc);
                *sum = 0;
            }
        }
    }
}

/* Adds the step's products, of columns whose lanes have `mask` set. */
DEV void tile_add(struct tile *x, const int kind, const int nt, const uint8_t *q, uint32_t (*c)[2],
                  uint32_t mask)
{
    const int32_t one = (int32_t)(0x01010101u & mask);
    UNROLL_LOOP
    for (int n = 0; n < nt; n++) {
        uint2          v = *(const uint2 *)(const void *)(q + 256 * n + 32 * x->g + 8 * x->t);
        const uint32_t b[2] = { v.x, v.y };
        UNROLL_LOOP
        for (int m = 0; m < 2; m++) {
            const uint32_t f[4] = { c[2 * m][0] & mask, c[2 * m + 1][0] & mask, c[2 * m][1] & mask,
                                    c[2 * m + 1][1] & mask };
            mma_s8(x->sum[m][n], f, b);
        }
        if (kind == (int)K_INT)
            x->ones[n] = __dp4a(one, (int32_t)b[1], __dp4a(one, (int32_t)b[0], x->ones[n]));
    }
}

/* ---- a segment --------------------------------------------------------------------------- */

/* kind and bits: as in tile_bytes(); ring: of this warp. */
DEV void tile_runs(const struct k_linear *a, struct tile *x, const int kind, const int bits,
                   const int nt, const int stages, uint32_t segment, uint8_t *ring)
{
    const struct k_weight *w = &a->w;
    const uint32_t         stage = TILE_STAGE(bits, nt);
    struct run             r;
    struct tile_source     s;
    run_begin(w, segment, &r);
    const uint32_t cols = (uint32_t)(r.k1 - r.k0), n = (cols + K_STEP - 1) / K_STEP;
    uint32_t       from = 0, to = stage * (uint32_t)(stages - 1);
    source_begin(a, x, r.k0, nt, &s);
    source_clear(&s, bits, nt, stages, x->lane, ring);
    UNROLL_LOOP
    for (uint32_t i = 0; i + 1 < (uint32_t)stages; i++) {
        if (i < n)
            source_copy(a, &s, bits, nt, x->lane, ring + i * stage);
        copy_commit();
    }
    look_begin(w, x, kind, bits);
    x->unit = w->kind == K_INT ? 0.0f : AT(const float, w->unit)[x->panel * K_PANEL + x->lane];
    x->group = (uint32_t)r.group;
    x->block = (uint32_t)r.block;
    tile_fetch(a, x, kind, nt);
    /* columns of the segment: done with, and where the group ends */
    uint32_t  done = 0, group_end = (uint32_t)((r.group + 1) * w->group - r.k0);
    const int halves = w->regular == 2; /* runs may end inside of a step */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c[4][2];
        copy_wait(stages - 2);
        __syncwarp(); /* the step is there, and the one before is done with */
        if (i + (uint32_t)stages - 1 < n)
            source_copy(a, &s, bits, nt, x->lane, ring + to);
        copy_commit();
        const uint8_t *p = ring + from;
        tile_bytes(w, x, p, kind, bits, c);
        from = from + stage == stage * (uint32_t)stages ? 0 : from + stage;
        to = to + stage == stage * (uint32_t)stages ? 0 : to + stage;
        for (int half = 0; half <= halves; half++) {
            if (half && done >= cols) /* the last step has one half */
                break;
            tile_add(x, kind, nt, p + TILE_WEIGHTS(bits), c,
                     halves && x->t / 2 != (uint32_t)half ? 0 : ALL_LANES);
            done += halves ? K_HALF : K_STEP;
            const int block_ends = done % K_BLOCK == 0 || done >= cols;
            const int group_ends = w->kind != K_LUT && done >= group_end;
            if (!block_ends && !group_ends)
                continue;
            tile_end(a, x, kind, nt);
            x->block += (uint32_t)block_ends;
            x->group += (uint32_t)group_ends;
            group_end += group_ends ? w->group : 0;
            if (done < cols)
                tile_fetch(a, x, kind, nt);
        }
    }
    __syncwarp();
}

/* integers: K_INT alone; else tables alone. */
DEV void tile_segment(const struct k_linear *a, struct tile *x, const int integers, const int nt,
                      uint32_t segment, uint8_t *ring)
{
    const struct k_weight *w = &a->w;
#define STAGES(bits) (TILE_BYTES / TILE_STAGE(bits, nt))
#define RUNS(kind, bits)                                                                           \
    tile_runs(a, x, kind, bits, nt, (int)(STAGES(bits) < 8 ? STAGES(bits) : 8), segment, ring)
    if (integers && w->bits == 4)
        RUNS(K_INT, 4);
    else if (integers && w->bits == 8)
        RUNS(K_INT, 8);
    else if (integers)
        RUNS(K_INT, K_ANY);
    else if (w->kind == K_LUT && w->bits == 4)
        RUNS(K_LUT, 4);
    else if (w->bits == 4)
        RUNS(K_MX, 4);
    else if (w->bits == 8)
        RUNS(K_MX, 8);
    else
        RUNS(K_MX, K_ANY);
#undef RUNS
#undef STAGES
}

/* The lane's chains to the warp's sums: [token][TILE_PITCH], then lane = row; outliers are added there. */
DEV void tile_put(const struct k_linear *a, const struct tile *x, const int nt, uint32_t segment,
                  float *part)
{
    UNROLL_LOOP
    for (uint32_t n = 0; n < (uint32_t)nt; n++) {
        UNROLL_LOOP
        for (uint32_t i = 0; i < 8; i++)
            part[(8 * n + 2 * x->t + i % 2) * TILE_PITCH + x->g + 8 * (i / 2)] =
                x->acc[i / 4][n][i % 4];
    }
    if (!a->w.outliers || segment >= a->w.segments)
        return;
    uint64_t k0, k1;
    segment_of(&a->w, segment, &k0, &k1);
    __syncwarp();
    for (uint32_t t = 0; t < 8 * (uint32_t)nt; t += 4) {
        float acc[4];
        for (uint32_t i = 0; i < 4; i++)
            acc[i] = part[(t + i) * TILE_PITCH + x->lane];
        outlier_chain(a, x->panel * K_PANEL + x->lane, k0, k1, x->t0 + t, 4, acc);
        for (uint32_t i = 0; i < 4; i++)
            part[(t + i) * TILE_PITCH + x->lane] = acc[i];
    }
}

DEV void tile_linear(const struct k_linear *a, const int integers, const int nt, uint4 *shared)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t row = (uint64_t)blockIdx.x * K_PANEL + lane;
    float         *parts = (float *)(void *)shared;
    struct tile    x;
    x.panel = blockIdx.x;
    x.lane = lane;
    x.g = lane / 4;
    x.t = lane % 4;
    x.t0 = blockIdx.y * 8 * (uint32_t)nt;
    UNROLL_LOOP
    for (int n = 0; n < nt; n++) {
        x.ones[n] = 0;
        UNROLL_LOOP
        for (int i = 0; i < 4; i++) {
            x.sum[0][n][i] = x.sum[1][n][i] = 0;
            x.acc[0][n][i] = x.acc[1][n][i] = 0.0f;
        }
    }
    if (warp < a->w.segments)
        tile_segment(a, &x, integers, nt, warp, (uint8_t *)shared + warp * TILE_BYTES);
    tile_put(a, &x, nt, warp, parts + warp * (TILE_BYTES / 4));
    __syncthreads();
    for (uint32_t t = warp; t < 8 * (uint32_t)nt; t += 8) {
        float s[K_SEGMENTS];
        if (x.t0 + t >= a->tokens || row >= a->w.rows)
            continue;
        UNROLL_LOOP
        for (uint32_t i = 0; i < K_SEGMENTS; i++)
            s[i] = parts[i * (TILE_BYTES / 4) + t * TILE_PITCH + lane];
        put_out(a, x.t0 + t, row, k_tree8(s));
    }
}

#endif
