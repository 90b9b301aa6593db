/* k_tile_fine.h - LINEAR on matrix units of 8 tokens: symmetric integers of 4 bits in groups of 32 columns.
 *
 * Each step of weights is a run.  As in k_tile_run.h, a loop takes blocks of 128 columns, here two of them, the whole ring, so
 * that all places are constants.  The scales of a block's four groups become F32 once for the warp: a lane has those of four
 * rows of one group, and they go back to shared memory.  Segments may end inside of a block: its steps follow after the loop,
 * as the last whole block does, which starts their copies.
 */
#ifndef TSR_CUDA_K_TILE_FINE_H
#define TSR_CUDA_K_TILE_FINE_H

#include "k_tile_run.h"

/* Bytes of a block in the ring, weights and scales, and where they are: of both blocks the weights, then the scales.  Behind
 * them are the scales of one block in F32, [g][group][rows g + 8 i], and those of activations: F32 [block][8 tokens]. */
#define FINE_WEIGHTS   (RUN_STEPS * TILE_WEIGHTS(4))
#define FINE_GROUP     (K_PANEL * 2u)
#define FINE_SCALES    (RUN_STEPS * FINE_GROUP)
#define FINE_SCALES_AT (2u * FINE_WEIGHTS)
#define FINE_WIDE_AT   (FINE_SCALES_AT + 2u * FINE_SCALES)
#define FINE_KEPT_AT   (FINE_WIDE_AT + WARP * 16u)
#ifndef __cplusplus
_Static_assert(FINE_KEPT_AT + K_CUT_BLOCKS * 32 <= TILE_ROOM(1), "a warp has room for its ring");
#endif

/* What a lane keeps besides its sums: its places in the ring, and where its next copies and activations come from. */
struct tile_fine {
    struct tile_run r;
    uint8_t        *own, *groups, *sa; /* of its weights; of scales; of those of its tokens */
    const uint8_t  *rows;              /* of the scales of its rows in F32 */
    const uint8_t  *weights, *scales, *q;
    uint32_t        lane;
    int             mine; /* the lane has a piece of the scales */
};

/* Starts the copies of a block, which is `after` blocks after that of the places; half: of the ring. */
DEV void fine_copy(const struct tile_fine *f, const uint32_t after, const uint32_t half)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < RUN_STEPS; i++)
        copy_async(f->own + half * FINE_WEIGHTS + i * TILE_WEIGHTS(4),
                   f->weights + after * FINE_WEIGHTS + i * TILE_WEIGHTS(4));
    copy_async_if(f->own + FINE_SCALES_AT + half * FINE_SCALES, f->scales + after * FINE_SCALES,
                  f->mine);
}

/* And of its first `steps`, of which there may be none; at: of the half of the ring, own and scales. */
DEV void fine_copy_some(const struct tile_fine *f, uint32_t after, uint32_t steps, uint32_t half)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < RUN_STEPS; i++)
        copy_async_if(f->own + half * FINE_WEIGHTS + i * TILE_WEIGHTS(4),
                      f->weights + after * FINE_WEIGHTS + i * TILE_WEIGHTS(4), i < steps);
    copy_async_if(f->own + FINE_SCALES_AT + half * FINE_SCALES, f->scales + after * FINE_SCALES,
                  16 * f->lane < steps * FINE_GROUP);
}

/* The scales of a block become F32, of the lane those of four rows of group t. */
DEV void fine_widen(const struct tile_fine *f, uint32_t half)
{
    uint32_t v[2];
    float    s[4];
    groups_load(v, f->groups + half * FINE_SCALES, f->lane);
    halves_widen(v[0], s);
    halves_widen(v[1], s + 2);
    four_store(f->own + FINE_WIDE_AT, s);
}

/* Step i of a block: its products, which are a run, enter the chains. */
DEV void fine_step(struct tile_fine *f, const uint32_t i, uint32_t half, const uint32_t *tokens)
{
    pair_step(&f->r, f->own + half * FINE_WEIGHTS + i * TILE_WEIGHTS(4), f->lane, tokens, 1);
    const float4 v = *(const float4 *)(const void *)(f->rows + 16 * i);
    const float  scale[4] = { v.x, v.y, v.z, v.w };
    run_add(&f->r, scale);
}

/* The activations of steps i and i + 1, if they are of the block's `steps`, and the scales of the block's. */
DEV void fine_tokens(struct tile_fine *f, const uint32_t block, const uint32_t first,
                     uint32_t steps, uint32_t (*b)[2])
{
    UNROLL_LOOP
    for (uint32_t i = first; i < first + RUN_PAIR; i++) {
        if (i >= steps)
            continue;
        const uint2 v = *(const uint2 *)(const void *)(f->q + K_BLOCK * block + K_STEP * i);
        b[i][0] = v.x;
        b[i][1] = v.y;
    }
}

