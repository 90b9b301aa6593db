/* k_tile_cut.h - LINEAR on matrix units of 8 tokens: symmetric integers of 4 bits whose blocks of activations begin inside of
 * groups of weights, or whose segments end inside of a block.
 *
 * As k_tile_run.h, a loop takes a block of 128 columns.  Where a group ends inside of a block is the same in all blocks of a
 * segment, so there is a loop for each such place.  Steps past the last whole block follow after it.  Scales of activations
 * wait in shared memory.
 */
#ifndef TSR_CUDA_K_TILE_CUT_H
#define TSR_CUDA_K_TILE_CUT_H

#include "k_tile_run.h"

/* `ends`: bit i: a run ends with step i of a block; that of the last step is set.  Runs that end in half a block: */
#define CUT_IN(ends, half)                                                                         \
    (((ends) >> 2 * (uint32_t)(half)&1u) + ((ends) >> (2 * (uint32_t)(half) + 1) & 1u))
#define CUT_BEFORE(ends, i)                                                                        \
    (((i) > 0 ? (ends)&1u : 0u) + ((i) > 1 ? (ends) >> 1 & 1u : 0u) +                              \
     ((i) > 2 ? (ends) >> 2 & 1u : 0u))
#define CUT_MOST(ends) (CUT_IN(ends, 0) > CUT_IN(ends, 1) ? CUT_IN(ends, 0) : CUT_IN(ends, 1))

/* Bytes: of the scales of a group; of a stage, two steps of weights and the scales of runs that end there; of the scales past
 * the last whole block.  Behind the ring are a last step that has no other, these scales, and those of activations: F32
 * [block][8 tokens]. */
#define CUT_SCALES      (K_PANEL * 2u)
#define CUT_STAGE(ends) (RUN_WEIGHTS + CUT_MOST(ends) * CUT_SCALES)
#define CUT_LAST        (3u * CUT_SCALES)
#define CUT_ODD(ends)   (RUN_STAGES * CUT_STAGE(ends))
#define CUT_REST(ends)  (CUT_ODD(ends) + TILE_WEIGHTS(4))
#define CUT_KEPT(ends)  (CUT_REST(ends) + CUT_LAST)
#ifndef __cplusplus
_Static_assert(CUT_KEPT(13u) + K_CUT_BLOCKS * 32 <= TILE_ROOM(1), "a warp has room for its ring");
#endif

/* Where the next copies of a lane come from.  more: more than there ever are for lanes without a piece of the scales. */
struct cut_source {
    const uint8_t *weights, *scales;
    int32_t        more; /* scales are copied while more steps are left */
};

/* Starts the copies of a stage if two steps are left, and of its scales where `scales`.  The stage is `half` of the block of
 * s->scales, and `after` stages after that of s->weights.  own: 16 lane bytes into the stage. */
DEV void cut_copy(struct cut_source *s, const uint32_t ends, const int half, uint32_t after,
                  int32_t left, int scales, uint8_t *own)
{
    copy_async_two_if(own, s->weights + RUN_WEIGHTS * after, left > 1);
    if (CUT_IN(ends, half))
        copy_async_if(own + RUN_WEIGHTS, s->scales + (half ? CUT_IN(ends, 0) * CUT_SCALES : 0),
                      scales);
}

/* Step i of a block.  own: in its stage. */
DEV void cut_step(struct tile_run *r, const uint32_t ends, const int i, const uint8_t *own,
                  uint32_t lane, uint32_t (*b)[2])
{
    pair_step(r, own + TILE_WEIGHTS(4) * (uint32_t)(i % 2), lane, b[i],
              i == 0 || (ends >> (i - 1) & 1u));
}

DEV void cut_chain(struct tile_run *r, const uint8_t *halves, uint32_t lane)
{
    uint32_t scales[2];
    halves_load(scales, 2, halves, lane);
    run_chain(r, scales);
}

