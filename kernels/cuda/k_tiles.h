/* k_tiles.h - LINEAR with int8 activations on matrix units: a block takes a panel and 8, 16 or 32 tokens, a
 * warp a segment.
 *
 * At the end of a run its integers enter the lane's chains of F32, in the order of docs/decisions/numerics.md;
 * the chains of the segments meet in shared memory.
 */
#ifndef TSR_CUDA_K_TILES_H
#define TSR_CUDA_K_TILES_H

#include "k_tile_act.h"
#include "k_tile_cut.h"
#include "k_tile_end.h"
#include "k_tile_fine.h"
#include "k_tile_zero.h"

/* ---- a step ------------------------------------------------------------------------------ */

/* Bytes of activations, in a stage, from lane to lane. */
#define TILE_OWN(bits) ((bits) == 8 ? 16u : 8u)

/* The activations of the lane: b[n][h] as the matrix unit takes them.  own: the lane's, TILE_OWN bytes each. */
DEV void tile_tokens(const struct tile *x, const int bits, const int nt, const uint8_t *own,
                     uint32_t (*b)[2])
{
    if (bits != 8) {
        UNROLL_LOOP
        for (int n = 0; n < nt; n++) {
            uint2 v = *(const uint2 *)(const void *)(own + 256 * n);
            b[n][0] = v.x;
            b[n][1] = v.y;
        }
        return;
    }
    uint32_t v[8];
    if (nt == 1)
        rows_load(v, 2, own, x->lane);
    UNROLL_LOOP
    for (int i = 0; i < 2 * nt; i += 4)
        if (nt > 1)
            rows_load(v + i, 4, own + 128 * i, x->lane);
    UNROLL_LOOP
    for (int n = 0; n < nt; n++) {
        b[n][0] = v[n];
        b[n][1] = v[nt + n];
    }
}

/* Adds the products of a step, or of half of one: 0 or 1; -1: of all. */
DEV void tile_add(struct tile *x, const int kind, const int bits, const int nt, uint32_t (*c)[2],
                  uint32_t (*b)[2], const int half)
{
    const uint32_t mine = half < 0 || x->t / 2 == (uint32_t)half ? ALL_LANES : 0;
    const uint32_t low = half < 0 || bits != 8 ? mine : half == 0 ? ALL_LANES : 0;
    const uint32_t high = half < 0 || bits != 8 ? mine : ~low;
    const uint32_t one[4] = { 0x01010101u & low, 0x01010101u & low, 0x01010101u & high,
                              0x01010101u & high };
    UNROLL_LOOP
    for (int n = 0; n < nt; n++) {
        UNROLL_LOOP
        for (int m = 0; m < 2; m++) {
            const uint32_t f[4] = { c[2 * m][0] & low, c[2 * m + 1][0] & low, c[2 * m][1] & high,
                                    c[2 * m + 1][1] & high };
            mma_s8(x->sum[m][n], f, b[n]);
        }
        if (kind == (int)K_INT && !x->even)
            mma_s8(x->ones[n], one, b[n]);
    }
}

/* ---- a segment --------------------------------------------------------------------------- */

DEV void tile_units(const struct k_weight *w, struct tile *x, const uint32_t scales)
{
    const float *unit = AT(const float, w->unit) + x->panel * K_PANEL;
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++)
        x->unit[i] = w->kind == K_INT ? 0.0f : unit[scales == TILE_LATE ? x->lane : x->g + 8 * i];
}

/* What a lane has of a panel and of its tokens before the first step: block of activations, and whether there
 * are more. */
DEV void tile_begin(const struct k_linear *a, struct tile *x, const int kind, const int bits,
                    const uint32_t scales, uint64_t panel, uint64_t block, const int nt, int more)
{
    const struct k_weight *w = &a->w;
    const uint64_t         own = x->panel;
    x->panel = panel;
    x->even = kind == (int)K_INT && bits != K_ANY && !w->zeros && !w->affine &&
              (int32_t)w->mid == tile_offset(bits);
    x->nibbles = 0xf0f0f0f0u;
    x->signs = 0x80808080u;
    look_begin(w, x, kind, bits);
    tile_units(w, x, scales);
    x->panel = own;
    x->sa_at = AT(const float, a->sa) +
               (uint64_t)token_of(a, x->t0 + x->lane % (8 * (uint32_t)nt)) * a->blocks + block;
    x->sa_next = *x->sa_at;
    block_begin(x, nt, more);
}

