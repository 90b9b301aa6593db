/* k_window_mx.h - the codes of `mx` in a window: a run is eight columns, so one or two words, and the lanes of a warp that
 * have a block's runs find its largest magnitude together.  Scales are there as factors, whatever their bits on a wire.
 *
 * Reference: core/comm/coder_sum.c (tsr_comm_tree) with codec `mx`; held to its bytes by tests/nccl/test_window.c.
 */
#ifndef TSR_CUDA_K_WINDOW_MX_H
#define TSR_CUDA_K_WINDOW_MX_H

#include "k_mx.h"
#include "k_window_run.h"

/* The factors of a half. */
DEV uint64_t mx_factors(const struct k_window *a)
{
    return a->half + a->codes;
}

/* The bits of the largest magnitude of a block, in all its lanes; NaN and infinities are the largest. */
DEV uint32_t mx_top(const struct k_window *a, const float *v)
{
    uint32_t top = 0;
    UNROLL_LOOP
    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t m = __float_as_uint(v[k]) & 0x7fffffffu;
        top = m > top ? m : top;
    }
    for (uint32_t lane = 1; lane < a->lanes; lane *= 2) {
        const uint32_t m = shfl_xor_u(ALL_LANES, top, lane);
        top = m > top ? m : top;
    }
    return top;
}

/* A run's numbers, zeros after its n columns, to this rank's window if is_there.  All lanes of the warp come here. */
DEV void mx_code_run(const struct k_window *a, const struct walk *w, const float *v, int is_there)
{
    const uint32_t at = w->row * a->runs + w->col, none = 2 * (uint32_t)a->mx.lim + 1;
    const uint32_t scale = mx_scale(&a->mx, mx_top(a, v));
    const float    up = mx_pow2(a->mx.lim - (int32_t)scale);
    uint64_t       q = 0;
    UNROLL_LOOP
    for (uint32_t k = 0; k < 8; k++)
        if (scale != none)
            q |= (uint64_t)mx_code(&a->mx, v[k] * up) << 4 * a->words * k;
    if (!is_there)
        return;
    eight_codes_put(a, at, q);
    float *factors = AT(float, a->window[a->rank] + mx_factors(a));
    if ((w->col & (a->lanes - 1)) == 0)
        factors[at >> a->log2_lanes] = mx_factor(&a->mx, scale);
}

/* A share's runs that other ranks add, coded, to this rank's window. */
DEV void mx_put(const struct k_window *a, const struct share *s)
{
    const uint32_t rows = (uint32_t)a->rows;
    for (struct walk w = walk_of(s); __any_sync(ALL_LANES, w.row < rows); walk_on(&w, s)) {
        const uint32_t n = w.row < rows ? eight_columns(a, w.col) : 0;
        float          v[8];
        eight_get(a, place_of(a, &w, 8), n, v);
        mx_code_run(a, &w, v, w.row < rows && !is_own(a, w.col));
    }
}

/* What ranks from `first` on, four at most, add to v: the left half of the tree, or its right one.  Four at once, since
 * the codes of eight ranks take more registers than a block of 1024 threads has.  own: this rank's n numbers as they are,
 * or 0: its codes. */
DEV void mx_add_four(const struct k_window *a, uint32_t first, uint32_t at, const float *own,
                     uint32_t n, float v[8])
{
    const uint32_t ranks = a->ranks - first < 4 ? a->ranks - first : 4;
    const uint64_t factors = mx_factors(a);
    uint2          q[4];
    float          factor[4];
    UNROLL_LOOP
    for (uint32_t k = 0; k < 4; k++) {
        if (k >= ranks)
            continue;
        factor[k] = AT(const float, a->window[first + k] + factors)[at >> a->log2_lanes];
        q[k] = eight_codes(a, first + k, at);
    }
    UNROLL_LOOP
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t m = n < 4 * h ? 0 : n - 4 * h;
        float          u[4][4];
        UNROLL_LOOP
        for (uint32_t k = 0; k < 4; k++) {
            UNROLL_LOOP
            for (uint32_t i = 0; i < 4; i++)
                if (k < ranks)
                    u[k][i] = mx_value(&a->mx, eight_code_at(a, &q[k], h, i)) * factor[k];
            if (own && first + k == a->rank)
                x_get(own + 4 * h, a->wide && m >= 4, m, u[k]);
            tree_on(u, k, ranks, 4);
        }
        UNROLL_LOOP
        for (uint32_t i = 0; i < 4; i++)
            v[4 * h + i] = first ? v[4 * h + i] + u[0][i] : u[0][i];
    }
}

/* The sum that a run's owner has coded. */
DEV void mx_take(const struct k_window *a, const struct walk *w, float v[8])
{
    const uint32_t at = w->row * a->runs + w->col;
    const uint32_t owner = owner_of(a, w->col);
    const float    factor = AT(const float, a->window[owner] + mx_factors(a))[at >> a->log2_lanes];
    const uint2    q = eight_codes(a, owner, at);
    UNROLL_LOOP
    for (uint32_t k = 0; k < 8; k++)
        v[k] = mx_value(&a->mx, eight_code_at(a, &q, k / 4, k % 4)) * factor;
}

DEV void mx_sum(const struct k_window *a, const struct walk *w, const float *own, uint32_t n,
                float v[8])
{
    UNROLL_LOOP
    for (uint32_t first = 0; first < K_WINDOW_RANKS; first += 4)
        if (first < a->ranks)
            mx_add_four(a, first, w->row * a->runs + w->col, own, n, v);
}

/* This rank's slice of a share: the sum, coded, to its window. */
DEV void mx_reduce(const struct k_window *a, const struct share *share)
{
    const struct share s = own_of(a, share);
    const uint32_t     rows = (uint32_t)a->rows;
    for (struct walk w = walk_of(&s); __any_sync(ALL_LANES, w.row < rows); walk_on(&w, &s)) {
        const uint32_t n = w.row < rows ? eight_columns(a, w.col) : 0;
        float          v[8] = { 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f };
        if (n)
            mx_sum(a, &w, place_of(a, &w, 8), n, v);
        UNROLL_LOOP
        for (uint32_t k = 0; k < 8; k++)
            v[k] = k < n ? v[k] : 0.0f;
        mx_code_run(a, &w, v, w.row < rows);
    }
}

/* The sum of a share's runs: from the windows of all ranks, or of those that have added them. */
DEV void mx_add(const struct k_window *a, const struct share *s)
{
    const uint32_t rows = (uint32_t)a->rows;
    for (struct walk w = walk_of(s); w.row < rows; walk_on(&w, s)) {
        const uint32_t n = eight_columns(a, w.col);
        float          v[8];
        if (n == 0)
            continue;
        if (a->slices)
            mx_take(a, &w, v);
        else
            mx_sum(a, &w, 0, 0, v);
        UNROLL_LOOP
        for (uint32_t h = 0; h < 8; h += 4)
            if (h < n)
                four_put(a, &w, 8 * w.col + h, n - h, v + h);
    }
}

#endif