/* The scales of a block of activations, of the tokens of the lane's products. */
DEV void cut_scales(struct tile_run *r, const uint8_t *sa)
{
    const uint2 v = *(const uint2 *)(const void *)sa;
    r->sa[0] = __uint_as_float(v.x);
    r->sa[1] = __uint_as_float(v.y);
}

/* The steps of half a block. */
DEV void cut_pair(struct tile_run *r, const uint32_t ends, const int half, const uint8_t *own,
                  const uint8_t *halves, uint32_t lane, uint32_t (*b)[2])
{
    UNROLL_LOOP
    for (int i = 2 * half; i < 2 * half + 2; i++) {
        cut_step(r, ends, i, own, lane, b);
        if (ends >> i & 1u)
            cut_chain(r, halves + CUT_SCALES * (i % 2 && CUT_IN(ends, half) == 2 ? 1u : 0u), lane);
    }
}

/* The `left` steps past the last whole block, at most three: pairs at `own`, and at `odd` one that is left. */
DEV void cut_rest(struct tile_run *r, const uint32_t ends, uint32_t left, const uint8_t *own,
                  const uint8_t *odd, const uint8_t *halves, uint32_t lane, uint32_t (*b)[2])
{
    UNROLL_LOOP
    for (int i = 0; i < 3; i++) {
        if ((uint32_t)i >= left)
            continue;
        cut_step(r, ends, i, i == 2 || (i == 0 && left == 1) ? odd : own, lane, b);
        if (ends >> i & 1u || (uint32_t)i + 1 == left)
            cut_chain(r, halves + CUT_SCALES * CUT_BEFORE(ends, i), lane);
    }
}

/* Starts the copies of what is past the last whole block, columns [at, end): the scales, and the last step if it has no
 * other. */
DEV void cut_last(const struct k_weight *w, const struct tile *x, const uint32_t ends,
                  const uint8_t *weights, uint32_t at, uint32_t end, uint8_t *ring)
{
    const uint32_t first = at / w->group, lanes = 4 * ((end - 1) / w->group - first + 1);
    const uint32_t steps = (end - at + K_STEP - 1) / K_STEP, own = 16 * x->lane;
    const uint8_t *from =
        AT(const uint8_t, w->scales) + (x->panel * w->groups + first) * CUT_SCALES;
    copy_async_if(ring + CUT_REST(ends) + own, from + own, at < end && x->lane < lanes);
    copy_async_if(ring + CUT_ODD(ends) + own, weights + steps / 2 * RUN_WEIGHTS, steps % 2 == 1);
}