DEV void tile_clear(struct tile *x, const int nt)
{
    UNROLL_LOOP
    for (int n = 0; n < nt; n++) {
        UNROLL_LOOP
        for (int i = 0; i < 4; i++) {
            x->sum[0][n][i] = x->sum[1][n][i] = x->ones[n][i] = TILE_NULL;
            x->acc[0][n][i] = x->acc[1][n][i] = 0.0f;
            x->block[0][n][i] = x->block[1][n][i] = 0.0f;
        }
    }
}

/* Where the run that begins at column `done` of the segment ends: with its block of activations, its group, or all. */
DEV uint32_t tile_run_end(const uint32_t scales, uint32_t done, uint32_t cols, uint32_t group_end)
{
    const uint32_t block_end = (done / K_BLOCK + 1) * K_BLOCK;
    const uint32_t end = block_end < cols ? block_end : cols;
    return scales != TILE_NONE && group_end < end ? group_end : end;
}

/* kind, bits and scales: as in tile_bytes(); ring: of this warp. */
DEV void tile_runs(const struct k_linear *a, struct tile *x, const int kind, const int bits,
                   const uint32_t scales, const int nt, const int stages, uint32_t segment,
                   uint8_t *ring)
{
    const struct k_weight *w = &a->w;
    /* from_stage: places are from the stage on, not from the lane's part of it; whichever took fewer registers */
    const int          few = TILE_FEW(scales, nt), from_stage = few && !TILE_SCALES(scales);
    const uint32_t     stage = TILE_STAGE(kind, bits, scales, nt);
    const uint32_t     tokens_at = TILE_WEIGHTS(bits), meta_at = tokens_at + 256u * (uint32_t)nt;
    struct run         r;
    struct tile_source s;
    run_begin(w, segment, &r);
    const uint32_t cols = (uint32_t)(r.k1 - r.k0), n = (cols + K_STEP - 1) / K_STEP;
    const uint32_t ahead = (uint32_t)stages - 1, meta_lane = TILE_TOGETHER(scales, nt) ? 16 : 0;
    uint32_t       from = 0, to = stage * ahead; /* to: where `from` was */
    uint8_t *own = ring + 16 * x->lane, *own_tokens = ring + tokens_at + TILE_OWN(bits) * x->lane;
    if (!few) {
        own = own_address(own, x->lane);
        own_tokens = own_address(own_tokens, x->lane);
    }
    uint8_t *const place = from_stage ? ring : own;
    source_begin(a, x, r.k0, bits, nt, &s);
    meta_begin(w, x->panel, r.k0, kind, bits, scales, nt, x->lane - meta_lane, &s);
    s.meta_to -= (int32_t)(16 * meta_lane);
    if (from_stage)
        source_from_stage(&s, x->lane);
    source_clear(&s, nt, stages, stage, x->lane, place);
    UNROLL_LOOP
    for (uint32_t i = 0; i < ahead; i++) {
        if (i < n) {
            source_weights(a, &s, bits, x->lane, K_STEP * i, few, from_stage, place + i * stage);
            source_meta(a, &s, scales, few, place + i * stage);
        }
        copy_commit();
    }
    wait_for_previous(); /* it made the activations */
    source_first(&s, nt, ahead, n, stage, place);
    tile_begin(a, x, kind, bits, scales, x->panel, r.block, nt, K_BLOCK < cols);
    x->group = (uint32_t)r.group;
    uint32_t group_end = (uint32_t)((r.group + 1) * w->group - r.k0); /* column of the segment */
    if (scales == TILE_LATE) {
        late_fetch(w, x, kind);
        late_turn(x);
        x->group += group_end <= K_BLOCK && group_end < cols;
        late_fetch(w, x, kind);
        x->group = (uint32_t)r.group;
    }
    const int halves = scales == TILE_LATE && w->regular == 2; /* runs may end inside of a step */
    /* columns that are done with, and `lead` more; `copied`: when the copies of all have begun */
    const uint32_t lead = few ? 0 : K_STEP * ahead;
    const uint32_t copied = !few ? K_STEP * n : n > ahead ? K_STEP * (n - ahead) : 0;
    uint32_t       col = lead, run_end = lead + tile_run_end(scales, 0, cols, group_end);
    source_each_begin(&s, x->lane, lead);
    if (few)
        s.q[0] += K_STEP * ahead;
    if (nt > 2)
        s.q[1] += K_STEP * ahead;
    while (col < lead + cols) {
        uint32_t c[4][2], b[4][2];
        copy_wait(stages - 2);
        __syncwarp(); /* the step is there, and the one before is done with */
        if (col < copied) {
            uint8_t *next = from_stage ? ring + to : few ? ring + to + 16 * x->lane : own + to;
            source_weights(a, &s, bits, x->lane, col, few, from_stage, next);
            if (TILE_TOGETHER(scales, nt)) {
                source_each(a, &s, next);
            } else {
                source_meta(a, &s, scales, few, next);
                source_tokens(&s, nt, col, few, next);
            }
        }
        copy_commit();
        const uint8_t *p = ring + from, *mine = p + 16 * x->lane, *tokens = p + tokens_at;
        tokens += bits == 8 ? 16 * x->lane : 32 * x->g + 8 * x->t;
        tile_bytes(w, x, p, few ? mine : own + from, kind, bits, c);
        tile_tokens(x, bits, nt, few ? tokens : own_tokens + from, b);
        to = from;
        from = from == stage * ahead ? 0 : from + stage;
        for (int half = 0; half <= halves; half++) {
            if (half && col >= lead + cols) /* the last step has one half */
                break;
            tile_add(x, kind, bits, nt, c, b, halves ? half : -1);
            col += halves ? K_HALF : K_STEP;
            if (!few && col < run_end)
                continue;
            const uint32_t done = col - lead;
            const int      block_ends = done % K_BLOCK == 0 || done >= cols;
            const int      group_ends = scales != TILE_NONE && done >= group_end;
            if (few && !block_ends && !group_ends)
                continue;
            tile_end(w, x, kind, bits, scales, nt, p + meta_at, block_ends);
            group_end += group_ends ? w->group : 0;
            run_end = lead + tile_run_end(scales, done, cols, group_end);
            if (block_ends && done < cols)
                block_begin(x, nt, done + K_BLOCK < cols);
            if (scales != TILE_LATE)
                continue;
            x->group += (uint32_t)group_ends;
            late_turn(x);
            /* the run after the one that begins */
            const uint32_t border = (done / K_BLOCK + 1) * K_BLOCK;
            if (done < cols && group_end <= border && group_end < cols) {
                x->group++;
                late_fetch(w, x, kind);
                x->group--;
            }
        }
    }
    __syncwarp();
}