DEV void fine_scales(struct tile_fine *f, const uint32_t block)
{
    const uint2 v = *(const uint2 *)(const void *)(f->sa + 32 * block);
    f->r.sa[0] = __uint_as_float(v.x);
    f->r.sa[1] = __uint_as_float(v.y);
}

/* A block of the loop, which is in `half` of the ring. */
DEV void fine_block(struct tile_fine *f, const uint32_t half)
{
    uint32_t b[RUN_STEPS][2];
    fine_tokens(f, half, 0, RUN_STEPS, b);
    fine_scales(f, half);
    copy_wait(0);
    __syncwarp(); /* the block is there, and the one before is done with */
    fine_copy(f, half + 1, 1 - half);
    copy_commit();
    fine_widen(f, half);
    __syncwarp();
    fine_step(f, 0, half, b[0]);
    fine_tokens(f, half, 2, RUN_STEPS, b);
    UNROLL_LOOP
    for (uint32_t i = 1; i < RUN_STEPS; i++)
        fine_step(f, i, half, b[i]);
}

/* The last blocks, which are in either half: `steps` of one, and `next` copied for the one after it. */
DEV void fine_last(struct tile_fine *f, uint32_t half, uint32_t steps, uint32_t next)
{
    uint32_t b[RUN_STEPS][2];
    copy_wait(0);
    __syncwarp();
    fine_copy_some(f, 1, next, 1 - half);
    copy_commit();
    fine_tokens(f, 0, 0, steps, b);
    fine_tokens(f, 0, 2, steps, b);
    fine_scales(f, 0);
    fine_widen(f, half);
    __syncwarp();
    UNROLL_LOOP
    for (uint32_t i = 0; i < RUN_STEPS; i++)
        if (i < steps)
            fine_step(f, i, half, b[i]);
}

/* Where a lane begins: places in the ring, and copies. */
DEV void fine_begin(const struct k_weight *w, const struct tile *x, uint64_t k0, uint8_t *ring,
                    struct tile_fine *f)
{
    const uint32_t lane = x->lane;
    f->lane = lane;
    f->own = own_address(ring + 16 * lane, lane);
    f->groups = own_address(ring + FINE_SCALES_AT + GROUPS_AT(lane), lane);
    f->rows = own_address(ring + FINE_WIDE_AT + 64 * x->g, lane);
    f->sa = own_address(ring + FINE_KEPT_AT + 8 * x->t, lane);
    f->weights = step_at(w, x->panel, k0 / K_STEP) + 16 * lane;
    f->scales = AT(const uint8_t, w->scales) + (x->panel * w->groups + k0 / K_STEP) * FINE_GROUP +
                16 * lane;
    f->mine = 16 * lane < FINE_SCALES;
}

DEV void tile_fine_runs(const struct k_linear *a, struct tile *x, uint32_t segment, uint8_t *ring)
{
    const struct k_weight *w = &a->w;
    uint64_t               k0, k1;
    struct tile_fine       f;
    segment_of(w, segment, &k0, &k1);
    uint32_t left = (uint32_t)(k1 - k0 + K_STEP - 1) / K_STEP, half = 0; /* steps; of the ring */
    fine_begin(w, x, k0, ring, &f);
    fine_copy_some(&f, 0, left < RUN_STEPS ? left : RUN_STEPS, 0);
    copy_commit();
    wait_for_previous(); /* it made the activations */
    tile_keep(a, x, segment, (float *)(void *)(ring + FINE_KEPT_AT));
    f.q = AT(const uint8_t, a->q) + token_of(a, x->t0 + x->g) * a->ldq + k0 + 8 * x->t;
    run_begin_sums(&f.r);
    while (left >= 2 * RUN_STEPS) {
        fine_block(&f, 0);
        half = 1;
        if (left < 3 * RUN_STEPS)
            break;
        fine_block(&f, 1);
        half = 0;
        left -= 2 * RUN_STEPS;
        f.weights += 2 * FINE_WEIGHTS;
        f.scales += 2 * FINE_SCALES;
        f.q += 2 * K_BLOCK;
        f.sa += 2 * 32;
    }
    f.weights += half * FINE_WEIGHTS;
    f.scales += half * FINE_SCALES;
    f.q += half * K_BLOCK;
    f.sa += half * 32;
    if (left >= RUN_STEPS) {
        fine_last(&f, half, RUN_STEPS, left % RUN_STEPS);
        f.q += K_BLOCK;
        f.sa += 32;
        half = 1 - half;
    }
    if (left % RUN_STEPS)
        fine_last(&f, half, left % RUN_STEPS, 0);
    run_end_sums(&f.r, x);
}

#endif
