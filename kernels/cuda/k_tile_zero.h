/* k_tile_zero.h - LINEAR on matrix units of 8 tokens: integers of 4 bits with zero points, blocks of activations at once.
 *
 * As k_tile_run.h, for runs of two and of four steps.  A second product has (112 - zero point) of each row for its weights, and
 * the first one code - 112, whose upper half of a byte is 9: their sum is the run's integer.  Zero points are at most 112
 * (K_ZERO_MOST).  Lane 4 g + t has rows 4g to 4g + 3, whose zero points are one word, and their scales two.  The loop takes two
 * blocks, the whole ring, so that all places are constants.
 */
#ifndef TSR_CUDA_K_TILE_ZERO_H
#define TSR_CUDA_K_TILE_ZERO_H

#include "k_tile_run.h"

/* Bytes of a stage: two steps of weights.  The first stage of a block has the scales of its groups too, and after them the
 * zero points.  `per`: steps of a run, 2 or 4. */
#define ZERO_RUNS(per)   (RUN_STEPS / (uint32_t)(per))
#define ZERO_SCALES(per) (ZERO_RUNS(per) * K_PANEL * 2u)
#define ZERO_META(per)   (ZERO_RUNS(per) * K_PANEL * 3u)
#define ZERO_STAGE(per)  (RUN_WEIGHTS + ZERO_META(per))
#ifndef __cplusplus
_Static_assert(RUN_STAGES *ZERO_STAGE(2) <= TILE_ROOM(1), "a warp has room for its ring");
#endif

/* What a lane keeps: sums and chains as struct tile, [m][2h + e], of row 4g + 2m + h. */
struct tile_zero {
    float          acc[2][4], block[2]; /* block: the scales of the block of activations */
    int32_t        sum[2][4];
    uint32_t       nibbles, signs; /* constants, in registers */
    uint32_t       scales[2][2];   /* of the lane's rows, of the runs of the block */
    uint32_t       zeros[2];       /* K_ZERO_MOST less the zero points of those */
    uint32_t       b[RUN_STEPS][2];
    const uint8_t *weights, *meta, *q; /* where the next copies come from */
    const float   *sa[2];
    uint32_t       meta_step, group_left, left; /* columns until the next group begins; blocks */
    int            mine;                        /* the lane has a piece of meta */
};

/* Where the copies of a lane begin.  Lanes 8 i + r copy row 4 r + i of weights, so that fragments are as they lie.  Of meta
 * the first lanes have the scales, and the next ones the zero points. */
DEV void zero_source(const struct k_weight *w, const struct tile *x, const int per, uint64_t k0,
                     struct tile_zero *z)
{
    const uint32_t lanes = ZERO_SCALES(per) / 16;
    const uint64_t group = x->panel * w->groups + k0 / w->group;
    const int      zero = x->lane >= lanes;
    z->weights = step_at(w, x->panel, k0 / K_STEP) + 16 * (x->lane % 8 * 4 + x->lane / 8);
    z->meta = AT(const uint8_t, zero ? w->zeros : w->scales) +
              group * (zero ? K_PANEL : K_PANEL * 2) + 16 * (zero ? x->lane - lanes : x->lane);
    z->meta_step = ZERO_RUNS(per) * (zero ? K_PANEL : K_PANEL * 2);
    z->group_left = (uint32_t)((k0 / w->group + 1) * w->group - k0);
    z->mine = 16 * x->lane < ZERO_META(per);
}

/* Starts the copies of a stage, if it is `there`: `after` stages after those of z->weights; half: of its block.
 * own: 16 lane bytes into the stage. */
DEV void zero_copy(const struct k_weight *w, struct tile_zero *z, const int per, const int half,
                   uint32_t after, int there, uint8_t *own)
{
    copy_async_two_if(own, z->weights + RUN_WEIGHTS * after, there);
    if (half)
        return;
    copy_async_if(own + RUN_WEIGHTS, z->meta, there && z->mine);
    if (per == 4) {
        z->group_left -= K_BLOCK;
        z->meta += z->group_left ? 0 : z->meta_step;
        z->group_left = z->group_left ? z->group_left : w->group;
    } else {
        z->meta += z->meta_step;
    }
}

/* What belongs to the runs of a block.  scales: the lane's, 8 g bytes into meta; zeros: its word of zero points. */
DEV void zero_load(struct tile_zero *z, const int per, const uint8_t *scales, const uint8_t *zeros)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < ZERO_RUNS(per); i++) {
        const uint2 v = *(const uint2 *)(const void *)(scales + K_PANEL * 2 * i);
        z->scales[i][0] = v.x;
        z->scales[i][1] = v.y;
        z->zeros[i] = K_ZERO_MOST * 0x01010101u - word_at(zeros + K_PANEL * i);
    }
}

/* Two steps begin: their products with the zero points. */
DEV void zero_sums(struct tile_zero *z, uint32_t zeros, const int first, uint32_t (*b)[2])
{
    UNROLL_LOOP
    for (int m = 0; m < 2; m++) {
        const uint32_t f[2] = { __byte_perm(zeros, 0, m ? 0x2222u : 0x0000u),
                                __byte_perm(zeros, 0, m ? 0x3333u : 0x1111u) };
        UNROLL_LOOP
        for (int i = 0; i < 4; i++)
            z->sum[m][i] = first ? 0 : z->sum[m][i];
        UNROLL_LOOP
        for (int i = 0; i < 4; i++)
            mma_s8_half(z->sum[m], z->sum[m], f, b[i / 2][i % 2]);
    }
}