/* Which integers have their scales in the ring: the others are left to TILE_OTHERS. */
#define TILE_INTS   0
#define TILE_TABLES 1
#define TILE_OTHERS 2
#define TILE_ZEROS  3 /* of 4 bits with zero points, of k_tile_zero.h */
#define TILE_CUTS   4 /* of k_tile_cut.h */
#define TILE_FINES  5 /* of k_tile_fine.h */

DEV void tile_segment(const struct k_linear *a, struct tile *x, const int set, const int nt,
                      uint32_t segment, uint8_t *ring)
{
    const struct k_weight *w = &a->w;
#define STAGES(kind, bits, scales) (TILE_ROOM(nt) / TILE_STAGE(kind, bits, scales, nt))
#define RUNS(kind, bits, scales)                                                                   \
    tile_runs(a, x, kind, bits, scales, nt,                                                        \
              (int)(STAGES(kind, bits, scales) < 8 ? STAGES(kind, bits, scales) : 8), segment,     \
              ring)
    if (set == TILE_ZEROS && w->group == 2 * K_STEP)
        tile_zero_runs(a, x, 2, segment, ring);
    else if (set == TILE_ZEROS)
        tile_zero_runs(a, x, 4, segment, ring);
    else if (set == TILE_CUTS)
        tile_cut(a, x, segment, ring);
    else if (set == TILE_FINES)
        tile_fine_runs(a, x, segment, ring);
    else if (set == TILE_INTS && nt == 1 && has_whole_runs(w)) {
        if (w->group == 2 * K_STEP)
            tile_whole_runs(a, x, 2, segment, ring);
        else
            tile_whole_runs(a, x, 4, segment, ring);
    } else if (set == TILE_INTS && w->bits == 4)
        RUNS(K_INT, 4, K_SCALE_F16);
    else if (set == TILE_INTS && w->bits == 8)
        RUNS(K_INT, 8, K_SCALE_F16);
    else if (set == TILE_INTS)
        RUNS(K_INT, K_ANY, K_SCALE_F16);
    else if (set == TILE_OTHERS && w->bits == 4)
        RUNS(K_INT, 4, TILE_LATE);
    else if (set == TILE_OTHERS && w->bits == 8)
        RUNS(K_INT, 8, TILE_LATE);
    else if (set == TILE_OTHERS)
        RUNS(K_INT, K_ANY, TILE_LATE);
    else if (w->kind == K_LUT && w->bits == 4)
        RUNS(K_LUT, 4, TILE_NONE);
    else if (w->kind == K_LUT && w->bits == 8)
        RUNS(K_LUT, 8, TILE_NONE);
    else if (w->kind == K_LUT)
        RUNS(K_LUT, K_ANY, TILE_NONE);
    else if (w->bits == 4 && w->scale_kind == K_SCALE_E8 && w->regular == 1)
        RUNS(K_MX, 4, K_SCALE_E8);
    else if (w->bits == 4 && w->scale_kind == K_SCALE_F16 && w->regular == 1)
        RUNS(K_MX, 4, K_SCALE_F16);
    else if (w->bits == 4 && w->scale_kind == K_SCALE_F32 && w->regular == 1)
        RUNS(K_MX, 4, K_SCALE_F32);
    else if (w->bits == 4)
        RUNS(K_MX, 4, TILE_LATE);
    else if (w->bits == 8)
        RUNS(K_MX, 8, TILE_LATE);
    else
        RUNS(K_MX, K_ANY, TILE_LATE);
#undef RUNS
#undef STAGES
}

