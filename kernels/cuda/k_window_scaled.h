/* k_window_scaled.h - the codes of `int4_bf16` in a window: a run is eight columns, so one or two words.  Outliers have BF16s
 * after the codes, by row and column, and a code that nobody reads.  Factors are lists of this device, by column, which
 * window_lists.c makes of a codec's.
 *
 * Reference: core/comm/coder_sum.c (tsr_comm_tree) with codec `int4_bf16`; held to its bytes by tests/nccl/test_window.c.
 */
#ifndef TSR_CUDA_K_WINDOW_SCALED_H
#define TSR_CUDA_K_WINDOW_SCALED_H

#include "k_scaled.h"
#include "k_window_run.h"

/* Outlier i of a row in a window. */
DEV uint16_t *outlier_of(const struct k_window *a, uint32_t rank, uint32_t row, uint32_t i)
{
    return AT(uint16_t, a->window[rank] + a->half + a->codes) + (row * a->scaled.outliers + i);
}

/* The marks of columns 4 h and on, which come first. */
DEV uint32_t marks_from(uint32_t mark, uint32_t h)
{
    return h ? ((mark >> 8) + (uint32_t)__popc(mark & 0xfu)) << 8 | (mark >> 4 & 0xfu) : mark;
}

/* Columns 4 h and on of a run to this rank's window; mark: of these.  is_sum: of its slice. */
DEV void scaled_code_four(const struct k_window *a, const struct walk *w, uint32_t h, uint32_t mark,
                          uint32_t is_sum, const float v[4])
{
    const uint64_t inv = is_sum ? a->scaled.inv_sum : a->scaled.inv;
    const float4   f = AT(const float4, inv)[2 * w->col + h];
    const float    four[4] = { f.x, f.y, f.z, f.w };
    const uint32_t at = 2 * (w->row * a->runs + w->col) + h;
    const uint64_t codes = a->window[a->rank] + a->half;
    uint16_t      *outlier = outlier_of(a, a->rank, w->row, mark >> 8);
    uint32_t       q = 0;
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        if (mark >> i & 1)
            *outlier++ = (uint16_t)(__float_as_uint(k_round_bf16(v[i])) >> 16);
        q |= scaled_code(v[i], four[i], a->scaled.most) << 4 * a->words * i;
    }
    if (a->words == 2)
        AT(uint32_t, codes)[at] = q;
    else
        AT(uint16_t, codes)[at] = (uint16_t)q;
}

/* A share's runs, coded, to this rank's window.  is_sum: of its slice; else but for it. */
DEV void scaled_put(const struct k_window *a, const struct share *s, uint32_t is_sum)
{
    const uint32_t rows = (uint32_t)a->rows;
    for (struct walk w = walk_of(s); w.row < rows; walk_on(&w, s)) {
        const uint32_t n = eight_columns(a, w.col);
        const uint32_t mark = AT(const uint32_t, is_sum ? a->scaled.sums : a->scaled.marks)[w.col];
        if (!is_sum && is_own(a, w.col))
            continue;
        UNROLL_NOT
        for (uint32_t h = 0; 4 * h < n; h++) {
            float v[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
            x_get(place_of(a, &w, 8) + 4 * h, a->wide, n - 4 * h < 4 ? n - 4 * h : 4, v);
            scaled_code_four(a, &w, h, marks_from(mark, h), is_sum, v);
        }
    }
}

/* The word with the codes of columns 4 h and on of a run, at its low end. */
DEV uint32_t scaled_word(const struct k_window *a, uint32_t rank, uint32_t at, uint32_t h)
{
    const uint32_t *codes = AT(const uint32_t, a->window[rank] + a->half);
    return a->words == 2 ? codes[2 * at + h] : codes[at] >> 16 * h;
}

/* Four columns from their codes, factors and outliers: those of the bits of `mark`, the first of which is *outlier. */
DEV void scaled_four(const struct k_window *a, uint32_t q, const float4 *factor, uint32_t mark,
                     const uint16_t *outlier, float v[4])
{
    const float4   f = *factor;
    const float    four[4] = { f.x, f.y, f.z, f.w };
    const uint32_t bits = 4 * a->words, mask = (1u << bits) - 1;
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = scaled_value(q >> bits * i & mask, a->scaled.most, four[i]);
        if (mark >> i & 1)
            v[i] = k_bf16(*outlier++);
    }
}

/* Columns 4 h and on of a run; is_raw: this rank's numbers as they are, else its codes. */
struct four {
    const struct k_window *a;
    uint32_t               is_raw;
    uint32_t               row, col, h, mark;
};

DEV void four_add(float v[4], const float u[4])
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++)
        v[i] += u[i];
}