/* The run's integers enter the chains. */
DEV void zero_chain(struct tile_zero *z, const uint32_t *scales)
{
    UNROLL_LOOP
    for (int m = 0; m < 2; m++) {
        float scale[2];
        halves_widen(scales[m], scale);
        UNROLL_LOOP
        for (int i = 0; i < 4; i++)
            z->acc[m][i] = fmaf((float)z->sum[m][i], scale[i / 2] * z->block[i % 2], z->acc[m][i]);
    }
}

/* The steps of a stage. */
DEV void zero_pair(struct tile_zero *z, const int per, const int half, const uint8_t *own,
                   uint32_t lane, uint32_t (*b)[2])
{
    const int run = per == 2 ? half : 0;
    zero_sums(z, z->zeros[run], per == 2 || half == 0, b);
    UNROLL_LOOP
    for (uint32_t i = 0; i < RUN_PAIR; i++) {
        uint32_t v[4];
        rows_load(v, 4, own + TILE_WEIGHTS(4) * i, lane);
        UNROLL_LOOP
        for (int m = 0; m < 2; m++) {
            const uint32_t f[4] = { k_and_xor(v[2 * m], z->nibbles, z->signs),
                                    k_and_xor(v[2 * m + 1], z->nibbles, z->signs),
                                    k_and_xor(v[2 * m] >> 4, z->nibbles, z->signs),
                                    k_and_xor(v[2 * m + 1] >> 4, z->nibbles, z->signs) };
            mma_s8(z->sum[m], f, b[i]);
        }
    }
    if (per == 2 || half == 1)
        zero_chain(z, z->scales[run]);
}

/* A block, of the two of a round: in the first or the second half of the ring. */
DEV void zero_block(const struct k_weight *w, struct tile_zero *z, const int per, const int second,
                    uint8_t *ring_own, const uint8_t *ring_scales, const uint8_t *ring_zeros,
                    uint32_t lane)
{
    const uint32_t stage = ZERO_STAGE(per), at = second ? 2 * stage : 0;
    uint8_t       *own = ring_own + at, *next = ring_own + (2 * stage - at);
    copy_wait((int)RUN_STAGES - 2);
    __syncwarp(); /* the stage is there, and the one before is done with */
    zero_copy(w, z, per, 1, second ? 2 : 0, z->left > 1, next + stage);
    copy_commit();
    UNROLL_LOOP
    for (int e = 0; e < 2; e++)
        z->block[e] = z->sa[e][second];
    run_tokens(z->b + 2, z->q + (second ? K_BLOCK : 0) + RUN_PAIR * K_STEP);
    zero_load(z, per, ring_scales + at, ring_zeros + at);
    zero_pair(z, per, 0, own, lane, z->b);
    copy_wait((int)RUN_STAGES - 2);
    __syncwarp();
    zero_copy(w, z, per, 0, second ? 3 : 1, z->left > 2, own);
    copy_commit();
    if (z->left > 1)
        run_tokens(z->b, z->q + (second ? 2 * K_BLOCK : K_BLOCK));
    zero_pair(z, per, 1, own + stage, lane, z->b + 2);
}

DEV void tile_zero_runs(const struct k_linear *a, struct tile *x, const int per, uint32_t segment,
                        uint8_t *ring)
{
    const struct k_weight *w = &a->w;
    const uint32_t         stage = ZERO_STAGE(per), lane = x->lane;
    uint64_t               k0, k1;
    struct tile_zero       z;
    segment_of(w, segment, &k0, &k1);
    z.left = (uint32_t)((k1 - k0) / K_BLOCK);
    uint8_t *own = own_address(ring + 16 * lane, lane);
    uint8_t *scales = own_address(ring + RUN_WEIGHTS + 8 * x->g, lane);
    uint8_t *zeros = own_address(ring + RUN_WEIGHTS + ZERO_SCALES(per) + 4 * x->g, lane);
    zero_source(w, x, per, k0, &z);
    UNROLL_LOOP
    for (uint32_t i = 0; i < RUN_STAGES - 1; i++) {
        zero_copy(w, &z, per, i % 2, i, i < 2 * z.left, own + i * stage);
        copy_commit();
    }
    z.weights += RUN_WEIGHTS * (RUN_STAGES - 1);
    wait_for_previous(); /* it made the activations */
    const uint64_t block = segment * (uint64_t)(w->segment / K_BLOCK);
    UNROLL_LOOP
    for (uint32_t e = 0; e < 2; e++)
        z.sa[e] = AT(const float, a->sa) + block +
                  (uint64_t)token_of(a, x->t0 + 2 * x->t + e) * a->blocks;
    z.q = AT(const uint8_t, a->q) + token_of(a, x->t0 + x->g) * a->ldq + k0 + 8 * x->t;
    run_tokens(z.b, z.q);
    UNROLL_LOOP
    for (uint32_t i = 0; i < 8; i++)
        z.acc[i / 4][i % 4] = 0.0f;
    z.nibbles = 0x0f0f0f0fu;
    z.signs = 0x90909090u; /* -K_ZERO_MOST */
    for (;;) {
        zero_block(w, &z, per, 0, own, scales, zeros, lane);
        if (z.left-- == 1)
            break;
        zero_block(w, &z, per, 1, own, scales, zeros, lane);
        if (z.left-- == 1)
            break;
        z.weights += RUN_WEIGHTS * RUN_STAGES;
        z.q += 2 * K_BLOCK;
        z.sa[0] += 2;
        z.sa[1] += 2;
    }
    UNROLL_LOOP
    for (int i = 0; i < 8; i++)
        x->acc[i / 4][0][i % 4] = z.acc[i / 4][i % 4];
    __syncwarp();
}

#endif