/* The lane's chains to the warp's sums: [token][TILE_PITCH], then lane = row; outliers are added there. */
DEV void tile_put(const struct k_linear *a, const struct tile *x, const int set, const int nt,
                  uint32_t segment, float *part)
{
    UNROLL_LOOP
    for (uint32_t e = 0; e < 2 && set == (int)TILE_ZEROS; e++) {
        const float4 v = { x->acc[0][0][e], x->acc[0][0][2 + e], x->acc[1][0][e],
                           x->acc[1][0][2 + e] };
        *(float4 *)(void *)(part + (2 * x->t + e) * TILE_PITCH + 4 * x->g) = v;
    }
    UNROLL_LOOP
    for (uint32_t n = 0; n < (uint32_t)nt && set != (int)TILE_ZEROS; n++) {
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

DEV void tile_linear(const struct k_linears *all, const int set, const int nt, uint4 *shared)
{
    const uint32_t         of = linear_of(all);
    const struct k_linear *a = &all->each[of];
    const uint32_t         lane = threadIdx.x % WARP;
    const uint32_t warp = shfl_u(ALL_LANES, threadIdx.x / WARP, 0); /* known to be the warp's */
    const uint64_t panel = blockIdx.x - all->first[of], row = panel * K_PANEL + lane;
    float         *parts = (float *)(void *)shared;
    struct tile    x;
    x.panel = panel;
    x.lane = lane;
    x.g = lane / 4;
    x.t = lane % 4;
    x.t0 = blockIdx.y * 8 * (uint32_t)nt;
    tile_clear(&x, nt);
    start_next();
    if (warp < a->w.segments)
        tile_segment(a, &x, set, nt, warp, (uint8_t *)shared + warp * TILE_ROOM(nt));
    else
        wait_for_previous();
    tile_put(a, &x, set, nt, warp, parts + warp * (TILE_ROOM(nt) / 4));
    __syncthreads();
    for (uint32_t t = warp; t < 8 * (uint32_t)nt; t += 8) {
        float s[K_SEGMENTS];
        if (x.t0 + t >= a->tokens || row >= a->w.rows)
            continue;
        UNROLL_LOOP
        for (uint32_t i = 0; i < K_SEGMENTS; i++)
            s[i] = parts[i * (TILE_ROOM(nt) / 4) + t * TILE_PITCH + lane];
        put_out(a, x.t0 + t, row, k_tree8(s));
    }
    if (all->end.q.q)
        act_at_end(all, panel, 8 * (uint32_t)nt, (uint32_t *)(void *)shared);
}

#endif
