/* k_tile_gemm.h - LINEAR with int8 activations on matrix units, of many tokens: a block takes four panels and
 * 128 tokens, a warp a panel and 32 of them, through all segments one after the other.
 *
 * Weights and activations of a step are copied once for the block: each is then used by four warps, where blocks of
 * k_tiles.h ask the second-level cache for them again.  A segment's chains wait in shared memory for the other half
 * of their pair, four and eight.  What it has to do at the end of a run makes it slower than k_tiles.h for groups
 * below 128 columns, and for tables (docs/lab/gpu).
 */
#ifndef TSR_CUDA_K_TILE_GEMM_H
#define TSR_CUDA_K_TILE_GEMM_H

#include "k_tiles.h"

#define BLOCK_PANELS  4u
#define BLOCK_TOKENS  128u
#define BLOCK_NT      4 /* tiles of 8 tokens of a warp */
#define BLOCK_THREADS 512u
#define BLOCK_EACH    (8u * BLOCK_NT)                        /* tokens of a warp */
#define BLOCK_KEPT    (8u * BLOCK_NT)                        /* chains of a thread */
#define BLOCK_TREE    (3u * BLOCK_KEPT * BLOCK_THREADS * 4u) /* bytes: then the ring follows */
#define BLOCK_BYTES   (K_BLOCK_SHARED - BLOCK_TREE)

/* A step: the panels' weights, the tokens, the panels' scales and zero points. */
#define BLOCK_META(kind, bits) (BLOCK_PANELS * TILE_WEIGHTS(bits) + 32u * BLOCK_TOKENS)
#define BLOCK_STEP(kind, bits, scales)                                                             \
    (BLOCK_META(kind, bits) + BLOCK_PANELS * TILE_META(kind, scales))

/* What a thread copies of each step: 16 bytes of weights, of a token, and of what ends a run. */
struct block_source {
    const uint8_t *weights, *q, *meta;
    uint32_t       weights_to, q_to, meta_to, meta_step, group_left;
    int            has_weights, has_q, has_meta;
};

DEV uint64_t block_panel(const struct k_weight *w, uint32_t first, uint32_t i)
{
    const uint64_t last = (w->rows - 1) / K_PANEL, panel = (uint64_t)first + i;
    return panel < last ? panel : last; /* rows past the end are dropped later */
}

/* The second half of the threads; the first one and, of 8 bits, some of these copy weights. */
DEV int block_copies_q(void)
{
    return threadIdx.x >= 256 && threadIdx.x < 256 + 2 * BLOCK_TOKENS;
}

DEV void block_begin_copies(const struct k_linear *a, uint32_t first, const int kind,
                            const int bits, const uint32_t scales, struct block_source *s)
{
    const struct k_weight *w = &a->w;
    const uint32_t         t = threadIdx.x, pieces = 8 * (uint32_t)bits;
    const uint32_t         piece = t % pieces, panel = t / pieces;
    s->has_weights = panel < BLOCK_PANELS;
    s->weights = step_at(w, block_panel(w, first, panel % BLOCK_PANELS), 0) + 16 * piece;
    s->weights_to = panel * TILE_WEIGHTS(bits) + 16 * piece;
    const uint32_t token = t % 256 / 2, half = t % 2, at = blockIdx.y * BLOCK_TOKENS + token;
    s->has_q = block_copies_q() && at < a->tokens;
    s->q = AT(const uint8_t, a->q) + token_of(a, at) * a->ldq + 16 * half;
    s->q_to = BLOCK_PANELS * TILE_WEIGHTS(bits) + token / BLOCK_EACH * BLOCK_EACH * 32 +
              token_place(bits, BLOCK_NT, token % BLOCK_EACH, half);
    /* of the last 128 threads, which copy nothing else */
    const uint32_t     lanes = TILE_META(kind, scales) / 16, mine = t - 384;
    const uint32_t     of = lanes && t >= 384 ? mine / lanes : BLOCK_PANELS;
    struct tile_source m;
    s->has_meta = 0;
    s->meta = AT(const uint8_t, w->scales);
    s->meta_to = s->meta_step = 0;
    if (of >= BLOCK_PANELS)
        return;
    meta_begin(w, block_panel(w, first, of), 0, kind, bits, scales, BLOCK_NT, mine % lanes, &m);
    s->has_meta = m.meta_there;
    s->meta = m.meta;
    s->meta_step = m.meta_step;
    s->meta_to = BLOCK_META(kind, bits) + TILE_META(kind, scales) * of + 16 * (mine % lanes);
}

/* Starts the copies of the next step. */
DEV void block_copy(const struct k_weight *w, struct block_source *s, const int bits,
                    const uint32_t scales, uint8_t *step)
{
    if (s->has_weights)
        copy_async(step + s->weights_to, s->weights);
    if (s->has_q)
        copy_async(step + s->q_to, s->q);
    s->weights += 128 * (uint32_t)bits;
    s->q += K_STEP;
    if (!TILE_SCALES(scales))
        return;
    if (s->has_meta)
        copy_async(step + s->meta_to, s->meta);
    s->group_left -= K_STEP;
    s->meta += s->group_left ? 0 : s->meta_step;
    s->group_left = s->group_left ? s->group_left : w->group;
}

/* The chains that wait, as in struct gemm_tree: chain i of this thread in one of three levels. */
DEV float *block_tree(float *tree, uint32_t level, uint32_t i)
{
    return tree + (level * BLOCK_KEPT + i) * BLOCK_THREADS + threadIdx.x;
}