DEV void tile_cut_runs(const struct k_linear *a, struct tile *x, const uint32_t ends,
                       const uint32_t step, uint32_t segment, uint8_t *ring)
{
    const struct k_weight *w = &a->w;
    const uint32_t         stage = CUT_STAGE(ends), lane = x->lane;
    uint64_t               k0, k1;
    struct tile_run        r;
    struct cut_source      s;
    uint32_t               b[RUN_STEPS][2];
    segment_of(w, segment, &k0, &k1);
    const uint32_t steps = (uint32_t)(k1 - k0 + K_STEP - 1) / K_STEP;
    const uint64_t whole = k0 + steps / RUN_STEPS * K_BLOCK;
    /* in this block's stages; those of the one before and after it are `turn` further on */
    uint8_t *own = own_address(ring + 16 * lane, lane);
    uint8_t *halves = own_address(ring + RUN_WEIGHTS + HALVES_AT(lane), lane);
    int32_t  turn = 2 * (int32_t)stage, left = (int32_t)steps;
    s.weights = step_at(w, x->panel, k0 / K_STEP) + 16 * lane;
    s.scales = AT(const uint8_t, w->scales) +
               (x->panel * w->groups + (uint32_t)k0 / w->group) * CUT_SCALES + 16 * lane;
    s.more =
        (int32_t)shfl_u(ALL_LANES, 16 * lane < CUT_MOST(ends) * CUT_SCALES ? 7u : 1u << 30, lane);
    cut_last(w, x, ends, s.weights + steps / RUN_STEPS * RUN_STEPS * TILE_WEIGHTS(4),
             (uint32_t)whole, (uint32_t)k1, ring);
    UNROLL_LOOP
    for (uint32_t i = 0; i < RUN_STAGES - 1; i++) {
        s.scales += i == 2 ? step : 0;
        cut_copy(&s, ends, i % 2, i, left - 2 * (int32_t)i,
                 left + 4 - 4 * ((int32_t)i / 2) > s.more, own + i * stage);
        copy_commit();
    }
    s.weights += (RUN_STAGES - 1) * RUN_WEIGHTS;
    wait_for_previous(); /* it made the activations */
    tile_keep(a, x, segment, (float *)(void *)(ring + CUT_KEPT(ends)));
    const uint8_t *sa = own_address(ring + CUT_KEPT(ends) + 8 * x->t, lane);
    const uint8_t *q = AT(const uint8_t, a->q) + token_of(a, x->t0 + x->g) * a->ldq + k0 + 8 * x->t;
    if (left > 1)
        run_tokens(b, q);
    run_begin_sums(&r);
    while (left >= (int32_t)RUN_STEPS) {
        copy_wait((int)RUN_STAGES - 2);
        __syncwarp(); /* the stage is there, and the one before is done with */
        cut_copy(&s, ends, 1, 0, left - 6, left > s.more, own + turn + stage);
        copy_commit();
        left -= (int32_t)RUN_STEPS;
        s.scales += step;
        cut_scales(&r, sa);
        sa += 32;
        run_tokens(b + 2, q + RUN_PAIR * K_STEP);
        cut_pair(&r, ends, 0, own, halves, lane, b);
        copy_wait((int)RUN_STAGES - 2);
        __syncwarp();
        cut_copy(&s, ends, 0, 1, left - 4, left > s.more, own);
        copy_commit();
        s.weights += 2 * RUN_WEIGHTS;
        q += K_BLOCK;
        if (left > 1)
            run_tokens(b, q);
        cut_pair(&r, ends, 1, own + stage, halves + stage, lane, b);
        own += turn;
        halves += turn;
        turn = -turn;
    }
    if (left) {
        UNROLL_LOOP
        for (int i = 0; i < 3; i++) {
            if (i >= left || (i < 2 && left > 1))
                continue;
            const uint2 v = *(const uint2 *)(const void *)(q + K_STEP * (uint32_t)i);
            b[i][0] = v.x;
            b[i][1] = v.y;
        }
        cut_scales(&r, sa);
        copy_wait(0);
        __syncwarp();
        cut_rest(&r, ends, (uint32_t)left, own, ring + CUT_ODD(ends) + 16 * lane,
                 ring + CUT_REST(ends) + HALVES_AT(lane), lane, b);
    }
    run_end_sums(&r, x);
}

/* Which loop a segment takes. */
DEV void tile_cut(const struct k_linear *a, struct tile *x, uint32_t segment, uint8_t *ring)
{
    const struct k_weight *w = &a->w;
    const uint32_t         at = segment * w->segment % K_BLOCK;
#define CUT(ends, groups) tile_cut_runs(a, x, ends, (groups)*CUT_SCALES, segment, ring)
    if (w->groups == 1)
        CUT(8u, 0);
    else if (w->group == 2 * K_STEP && at % (2 * K_STEP))
        CUT(13u, 2);
    else if (w->group == 2 * K_STEP)
        CUT(10u, 2);
    else if (at == 0)
        CUT(8u, 1);
    else if (at == K_STEP)
        CUT(12u, 1);
    else if (at == 2 * K_STEP)
        CUT(10u, 1);
    else
        CUT(9u, 1);
#undef CUT
}

#endif
