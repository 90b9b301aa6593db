/* k_tile_run.h - LINEAR on matrix units of 8 tokens: integers of 4 bits whose zero point is the middle, blocks of
 * activations at once.
 *
 * The steps of k_tiles.h find the end of each run by comparing. Here a loop takes a whole block of 128 columns, which is
 * one, two or four runs, so that all places but the pointers are constants. Fragments and the order of sums are those of
 * k_tile_step.h. Weights and scales come through a ring, two steps a stage; activations, which the second-level cache has,
 * go to registers two steps ahead.
 */
#ifndef TSR_CUDA_K_TILE_RUN_H
#define TSR_CUDA_K_TILE_RUN_H

#include "k_tile_end.h"

/* Steps of a block of activations, and of a stage.  `per`: steps of a run, 2 or 4. */
#define RUN_STEPS  (K_BLOCK / K_STEP)
#define RUN_PAIR   2u
#define RUN_STAGES 4u /* two blocks */

/* Bytes of a stage: two steps of weights, the scales of their groups. Of four steps the second stage of a block has
 * them. */
#define RUN_WEIGHTS (RUN_PAIR * TILE_WEIGHTS(4))
#define RUN_SCALES  (K_PANEL * 2u)
#define RUN_STAGE   (RUN_WEIGHTS + RUN_SCALES)
#ifndef __cplusplus
_Static_assert(RUN_STAGES *RUN_STAGE <= TILE_ROOM(1), "a warp has room for its ring");
#endif

/* Sums of these runs are 16 times their products, which are below 2^18: as the bits of an F32 that begins here a sum is its
 * products and RUN_NULL_FLOAT. */
#define RUN_NULL       0x49400000
#define RUN_NULL_FLOAT 786432.0f

/* Whether all segments are whole blocks and all runs two or four steps.  w: of TILE_INTS. */
DEV int has_whole_runs(const struct k_weight *w)
{
    return w->bits == 4 && !w->zeros && (int32_t)w->mid == tile_offset(4) &&
           w->segment % K_BLOCK == 0 && w->cols % K_BLOCK == 0 &&
           (w->group % K_BLOCK == 0 || w->group == 2 * K_STEP);
}

/* Where the next stage's copies of a lane come from. */
struct run_source {
    const uint8_t *weights, *scales;
    uint32_t       left; /* 4 steps a run: columns until the next group begins */
    int            mine; /* the lane has a piece of the scales */
};

/* What a lane keeps: as struct tile, [m][2h + e]. */
struct tile_run {
    float    sa[2], acc[2][4];
    int32_t  sum[2][4], null[4];
    uint32_t nibbles, signs;
};

/* Starts the copies of a stage, if it is `there`; half: of its block.  own: 16 lane bytes into the stage. */
DEV void run_copy(const struct k_weight *w, struct run_source *s, const int per, const int half,
                  int there, uint8_t *own)
{
    copy_async_two_if(own, s->weights, there);
    s->weights += RUN_WEIGHTS;
    if (per == 4 && half == 0)
        return;
    copy_async_if(own + RUN_WEIGHTS, s->scales, there && s->mine);
    if (per < 4) {
        s->scales += RUN_SCALES;
        return;
    }
    s->left -= K_BLOCK;
    s->scales += s->left ? 0 : RUN_SCALES;
    s->left = s->left ? s->left : w->group;
}

/* The lane's sums and chains begin, and end. */
DEV void run_begin_sums(struct tile_run *r)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < 8; i++)
        r->acc[i / 4][i % 4] = 0.0f;
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++)
        r->null[i] = RUN_NULL;
    r->nibbles = 0xf0f0f0f0u;
    r->signs = 0x80808080u;
}
DEV void run_end_sums(const struct tile_run *r, struct tile *x)
{
    UNROLL_LOOP
    for (int i = 0; i < 8; i++)
        x->acc[i / 4][0][i % 4] = r->acc[i / 4][i % 4];
    __syncwarp();
}

/* The run's integers enter the chains, as in tile_chain(); scale: of the lane's rows. */
DEV void run_add(struct tile_run *r, const float *scale)
{
    UNROLL_LOOP
    for (int i = 0; i < 4; i++) {
        UNROLL_LOOP
        for (int e = 0; e < 2; e++) {
            float      *acc = &r->acc[i / 2][i % 2 * 2 + e];
            const float v =
                __uint_as_float((uint32_t)r->sum[i / 2][i % 2 * 2 + e]) - RUN_NULL_FLOAT;
            *acc = fmaf(v, scale[i] * r->sa[e], *acc);
        }
    }
}

/* halves: the scales of the lane's rows, as halves_load() has them. */
DEV void run_chain(struct tile_run *r, const uint32_t *halves)
{
    float scale[4];
    halves_widen(halves[0], scale);
    halves_widen(halves[1], scale + 2);
    run_add(r, scale);
}

/* The scales of the segment's activations, F32 [block][8 tokens], for all lanes of the warp. */
DEV void tile_keep(const struct k_linear *a, const struct tile *x, uint32_t segment, float *kept)
{
    const uint32_t most = (a->w.segment + K_BLOCK - 1) / K_BLOCK;
    uint64_t       k0, k1;
    segment_of(&a->w, segment, &k0, &k1);
    const uint32_t blocks = (uint32_t)((k1 - k0 + K_BLOCK - 1) / K_BLOCK);
    for (uint32_t i = x->lane; i < 8 * blocks; i += WARP)
        kept[i] = AT(const float, a->sa)[(uint64_t)token_of(a, x->t0 + i % 8) * a->blocks +
                                         segment * (uint64_t)most + i / 8];
    __syncwarp();
}

