/* k_tile_end.h - the end of a run of LINEAR on matrix units: its integers enter the lane's chains of F32, in the
 * order of docs/decisions/numerics.md, with the scales of its group and of its block of activations.
 */
#ifndef TSR_CUDA_K_TILE_END_H
#define TSR_CUDA_K_TILE_END_H

#include "k_tile_step.h"

/* TILE_LATE: loads for the run of x->group, which is not the next to end. */
DEV void late_fetch(const struct k_weight *w, struct tile *x, const int kind)
{
    x->scale_next = scale_bits(w, x->panel, x->group, x->lane);
    if (kind == (int)K_INT) {
        x->zero_next = (int32_t)zero_of(w, x->panel, x->group, x->lane);
        x->minimum_next = minimum_bits(w, x->panel, x->group, x->lane);
    }
}

DEV void late_turn(struct tile *x)
{
    x->scale = x->scale_next;
    x->minimum = x->minimum_next;
    x->zero = x->zero_next;
}

/* The scale of a row in the bytes of a stage. */
DEV float meta_scale(const uint8_t *meta, const uint32_t scales, uint32_t row)
{
    if (scales == K_SCALE_F32)
        return ((const float *)(const void *)meta)[row];
    if (scales == K_SCALE_F16)
        return k_half_factor(((const uint16_t *)(const void *)meta)[row]);
    const uint32_t b = meta[row];
    return b == 255 ? k_nan() : __uint_as_float(b ? b << 23 : 0x400000u);
}

/* The scale of a token's block is asked for a block ahead. */
DEV void block_begin(struct tile *x, const int nt, int more)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < 2 * (uint32_t)nt; i++)
        x->sa[i / 2][i % 2] = shfl_f(ALL_LANES, x->sa_next, i / 2 * 8 + 2 * x->t + i % 2);
    x->sa_at++;
    if (more)
        x->sa_next = *x->sa_at;
}

/* What a row's part of the run is multiplied with. */
struct tile_row {
    float scale, minimum, zero;
};

/* Sums of blocks of activations have room in registers for 16 tokens: blocks of 32 do not take such weights. */
DEV int has_minimums(const struct k_weight *w, const int kind, const uint32_t scales, const int nt)
{
    return scales == TILE_LATE && kind == (int)K_INT && nt <= K_TILE_MINIMUMS / 8 && w->affine;
}

/* Of row g + 8 i: from the stage, or from the lane of the row, whose own is `own`. */
DEV struct tile_row tile_row(const struct k_weight *w, const struct tile *x, const int kind,
                             const int bits, const uint32_t scales, const int even, const int nt,
                             const uint32_t i, const uint8_t *meta, const struct tile_row *own)
{
    const uint32_t  row = x->g + 8 * i;
    struct tile_row r = { x->unit[i], 0.0f, 0.0f };
    if (scales == TILE_NONE)
        return r;
    if (scales == TILE_LATE) {
        r.scale = shfl_f(ALL_LANES, own->scale, row);
        if (kind == (int)K_INT)
            r.zero = shfl_f(ALL_LANES, own->zero, row);
        if (has_minimums(w, kind, scales, nt))
            r.minimum = shfl_f(ALL_LANES, own->minimum, row);
        return r;
    }
    const float s = meta_scale(meta, scales, row);
    r.scale = kind == (int)K_INT ? s : s * x->unit[i];
    if (kind == (int)K_INT && !even)
        r.zero = (float)((int32_t)(w->zeros ? meta[TILE_SCALES(scales) + row] : w->mid) -
                         tile_offset(bits));
    return r;
}

/* The run's integers enter the chains; with minimums those of the block of activations, which enter the others
 * at its end. */
DEV void tile_chain(const struct k_weight *w, struct tile *x, const int kind, const int bits,
                    const uint32_t scales, const int even, const int nt, const uint8_t *meta,
                    int block_ends)
{
    const int       minimums = has_minimums(w, kind, scales, nt);
    struct tile_row own = { 0.0f, 0.0f, 0.0f };
    float           ones[4][2] = { { 0.0f } };
    if (scales == TILE_LATE) {
        own.scale = scale_from(w, x->scale, x->panel, x->group, x->lane);
        own.scale = kind == (int)K_INT ? own.scale : own.scale * x->unit[0];
        if (kind == (int)K_INT) {
            own.zero = (float)(x->zero - tile_offset(bits));
            if (minimums)
                own.minimum = minimum_from(w, x->minimum, x->panel, x->group, x->lane);
        }
    }
    UNROLL_LOOP
    for (int i = 0; i < 4 * nt && !even; i++) {
        if (i % 4 < 2)
            ones[i / 4][i % 4] = __uint_as_float((uint32_t)x->ones[i / 4][i % 4]) - TILE_NULL_FLOAT;
        x->ones[i / 4][i % 4] = TILE_NULL;
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        const struct tile_row r = tile_row(w, x, kind, bits, scales, even, nt, i, meta, &own);
        UNROLL_LOOP
        for (uint32_t j = 0; j < 2 * (uint32_t)nt; j++) {
            const uint32_t n = j / 2, e = j % 2;
            int32_t       *sum = &x->sum[i / 2][n][i % 2 * 2 + e];
            float         *acc = &x->acc[i / 2][n][i % 2 * 2 + e];
            /* exact, as all below 2^24 */
            float v = __uint_as_float((uint32_t)*sum);
            v = kind == (int)K_INT && bits == 4 ? fmaf(v, 0.0625f, TILE_NULL_FLOAT * -0.0625f)
                                                : v - TILE_NULL_FLOAT;
            if (kind == (int)K_INT && !even)
                v = fmaf(-r.zero, ones[n][e], v);
            *sum = TILE_NULL;
            if (!minimums) {
                *acc = fmaf(v, r.scale * x->sa[n][e], *acc);
                continue;
            }
            float *block = &x->block[i / 2][n][i % 2 * 2 + e];
            *block = fmaf(ones[n][e], r.minimum, fmaf(v, r.scale, *block));
            if (block_ends) {
                *acc = fmaf(*block, x->sa[n][e], *acc);
                *block = 0.0f;
            }
        }
    }
}

DEV void tile_end(const struct k_weight *w, struct tile *x, const int kind, const int bits,
                  const uint32_t scales, const int nt, const uint8_t *meta, int block_ends)
{
    if (kind != (int)K_INT || x->even)
        tile_chain(w, x, kind, bits, scales, 1, nt, meta, block_ends);
    else
        tile_chain(w, x, kind, bits, scales, 0, nt, meta, block_ends);
}

#endif