DEV void block_add(float *tree, struct tile *x, uint32_t segment)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < BLOCK_KEPT; i++) {
        float *acc = &x->acc[i / 4 / BLOCK_NT][i / 4 % BLOCK_NT][i % 4];
        (void)tree_add(block_tree(tree, 0, i), block_tree(tree, 1, i), block_tree(tree, 2, i),
                       segment, *acc);
        *acc = 0.0f;
    }
}

DEV void block_store(const struct k_linear *a, float *tree, const struct tile *x)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < BLOCK_KEPT; i++) {
        const uint64_t row = x->panel * K_PANEL + x->g + 8 * (i / 4 / BLOCK_NT * 2 + i % 4 / 2);
        const uint32_t token = x->t0 + 8 * (i / 4 % BLOCK_NT) + 2 * x->t + i % 2;
        if (row < a->w.rows && token < a->tokens)
            put_out(a, token, row, *block_tree(tree, 2, i) + 0.0f); /* as k_tree8() */
    }
}

/* Where a loop over all columns stands. */
struct block_place {
    uint32_t segment, done, cols, group_left; /* columns of the segment, of the group */
};

/* Uses a step; what ends with it is ended. */
DEV void block_step(const struct k_linear *a, struct tile *x, float *tree, struct block_place *at,
                    const int kind, const int bits, const uint32_t scales, const uint8_t *step)
{
    const struct k_weight *w = &a->w;
    const uint32_t         warp = x->panel % BLOCK_PANELS, part = x->t0 % BLOCK_TOKENS;
    uint32_t               c[4][2], b[4][2];
    const uint8_t         *p = step + warp * TILE_WEIGHTS(bits);
    tile_bytes(w, x, p, p + 16 * x->lane, kind, bits, c);
    tile_tokens(x, bits, BLOCK_NT,
                step + BLOCK_PANELS * TILE_WEIGHTS(bits) + 32 * part + TILE_OWN(bits) * x->lane, b);
    tile_add(x, kind, bits, BLOCK_NT, c, b, -1);
    at->done += K_STEP;
    at->group_left -= K_STEP;
    const int segment_ends = at->done >= at->cols;
    const int block_ends = at->done % K_BLOCK == 0 || segment_ends;
    const int group_ends = scales != TILE_NONE && at->group_left == 0;
    if (!block_ends && !group_ends)
        return;
    tile_end(w, x, kind, bits, scales, BLOCK_NT,
             step + BLOCK_META(kind, bits) + warp * TILE_META(kind, scales), block_ends);
    at->group_left = at->group_left ? at->group_left : w->group;
    const uint64_t next = (uint64_t)at->segment * w->segment + at->done; /* column */
    if (block_ends && next < w->cols) {
        const uint32_t left = segment_ends ? w->segment : at->cols - at->done;
        block_begin(x, BLOCK_NT, next + (left < K_BLOCK ? left : K_BLOCK) < w->cols);
    }
    if (!segment_ends)
        return;
    block_add(tree, x, at->segment++);
    at->done = 0;
    at->cols = w->cols - next < w->segment ? (uint32_t)(w->cols - next) : w->segment;
}

/* first: the block's first panel. */
DEV void block_linear(const struct k_linear *a, uint32_t first, const int kind, const int bits,
                      const uint32_t scales, uint4 *shared)
{
    const struct k_weight *w = &a->w;
    float                 *tree = (float *)(void *)shared;
    uint8_t               *ring = (uint8_t *)shared + BLOCK_TREE;
    const uint32_t         stage = BLOCK_STEP(kind, bits, scales);
    const uint32_t         stages = BLOCK_BYTES / stage < 6 ? BLOCK_BYTES / stage : 6;
    const uint32_t         warp = shfl_u(ALL_LANES, threadIdx.x / WARP, 0);
    const uint32_t         n = (uint32_t)steps_of(w);
    uint32_t               from = 0, to = stage * (stages - 1);
    struct tile            x;
    struct block_source    s;
    struct block_place     at = { 0, 0, w->segment, w->group };
    const uint4            none = { 0, 0, 0, 0 };
    x.lane = threadIdx.x % WARP;
    x.g = x.lane / 4;
    x.t = x.lane % 4;
    x.panel = (uint64_t)first + warp % BLOCK_PANELS;
    x.t0 = blockIdx.y * BLOCK_TOKENS + warp / BLOCK_PANELS * BLOCK_EACH;
    at.cols = w->cols < w->segment ? (uint32_t)w->cols : w->segment;
    tile_clear(&x, BLOCK_NT);
    block_begin_copies(a, first, kind, bits, scales, &s);
    s.group_left = w->group;
    if (block_copies_q() && !s.has_q) /* as source_clear() */
        for (uint32_t i = 0; i < stages; i++)
            *(uint4 *)(void *)(ring + i * stage + s.q_to) = none;
    UNROLL_LOOP
    for (uint32_t i = 0; i + 1 < stages; i++) {
        if (i < n)
            block_copy(w, &s, bits, scales, ring + i * stage);
        copy_commit();
    }
    tile_begin(a, &x, kind, bits, scales, block_panel(w, first, warp % BLOCK_PANELS), 0, BLOCK_NT,
               (at.cols < K_BLOCK ? at.cols : K_BLOCK) < w->cols);
    for (uint32_t i = 0; i < n; i++) {
        copy_wait((int)stages - 2);
        __syncthreads(); /* the step is there, and the one before is done with */
        if (i + stages - 1 < n)
            block_copy(w, &s, bits, scales, ring + to);
        copy_commit();
        block_step(a, &x, tree, &at, kind, bits, scales, ring + from);
        from = from + stage == stage * stages ? 0 : from + stage;
        to = to + stage == stage * stages ? 0 : to + stage;
    }
    while (at.segment < K_SEGMENTS) /* there are none */
        block_add(tree, &x, at.segment++);
    block_store(a, tree, &x);
}

#endif