/* A step of weights at own - 16 lane; tokens: its activations; first: of its run. */
DEV void pair_step(struct tile_run *r, const uint8_t *own, uint32_t lane, const uint32_t *tokens,
                   const int first)
{
    uint32_t v[4];
    rows_load(v, 4, own, lane);
    UNROLL_LOOP
    for (int m = 0; m < 2; m++) {
        const uint32_t f[4] = { k_and_xor(v[2 * m] << 4, r->nibbles, r->signs),
                                k_and_xor(v[2 * m + 1] << 4, r->nibbles, r->signs),
                                k_and_xor(v[2 * m], r->nibbles, r->signs),
                                k_and_xor(v[2 * m + 1], r->nibbles, r->signs) };
        mma_s8_from(r->sum[m], first ? r->null : r->sum[m], f, tokens);
    }
}

/* The activations of a stage, two steps: columns 8t..8t+7 of each. */
DEV void run_tokens(uint32_t (*b)[2], const uint8_t *q)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < RUN_PAIR; i++) {
        const uint2 v = *(const uint2 *)(const void *)(q + K_STEP * i);
        b[i][0] = v.x;
        b[i][1] = v.y;
    }
}

/* The steps of a stage.  own, halves: in the stage; half: of its block. */
DEV void run_pair(struct tile_run *r, const int per, const int half, const uint8_t *own,
                  const uint8_t *halves, uint32_t lane, uint32_t (*b)[2])
{
    uint32_t scales[2];
    UNROLL_LOOP
    for (int i = 0; i < (int)RUN_PAIR; i++) {
        pair_step(r, own + TILE_WEIGHTS(4) * (uint32_t)i, lane, b[i],
                  i == 0 && (per == 2 || half == 0));
        if (i == 1 && (per == 2 || half == 1)) {
            halves_load(scales, 2, halves, lane);
            run_chain(r, scales);
        }
    }
}

DEV void tile_whole_runs(const struct k_linear *a, struct tile *x, const int per, uint32_t segment,
                         uint8_t *ring)
{
    const struct k_weight *w = &a->w;
    const uint32_t         stage = RUN_STAGE, lane = x->lane;
    uint64_t               k0, k1;
    struct tile_run        r;
    struct run_source      s;
    uint32_t               b[RUN_STEPS][2];
    segment_of(w, segment, &k0, &k1);
    const uint32_t n = (uint32_t)((k1 - k0) / K_BLOCK);
    const uint64_t group = k0 / w->group;
    /* in this block's stages; those of the one before and after it are `turn` further on */
    uint8_t *own = own_address(ring + 16 * lane, lane);
    uint8_t *halves = own_address(ring + RUN_WEIGHTS + HALVES_AT(lane), lane);
    int32_t  turn = 2 * (int32_t)stage;
    s.weights = step_at(w, x->panel, k0 / K_STEP) + 16 * lane;
    s.scales =
        AT(const uint8_t, w->scales) + (x->panel * w->groups + group) * K_PANEL * 2 + 16 * lane;
    s.left = (uint32_t)((group + 1) * w->group - k0);
    s.mine = 16 * lane < RUN_SCALES;
    UNROLL_LOOP
    for (uint32_t i = 0; i < RUN_STAGES - 1; i++) {
        run_copy(w, &s, per, i % 2, i < 2 * n, own + i * stage);
        copy_commit();
    }
    wait_for_previous(); /* it made the activations */
    const uint64_t block = segment * (uint64_t)(w->segment / K_BLOCK);
    const uint8_t *sa = (const uint8_t *)(AT(const float, a->sa) + block);
    uint32_t       sa_at[2];
    UNROLL_LOOP
    for (uint32_t e = 0; e < 2; e++)
        sa_at[e] = token_of(a, x->t0 + 2 * x->t + e) * a->blocks;
    const uint8_t *q = AT(const uint8_t, a->q) + token_of(a, x->t0 + x->g) * a->ldq + k0 + 8 * x->t;
    run_tokens(b, q);
    run_begin_sums(&r);
    for (uint32_t left = n; left; left--) {
        copy_wait((int)RUN_STAGES - 2);
        __syncwarp(); /* the stage is there, and the one before is done with */
        run_copy(w, &s, per, 1, left > 1, own + turn + stage);
        copy_commit();
        UNROLL_LOOP
        for (int e = 0; e < 2; e++)
            r.sa[e] = *(const float *)(const void *)at_step(sa, sa_at[e]++, 4);
        run_tokens(b + 2, q + RUN_PAIR * K_STEP);
        run_pair(&r, per, 0, own, halves, lane, b);
        copy_wait((int)RUN_STAGES - 2);
        __syncwarp();
        run_copy(w, &s, per, 0, left > 2, own);
        copy_commit();
        q += left > 1 ? K_BLOCK : 0;
        run_tokens(b, q); /* of the last block a second time, and not used */
        run_pair(&r, per, 1, own + stage, halves + stage, lane, b + 2);
        own += turn;
        halves += turn;
        turn = -turn;
    }
    run_end_sums(&r, x);
}

#endif