/* Their place is computed again, which takes fewer registers than to keep it. */
DEV void raw_get(const struct four *t, float v[4])
{
    const struct walk w = { t->row, t->col, 0, 0 };
    const uint32_t    n = eight_columns(t->a, t->col) - 4 * t->h;
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++)
        v[i] = 0.0f;
    x_get(place_of(t->a, &w, 8) + 4 * t->h, t->a->wide, n < 4 ? n : 4, v);
}

/* What rank k adds, whose word is q. */
DEV void scaled_one(const struct four *t, uint32_t k, uint32_t q, float v[4])
{
    const struct k_window *a = t->a;
    if (t->is_raw && k == a->rank) {
        raw_get(t, v);
        return;
    }
    scaled_four(a, q, AT(const float4, a->scaled.scale) + (k * a->runs + t->col) * 2 + t->h,
                t->mark & 0xfu, outlier_of(a, k, t->row, t->mark >> 8), v);
}

DEV void scaled_pair(const struct four *t, uint32_t k, const uint32_t q[2], float v[4])
{
    float u[4];
    scaled_one(t, k, q[0], v);
    if (k + 1 >= t->a->ranks)
        return;
    scaled_one(t, k + 1, q[1], u);
    four_add(v, u);
}

/* A half of the tree; its words are read at once. */
DEV void scaled_half(const struct four *t, uint32_t k, float v[4])
{
    uint32_t q[4];
    float    u[4];
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++)
        if (k + i < t->a->ranks)
            q[i] = scaled_word(t->a, k + i, t->row * t->a->runs + t->col, t->h);
    scaled_pair(t, k, q, v);
    if (k + 2 >= t->a->ranks)
        return;
    scaled_pair(t, k + 2, q + 2, u);
    four_add(v, u);
}

DEV void scaled_sum(const struct k_window *a, const struct walk *w, uint32_t h, uint32_t mark,
                    uint32_t is_raw, float v[4])
{
    const struct four t = { a, is_raw, w->row, w->col, h, mark };
    float             u[4];
    scaled_half(&t, 0, v);
    if (a->ranks <= 4)
        return;
    scaled_half(&t, 4, u);
    four_add(v, u);
}

/* The sum that a run's owner has coded. */
DEV void scaled_take(const struct k_window *a, const struct walk *w, uint32_t h, uint32_t mark,
                     float v[4])
{
    const uint32_t  owner = owner_of(a, w->col);
    const float4   *f = AT(const float4, a->scaled.scale_sum) + 2 * w->col + h;
    const uint16_t *outlier = outlier_of(a, owner, w->row, mark >> 8);
    scaled_four(a, scaled_word(a, owner, w->row * a->runs + w->col, h), f, mark & 0xfu, outlier, v);
}

/* This rank's slice of a share: the sum, coded, to its window.  It passes through x, which nobody else reads there, so that
 * registers hold four columns of it and not eight. */
DEV void scaled_reduce(const struct k_window *a, const struct share *share)
{
    const struct share s = own_of(a, share);
    const uint32_t     rows = (uint32_t)a->rows;
    for (struct walk w = walk_of(&s); w.row < rows; walk_on(&w, &s)) {
        const uint32_t n = eight_columns(a, w.col);
        const uint32_t mark = AT(const uint32_t, a->scaled.marks)[w.col];
        UNROLL_NOT
        for (uint32_t h = 0; 4 * h < n; h++) {
            float v[4];
            scaled_sum(a, &w, h, marks_from(mark, h), 1, v);
            x_put(place_of(a, &w, 8) + 4 * h, a->wide, n - 4 * h < 4 ? n - 4 * h : 4, v);
        }
    }
    scaled_put(a, &s, 1); /* by the same threads */
}

/* The sum of a share's runs: from the windows of all ranks, or of those that have added them. */
DEV void scaled_add(const struct k_window *a, const struct share *s)
{
    const uint32_t rows = (uint32_t)a->rows;
    for (struct walk w = walk_of(s); w.row < rows; walk_on(&w, s)) {
        const uint32_t mark =
            AT(const uint32_t, a->slices ? a->scaled.sums : a->scaled.marks)[w.col];
        const uint32_t n = eight_columns(a, w.col);
        UNROLL_NOT
        for (uint32_t h = 0; 4 * h < n; h++) {
            float v[4];
            if (a->slices)
                scaled_take(a, &w, h, marks_from(mark, h), v);
            else
                scaled_sum(a, &w, h, marks_from(mark, h), 0, v);
            four_put(a, &w, 8 * w.col + 4 * h, n - 4 * h, v);
        }
    }
}

#endif
